/* SPDX-License-Identifier: Apache-2.0
 * A network in an engine, wired to the world: gradients travel in libhvd's buckets, and with them, at no extra message,
 * what the ranks have to tell each other once a step. */
#ifndef LEARN_MODEL_H
#define LEARN_MODEL_H

#include "engine/engine.h"
#include "learn/checkpoint.h"
#include "learn/world.h"

/* A network as plain data, so that it can be broadcast. */
struct network {
	char model[32];
	int image_size, classes;
	int growth, init_channels;
	int n_blocks, block[NET_MAX_BLOCKS];
};
struct network network_of(const struct net_conf *conf);
struct net_conf network_conf(const struct network *n); /* borrows the name */

enum engine_choice { CHOOSE_AUTO, CHOOSE_CPU, CHOOSE_REFERENCE, CHOOSE_CUDA };

/* What a rank says to all with its gradients; a signal is seen by every rank after the same step. */
enum signal_kind {
	SIGNAL_ERROR, /* exit code of a rank that cannot go on */
	SIGNAL_STOP,  /* asked to save and stop */
	SIGNALS
};

struct model_conf {
	struct network network;
	enum engine_choice engine;
	enum precision precision;
	enum optimizer optimizer;
	enum loss_kind loss;
	double beta1, weight_decay;
	const float *pos_weight; /* [classes] or NULL */
	double loss_scale;       /* 0: the engine's default */
	int scale_patience;      /* as in engine.h */
	int batch, source_size, threads;
	size_t bucket_bytes;     /* 0: the runtime's default */
	int train;               /* with gradients and buckets */
};

struct model {
	struct world *world;
	struct net_plan plan;
	struct engine_layout layout;
	struct hvd_plan *buckets;  /* NULL without training */
	struct engine *engine;
	enum engine_kind kind;
	struct error engine_error; /* where the engine puts its reasons */
	int batch;                 /* images in a micro-batch */
	uint64_t step_base;        /* the step that the engine was told last */
	double exposed;            /* seconds of the last step that waited for communication */
	float *signals;            /* in the slab, after statistics and loss */
	int apart;                 /* the slab is a GPU's, or none is needed: signals travel in a message of their own */
	float own[SIGNALS];        /* what this rank says in the next step */
	float heard[SIGNALS];      /* sum over all ranks in the last step */
};

/* Collective. auto: CUDA when every rank has a GPU and a driver, CPU when none has; anything else is an error that names the
 * ranks. */
int model_choose_engine(const struct world *w, enum engine_choice choice, enum engine_kind *kind, struct error *e);

/* For world_open(). */
static inline int model_on_cpu(int choice)
{
	return choice == CHOOSE_CPU || choice == CHOOSE_REFERENCE;
}

/* Why `auto` became the CPU, or libhvd's `auto` host memory, for the line that a fallback owes its user; NULL where there is nothing to say. */
const char *model_fallback(const struct world *w, enum engine_choice choice);

/* Collective; errors are agreed. */
int model_open(struct model *m, struct world *w, const struct model_conf *conf, struct error *e);
void model_close(struct model *m);

/* Threads to decode images with, unless an option says: beside a GPU this rank's share of the CPUs, beside CPUs that compute few. */
int model_decode_threads(const struct model *m);

/* engine_train() with the reason of a failure in *e, be it the engine's or the world's. */
int model_train(struct model *m, const struct engine_batch *batch, int micro, int micros, double lr, uint64_t *token, struct error *e);

/* The engine's failure as an error of ours. */
int model_fail(const struct model *m, struct error *e);

/* Between the engine and arrays in table order; moments where they are not NULL. */
int model_put(struct model *m, const struct model_values *v, struct error *e);
int model_get(struct model *m, struct model_values *v, struct error *e);

/* The optimiser's place between the engine and a checkpoint's notes: steps made, loss scale, steps skipped. */
int model_put_steps(struct model *m, const struct checkpoint_notes *at, struct error *e);
int model_get_steps(struct model *m, struct checkpoint_notes *at, struct error *e);

/* Before hvd_recover(): *step, as the program counted, becomes the step whose weights the engine holds, and it lets go of whatever belongs to the
 * world that lost a rank. */
int model_settle(struct model *m, uint64_t *step, struct error *e);

/* Collective: the values of rank `root` to all; then all are checked to hold the same bits. */
int model_share(const struct model *m, int root, struct model_values *v, struct error *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * What an engine implements. engine.c checks arguments, so an implementation is called with values that make sense. */
#ifndef ENGINE_BACKEND_H
#define ENGINE_BACKEND_H

#include "engine/engine.h"

struct engine_ops {
	void (*close)(struct engine *engine);
	int (*put)(struct engine *engine, enum engine_what what, size_t offset, const float *values, size_t count);
	int (*get)(struct engine *engine, enum engine_what what, size_t offset, float *values, size_t count);
	int (*set_step)(struct engine *engine, uint64_t step);
	int (*train)(struct engine *engine, const struct engine_batch *batch, int micro, int micros, double lr, uint64_t *token);
	int (*backward)(struct engine *engine, const struct engine_batch *batch);
	int (*forward)(struct engine *engine, const struct engine_batch *batch, float *logits, float *features, uint64_t *token);
	int (*done)(struct engine *engine, uint64_t token, int wait);
	int (*loss)(struct engine *engine, double *loss);
	int (*tap)(struct engine *engine, int index, int gradient, float *values);
	int (*get_scale)(struct engine *engine, struct engine_scale *scale); /* both NULL: gradients are never scaled */
	int (*set_scale)(struct engine *engine, const struct engine_scale *scale);
	int (*keep)(struct engine *engine, size_t total, size_t first, const uint8_t *pixels, size_t count); /* NULL: images are fed, always */
	int (*made)(struct engine *engine, uint64_t *steps);                                                /* NULL: a step is made before train() returns */
};

/* The head of every implementation's own struct. */
struct engine {
	const struct engine_ops *ops;
	struct engine_conf conf;
	struct error *error;
	size_t memory;          /* bytes allocated by open */
	size_t kept;            /* images that batches may name */
	uint64_t skipped;       /* as set: where gradients are never scaled, no step is skipped any more */
	char description[160];
};

int engine_reference_open(struct engine **engine, const struct engine_conf *conf, struct error *e);
int engine_cpu_open(struct engine **engine, const struct engine_conf *conf, struct error *e);
/* In libchexnet_cuda.so, loaded at run time; an error that names the cure where it is not there. */
int engine_cuda_open(struct engine **engine, const struct engine_conf *conf, struct error *e);

int engine_cuda_plan(const struct engine_conf *conf, const char *gpu, int ask_cudnn, struct engine_room *room, struct error *e);

/* Zeroed, 64-byte aligned, counted in engine->memory. NULL with engine->error set. */
void *engine_alloc(struct engine *engine, size_t count, size_t size);

/* Does `param` take part in weight decay? */
static inline int engine_decays(const struct net_param *p)
{
	return p->kind == PARAM_CONV_WEIGHT || p->kind == PARAM_LINEAR_WEIGHT;
}

/* Copies table order [offset, offset + count) from or to an array in the layout's padded order. */
void engine_layout_put(const struct engine_layout *layout, const struct net_plan *plan, float *padded, size_t offset, const float *table, size_t count);
void engine_layout_get(const struct engine_layout *layout, const struct net_plan *plan, const float *padded, size_t offset, float *table, size_t count);

/* ImageNet's, in [0, 1]. */
extern const double image_mean[3], image_std[3];

/* The window that a batch's image is cut by. */
static inline struct augment engine_window(const struct engine_conf *conf, const struct engine_batch *batch, int image)
{
	int centre = (conf->source_size - conf->plan->image_size) / 2;
	return batch->augment ? batch->augment[image] : (struct augment){ (int16_t)centre, (int16_t)centre, 0 };
}

#endif

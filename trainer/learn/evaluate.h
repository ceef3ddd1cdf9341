/* SPDX-License-Identifier: Apache-2.0
 * A model judged on a split: every image exactly once over all ranks, exact AUROC with intervals. */
#ifndef LEARN_EVALUATE_H
#define LEARN_EVALUATE_H

#include <signal.h>

#include "data/dataset.h"
#include "learn/auroc.h"
#include "learn/crops.h"
#include "learn/log.h"
#include "learn/model.h"
#include "learn/predictions.h"

struct evaluation_conf {
	const struct dataset *dataset;
	int decode_threads;
	enum crops crops;
	int resamples; /* of patients, for the intervals; 0: point estimates only */
	uint64_t seed;
	long leaked;   /* as in struct provenance, like leaky: said beside every number */
	int leaky;
	const char *trained_on;  /* as in struct checkpoint_notes */
	uint32_t untrained;      /* likewise: their labels are left out of the data set already */
	const float *pos_weight; /* [FINDINGS] of positives in the objective; NULL: 1 */
	const volatile sig_atomic_t *stop; /* nonzero: give up early; NULL: never */
	int trains;       /* the weights are on the way, not somebody's file */
	const char *tell; /* who says how far it is (progress.h), on rank 0; or NULL */
};

struct evaluation {
	size_t n;
	float *logits;   /* [n][FINDINGS], in record order, on every rank */
	uint32_t *labels, *known, *patient; /* [n] */
	double loss;     /* mean BCE over known labels, unweighted */
	double objective; /* the same with conf's pos_weight: what such a training makes smaller */
	double images_per_s;
	struct auroc_table table;
	double oracle[FINDINGS]; /* AUROC that no model passes on average, NAN where the data set does not say */
	double oracle_mean;
	int has_oracle;
	int stopped;     /* given up on some rank: nothing else is valid */
};

/* Collective; all ranks get the logits and the point estimates, intervals are computed by rank 0 only. */
int evaluate(struct evaluation *ev, struct model *m, const struct evaluation_conf *conf, struct error *e);
void evaluation_free(struct evaluation *ev);

/* The table as people read it. */
void evaluation_print(const struct evaluation *ev, const struct evaluation_conf *conf, FILE *out);
/* Every image's labels and logits as CSV; data, policy, split and version are filled in. */
int evaluation_write(const struct evaluation *ev, const struct dataset *d, const char *path, struct provenance about, struct error *e);
/* Fields of an "eval" event; object may be NULL. */
void evaluation_json(const struct evaluation *ev, const struct evaluation_conf *conf, cJSON *object);

#endif

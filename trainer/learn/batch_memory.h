/* SPDX-License-Identifier: Apache-2.0
 * How much memory a batch takes. */
#ifndef LEARN_BATCH_MEMORY_H
#define LEARN_BATCH_MEMORY_H

#include "learn/model.h"

/* What training with `batch` images takes: fixed + batch * image bytes. */
struct batch_memory {
	double fixed, image;
};

/* Measures the engine's part by opening engines for one and two images. What a training holds beside it in host memory, weights and
 * moments for checkpoints and `slots` micro-batches of pixels, is added where the engine computes there too. */
int batch_memory_measure(struct batch_memory *m, const struct net_conf *net, enum engine_kind kind, const struct model_conf *conf, int slots,
			 struct error *e);

#endif

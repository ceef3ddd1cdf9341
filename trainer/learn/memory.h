/* SPDX-License-Identifier: Apache-2.0
 * How much memory a batch takes, and how much there is. */
#ifndef LEARN_MEMORY_H
#define LEARN_MEMORY_H

#include <stddef.h>

#include "learn/model.h"

/* Bytes that this process can still ask for without being killed: the least of what the kernel says is available, what the
 * cgroups above leave (v2), and RLIMIT_AS. SIZE_MAX where nobody says. */
size_t memory_available(void);

/* What training with `batch` images takes: fixed + batch * image bytes. */
struct batch_memory {
	double fixed, image;
};

/* Measures the engine's part by opening engines for one and two images. What a training holds beside it in host memory, weights and
 * moments for checkpoints and `slots` micro-batches of pixels, is added where the engine computes there too. */
int batch_memory_measure(struct batch_memory *m, const struct net_conf *net, enum engine_kind kind, const struct model_conf *conf, int slots,
			 struct error *e);

#endif

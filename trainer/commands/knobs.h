/* SPDX-License-Identifier: Apache-2.0
 * The knobs that other trainers' practice guides teach, and what became of them here. */
#ifndef COMMANDS_KNOBS_H
#define COMMANDS_KNOBS_H

#include "options.h"

/* What chexnet bench --ablate switches for a knob. */
enum ablation {
	ABLATE_NOTHING,  /* there is no switch: `why` says so */
	ABLATE_GPU,      /* there is one, and only a GPU shows it */
	ABLATE_THREADS,  /* one compute thread, then all */
	ABLATE_PREFETCH, /* images decoded inside the step, then ahead of it by the ring's threads */
	ABLATE_DATA,     /* decoded images, then random pixels in memory: what is left to gain */
	ABLATE_MERGE,    /* an update for every micro-batch, then one for four */
	ABLATE_BF16,     /* fp32, then bf16 */
	ABLATE_FETCH,    /* the loss read every step, then every 30 */
	ABLATE_BUCKETS,  /* all gradients in one message after the backward pass, then in buckets during it */
	ABLATE_BATCH     /* a quarter of the batch, then all of it */
};

struct knob {
	const char *theirs, *ours;  /* names; ours "": there is none */
	const char *guide;          /* "PaddlePaddle", "tf_cnn_benchmarks", "Dell", "PyTorch", "torchrun" */
	enum ablation ablation;
	const char *why;            /* what it does here, or why there is none; half a sentence */
};

extern const struct knob knobs[]; /* up to one without a name */

/* What to say to somebody who types another trainer's option, "--use_fp16"; NULL: no guide knows it. An option that the command itself lacks is
 * called one of chexnet train. For struct command. */
const char *knob_advice(const struct command *command, const char *name, size_t length, char *text, size_t size);

#endif

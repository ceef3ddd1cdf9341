/* SPDX-License-Identifier: Apache-2.0
 *
 * THE WAIST: a training step over a layer table. Activation layout, fusion, precision and graphs are the
 * engine's own business; everything that crosses this header is canonical: fp32, table order (net/plan.h),
 * uint8 images.
 *
 * An engine is used by one thread. Functions return 0 or -exit code with the reason in the struct error
 * given to engine_open().
 */
#ifndef ENGINE_H
#define ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "net/plan.h"

enum engine_kind { ENGINE_REFERENCE, ENGINE_CPU, ENGINE_CUDA };
enum precision { PRECISION_FP32, PRECISION_TF32, PRECISION_BF16, PRECISION_FP16, PRECISION_FP64 };
enum loss_kind { LOSS_BCE, LOSS_SOFTMAX };
enum optimizer { OPTIMIZER_ADAM, OPTIMIZER_SGD };

/* For tests and benchmarks; zero is what users run. */
enum engine_variant {
	VARIANT_BEST,    /* the kernels that suit this machine's CPU features */
	VARIANT_PORTABLE,/* CPU engine: the plain C version of every kernel */
	VARIANT_AMX,     /* CPU engine in bf16: its kernels for AMX on tiles in plain C; for tests */
	VARIANT_BASELINE /* CPU engine: a step of plain library primitives, the rival in `make bench` */
};

/* One gradient group in ready order: the runtime's buckets are made of these. Parameters, gradients and
 * moments share this padded order inside an engine. */
struct engine_group {
	const char *name;  /* parameter's name; the last group is "statistics" */
	int param;         /* index into plan->params; -1 for "statistics" */
	size_t offset;     /* floats from the start of the slab; a multiple of 16 */
	size_t count;      /* floats, padded to a multiple of 16 */
};

/* Reverse table order, then one group "statistics": [n_bn_channels] batch means, [n_bn_channels] E[x²], then the loss
 * and 15 spare floats. What every engine uses unless it has a reason. */
struct engine_layout {
	struct engine_group *groups;
	int n_groups;
	size_t slab_count; /* floats */
};
int engine_layout_make(struct engine_layout *layout, const struct net_plan *plan, struct error *e);
void engine_layout_free(struct engine_layout *layout);

/* What conf points to must stay as long as the engine. */
struct engine_conf {
	const struct net_plan *plan;
	const struct engine_layout *layout;
	enum precision precision;
	enum engine_variant variant;
	enum loss_kind loss;
	enum optimizer optimizer;
	double beta1, beta2, epsilon;   /* Adam as PyTorch's; SGD takes beta1 as its momentum (PyTorch's, no dampening) */
	double weight_decay;            /* L2, added to the gradient of convolution and classifier weights, not to BN or bias */
	int batch;                      /* images in a micro-batch: the BN group */
	int channels;                   /* 1: gray pixels, 3: RGB interleaved */
	int source_size;                /* side of the square images that are fed; >= plan->image_size */
	int threads;                    /* CPU threads for compute; 0: those of the affinity mask */
	double loss_scale;              /* fp16: factor on the loss, taken off the gradients again; 0: 1024, or 65536 where it is dynamic. Others ignore it */
	int scale_patience;             /* fp16: the factor is dynamic: half after a step whose gradients overflow, which is skipped, double after so many
	                                   that do not; 0: it stays */
	const float *pos_weight;        /* [classes] weight of positives in BCE, or NULL */
	float *slab;                    /* [slab_count] gradients, from hvd_plan_slab(); NULL: the engine's own */
	int (*ready)(void *context, int group); /* group's gradient is in the slab (last micro-batch only); NULL: one rank */
	int (*finish)(void *context);           /* returns when the slab holds the means over all ranks */
	void *context;
	void *stream;                   /* CUDA: cudaStream_t to compute on, the one that all-reduces of the slab are ordered with; NULL: the engine's own */
	const uint32_t *stop;           /* CUDA: host memory that the device reads; while it is not 0 no step changes anything. NULL: none */
};

/* Cut and mirror, applied on the device: a window of image_size at (x, y), then flip about the vertical axis. */
struct augment {
	int16_t x, y;
	uint8_t flip;
};

/* A micro-batch; all arrays have `count` entries. Pixels are divided by 255 and normalised with ImageNet's mean and standard
 * deviation; a gray image counts as three equal channels. The loss is the mean over images (and classes, for BCE) of
 * weight * loss, where an unknown label adds 0 to the sum and still counts in the divisor, so that the mean over micro-batches
 * and ranks does not depend on how a batch is cut. */
struct engine_batch {
	int count;                     /* == conf.batch when training; 1..conf.batch in evaluation */
	const uint8_t *pixels;         /* [count][source_size][source_size][channels] */
	const uint32_t *labels;        /* BCE: bit c = class c present. Softmax: class index */
	const uint32_t *known;         /* BCE: bit c = label c is known and enters the loss; NULL: all */
	const float *weight;           /* per image; NULL: 1 */
	const struct augment *augment; /* NULL: centre window, no flip */
	const uint64_t *kept;          /* numbers of engine_keep()'s images, which are taken for pixels; NULL: pixels */
};

enum engine_what {
	ENGINE_PARAMS,       /* [n_weights] table order */
	ENGINE_GRADS,        /* [n_weights] of the last step, before weight decay */
	ENGINE_MOMENT1,      /* [n_weights] */
	ENGINE_MOMENT2,      /* [n_weights] */
	ENGINE_RUNNING_MEAN, /* [n_bn_channels] */
	ENGINE_RUNNING_VAR   /* [n_bn_channels] */
};

struct engine;

int engine_open(struct engine **engine, enum engine_kind kind, const struct engine_conf *conf, struct error *e);
void engine_close(struct engine *engine);

int engine_put(struct engine *engine, enum engine_what what, size_t offset, const float *values, size_t count);
int engine_get(struct engine *engine, enum engine_what what, size_t offset, float *values, size_t count);

/* Optimiser steps done, for Adam's bias correction; restored on resume and after a rank was lost. Graphs are captured anew from here on. */
int engine_set_step(struct engine *engine, uint64_t step);

/* fp16's factor on the loss, and what became of the optimiser steps so far: a skipped one changed nothing, running statistics
 * included, and does not count for Adam's bias correction. */
struct engine_scale {
	double scale;  /* of the next step; 1 where gradients are not scaled */
	uint64_t good; /* steps in a row that did not overflow since it changed */
	uint64_t skipped;
};

/* Waits for the steps so far. Restoring it comes after engine_set_step(), which takes the steps that were made. Setting a scale of 0
 * keeps the one that conf asked for. */
int engine_get_scale(struct engine *engine, struct engine_scale *scale);
int engine_set_scale(struct engine *engine, const struct engine_scale *scale);

/* Forward and backward of micro-batch `micro` of `micros`; gradients are summed over the micro-batches and divided by
 * their number. At the last one groups are announced through conf.ready as they are finished, then conf.finish is
 * called, running statistics take one update and the optimiser one step with rate `lr`. *token is for engine_done():
 * the batch's memory must stay until then.
 *
 * Running statistics: momentum 0.1 (PyTorch's), mean = mean of the group means, variance = E[x²] - mean² over all
 * micro-batches and ranks, times n / (n - 1) with n = conf.batch * pixels, the size of one BN group: what PyTorch
 * computes for one micro-batch on one rank, and the same for every way to cut a batch into micro-batches and ranks. */
int engine_train(struct engine *engine, const struct engine_batch *batch, int micro, int micros, double lr, uint64_t *token);

/* Forward and backward only: gradients of this micro-batch into the slab, no communication, no update. For tests and benchmarks. */
int engine_backward(struct engine *engine, const struct engine_batch *batch);

/* Evaluation with running statistics. logits: [count][classes]; features: [count][c][h][h] before the global pool, or NULL.
 * Outputs are valid once engine_done(token) is 1. */
int engine_forward(struct engine *engine, const struct engine_batch *batch, float *logits, float *features, uint64_t *token);

/* 1: done, 0: not yet, negative: failed. wait != 0 blocks. */
int engine_done(struct engine *engine, uint64_t token, int wait);

/* Mean loss over all micro-batches and ranks of the last finished training step (after engine_backward: of that batch). */
int engine_loss(struct engine *engine, double *loss);

/* Activation `index` (net_layer numbering) of the last training pass, or with gradient != 0 the loss's gradient there:
 * [batch][c][h][h] fp32. EXIT_USAGE where a fused engine does not keep it. For tests. */
int engine_tap(struct engine *engine, int index, int gradient, float *values);

/* What engine_open() would allocate on a GPU. */
struct engine_room {
	size_t parameters;  /* weights, their gradients and copies, running statistics: bytes */
	size_t optimiser;   /* moments */
	size_t maps;        /* images, maps, their gradients, partial sums */
	size_t workspace;   /* cuDNN's */
	size_t total;
	double memory;      /* the GPU's, bytes; 0: not known */
	double free;        /* of these, now; 0: the GPU is not here, or not known */
	char gpu[96];       /* "NVIDIA H200, 132 SMs" */
	char note[256];     /* why cuDNN's workspace is not counted, or "" */
};

/* Plans a CUDA engine with the arithmetic by which it is opened, and allocates nothing. gpu: a name ("h200") or GiB of memory, which need no
 * GPU here, or NULL for the one that is here. ask_cudnn: count the workspace too, which takes a second or two. */
int engine_plan(const struct engine_conf *conf, const char *gpu, int ask_cudnn, struct engine_room *room, struct error *e);

/* CUDA: images that stay on the device, so that batches name them by number instead of bringing them along. Makes room for `total` of
 * [source_size][source_size][channels] (another total than before: anew; 0: gives it back) and copies `count` of them to places first, first + 1, ….
 * EXIT_USAGE from an engine that computes where images lie already; EXIT_INTERNAL where there is no room. */
int engine_keep(struct engine *engine, size_t total, size_t first, const uint8_t *pixels, size_t count);

/* Optimiser steps since engine_set_step() that came to their end before the stop word was set, skipped ones included: a device is behind what
 * engine_train() took, so after a loss this, and not the caller's own count, says which step the weights are of. Waits for the device.
 * 0: *steps is it; 1: this engine is through with a step before engine_train() returns. */
int engine_made(struct engine *engine, uint64_t *steps);

/* Bytes held, all allocated by engine_open(), without engine_keep()'s. */
size_t engine_memory(const struct engine *engine);
/* "cpu: fused kernels in AVX2, fp32, 2 threads" */
const char *engine_describe(const struct engine *engine);

#endif

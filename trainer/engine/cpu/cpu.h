/* SPDX-License-Identifier: Apache-2.0
 * The CPU engine's parts. A DenseNet is a stem, dense blocks joined by transitions, and a head; each block keeps one
 * NHWC buffer that its layers append to. A ResNet has residual blocks between the same stem and head (residual.c).
 *
 * Normalisation is shared: the consumers of a channel in a block see the same mean and deviation, which are computed once,
 * when the channel is produced, and BN + ReLU is applied while a consumer packs its input. Backward, as BN's gradient is
 * linear in dy: with g_l the masked gradient at consumer l,
 *     G = sum of gamma_l g_l,   S1 = sum of gamma_l dbeta_l,   S2 = sum of gamma_l dgamma_l
 *     dx = (G - (S1 + normalised x * S2) / pixels) / deviation
 * so G is accumulated before any sum is known, and corrected once, when the channel's producer needs it.
 *
 * Work is cut into groups of images or rows and blocks of channels whose number depends on the network and the batch only; each
 * has its own sums, which are added in order. So results do not depend on the number of threads. */
#ifndef CPU_CPU_H
#define CPU_CPU_H

#include "engine/backend.h"
#include "engine/cpu/amx.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/profile.h"
#include "engine/cpu/team.h"

enum { MAX_PARTS = 64, PART_ROWS = 7, MAX_GRAD_SPLITS = 32, MAX_TAPS = 9, PHASES = 4 };

#define BN_EPSILON 1e-5

struct cpu_engine;

/* Stored activations in the engine's storage: pixel p, channel c at data[p * stride + c]. */
struct acts {
	void *data;
	int stride;
};

/* A batch normalisation followed by ReLU. mean and var belong to whoever produced the channels. Where a map needs neither, because
 * it is a ReLU's output, its consumers read it through an identity: scale 1, shift 0, index -1. */
struct bn {
	int index;                /* into plan->bns, or -1 */
	int channels, pixels;     /* pixels of one image */
	struct bn_vectors v;      /* v.inverse and v.offset are shared like mean and var */
	const float *mean, *var;
	const float *beta;
	float *dgamma, *dbeta;    /* of this micro-batch */
};

/* Mean and variance of produced channels and what follows from them; gradient sums of their consumers. */
struct statistics {
	float *mean, *var, *inverse, *offset; /* [channels] */
	double *s1, *s2;                      /* [channels] */
};

/* The BN behind a convolution whose gradient dy still lacks the correction (see above): who packs dy adds it on the way, which saves
 * a pass over memory. */
struct behind {
	const struct statistics *statistics; /* of x */
	int at;                              /* channel of x and statistics where dy's first lies */
	const float *gamma;                  /* NULL for G, which has it already */
	struct acts x;
};

/* A convolution of k = 1 or 3 padded to keep the size at step 1, where `pool` on the mean of 2 x 2 inputs (the transition's pool
 * taken first: both are linear and it quarters the work). The stem is one with c_in = its packed row. */
struct conv {
	const char *name;
	int param;            /* into plan->params */
	int c_in, c_out, k, stride;
	int h_in, h_out, pool;
	int splits;           /* groups of images with their own weight gradient */
	int tiles;            /* its products run on AMX, and the weights are bf16 [panel][k²][c / 32][1 or 2 tiles] as cpu_amx's multiply takes them */
	float *forward;       /* [panel of c_out][k²][c_in / 16][16][16 or 32] */
	float *backward;      /* [panel of c_in][k²][c_out / 16][16][16 or 32], at k = 3 and stride 2 one after the other for each of the
	                       * PHASES with its taps for k²; NULL: no data gradient needed */
};

struct dense_layer {
	struct bn bn1, bn2;
	struct conv conv1, conv2;
	struct acts middle;          /* conv1's output */
	struct statistics statistics; /* of middle */
};

struct block {
	int layers, channels_in, channels, h;
	struct acts x;               /* [batch][h][h][channels] */
	struct grads g;
	struct statistics statistics;
	struct dense_layer *layer;
	struct bn out_bn;            /* the transition's or the head's */
	struct conv transition;      /* none after the last block */
};

/* Residual block: out = relu(bn3(conv3) + shortcut), where the shortcut is x or a strided 1 x 1 with its own bn. */
struct residual {
	struct bn bn[3], shortcut_bn;
	struct conv conv[3], shortcut; /* shortcut.forward NULL: the shortcut is x */
	struct statistics statistics[3], shortcut_statistics;
	struct acts y[3], shortcut_y;  /* the convolutions' outputs */
	struct acts x, out;
	int h_in, h_out;
};

/* What ResNets have between stem and head. */
struct residual_net {
	struct residual *block;
	int n_blocks;
	struct bn identity;            /* of any map */
	float *map_grad[2];            /* of an even and an odd block's input: [batch][h][h][channels] */
	float *branch_grad;            /* of conv3's output, packed */
	float *middle_grad[2];         /* of conv1's output, packed; of conv2's, NHWC */
};

/* A map between two parts of a network. */
struct joint {
	struct acts x;                 /* [batch][h][h][channels] */
	struct grads g;
	struct statistics *statistics; /* what consumers normalise with; NULL: nothing */
	struct bn *bn;                 /* the head's */
	int channels, h;
};

struct stem {
	struct conv conv;            /* over packed rows of 7 x 7 windows */
	int channels, rows;          /* of the folded input: 2 for gray, 3 for RGB; packed blocks of 16 a window row */
	float *folded;               /* [c_out][channels][7][7] */
	struct bn bn;
	struct statistics statistics;
	struct acts out;             /* [batch][h][h][c_out], before BN */
	struct grads grad;
	uint8_t *tap;                /* [batch][h / 2][h / 2][c_out] where the maximum came from */
	int h;
};

struct head {
	int features, pixels;
	float *pooled, *dpooled;     /* [batch][features] */
	float *logits, *dlogits;     /* [batch][classes] */
	int weight, bias;            /* parameters */
};

/* What engine_tap() can show: stored values, through bn where that is not NULL. */
struct tap {
	struct acts acts;
	const struct bn *bn;
};

struct cpu_engine {
	struct engine base;
	const struct cpu_kernels *kernels;
	const struct cpu_amx *amx;         /* NULL: not used */
	enum storage storage;
	int threads;
	int most_parts;                    /* MAX_PARTS; a benchmark lowers it to show what the fixed order costs */
	struct cpu_team *team;
	struct cpu_profile *profile;       /* [threads]; NULL: not measured */
	float *params, *moment1, *moment2; /* [slab_count] in the layout's padded order */
	float *slab;
	float *running_mean, *running_var; /* [n_bn_channels] */
	struct stem stem;
	struct block block[NET_MAX_BLOCKS]; /* of a DenseNet */
	struct residual_net residual;       /* of a ResNet */
	struct joint first, last;           /* what the stem writes and the head reads */
	struct head head;
	struct bn **bns;                   /* [n_bns] in the plan's order */
	float *middle_grad;                /* of the dense layer that runs backward: packed [bottleneck / 16][batch][h][h][16] */
	struct tap *taps;                  /* [n_layers + 1] */
	float **scratch;                   /* [threads][scratch_count] */
	size_t scratch_count;
	float *sums;                       /* [MAX_PARTS][3][max_channels] */
	int max_channels;
	float *coefficients;               /* [3][max_channels] of the correction that runs */
	float *weight_sums[2];             /* [splits of a conv][k²][c_in padded][c_out padded], the largest of all */
	size_t weight_sums_count;
	int sums_at;                       /* which of the two the convolution that runs backward uses */
	const struct conv *owed;           /* whose groups' gradients lie in the other and are not added yet; NULL: none */
	void **allocations;
	int n_allocations;

	const struct engine_batch *batch;  /* of the pass that runs */
	int count;                         /* its images */
	int training;
	int micro, micros;
	int announce;                      /* last micro-batch of a step over several ranks */
	int next_group;                    /* first group not announced yet */
	uint8_t *finished;                 /* [n_groups] */
	int weights_packed;                /* 0: parameters changed */
	uint64_t step;
	double loss;
};

static inline struct cpu_engine *cpu_engine(struct engine *engine)
{
	return (struct cpu_engine *)engine;
}

/* memory.c: zeroed memory that close() frees; NULL with the error set. */
void *cpu_alloc(struct cpu_engine *e, size_t count, size_t size);
void cpu_free_all(struct cpu_engine *e);
/* At least `count` floats for each thread's scratch. */
void cpu_need_scratch(struct cpu_engine *e, size_t count);

static inline void *acts_at(const struct cpu_engine *e, struct acts a, size_t pixel)
{
	return (char *)a.data + pixel * (size_t)a.stride * storage_size(e->storage);
}

static inline struct acts acts_slice(const struct cpu_engine *e, struct acts a, int channel)
{
	return (struct acts){ (char *)a.data + (size_t)channel * storage_size(e->storage), a.stride };
}

static inline struct bn_vectors bn_slice(const struct bn_vectors *v, int channel)
{
	return (struct bn_vectors){ v->scale + channel, v->shift + channel, v->inverse + channel, v->offset + channel, v->gamma + channel };
}

/* NHWC only: a slice may start inside a vector. */
static inline struct grads grads_slice(struct grads g, int channel)
{
	return (struct grads){ g.data + channel, g.stride, g.plane };
}

static inline struct grads grads_at(struct grads g, size_t pixel)
{
	return (struct grads){ g.data + pixel * (size_t)g.stride, g.stride, g.plane };
}

/* Where part s of `parts` of n begins. */
static inline int part_start(int s, int parts, int n)
{
	return (int)((long)s * n / parts);
}

/* The batch's maps of h rows are cut into groups of images or, where these are few, so many parts of each of them. */
static inline int cpu_parts_of_image(const struct cpu_engine *e, int h)
{
	int parts = 1;
	while (2 * parts * e->count <= e->most_parts && h / (2 * parts) >= PART_ROWS)
		parts *= 2;
	return parts;
}

static inline int cpu_parts(const struct cpu_engine *e, int h)
{
	return e->count < e->most_parts ? e->count * cpu_parts_of_image(e, h) : e->most_parts;
}

/* First row of a part, counted over all images. With h = 1: first image of a group of images. */
static inline int cpu_part_row(const struct cpu_engine *e, int h, int part)
{
	int of_image = cpu_parts_of_image(e, h), groups = cpu_parts(e, h) / of_image;
	return part_start(part / of_image, groups, e->count) * h + part_start(part % of_image, of_image, h);
}

/* Parts of one image that a task takes: all of them, as a 3 x 3 packs two rows more than its task has, or fewer for all threads to have
 * some. No result depends on it: sums are those of a part. */
static inline int cpu_parts_of_task(const struct cpu_engine *e, int h)
{
	int parts = cpu_parts_of_image(e, h);
	while (e->threads > 1 && parts > 1 && cpu_parts(e, h) / parts < 2 * e->threads)
		parts /= 2;
	return parts;
}

static inline int cpu_tasks(const struct cpu_engine *e, int h)
{
	return cpu_parts(e, h) / cpu_parts_of_task(e, h);
}

static inline int cpu_task_row(const struct cpu_engine *e, int h, int task)
{
	return cpu_part_row(e, h, task * cpu_parts_of_task(e, h));
}

/* A parameter's place in params, moments and slab. */
static inline size_t param_offset(const struct cpu_engine *e, int param)
{
	return e->base.conf.layout->groups[e->base.conf.plan->n_params - 1 - param].offset;
}

/* bn.c */
int cpu_statistics_alloc(struct cpu_engine *e, struct statistics *s, int channels);
int cpu_bn_open(struct cpu_engine *e, struct bn *bn, const struct net_layer *l, const struct statistics *s);
/* Part s's moments of `channels` channels in e->sums. */
struct moments cpu_moments(const struct cpu_engine *e, int s);
/* Stores results of `pixels` of maps of h rows, from `at` on, as `channels` of y. Row by row, adds their moments to those of their part: the
 * sums depend on where a row is cut, if longer than what is computed at a time, and on nothing else. */
void cpu_finish(const struct cpu_engine *e, const float *result, ptrdiff_t stride, int channels, int h, size_t at, int pixels, struct acts y);
/* Part s's sum and dot of bn_backward, channels [from, to) zeroed. */
void cpu_bn_sums(const struct cpu_engine *e, int s, int from, int to, float **sum, float **dot);
/* Joins the moments of a map's parts into mean and var of channels [at, at + channels); h: its rows. Does nothing in evaluation. */
void cpu_statistics_finish(struct cpu_engine *e, const struct statistics *s, int at, int channels, int h);
/* Scale and shift from the batch's or the running statistics. */
void cpu_bn_prepare(struct cpu_engine *e, struct bn *bn);
/* Joins the parts' sums into dgamma and dbeta, hands them over, and adds to s1 and s2 of the channels' producer. */
int cpu_bn_finish(struct cpu_engine *e, struct bn *bn, const struct statistics *s, int parts);
/* The identity that any map of at most `channels` may be read through. */
int cpu_identity_open(struct cpu_engine *e, struct bn *bn, int channels);
/* a, b, c in e->coefficients for the first `channels` of *behind, as correct() takes them: see the identity above. */
void cpu_correction(struct cpu_engine *e, const struct behind *behind, int channels, int pixels);
/* With these coefficients: corrects g from `pixel` on into `to` (the same place in g: in place). */
void cpu_correct(const struct cpu_engine *e, const struct behind *behind, int pixels, int channels, struct grads g, size_t pixel, struct grads to);
/* The same, packed; behind NULL: g, which is NHWC, needs no correction. */
void cpu_pack_gradient(const struct cpu_engine *e, const struct behind *behind, int pixels, int channels, struct grads g, size_t pixel, float *packed,
                       ptrdiff_t plane);
/* Coefficients and correction of a whole map into `to` (g itself: in place), `pixels` an image. */
void cpu_correct_map(struct cpu_engine *e, const struct behind *behind, int channels, int pixels, struct grads g, struct grads to);
void cpu_statistics_to_slab(struct cpu_engine *e, const struct bn *bn);

/* conv.c */
int cpu_conv_open(struct cpu_engine *e, struct conv *c, const struct net_layer *l, int needs_data_gradient);
void cpu_conv_pack(const struct cpu_engine *e, const struct conv *c);

/* weights.c */
/* Into how many image groups c's weight gradient is cut, and that its sums have room. */
void cpu_weights_split(struct cpu_engine *e, struct conv *c);
/* Floats that `cols` columns of panels take, a multiple of PANEL or all columns. */
size_t cpu_panels_count(const struct conv *c, int rows, int cols, int taps);
/* order: which taps of w, one after the other. */
void cpu_pack_panels(const struct cpu_engine *e, const struct conv *c, float *to, const float *w, int rows, int cols, int taps, const int *order,
                     ptrdiff_t row_stride, ptrdiff_t col_stride);
/* Memory that is read next: `rows` of `bytes`, `stride` bytes apart, in up to two arrays. */
struct ahead {
	int rows;
	struct {
		const void *at;
		size_t bytes, stride;
	} array[2];
};

/* out[p][c_out padded] for `pixels` packed pixels, of c->tiles narrowed ones. On tiles it reads a and writes out to a multiple of 16 pixels.
 * Asks for what is `ahead` (NULL: nothing) on the way: a multiplication leaves the
 * memory idle, and what follows it waits for memory. */
void cpu_multiply(const struct cpu_engine *e, const struct conv *c, const float *panels, int cols, int taps, const ptrdiff_t *tap, int blocks, ptrdiff_t plane,
                  const float *a, int pixels, float *out, int out_stride, const struct ahead *ahead);
/* How many ranges of input channels the backward of one image group is cut into, as tasks of their own, and where they start. No sum
 * runs over input channels, so this may depend on the number of threads. */
int cpu_ranges(const struct cpu_engine *e, const struct conv *c);
int cpu_range_start(const struct conv *c, int range, int ranges);
/* Where one image group's weight gradient is. */
float *cpu_weight_sums(const struct cpu_engine *e, const struct conv *c, int split);
/* Adds the groups' gradients in order: to[o * c_in * k² + c * k² + t]. `scale` multiplies, `add` keeps what is there. */
void cpu_weights_reduce(const struct cpu_engine *e, const struct conv *c, float *to, float scale, int add);
/* The groups' gradients of c are complete. They are added while the next convolution runs backward: small tasks, for whoever has none of
 * the large ones left. */
int cpu_weights_finish(struct cpu_engine *e, const struct conv *c);
/* Adds them now. */
int cpu_weights_settle(struct cpu_engine *e);
/* Runs tasks 0..count - 1 of a convolution's backward, then those that add what is owed. */
int cpu_backward_run(struct cpu_engine *e, int count, cpu_task task, void *context);

/* tiles.c: what products on AMX need besides; nothing where c->tiles is 0.
 * Before and after a task's products. */
void cpu_tiles_begin(const struct cpu_engine *e, const struct conv *c);
void cpu_tiles_end(const struct cpu_engine *e, const struct conv *c);
/* What cpu_multiply() takes for `channels` packed channels: narrowed in `to`, which may be where they are, or as they are. */
struct grads cpu_narrow(const struct cpu_engine *e, const struct conv *c, int pixels, int channels, struct grads packed, struct grads to);
/* Room for `run` pixels of the packed gradient in pairs and for `channels` of values on `pixels`, turned; 0 floats without tiles. */
struct tile_room {
	uint16_t *pairs, *turned;
	ptrdiff_t pairs_plane, turned_stride; /* bf16 */
	size_t floats;
};
struct tile_room cpu_tile_room(const struct conv *c, int run, int channels, int pixels, float *at);
/* Before cpu_tile_weights() and before the gradient is narrowed in place. */
void cpu_tile_gradient(const struct cpu_engine *e, const struct conv *c, const struct tile_room *room, int run, struct grads gradient);
/* sums[t * tap_count + channel * c_out padded + o] += values[pixel + tap[t]][channel] * gradient[pixel][o] over `run` pixels. `pixels` of
 * each block of values are packed, and those that a tap reaches behind them count as zero. */
void cpu_tile_weights(const struct cpu_engine *e, const struct conv *c, const struct tile_room *room, int run, int taps, const ptrdiff_t *tap, int channels,
                      int pixels, const float *values, ptrdiff_t plane, float *sums, size_t tap_count);

/* conv1.c: 1 x 1 convolutions of any step, with or without the pool before them. */
void cpu_conv1_forward(struct cpu_engine *e, const struct conv *c, const struct bn *bn, struct acts x, struct acts y, const struct statistics *s, int at);
/* Data gradient of dy into g through the BN before the convolution, whose sums are in c->splits parts; weight gradient into
 * cpu_weight_sums(). behind NULL: dy is corrected. */
int cpu_conv1_backward(struct cpu_engine *e, const struct conv *c, const struct bn *bn, struct grads dy, const struct behind *behind, struct acts x,
                       struct grads g, int accumulate);
size_t cpu_conv1_scratch(const struct conv *c);

/* conv3.c: 3 x 3 convolutions of step 1 and 2, alike. dy is NHWC. */
void cpu_conv3_pack_backward(const struct cpu_engine *e, const struct conv *c, const float *w);
void cpu_conv3_forward(struct cpu_engine *e, const struct conv *c, const struct bn *bn, struct acts x, struct acts y, const struct statistics *s, int at);
int cpu_conv3_backward(struct cpu_engine *e, const struct conv *c, const struct bn *bn, struct grads dy, const struct behind *behind, struct acts x,
                       struct grads g);
size_t cpu_conv3_scratch(const struct conv *c);

/* stem.c, dense.c, residual.c, head.c */
int cpu_stem_open(struct cpu_engine *e);
void cpu_stem_pack(struct cpu_engine *e);
void cpu_stem_forward(struct cpu_engine *e);
int cpu_stem_backward(struct cpu_engine *e);
int cpu_dense_open(struct cpu_engine *e);
void cpu_dense_pack(struct cpu_engine *e);
void cpu_dense_forward(struct cpu_engine *e);
int cpu_dense_backward(struct cpu_engine *e);
/* middle_grad as this block lays it out. */
struct grads cpu_middle_grad(const struct cpu_engine *e, const struct block *b);
int cpu_residual_open(struct cpu_engine *e);
void cpu_residual_pack(struct cpu_engine *e);
void cpu_residual_forward(struct cpu_engine *e);
int cpu_residual_backward(struct cpu_engine *e);
int cpu_head_open(struct cpu_engine *e, const struct net_layer *pool, const struct net_layer *linear);
void cpu_head_forward(struct cpu_engine *e, float *features);
int cpu_head_backward(struct cpu_engine *e);

/* gradients.c */
/* Adds values to a parameter's gradient in the slab (sets it at the first micro-batch) and announces what is ready. */
int cpu_gradient(struct cpu_engine *e, int param, const float *values, float scale);
int cpu_gradient_written(struct cpu_engine *e, int param);
/* Groups are announced in order; one that is finished early waits for those before it. */
int cpu_group_written(struct cpu_engine *e, int group);

/* update.c */
/* Writes batch statistics and loss behind the gradients and announces them. */
int cpu_statistics_group(struct cpu_engine *e);
void cpu_update(struct cpu_engine *e, double lr);
void cpu_optimise(struct cpu_engine *e, double lr);

/* cpu.c: parameters, moments, slab and running statistics. */
int cpu_arrays_open(struct cpu_engine *e);

/* baseline.c: the engine with its steps replaced. NULL in programs that are linked without it: chexnet, and all where oneDNN is missing. */
int cpu_baseline_open(struct engine **engine, const struct engine_conf *conf, const struct engine_ops *fused, struct error *e) __attribute__((weak));

#endif

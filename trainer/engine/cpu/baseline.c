/* SPDX-License-Identifier: Apache-2.0
 * VARIANT_BASELINE: a training step of plain oneDNN primitives, the rival that `make bench` measures the fused engine against; only tests and benchmarks are linked with it.
 * BN with its fused ReLU, a dense copy for every concatenation, gradients added up by a loop: what a framework on oneDNN
 * does. It trains only. All oneDNN calls of the tree are in this file, in the words of oneDNN 3. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu.h"
#include "engine/cpu/onednn2.h"
#include "engine/reference/fp32.h"

enum { MAX_ARGS = 10, MAX_OWNED = 4096 };

struct primitive {
	dnnl_primitive_t handle;
	dnnl_exec_arg_t args[MAX_ARGS];
	int n_args;
};

/* An activation and its gradient in one layout. */
struct tensor {
	const_dnnl_memory_desc_t desc;
	void *data, *grad;
	size_t bytes;
	int written; /* its gradient has been, in this pass */
};

struct baseline_layer {
	struct primitive forward, backward_data, backward_weights;
	struct primitive pack_forward, pack_backward, unpack; /* weights and their gradient to and from table order */
	dnnl_memory_t grad;                                   /* BN: its input's, or what is added to it */
};

struct baseline {
	struct cpu_engine shared; /* allocations, kernels of the update, parameters */
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	dnnl_data_type_t type;
	dnnl_format_tag_t format;
	struct tensor *tensors;   /* [n_layers + 1] */
	struct baseline_layer *layers;
	void *temporary;          /* a gradient before it is added */
	float *pooled, *dpooled, *logits, *dlogits;
	struct primitive widen, narrow; /* the pooled features to fp32, their gradient back */
	int last_pool;            /* layer */
	void *owned[MAX_OWNED];
	int n_owned;
	memory_desc descs[MAX_OWNED];
	int n_descs;
	dnnl_status_t status; /* the first that a primitive of this run ended with and that was not success */
};

static struct baseline *baseline_of(struct engine *engine)
{
	return (struct baseline *)engine;
}

static int dnnl_failed(struct baseline *b, const char *layer, const char *what, dnnl_status_t status)
{
	if (status == dnnl_unimplemented)
		return fail(b->shared.base.error, EXIT_USAGE, "the baseline cannot run %s: oneDNN has no %s on this processor%s", layer, b->type == dnnl_bf16 ? "bf16" : "fp32",
		            b->type == dnnl_bf16 ? "; it takes AVX-512" : "");
	return status ? fail(b->shared.base.error, EXIT_INTERNAL, "oneDNN: %s: %s failed with status %d", layer, what, (int)status) : 0;
}

#define TRY(b, layer, call) \
	do { \
		int rc_ = dnnl_failed(b, layer, #call, call); \
		if (rc_) \
			return rc_; \
	} while (0)

/* Creates a primitive; a reference implementation is orders of magnitude slower and would pass unnoticed. */
static int make_primitive(struct baseline *b, const char *layer, const_dnnl_primitive_desc_t desc, struct primitive *p)
{
	const char *name = "";
	TRY(b, layer, dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name));
	if (strstr(name, "ref"))
		return fail(b->shared.base.error, EXIT_USAGE, "oneDNN would run %s by its slow implementation %s; use the default variant", layer, name);
	TRY(b, layer, dnnl_primitive_create(&p->handle, desc));
	return 0;
}

static int add_arg(struct baseline *b, const char *layer, struct primitive *p, int id, const_dnnl_memory_desc_t desc, void *data)
{
	dnnl_memory_t memory;
	TRY(b, layer, dnnl_memory_create(&memory, desc, b->engine, data));
	if (b->n_owned == MAX_OWNED)
		return fail(b->shared.base.error, EXIT_INTERNAL, "too many layers for the baseline");
	b->owned[b->n_owned++] = memory;
	p->args[p->n_args++] = (dnnl_exec_arg_t){ id, memory };
	return 0;
}

/* All threads work on one primitive at a time, so its wall time counts for each of them. */
static void run(struct baseline *b, enum work_class kind, const struct primitive *p)
{
	if (!p->handle)
		return;
	uint64_t t = profile_start(b->shared.profile);
	dnnl_status_t status = dnnl_primitive_execute(p->handle, b->stream, p->n_args, p->args);
	status = status ? status : dnnl_stream_wait(b->stream);
	b->status = b->status ? b->status : status;
	profile_add_serial(b->shared.profile, b->shared.threads, kind, t);
}

/* Describes [dims] in a layout; the baseline owns it. NULL with an error. */
static const_dnnl_memory_desc_t describe(struct baseline *b, int n_dims, const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t format)
{
	dnnl_status_t status = b->n_descs < MAX_OWNED ? dnnl_memory_desc_create_with_tag(&b->descs[b->n_descs], n_dims, dims, type, format) : dnnl_out_of_memory;
	if (status)
		fail(b->shared.base.error, EXIT_INTERNAL, "oneDNN: describing tensor %d failed with status %d", b->n_descs, (int)status);
	return status ? NULL : b->descs[b->n_descs++];
}

static void *room_for(struct baseline *b, const_dnnl_memory_desc_t desc)
{
	return cpu_alloc(&b->shared, dnnl_memory_desc_get_size(desc) + 64, 1);
}

static int make_reorder(struct baseline *b, const char *layer, struct primitive *p, const_dnnl_memory_desc_t from, void *source,
                        const_dnnl_memory_desc_t to, void *target)
{
	dnnl_primitive_desc_t desc;
	TRY(b, layer, dnnl_reorder_primitive_desc_create(&desc, from, b->engine, to, b->engine, NULL));
	int rc = make_primitive(b, layer, desc, p);
	dnnl_primitive_desc_destroy(desc);
	rc = rc ? rc : add_arg(b, layer, p, DNNL_ARG_FROM, from, source);
	return rc ? rc : add_arg(b, layer, p, DNNL_ARG_TO, to, target);
}

static const_dnnl_memory_desc_t wanted(const_dnnl_primitive_desc_t desc, dnnl_query_t what)
{
	return dnnl_primitive_desc_query_md(desc, what, 0);
}

static int open_conv(struct baseline *b, const struct net_layer *l, struct tensor *x, struct tensor *y, struct baseline_layer *own)
{
	dnnl_dims_t dims = { l->c_out, l->c_in, l->k, l->k }, strides = { l->stride, l->stride }, pad = { l->pad, l->pad };
	int reach = (l->h_out - 1) * l->stride + l->k - l->pad - l->h_in;
	dnnl_dims_t pad_end = { reach, reach }, none = { 0, 0 };
	const_dnnl_memory_desc_t any = describe(b, 4, dims, b->type, dnnl_format_tag_any);
	const_dnnl_memory_desc_t any_grad = describe(b, 4, dims, dnnl_f32, dnnl_format_tag_any), plain = describe(b, 4, dims, dnnl_f32, dnnl_oihw);
	if (!any || !any_grad || !plain)
		return -b->shared.base.error->code;
	float *weights = b->shared.params + param_offset(&b->shared, l->weight), *gradient = b->shared.slab + param_offset(&b->shared, l->weight);

	dnnl_primitive_desc_t forward, desc;
	TRY(b, l->name, dnnl_convolution_forward_primitive_desc_create(&forward, b->engine, dnnl_forward_training, dnnl_convolution_direct, x->desc, any, NULL, y->desc,
	                                                               strides, none, pad, pad_end, NULL));
	const_dnnl_memory_desc_t packed = wanted(forward, dnnl_query_weights_md);
	void *room = room_for(b, packed);
	int rc = !room || make_primitive(b, l->name, forward, &own->forward) || make_reorder(b, l->name, &own->pack_forward, plain, weights, packed, room) ||
	         add_arg(b, l->name, &own->forward, DNNL_ARG_SRC, x->desc, x->data) || add_arg(b, l->name, &own->forward, DNNL_ARG_WEIGHTS, packed, room) ||
	         add_arg(b, l->name, &own->forward, DNNL_ARG_DST, y->desc, y->data);
	if (!rc && l->in) {
		TRY(b, l->name, dnnl_convolution_backward_data_primitive_desc_create(&desc, b->engine, dnnl_convolution_direct, x->desc, any, y->desc, strides, none, pad,
		                                                                     pad_end, forward, NULL));
		packed = wanted(desc, dnnl_query_weights_md);
		room = room_for(b, packed);
		rc = !room || make_primitive(b, l->name, desc, &own->backward_data) ||
		     make_reorder(b, l->name, &own->pack_backward, plain, weights, packed, room) ||
		     add_arg(b, l->name, &own->backward_data, DNNL_ARG_DIFF_DST, y->desc, y->grad) ||
		     add_arg(b, l->name, &own->backward_data, DNNL_ARG_WEIGHTS, packed, room) ||
		     add_arg(b, l->name, &own->backward_data, DNNL_ARG_DIFF_SRC, x->desc, x->grad);
		dnnl_primitive_desc_destroy(desc);
	}
	if (!rc) {
		TRY(b, l->name, dnnl_convolution_backward_weights_primitive_desc_create(&desc, b->engine, dnnl_convolution_direct, x->desc, any_grad, NULL, y->desc,
		                                                                        strides, none, pad, pad_end, forward, NULL));
		packed = wanted(desc, dnnl_query_diff_weights_md);
		room = room_for(b, packed);
		rc = !room || make_primitive(b, l->name, desc, &own->backward_weights) ||
		     make_reorder(b, l->name, &own->unpack, packed, room, plain, gradient) ||
		     add_arg(b, l->name, &own->backward_weights, DNNL_ARG_SRC, x->desc, x->data) ||
		     add_arg(b, l->name, &own->backward_weights, DNNL_ARG_DIFF_DST, y->desc, y->grad) ||
		     add_arg(b, l->name, &own->backward_weights, DNNL_ARG_DIFF_WEIGHTS, packed, room);
		dnnl_primitive_desc_destroy(desc);
	}
	dnnl_primitive_desc_destroy(forward);
	return rc ? -b->shared.base.error->code : 0;
}

static int open_bn(struct baseline *b, const struct net_layer *l, struct tensor *x, struct tensor *y, struct baseline_layer *own)
{
	unsigned flags = dnnl_use_scale | dnnl_use_shift | (l->op == OP_BN_RELU ? dnnl_fuse_norm_relu : 0);
	size_t gamma = param_offset(&b->shared, l->weight), beta = param_offset(&b->shared, l->bias);
	dnnl_primitive_desc_t forward, backward;
	const_dnnl_memory_desc_t row = describe(b, 1, (dnnl_dims_t){ l->c_in }, dnnl_f32, dnnl_a);
	if (!row)
		return -b->shared.base.error->code;
	TRY(b, l->name, dnnl_batch_normalization_forward_primitive_desc_create(&forward, b->engine, dnnl_forward_training, x->desc, y->desc, (float)BN_EPSILON, flags, NULL));
	TRY(b, l->name, dnnl_batch_normalization_backward_primitive_desc_create(&backward, b->engine, dnnl_backward, x->desc, y->desc, x->desc, (float)BN_EPSILON, flags,
	                                                                        forward, NULL));
	const_dnnl_memory_desc_t mask = wanted(forward, dnnl_query_workspace_md);
	void *mask_room = room_for(b, mask);
	float *mean = room_for(b, row), *var = room_for(b, row);
	struct primitive *f = &own->forward, *r = &own->backward_data;
	int rc = !mask_room || !mean || !var || make_primitive(b, l->name, forward, f) || make_primitive(b, l->name, backward, r) ||
	         add_arg(b, l->name, f, DNNL_ARG_SRC, x->desc, x->data) || add_arg(b, l->name, f, DNNL_ARG_DST, y->desc, y->data) ||
	         add_arg(b, l->name, f, DNNL_ARG_MEAN, row, mean) || add_arg(b, l->name, f, DNNL_ARG_VARIANCE, row, var) ||
	         add_arg(b, l->name, f, DNNL_ARG_SCALE, row, b->shared.params + gamma) || add_arg(b, l->name, f, DNNL_ARG_SHIFT, row, b->shared.params + beta) ||
	         add_arg(b, l->name, f, DNNL_ARG_WORKSPACE, mask, mask_room) || add_arg(b, l->name, r, DNNL_ARG_SRC, x->desc, x->data) ||
	         add_arg(b, l->name, r, DNNL_ARG_DIFF_DST, y->desc, y->grad) || add_arg(b, l->name, r, DNNL_ARG_DIFF_SRC, x->desc, x->grad) ||
	         add_arg(b, l->name, r, DNNL_ARG_MEAN, row, mean) || add_arg(b, l->name, r, DNNL_ARG_VARIANCE, row, var) ||
	         add_arg(b, l->name, r, DNNL_ARG_SCALE, row, b->shared.params + gamma) ||
	         (DNNL_VERSION_MAJOR == 2 && add_arg(b, l->name, r, DNNL_ARG_SHIFT, row, b->shared.params + beta)) || /* 2 asks for it here, and 3 refuses it */
	         add_arg(b, l->name, r, DNNL_ARG_DIFF_SCALE, row, b->shared.slab + gamma) ||
	         add_arg(b, l->name, r, DNNL_ARG_DIFF_SHIFT, row, b->shared.slab + beta) || add_arg(b, l->name, r, DNNL_ARG_WORKSPACE, mask, mask_room);
	dnnl_primitive_desc_destroy(forward);
	dnnl_primitive_desc_destroy(backward);
	if (!rc)
		own->grad = r->args[2].memory;
	return rc ? -b->shared.base.error->code : 0;
}

static int open_pool(struct baseline *b, const struct net_layer *l, struct tensor *x, struct tensor *y, struct baseline_layer *own)
{
	dnnl_alg_kind_t kind = l->op == OP_MAXPOOL ? dnnl_pooling_max : dnnl_pooling_avg_exclude_padding;
	int reach = (l->h_out - 1) * l->stride + l->k - l->pad - l->h_in;
	dnnl_dims_t window = { l->k, l->k }, strides = { l->stride, l->stride }, none = { 0, 0 }, pad = { l->pad, l->pad }, pad_end = { reach, reach };
	dnnl_primitive_desc_t forward, backward;
	TRY(b, l->name, dnnl_pooling_forward_primitive_desc_create(&forward, b->engine, dnnl_forward_training, kind, x->desc, y->desc, strides, window, none, pad, pad_end,
	                                                           NULL));
	TRY(b, l->name, dnnl_pooling_backward_primitive_desc_create(&backward, b->engine, kind, x->desc, y->desc, strides, window, none, pad, pad_end, forward, NULL));
	struct primitive *f = &own->forward, *r = &own->backward_data;
	int rc = make_primitive(b, l->name, forward, f) || make_primitive(b, l->name, backward, r) || add_arg(b, l->name, f, DNNL_ARG_SRC, x->desc, x->data) ||
	         add_arg(b, l->name, f, DNNL_ARG_DST, y->desc, y->data) || add_arg(b, l->name, r, DNNL_ARG_DIFF_SRC, x->desc, x->grad) ||
	         add_arg(b, l->name, r, DNNL_ARG_DIFF_DST, y->desc, y->grad);
	if (!rc && l->op == OP_MAXPOOL) {
		const_dnnl_memory_desc_t from = wanted(forward, dnnl_query_workspace_md);
		void *room = room_for(b, from);
		rc = !room || add_arg(b, l->name, f, DNNL_ARG_WORKSPACE, from, room) || add_arg(b, l->name, r, DNNL_ARG_WORKSPACE, from, room);
	}
	dnnl_primitive_desc_destroy(forward);
	dnnl_primitive_desc_destroy(backward);
	return rc ? -b->shared.base.error->code : 0;
}

/* Copies (or adds) channels between tensors of the same height: [n][blocks][pixels][8 or 16] in fp32, [n][pixels][c] in bf16. */
static void copy_channels(const struct baseline *b, const struct net_layer *l, const void *from, int from_channels, int from_at, void *to,
                          int to_channels, int to_at, int channels)
{
	size_t size = b->type == dnnl_f32 ? 4 : 2, pixels = (size_t)(l->h_in * l->h_in);
	int images = b->shared.base.conf.batch;
	uint64_t t = profile_start(b->shared.profile);
	if (b->format != dnnl_nhwc) {
#pragma omp parallel for num_threads(b->shared.threads)
		for (int n = 0; n < images; n++)
			memcpy((char *)to + ((size_t)n * (size_t)to_channels + (size_t)to_at) * pixels * size,
			       (const char *)from + ((size_t)n * (size_t)from_channels + (size_t)from_at) * pixels * size, (size_t)channels * pixels * size);
		profile_add_serial(b->shared.profile, b->shared.threads, WORK_BN, t);
		return;
	}
#pragma omp parallel for num_threads(b->shared.threads)
	for (size_t p = 0; p < (size_t)images * pixels; p++)
		memcpy((char *)to + (p * (size_t)to_channels + (size_t)to_at) * size, (const char *)from + (p * (size_t)from_channels + (size_t)from_at) * size,
		       (size_t)channels * size);
	profile_add_serial(b->shared.profile, b->shared.threads, WORK_BN, t);
}

static void add_into(const struct baseline *b, size_t bytes, const void *from, void *to)
{
	size_t chunk = 1 << 15;
	const struct cpu_kernels *k = b->shared.kernels;
#pragma omp parallel for num_threads(b->shared.threads)
	for (size_t at = 0; at < bytes; at += chunk) {
		size_t count = (bytes - at < chunk ? bytes - at : chunk) / (b->type == dnnl_f32 ? 4 : 2);
		k->at[b->type == dnnl_f32 ? STORE_FP32 : STORE_BF16].add(count, (const char *)from + at, (char *)to + at);
	}
}

static void load_images(struct baseline *b, const struct engine_batch *batch)
{
	const struct engine_conf *conf = &b->shared.base.conf;
	int size = conf->plan->image_size, images = conf->batch, blocked = b->format != dnnl_nhwc;
#pragma omp parallel for num_threads(b->shared.threads)
	for (int n = 0; n < images; n++) {
		struct augment a = engine_window(conf, batch, n);
		for (int y = 0; y < size; y++)
			for (int x = 0; x < size; x++)
				for (int c = 0; c < 3; c++) {
					size_t pixel = ((size_t)n * (size_t)conf->source_size + (size_t)(a.y + y)) * (size_t)conf->source_size +
					               (size_t)(a.x + (a.flip ? size - 1 - x : x));
					uint8_t v = batch->pixels[pixel * (size_t)conf->channels + (conf->channels == 3 ? (size_t)c : 0)];
					float value = (float)((v / 255.0 - image_mean[c]) / image_std[c]);
					size_t at = blocked ? (((size_t)n * 3 + (size_t)c) * (size_t)size + (size_t)y) * (size_t)size + (size_t)x
					                    : (((size_t)n * (size_t)size + (size_t)y) * (size_t)size + (size_t)x) * 3 + (size_t)c;
					if (b->type == dnnl_f32)
						((float *)b->tensors[0].data)[at] = value;
					else
						b->shared.kernels->at[STORE_BF16].finish(1, 1, &value, 1, (uint16_t *)b->tensors[0].data + at, 1, NULL, 0);
				}
	}
}

static enum work_class work_of(enum layer_op op, enum work_class of_convolution)
{
	return op == OP_CONV ? of_convolution : op == OP_BN || op == OP_BN_RELU ? WORK_BN : WORK_POOL;
}

static void forward_layer(struct baseline *b, int i)
{
	const struct net_plan *plan = b->shared.base.conf.plan;
	const struct net_layer *l = &plan->layers[i];
	struct baseline_layer *own = &b->layers[i];
	struct tensor *x = &b->tensors[l->in], *y = &b->tensors[i + 1];
	switch (l->op) {
	case OP_CONV:
		run(b, WORK_REORDER, &own->pack_forward);
		run(b, WORK_REORDER, &own->pack_backward);
		break;
	case OP_CONCAT:
		copy_channels(b, l, x->data, l->c_in, 0, y->data, l->c_out, 0, l->c_in);
		copy_channels(b, l, b->tensors[l->in2].data, l->c_out - l->c_in, 0, y->data, l->c_out, l->c_in, l->c_out - l->c_in);
		break;
	case OP_LINEAR:
		reference_linear_forward_fp32(b->shared.base.conf.batch, l->c_in, l->c_out, b->pooled, b->shared.params + param_offset(&b->shared, l->weight),
		                              b->shared.params + param_offset(&b->shared, l->bias), b->logits);
		break;
	default:
		break;
	}
	run(b, work_of(l->op, WORK_FORWARD), &own->forward);
	if (i == b->last_pool)
		run(b, WORK_OTHER, &b->widen);
}

static void backward_linear(struct baseline *b, const struct net_layer *l)
{
	float *dw = b->shared.slab + param_offset(&b->shared, l->weight), *dbias = b->shared.slab + param_offset(&b->shared, l->bias);
	size_t images = (size_t)b->shared.base.conf.batch;
	memset(dw, 0, (size_t)l->c_in * (size_t)l->c_out * sizeof *dw);
	memset(dbias, 0, (size_t)l->c_out * sizeof *dbias);
	memset(b->dpooled, 0, images * (size_t)l->c_in * sizeof *b->dpooled);
	reference_linear_backward_fp32((int)images, l->c_in, l->c_out, b->pooled, b->shared.params + param_offset(&b->shared, l->weight), b->dlogits, b->dpooled, dw,
	                               dbias);
	run(b, WORK_OTHER, &b->narrow);
}

static void backward_layer(struct baseline *b, int i)
{
	const struct net_plan *plan = b->shared.base.conf.plan;
	const struct net_layer *l = &plan->layers[i];
	struct baseline_layer *own = &b->layers[i];
	struct tensor *x = &b->tensors[l->in], *y = &b->tensors[i + 1];
	switch (l->op) {
	case OP_CONV:
		run(b, WORK_WEIGHTS, &own->backward_weights);
		run(b, WORK_REORDER, &own->unpack);
		run(b, WORK_DATA, &own->backward_data);
		break;
	case OP_BN:
	case OP_BN_RELU:
		dnnl_memory_set_data_handle(own->grad, x->written ? b->temporary : x->grad);
		run(b, WORK_BN, &own->backward_data);
		uint64_t t = profile_start(b->shared.profile);
		if (x->written)
			add_into(b, x->bytes, b->temporary, x->grad);
		profile_add_serial(b->shared.profile, b->shared.threads, WORK_BN, t);
		break;
	case OP_CONCAT:
		copy_channels(b, l, y->grad, l->c_out, 0, x->grad, l->c_in, 0, l->c_in);
		copy_channels(b, l, y->grad, l->c_out, l->c_in, b->tensors[l->in2].grad, l->c_out - l->c_in, 0, l->c_out - l->c_in);
		break;
	case OP_LINEAR:
		backward_linear(b, l);
		break;
	default:
		run(b, WORK_POOL, &own->backward_data);
		break;
	}
	x->written = 1;
}

static int backward(struct engine *engine, const struct engine_batch *batch)
{
	struct baseline *b = baseline_of(engine);
	const struct net_plan *plan = engine->conf.plan;
	omp_set_num_threads(b->shared.threads);
	load_images(b, batch);
	for (int i = 0; i < plan->n_layers; i++)
		forward_layer(b, i);
	b->shared.loss = reference_loss_fp32(&engine->conf, batch, b->logits, b->dlogits);
	for (int i = 0; i <= plan->n_layers; i++)
		b->tensors[i].written = 0;
	for (int i = plan->n_layers - 1; i >= 0; i--)
		backward_layer(b, i);
	return dnnl_failed(b, "a step", "a primitive", b->status);
}

static int train(struct engine *engine, const struct engine_batch *batch, int micro, int micros, double lr, uint64_t *token)
{
	*token = 0;
	if (micros != 1 || engine->conf.ready)
		return fail(engine->error, EXIT_USAGE, "the baseline of plain oneDNN primitives runs one rank and no micro-batches (%d of %d)", micro, micros);
	int rc = backward(engine, batch);
	if (!rc)
		cpu_optimise(cpu_engine(engine), lr);
	return rc;
}

static int forward(struct engine *engine, const struct engine_batch *batch, float *logits, float *features, uint64_t *token)
{
	(void)batch;
	(void)logits;
	(void)features;
	(void)token;
	return fail(engine->error, EXIT_USAGE, "the baseline of plain oneDNN primitives trains only");
}

static int tap(struct engine *engine, int index, int gradient, float *values)
{
	(void)gradient;
	(void)values;
	return fail(engine->error, EXIT_USAGE, "the baseline of plain oneDNN primitives does not show activation %d", index);
}

static void destroy(struct primitive *p)
{
	if (p->handle)
		dnnl_primitive_destroy(p->handle);
}

static void close_baseline(struct engine *engine)
{
	struct baseline *b = baseline_of(engine);
	for (int i = 0; b->layers && i < engine->conf.plan->n_layers; i++) {
		struct baseline_layer *l = &b->layers[i];
		destroy(&l->forward);
		destroy(&l->backward_data);
		destroy(&l->backward_weights);
		destroy(&l->pack_forward);
		destroy(&l->pack_backward);
		destroy(&l->unpack);
	}
	destroy(&b->widen);
	destroy(&b->narrow);
	for (int i = 0; i < b->n_owned; i++)
		dnnl_memory_destroy(b->owned[i]);
	for (int i = 0; i < b->n_descs; i++)
		dnnl_memory_desc_destroy(b->descs[i]);
	if (b->stream)
		dnnl_stream_destroy(b->stream);
	if (b->engine)
		dnnl_engine_destroy(b->engine);
	cpu_team_close(b->shared.team);
	cpu_free_all(&b->shared);
	free(b);
}

static int open_tensor(struct baseline *b, int index, size_t *largest)
{
	const struct engine_conf *conf = &b->shared.base.conf;
	const struct net_layer *l = index ? &conf->plan->layers[index - 1] : NULL;
	struct tensor *t = &b->tensors[index];
	int c = l ? l->c_out : 3, h = l ? l->h_out : conf->plan->image_size;
	if (l && l->op == OP_LINEAR)
		return 0;
	if (l && b->format != dnnl_nhwc && c % LANES)
		return fail(b->shared.base.error, EXIT_USAGE, "the baseline needs channels in sixteens: %s has %d", l->name, c);
	dnnl_format_tag_t format = index || b->format == dnnl_nhwc ? b->format : dnnl_nchw;
	if (!(t->desc = describe(b, 4, (dnnl_dims_t){ conf->batch, c, h, h }, b->type, format)))
		return -b->shared.base.error->code;
	t->bytes = dnnl_memory_desc_get_size(t->desc);
	*largest = t->bytes > *largest ? t->bytes : *largest;
	t->data = room_for(b, t->desc);
	t->grad = t->data ? room_for(b, t->desc) : NULL;
	return t->grad ? 0 : -b->shared.base.error->code;
}

static int open_head(struct baseline *b, const struct net_layer *pool, const struct net_layer *linear)
{
	size_t images = (size_t)b->shared.base.conf.batch, features = (size_t)pool->c_in;
	struct tensor *t = &b->tensors[b->last_pool + 1];
	const_dnnl_memory_desc_t wide = describe(b, 4, (dnnl_dims_t){ (int)images, pool->c_in, 1, 1 }, dnnl_f32, dnnl_nchw);
	if (!wide)
		return -b->shared.base.error->code;
	b->pooled = cpu_alloc(&b->shared, images * features, sizeof(float));
	b->dpooled = cpu_alloc(&b->shared, images * features, sizeof(float));
	b->logits = cpu_alloc(&b->shared, images * (size_t)linear->c_out, sizeof(float));
	b->dlogits = cpu_alloc(&b->shared, images * (size_t)linear->c_out, sizeof(float));
	if (!b->pooled || !b->dpooled || !b->logits || !b->dlogits)
		return -b->shared.base.error->code;
	int rc = make_reorder(b, pool->name, &b->widen, t->desc, t->data, wide, b->pooled);
	return rc ? rc : make_reorder(b, pool->name, &b->narrow, wide, b->dpooled, t->desc, t->grad);
}

static int open_layers(struct baseline *b)
{
	const struct net_plan *plan = b->shared.base.conf.plan;
	size_t largest = 0;
	for (int i = 0; i <= plan->n_layers; i++)
		if (open_tensor(b, i, &largest))
			return -b->shared.base.error->code;
	if (!(b->temporary = cpu_alloc(&b->shared, largest, 1)))
		return -b->shared.base.error->code;
	for (int i = 0; i < plan->n_layers; i++) {
		const struct net_layer *l = &plan->layers[i];
		struct tensor *x = &b->tensors[l->in], *y = &b->tensors[i + 1];
		int rc = 0;
		if (l->op == OP_CONV)
			rc = open_conv(b, l, x, y, &b->layers[i]);
		else if (l->op == OP_BN_RELU || l->op == OP_BN)
			rc = open_bn(b, l, x, y, &b->layers[i]);
		else if (l->op == OP_MAXPOOL || l->op == OP_AVGPOOL || l->op == OP_GLOBAL_AVGPOOL)
			rc = open_pool(b, l, x, y, &b->layers[i]);
		else if (l->op != OP_CONCAT && l->op != OP_LINEAR)
			rc = fail(b->shared.base.error, EXIT_USAGE, "the baseline cannot run %s", l->name);
		if (rc)
			return rc;
	}
	b->last_pool = plan->n_layers - 2;
	return open_head(b, &plan->layers[b->last_pool], &plan->layers[plan->n_layers - 1]);
}

int cpu_baseline_open(struct engine **engine, const struct engine_conf *conf, const struct engine_ops *fused, struct error *e)
{
	static struct engine_ops ops;
	struct baseline *b = calloc(1, sizeof *b);
	if (!b)
		return fail(e, EXIT_INTERNAL, "no memory for the baseline");
	ops = *fused;
	ops.close = close_baseline;
	ops.train = train;
	ops.backward = backward;
	ops.forward = forward;
	ops.tap = tap;
	struct cpu_engine *c = &b->shared;
	c->base = (struct engine){ .ops = &ops, .conf = *conf, .error = e };
	c->kernels = cpu_kernels_best();
	c->threads = conf->threads ? conf->threads : omp_get_num_procs();
	b->type = conf->precision == PRECISION_BF16 ? dnnl_bf16 : dnnl_f32;
	dnnl_format_tag_t blocked = (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core ? dnnl_nChw16c : dnnl_nChw8c;
	b->format = conf->precision == PRECISION_BF16 ? dnnl_nhwc : blocked; /* each the faster one for its type */
	omp_set_num_threads(c->threads);
	int rc = cpu_arrays_open(c);
	b->tensors = rc ? NULL : cpu_alloc(c, (size_t)conf->plan->n_layers + 1, sizeof *b->tensors);
	b->layers = b->tensors ? cpu_alloc(c, (size_t)conf->plan->n_layers, sizeof *b->layers) : NULL;
	rc = b->layers ? 0 : -e->code;
	rc = rc ? rc : dnnl_failed(b, "engine", "dnnl_engine_create", dnnl_engine_create(&b->engine, dnnl_cpu, 0));
	rc = rc ? rc : dnnl_failed(b, "engine", "dnnl_stream_create", dnnl_stream_create(&b->stream, b->engine, dnnl_stream_default_flags));
	rc = rc ? rc : open_layers(b);
	if (rc) {
		close_baseline(&c->base);
		return rc;
	}
	const dnnl_version_t *version = dnnl_version();
	snprintf(c->base.description, sizeof c->base.description, "cpu baseline: oneDNN %d.%d.%d primitives, %s, %d thread%s", version->major, version->minor,
	         version->patch, b->type == dnnl_f32 ? "fp32" : "bf16", c->threads, c->threads == 1 ? "" : "s");
	*engine = &c->base;
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "net/builder.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for one more element; arrays double at each power of two. */
static void *room(struct net_builder *b, void *array, int count, size_t size)
{
	if (count & (count - 1))
		return array;
	void *larger = reallocarray(array, count ? 2 * (size_t)count : 1, size);
	if (!larger)
		b->status = fail(b->error, EXIT_INTERNAL, "no memory for the layer table");
	return larger;
}

static int add_param(struct net_builder *b, enum param_kind kind, const char *layer, const char *suffix, int ndim, const int shape[4])
{
	struct net_plan *plan = b->plan;
	struct net_param *params = room(b, plan->params, plan->n_params, sizeof *params);
	if (!params)
		return -1;
	plan->params = params;
	struct net_param *p = &params[plan->n_params];
	*p = (struct net_param){ .kind = kind, .ndim = ndim, .offset = plan->n_weights, .count = 1 };
	snprintf(p->name, sizeof p->name, "%.80s.%s", layer, suffix);
	for (int d = 0; d < ndim; d++) {
		p->shape[d] = shape[d];
		p->count *= (size_t)shape[d];
	}
	plan->n_weights += p->count;
	return plan->n_params++;
}

static int channels_of(const struct net_plan *plan, int activation)
{
	return activation == 0 ? 3 : plan->layers[activation - 1].c_out;
}

static int height_of(const struct net_plan *plan, int activation)
{
	return activation == 0 ? plan->image_size : plan->layers[activation - 1].h_out;
}

/* A layer whose output has the input's shape until the caller says otherwise; NULL after a failure. */
static struct net_layer *add_layer(struct net_builder *b, enum layer_op op, int in, const char *name, va_list args)
{
	struct net_plan *plan = b->plan;
	if (b->status)
		return NULL;
	struct net_layer *layers = room(b, plan->layers, plan->n_layers, sizeof *layers);
	if (!layers)
		return NULL;
	plan->layers = layers;
	struct net_layer *l = &layers[plan->n_layers++];
	*l = (struct net_layer){ .op = op, .in = in, .in2 = -1, .k = 1, .stride = 1, .weight = -1, .bias = -1, .bn = -1 };
	vsnprintf(l->name, sizeof l->name, name, args);
	l->c_in = l->c_out = channels_of(plan, in);
	l->h_in = l->h_out = height_of(plan, in);
	return l;
}

static int window(struct net_builder *b, struct net_layer *l, int k, int stride, int pad)
{
	l->k = k;
	l->stride = stride;
	l->pad = pad;
	int reach = l->h_in + 2 * pad - k;
	if (reach < 0 || l->h_in < 1)
		return b->status = fail(b->error, EXIT_USAGE, "%s: images of %d pixels are too small: only %d x %d arrive at %s",
		                        b->plan->model, b->plan->image_size, l->h_in, l->h_in, l->name);
	l->h_out = reach / stride + 1;
	return 0;
}

int net_add_conv(struct net_builder *b, int in, int c_out, int k, int stride, int pad, const char *name, ...)
{
	va_list args;
	va_start(args, name);
	struct net_layer *l = add_layer(b, OP_CONV, in, name, args);
	va_end(args);
	if (!l || window(b, l, k, stride, pad))
		return 0;
	l->c_out = c_out;
	l->weight = add_param(b, PARAM_CONV_WEIGHT, l->name, "weight", 4, (int[4]){ c_out, l->c_in, k, k });
	return b->plan->n_layers;
}

int net_add_bn(struct net_builder *b, enum layer_op op, int in, const char *name, ...)
{
	va_list args;
	va_start(args, name);
	struct net_layer *l = add_layer(b, op, in, name, args);
	va_end(args);
	if (!l)
		return 0;
	struct net_plan *plan = b->plan;
	struct net_bn *bns = room(b, plan->bns, plan->n_bns, sizeof *bns);
	if (!bns)
		return 0;
	plan->bns = bns;
	struct net_bn *bn = &bns[plan->n_bns];
	*bn = (struct net_bn){ .channels = l->c_in, .offset = plan->n_bn_channels };
	snprintf(bn->name, sizeof bn->name, "%s", l->name);
	bn->weight = l->weight = add_param(b, PARAM_BN_WEIGHT, l->name, "weight", 1, (int[4]){ l->c_in });
	bn->bias = l->bias = add_param(b, PARAM_BN_BIAS, l->name, "bias", 1, (int[4]){ l->c_in });
	l->bn = plan->n_bns++;
	plan->n_bn_channels += (size_t)bn->channels;
	return plan->n_layers;
}

int net_add_pool(struct net_builder *b, enum layer_op op, int in, int k, int stride, int pad, const char *name, ...)
{
	va_list args;
	va_start(args, name);
	struct net_layer *l = add_layer(b, op, in, name, args);
	va_end(args);
	if (!l)
		return 0;
	if (op == OP_GLOBAL_AVGPOOL)
		k = stride = l->h_in;
	return window(b, l, k, stride, pad) ? 0 : b->plan->n_layers;
}

int net_add_join(struct net_builder *b, enum layer_op op, int in, int in2, const char *name, ...)
{
	va_list args;
	va_start(args, name);
	struct net_layer *l = add_layer(b, op, in, name, args);
	va_end(args);
	if (!l)
		return 0;
	l->in2 = in2;
	if (op == OP_CONCAT)
		l->c_out += channels_of(b->plan, in2);
	return b->plan->n_layers;
}

int net_add_linear(struct net_builder *b, int in, int outputs, const char *name, ...)
{
	va_list args;
	va_start(args, name);
	struct net_layer *l = add_layer(b, OP_LINEAR, in, name, args);
	va_end(args);
	if (!l)
		return 0;
	l->c_out = outputs;
	l->weight = add_param(b, PARAM_LINEAR_WEIGHT, l->name, "weight", 2, (int[4]){ outputs, l->c_in });
	l->bias = add_param(b, PARAM_LINEAR_BIAS, l->name, "bias", 1, (int[4]){ outputs });
	return b->plan->n_layers;
}

int net_check_blocks(struct net_builder *b, const char *model, const char *what, const int *block)
{
	struct net_plan *plan = b->plan;
	if (plan->n_blocks < 1 || plan->n_blocks > NET_MAX_BLOCKS)
		return fail(b->error, EXIT_USAGE, "%s: %d blocks: give 1 to %d numbers of %s", model, plan->n_blocks, NET_MAX_BLOCKS, what);
	for (int i = 0; i < plan->n_blocks; i++) {
		plan->block[i] = block[i];
		if (block[i] < 1 || block[i] > 64)
			return fail(b->error, EXIT_USAGE, "%s: block %d has %d %s: use 1 to 64", model, i + 1, block[i], what);
	}
	return 0;
}

int net_unknown_model(struct net_builder *b, const char *model)
{
	return fail(b->error, EXIT_USAGE, "unknown model %s: there are densenet121, densenet169, densenet201, densenet, resnet50 and resnet", model);
}

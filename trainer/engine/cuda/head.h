/* SPDX-License-Identifier: Apache-2.0
 * The end of the network in fp32: global average pool, classifier, loss, and the way back to the pool. */
#ifndef CUDA_HEAD_H
#define CUDA_HEAD_H

#include "device.h"
#include "vector.h"

enum { HEAD_THREADS = 256 };

/* pooled[image][channel] = mean over the map of relu(scale · x + bias); a thread takes eight channels of an image. */
template <class T> struct head_pool {
	const T *x;                /* [images][map] of pitch */
	const float *scale, *bias; /* NULL: x is activated already */
	float *pooled;             /* [images][channels] */
	int images, map, channels, pitch;
};

template <class T> KERNEL THREADS(HEAD_THREADS, 1) head_pool_kernel(const head_pool<T> p)
{
	begin_kernel();
	const int groups = p.channels / 8, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (i >= p.images * groups)
		return;
	const int image = i / groups, channel = i % groups * 8;
	octet total = {}, scale = {}, bias = {};
	if (p.scale) {
		scale = load8(p.scale + channel);
		bias = load8(p.bias + channel);
	}
	for (int m = 0; m < p.map; m++) {
		const octet v = load8(p.x + ((size_t)image * (size_t)p.map + (size_t)m) * (size_t)p.pitch + channel);
		UNROLL for (int j = 0; j < 8; j++) {
			const float z = p.scale ? fmaf(v.v[j], scale.v[j], bias.v[j]) : v.v[j];
			total.v[j] += z <= 0 ? 0 : z;
		}
	}
	UNROLL for (int j = 0; j < 8; j++)
		total.v[j] /= (float)p.map;
	store8(p.pooled + (size_t)image * (size_t)p.channels + channel, total);
}

/* logits[image][class] = bias + weight · pooled; a warp a logit. */
struct head_logits {
	const float *pooled, *weight, *bias; /* [images][channels], [classes][channels], [classes] */
	float *logits;                       /* [images][classes] */
	int images, channels, classes;
};

KERNEL THREADS(HEAD_THREADS, 1) head_logits_kernel(const head_logits p)
{
	begin_kernel();
	const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = (int)threadIdx.x % 32;
	if (i >= p.images * p.classes)
		return; /* whole warps leave together */
	const float *x = p.pooled + (size_t)(i / p.classes) * (size_t)p.channels, *w = p.weight + (size_t)(i % p.classes) * (size_t)p.channels;
	float sum = 0;
	for (int c = lane; c < p.channels; c += 32)
		sum = fmaf(x[c], w[c], sum);
	for (int mask = 16; mask; mask /= 2)
		sum += shuffle_xor(sum, mask);
	if (lane == 0)
		p.logits[i] = sum + p.bias[i % p.classes];
}

/* Mean loss over images (and classes, for BCE) with its gradient. One block, so that the sum has one order. */
struct head_loss {
	const float *logits;      /* [images][classes] */
	const uint32_t *labels;   /* BCE: bits; softmax: class */
	const uint32_t *known;    /* BCE: bits, or NULL: all */
	const float *weight;      /* [images] or NULL: 1 */
	const float *pos_weight;  /* [classes] or NULL: 1 */
	float *dlogits;           /* [images][classes]: gradient of the mean, times loss_scale */
	float *loss;              /* one number */
	const float *loss_scale;  /* NULL: 1 */
	float factor;             /* loss = factor · mean, plus its old value where accumulate */
	int images, classes, softmax, accumulate;
};

/* log(1 + exp(-|x|)) and the logistic function, without overflow. */
DEVICE float log1p_exp(float x)
{
	return log1pf(expf(-fabsf(x)));
}

DEVICE float bce_element(const head_loss &p, int image, int k, float *gradient)
{
	const float x = p.logits[image * p.classes + k];
	const int known = p.known ? (int)(p.known[image] >> k & 1) : 1, positive = (int)(p.labels[image] >> k & 1);
	const float weight = (p.weight ? p.weight[image] : 1) * (known ? 1 : 0) * (positive && p.pos_weight ? p.pos_weight[k] : 1);
	const float e = expf(-fabsf(x)), sigmoid = x >= 0 ? 1 / (1 + e) : e / (1 + e);
	*gradient = weight * (sigmoid - (float)positive);
	return weight * ((positive ? (x < 0 ? -x : 0) : (x > 0 ? x : 0)) + log1p_exp(x));
}

DEVICE float softmax_image(const head_loss &p, int image, float scale)
{
	const float *x = p.logits + image * p.classes;
	const float weight = p.weight ? p.weight[image] : 1;
	float most = x[0], sum = 0;
	for (int k = 1; k < p.classes; k++)
		most = x[k] > most ? x[k] : most;
	for (int k = 0; k < p.classes; k++)
		sum += expf(x[k] - most);
	for (int k = 0; k < p.classes; k++)
		p.dlogits[image * p.classes + k] = scale * weight * (expf(x[k] - most) / sum - (float)((uint32_t)k == p.labels[image]));
	return weight * (most + logf(sum) - x[p.labels[image]]);
}

KERNEL THREADS(HEAD_THREADS, 1) head_loss_kernel(const head_loss p)
{
	begin_kernel();
	float *sums = (float *)shared_memory(); /* [HEAD_THREADS] */
	const int t = (int)threadIdx.x, count = p.softmax ? p.images : p.images * p.classes;
	const float scale = (p.loss_scale ? *p.loss_scale : 1) / (float)count;
	float sum = 0;
	for (int i = t; i < count; i += HEAD_THREADS) {
		if (p.softmax) {
			sum += softmax_image(p, i, scale);
		} else {
			float gradient;
			sum += bce_element(p, i / p.classes, i % p.classes, &gradient);
			p.dlogits[i] = scale * gradient;
		}
	}
	sums[t] = sum;
	sync_block();
	if (t)
		return;
	double total = 0;
	for (int i = 0; i < HEAD_THREADS; i++)
		total += sums[i];
	p.loss[0] = (p.accumulate ? p.loss[0] : 0) + p.factor * (float)(total / count);
}

/* Gradients of the classifier into the slab, and of the pool. Threads: classes × channels, classes, images × channels. */
struct head_backward {
	const float *dlogits, *pooled, *weight;
	float *grad_weight, *grad_bias, *dpooled;
	const float *unscale; /* 1 / loss scale; NULL: 1 */
	float factor;         /* of the slab's gradients */
	int images, channels, classes, accumulate;
};

KERNEL THREADS(HEAD_THREADS, 1) head_backward_kernel(const head_backward p)
{
	begin_kernel();
	long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
	const long weights = (long)p.classes * p.channels;
	const float factor = p.factor * (p.unscale ? *p.unscale : 1);
	if (i < weights) {
		const int k = (int)(i / p.channels), c = (int)(i % p.channels);
		float sum = 0;
		for (int n = 0; n < p.images; n++)
			sum = fmaf(p.dlogits[n * p.classes + k], p.pooled[(size_t)n * (size_t)p.channels + (size_t)c], sum);
		p.grad_weight[i] = (p.accumulate ? p.grad_weight[i] : 0) + factor * sum;
		return;
	}
	i -= weights;
	if (i < p.classes) {
		float sum = 0;
		for (int n = 0; n < p.images; n++)
			sum += p.dlogits[n * p.classes + i];
		p.grad_bias[i] = (p.accumulate ? p.grad_bias[i] : 0) + factor * sum;
		return;
	}
	i -= p.classes;
	if (i < (long)p.images * p.channels) {
		const int n = (int)(i / p.channels), c = (int)(i % p.channels);
		float sum = 0;
		for (int k = 0; k < p.classes; k++)
			sum = fmaf(p.dlogits[n * p.classes + k], p.weight[(size_t)k * (size_t)p.channels + (size_t)c], sum);
		p.dpooled[i] = sum;
	}
}

inline int head_backward_launch(const head_backward &p, device_stream stream)
{
	const long threads = (long)p.classes * p.channels + p.classes + (long)p.images * p.channels;
	return launch(head_backward_kernel, (unsigned)((threads + HEAD_THREADS - 1) / HEAD_THREADS), HEAD_THREADS, 0, stream, p);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 * The end of the network in fp32: global average pool, classifier, loss, and the way back to the pool. */
#ifndef CUDA_HEAD_H
#define CUDA_HEAD_H

#include "device.h"
#include "vector.h"

enum { HEAD_THREADS = 256 };

/* pooled[image][channel] = mean over the map of relu(scale · x + bias); a thread takes eight channels of an image and every POOL_PARTS-th pixel of its map. */
enum { POOL_PARTS = HEAD_THREADS / 32, POOL_BYTES = HEAD_THREADS * 8 * 4 };

template <class T> struct head_pool {
	const T *x;                /* [images][map] of pitch */
	const float *scale, *bias; /* NULL: x is activated already */
	float *pooled;             /* [images][channels] */
	int images, map, channels, pitch;
};

template <class T> KERNEL THREADS(HEAD_THREADS, 1) head_pool_kernel(const head_pool<T> p)
{
	begin_kernel();
	float *shared = (float *)shared_memory(); /* [POOL_PARTS][32][8] */
	const int t = (int)threadIdx.x, groups = p.channels / 8, first = (int)blockIdx.x * 32, i = first + t % 32;
	if (i < p.images * groups) {
		const int image = i / groups, channel = i % groups * 8;
		const T *x = p.x + (size_t)image * (size_t)p.map * (size_t)p.pitch + channel;
		octet total = {}, scale = {}, bias = {};
		if (p.scale) {
			scale = load8(p.scale + channel);
			bias = load8(p.bias + channel);
		}
		UNROLL_EIGHT for (int m = t / 32; m < p.map; m += POOL_PARTS) {
			const octet v = load8(x + (size_t)m * (size_t)p.pitch);
			UNROLL for (int j = 0; j < 8; j++) {
				const float z = p.scale ? fmaf(v.v[j], scale.v[j], bias.v[j]) : v.v[j];
				total.v[j] += z <= 0 ? 0 : z;
			}
		}
		store8(shared + t * 8, total);
	}
	sync_block();
	if (first * 8 + t >= p.images * p.channels)
		return;
	float sum = 0;
	for (int part = 0; part < POOL_PARTS; part++)
		sum += shared[part * 32 * 8 + t];
	p.pooled[first * 8 + t] = sum / (float)p.map;
}

template <class T> int head_pool_launch(const head_pool<T> &p, device_stream stream)
{
	return launch(head_pool_kernel<T>, (unsigned)(p.images * (p.channels / 8) + 31) / 32, HEAD_THREADS, POOL_BYTES, stream, p);
}

/* logits[image][class] = bias + weight · pooled; a warp has one class of `rows` images, which share what is read of its weight. */
struct head_logits {
	const float *pooled, *weight, *bias; /* [images][channels], [classes][channels], [classes] */
	float *logits;                       /* [images][classes] */
	int images, channels, classes;
};

template <int rows> KERNEL THREADS(HEAD_THREADS, 1) head_logits_kernel(const head_logits p)
{
	begin_kernel();
	const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = (int)threadIdx.x % 32;
	const int k = i % p.classes, first = i / p.classes * rows, left = p.images - first;
	if (left <= 0)
		return; /* whole warps leave together */
	const float *w = p.weight + (size_t)k * (size_t)p.channels, *x[rows];
	float sum[rows] = {};
	UNROLL for (int r = 0; r < rows; r++)
		x[r] = p.pooled + (size_t)(first + (r < left ? r : 0)) * (size_t)p.channels;
	enum { AHEAD = rows == 1 ? 8 : 2 /* channels that a lane waits for at once */ };
	SERIAL for (int first_c = lane; first_c < p.channels; first_c += 32 * AHEAD) {
		float v[rows][AHEAD], by[AHEAD];
		UNROLL for (int k = 0; k < AHEAD; k++) {
			const int c = first_c + 32 * k;
			by[k] = c < p.channels ? w[c] : 0;
			UNROLL for (int r = 0; r < rows; r++)
				v[r][k] = c < p.channels ? x[r][c] : 0;
		}
		UNROLL for (int k = 0; k < AHEAD; k++)
			UNROLL for (int r = 0; r < rows; r++)
				sum[r] = fmaf(v[r][k], by[k], sum[r]);
	}
	UNROLL for (int r = 0; r < rows; r++) {
		for (int mask = 16; mask; mask /= 2)
			sum[r] += shuffle_xor(sum[r], mask);
		if (lane == 0 && r < left)
			p.logits[(size_t)(first + r) * (size_t)p.classes + (size_t)k] = sum[r] + p.bias[k];
	}
}

template <int rows> int head_logits_of(const head_logits &p, device_stream stream)
{
	const long threads = 32L * ((p.images + rows - 1) / rows) * p.classes;
	return launch(head_logits_kernel<rows>, (unsigned)((threads + HEAD_THREADS - 1) / HEAD_THREADS), HEAD_THREADS, 0, stream, p);
}

/* With few classes there is little to share, and more warps are sooner through. */
inline int head_logits_launch(const head_logits &p, device_stream stream)
{
	return p.classes < 64 ? head_logits_of<1>(p, stream) : head_logits_of<8>(p, stream);
}

/* Mean loss over images (and classes, for BCE) with its gradient. One block, so that the sum has one order; with softmax a warp takes an image. */
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

/* A warp's image; every lane gets its loss. */
DEVICE float softmax_image(const head_loss &p, int image, float scale)
{
	const int lane = (int)threadIdx.x % 32;
	const float *x = p.logits + (size_t)image * (size_t)p.classes;
	const float weight = p.weight ? p.weight[image] : 1;
	float most = x[0], sum = 0;
	for (int k = lane; k < p.classes; k += 32)
		most = x[k] > most ? x[k] : most;
	for (int mask = 16; mask; mask /= 2) {
		const float other = shuffle_xor(most, mask);
		most = other > most ? other : most;
	}
	for (int k = lane; k < p.classes; k += 32)
		sum += expf(x[k] - most);
	for (int mask = 16; mask; mask /= 2)
		sum += shuffle_xor(sum, mask);
	for (int k = lane; k < p.classes; k += 32)
		p.dlogits[(size_t)image * (size_t)p.classes + (size_t)k] = scale * weight * (expf(x[k] - most) / sum - (float)((uint32_t)k == p.labels[image]));
	return weight * (most + logf(sum) - x[p.labels[image]]);
}

enum { LOSS_THREADS = 1024, LOSS_BYTES = LOSS_THREADS * 4 };

KERNEL THREADS(LOSS_THREADS, 1) head_loss_kernel(const head_loss p)
{
	begin_kernel();
	float *sums = (float *)shared_memory(); /* [LOSS_THREADS] */
	double *parts = (double *)shared_memory(), part = 0; /* [32], in the same place */
	const int t = (int)threadIdx.x, count = p.softmax ? p.images : p.images * p.classes;
	const float scale = (p.loss_scale ? *p.loss_scale : 1) / (float)count;
	float sum = 0;
	if (p.softmax) {
		for (int i = t / 32; i < count; i += LOSS_THREADS / 32) {
			const float loss = softmax_image(p, i, scale);
			sum += t % 32 ? 0 : loss;
		}
	} else {
		for (int i = t; i < count; i += LOSS_THREADS) {
			float gradient;
			sum += bce_element(p, i / p.classes, i % p.classes, &gradient);
			p.dlogits[i] = scale * gradient;
		}
	}
	sums[t] = sum;
	sync_block();
	for (int i = t; t < 32 && i < LOSS_THREADS; i += 32)
		part += sums[i];
	sync_block();
	if (t < 32)
		parts[t] = part;
	sync_block();
	if (t)
		return;
	for (int i = 1; i < 32; i++)
		part += parts[i];
	p.loss[0] = (p.accumulate ? p.loss[0] : 0) + p.factor * (float)(part / count);
}

inline int head_loss_launch(const head_loss &p, device_stream stream)
{
	return launch(head_loss_kernel, 1, LOSS_THREADS, LOSS_BYTES, stream, p);
}

/* Gradients of the classifier into the slab, and of the pool. */
struct head_backward {
	const float *dlogits, *pooled, *weight;
	float *grad_weight, *grad_bias, *dpooled;
	const float *unscale; /* 1 / loss scale; NULL: 1 */
	float factor;         /* of the slab's gradients */
	int images, channels, classes, accumulate;
};

enum { HEAD_WARPS = HEAD_THREADS / 32, HEAD_ROWS = HEAD_WARPS, HEAD_COLUMNS = 32, HEAD_BYTES = HEAD_WARPS * HEAD_ROWS * HEAD_COLUMNS * 4 };

/* out[row][column] = sum over j of left[row][j] · right[j][column]. A block has HEAD_ROWS × HEAD_COLUMNS of them, each warp a share of the js for all: a
 * value of `right` serves all rows. The shares are added in the warps' order. */
struct head_product {
	const float *left, *right;      /* right: [js][pitch], ones from column `pitch` on */
	size_t row_step, j_step, pitch; /* of left */
	int rows, columns, js;

	HD int blocks() const
	{
		return (rows + HEAD_ROWS - 1) / HEAD_ROWS * ((columns + HEAD_COLUMNS - 1) / HEAD_COLUMNS);
	}
	/* What thread t has of block `block`: false where there is nothing. */
	DEVICE bool of(int block, int *row, int *column, float *product) const
	{
		float *shared = (float *)shared_memory(); /* [HEAD_WARPS][HEAD_ROWS][HEAD_COLUMNS] */
		const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32, across = (columns + HEAD_COLUMNS - 1) / HEAD_COLUMNS;
		const int row0 = block / across * HEAD_ROWS, c = block % across * HEAD_COLUMNS + lane, end = (int)((long)js * (warp + 1) / HEAD_WARPS);
		const bool ones = (size_t)c >= pitch;
		const float *from[HEAD_ROWS], *at = right + (ones ? 0 : c);
		float sum[HEAD_ROWS] = {};
		UNROLL for (int r = 0; r < HEAD_ROWS; r++)
			from[r] = left + (size_t)(row0 + r < rows ? row0 + r : row0) * row_step;
		for (int j = (int)((long)js * warp / HEAD_WARPS); j < end; j++) {
			const float value = ones ? 1 : at[(size_t)j * pitch];
			UNROLL for (int r = 0; r < HEAD_ROWS; r++)
				sum[r] = fmaf(from[r][(size_t)j * j_step], value, sum[r]);
		}
		UNROLL for (int r = 0; r < HEAD_ROWS; r++)
			shared[(warp * HEAD_ROWS + r) * HEAD_COLUMNS + lane] = sum[r];
		sync_block();
		*row = row0 + warp;
		*column = c;
		*product = shared[warp * HEAD_COLUMNS + lane];
		for (int w = 1; w < HEAD_WARPS; w++)
			*product += shared[(w * HEAD_ROWS + warp) * HEAD_COLUMNS + lane];
		return *row < rows && c < columns;
	}
};

/* Of the classifier: a class's bias is the weight of a channel that is always 1. */
HD head_product head_weight_product(const head_backward &p)
{
	return { p.dlogits, p.pooled, 1, (size_t)p.classes, (size_t)p.channels, p.classes, p.channels + 1, p.images };
}

HD head_product head_pool_product(const head_backward &p)
{
	return { p.dlogits, p.weight, (size_t)p.classes, 1, (size_t)p.channels, p.images, p.channels, p.classes };
}

KERNEL THREADS(HEAD_THREADS, 1) head_backward_kernel(const head_backward p)
{
	begin_kernel();
	const head_product weights = head_weight_product(p), pool = head_pool_product(p);
	const int block = (int)blockIdx.x, of_weights = weights.blocks();
	int row, column;
	float sum;
	if (block >= of_weights) {
		if (pool.of(block - of_weights, &row, &column, &sum))
			p.dpooled[(size_t)row * (size_t)p.channels + (size_t)column] = sum;
		return;
	}
	if (!weights.of(block, &row, &column, &sum))
		return;
	float *to = column < p.channels ? p.grad_weight + (size_t)row * (size_t)p.channels + (size_t)column : p.grad_bias + row;
	*to = (p.accumulate ? *to : 0) + p.factor * (p.unscale ? *p.unscale : 1) * sum;
}

inline int head_backward_launch(const head_backward &p, device_stream stream)
{
	return launch(head_backward_kernel, (unsigned)(head_weight_product(p).blocks() + head_pool_product(p).blocks()), HEAD_THREADS, HEAD_BYTES, stream, p);
}

#endif

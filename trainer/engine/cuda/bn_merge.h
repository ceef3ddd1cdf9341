/* SPDX-License-Identifier: Apache-2.0
 * Batch normalisation between the passes over a map: from a pass's partial sums to the few numbers that the next one needs. These kernels are
 * short, so that what a launch takes counts: each does all that is due at its place in a step. */
#ifndef CUDA_BN_MERGE_H
#define CUDA_BN_MERGE_H

#include "device.h"
#include "gate.h"
#include "tile.h"

enum { BN_THREADS = 128, MERGE_THREADS = 512, MERGE_CHANNELS = 8 /* 32 bytes of a part's row: a sector */, MERGE_ROWS = MERGE_THREADS / MERGE_CHANNELS, MERGE_COLUMNS = 2 * MERGE_CHANNELS,
       MERGE_GROUPS = 8, MERGE_BYTES = (MERGE_ROWS + MERGE_GROUPS) * MERGE_COLUMNS * 8, MERGE_DEPTH = 8 /* parts that a thread waits for at once */ };

/* There are up to SUM_BLOCKS parts, and a thread a channel would wait for one load after the other, a hundred microseconds for each of a DenseNet-121's merges. Block
 * `block` merges MERGE_CHANNELS channels: thread row r adds parts r, r + MERGE_ROWS, …, then rows are added in their order, by groups and the groups. True where *channel's
 * sums are there. */
template <int depth> DEVICE bool merge_parts(const float *partial, int parts, int stride, int channels, int block, int *channel, double (&sum)[2])
{
	double *rows = (double *)shared_memory(), *groups = rows + MERGE_ROWS * MERGE_COLUMNS; /* [MERGE_ROWS], [MERGE_GROUPS] of [2][MERGE_CHANNELS] */
	const int t = (int)threadIdx.x, column = t % MERGE_CHANNELS, row = t / MERGE_CHANNELS, c = block * MERGE_CHANNELS + column;
	sum[0] = sum[1] = 0;
	if (c < channels)
		SERIAL for (int first = row; first < parts; first += depth * MERGE_ROWS) {
			float value[depth][2];
			UNROLL for (int i = 0; i < depth; i++)
				UNROLL for (int which = 0; which < 2; which++)
					value[i][which] = first + i * MERGE_ROWS < parts ? partial[((size_t)(first + i * MERGE_ROWS) * 2 + (size_t)which) * (size_t)stride + (size_t)c] : 0;
			UNROLL for (int i = 0; i < depth; i++)
				UNROLL for (int which = 0; which < 2; which++)
					sum[which] += value[i][which];
		}
	UNROLL for (int which = 0; which < 2; which++)
		rows[row * MERGE_COLUMNS + which * MERGE_CHANNELS + column] = sum[which];
	sync_block();
	if (t < MERGE_GROUPS * MERGE_COLUMNS) {
		double total = 0;
		UNROLL for (int i = 0; i < MERGE_ROWS / MERGE_GROUPS; i++)
			total += rows[(t / MERGE_COLUMNS * (MERGE_ROWS / MERGE_GROUPS) + i) * MERGE_COLUMNS + t % MERGE_COLUMNS];
		groups[t] = total;
	}
	sync_block();
	if (t >= MERGE_CHANNELS || c >= channels)
		return false;
	sum[0] = sum[1] = 0;
	UNROLL for (int g = 0; g < MERGE_GROUPS; g++)
		UNROLL for (int which = 0; which < 2; which++)
			sum[which] += groups[g * MERGE_COLUMNS + which * MERGE_CHANNELS + column];
	*channel = c;
	return true;
}

inline int merge_blocks(int channels)
{
	return (channels + MERGE_CHANNELS - 1) / MERGE_CHANNELS;
}

/* ---- forward ---- */

/* A layer's scale and bias, from batch statistics (rstd) or running ones (variance). Training also adds the batch's
 * statistics to the slab's. */
struct bn_scale {
	const float *gamma, *beta, *mean, *rstd, *variance; /* variance NULL: use rstd */
	float *scale, *bias;                    /* [channels] */
	const float *square;                    /* E[x²] of the batch */
	float *slab_mean, *slab_square;         /* NULL in evaluation */
	float factor;                           /* 1 / micro-batches */
	float epsilon;
	int accumulate, channels;
};

/* What a channel's scale is made of, beside its statistics: asked for before they are there. */
struct gamma_beta {
	float gamma, beta;
};

DEVICE gamma_beta gamma_beta_of(const bn_scale &p, int c)
{
	return { p.gamma[c], p.beta[c] };
}

struct channel_scale {
	float scale, bias;
};

/* keeps: also writes them, and the statistics into the slab. */
DEVICE channel_scale scale_from(const bn_scale &p, int c, const gamma_beta &of, float mean, float rstd, float square, bool keeps)
{
	const float scale = of.gamma * rstd, bias = fmaf(-mean, scale, of.beta);
	if (keeps) {
		p.scale[c] = scale;
		p.bias[c] = bias;
	}
	if (keeps && p.slab_mean) {
		p.slab_mean[c] = (p.accumulate ? p.slab_mean[c] : 0) + p.factor * mean;
		p.slab_square[c] = (p.accumulate ? p.slab_square[c] : 0) + p.factor * square;
	}
	return { scale, bias };
}

/* Of a channel whose statistics are there. */
DEVICE void scale_channel(const bn_scale &p, int c)
{
	const float rstd = p.variance ? (float)(1 / sqrt((double)p.variance[c] + p.epsilon)) : p.rstd[c];
	scale_from(p, c, gamma_beta_of(p, c), p.mean[c], rstd, p.slab_mean ? p.square[c] : 0, true);
}

KERNEL THREADS(BN_THREADS, 1) bn_scale_kernel(const bn_scale p)
{
	begin_kernel();
	const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (c < p.channels)
		scale_channel(p, c);
}

/* The statistics of a map's new channels, from partial sums, merged in double; then scale and bias of the normalisation that reads the
 * map next, which has the channels before and after them, too. */
struct bn_statistics {
	const float *partial;        /* [parts][2][stride], the first channels of each */
	float *mean, *rstd, *square; /* [channels] */
	double pixels;
	float epsilon;
	int parts, channels, stride;
	bn_scale next;               /* its mean, rstd and square hold those above from place `from` on */
	int from;
};

/* Of new channel c, from its sum and its sum of squares. */
DEVICE channel_scale scale_merged(const bn_statistics &p, int c, const gamma_beta &of, double sum, double squares, bool keeps)
{
	const double mean = sum / p.pixels, mean_square = squares / p.pixels, variance = mean_square - mean * mean;
	const float square = (float)mean_square, rstd = (float)(1 / sqrt((variance <= 0 ? 0 : variance) + p.epsilon));
	if (keeps) {
		p.mean[c] = (float)mean;
		p.square[c] = square;
		p.rstd[c] = rstd;
	}
	return scale_from(p.next, p.from + c, of, (float)mean, rstd, square, keeps);
}

KERNEL THREADS(MERGE_THREADS, 1) bn_statistics_kernel(const bn_statistics p)
{
	begin_kernel();
	const int merging = (p.channels + MERGE_CHANNELS - 1) / MERGE_CHANNELS;
	double sum[2];
	int c;
	if ((int)blockIdx.x >= merging) {
		c = ((int)blockIdx.x - merging) * MERGE_THREADS + (int)threadIdx.x;
		c += c < p.from ? 0 : p.channels;
		if (c < p.next.channels)
			scale_channel(p.next, c);
		return;
	}
	c = (int)blockIdx.x * MERGE_CHANNELS + (int)threadIdx.x % MERGE_CHANNELS;
	const gamma_beta of = gamma_beta_of(p.next, p.from + (c < p.channels ? c : 0));
	if (!merge_parts<MERGE_DEPTH>(p.partial, p.parts, p.stride, p.channels, (int)blockIdx.x, &c, sum))
		return;
	scale_merged(p, c, of, sum[0], sum[1], true);
}

inline int bn_statistics_launch(const bn_statistics &p, device_stream stream)
{
	const int others = p.next.channels - p.channels;
	return launch(bn_statistics_kernel, (unsigned)(merge_blocks(p.channels) + (others + MERGE_THREADS - 1) / MERGE_THREADS), MERGE_THREADS, MERGE_BYTES, stream, p);
}

/* Running statistics from the slab's means over all micro-batches and ranks: momentum 0.1, unbiased variance. */
struct bn_running {
	const float *slab_mean, *slab_square, *unbias; /* [channels]; unbias = n / (n - 1) */
	float *mean, *variance;
	const step_gate *gate;                         /* as in struct update */
	int channels;
};

KERNEL THREADS(BN_THREADS, 1) bn_running_kernel(const bn_running p)
{
	begin_kernel();
	const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (c >= p.channels || p.gate->closed)
		return;
	const double mean = p.slab_mean[c], variance = (p.slab_square[c] - mean * mean) * p.unbias[c];
	p.mean[c] = (float)(0.9 * p.mean[c] + 0.1 * mean);
	p.variance[c] = (float)(0.9 * p.variance[c] + 0.1 * (variance <= 0 ? 0 : variance));
}

template <class P> int per_channel_launch(void (*kernel)(P), const P &p, device_stream stream)
{
	return launch(kernel, (unsigned)(p.channels + BN_THREADS - 1) / BN_THREADS, BN_THREADS, 0, stream, p);
}

/* ---- backward ---- */

/* dbeta and dgamma from partial sums: into the gradient slab, and towards the gradient of the map, a · g + b · x + c. A private normalisation has its
 * coefficients at once: dy = a · dz + b · y + c. A shared one adds its part to its map's (s1 += gamma · dbeta, s2 += gamma · dgamma), and then has those
 * for the channels [from, from + due) that no other layer reads any more, as dx = rstd · (g - (s1 + (x - mean) · rstd · s2) / pixels). */
struct bn_backward_sums {
	const float *partial;               /* [parts][2][channels] */
	const float *gamma, *mean, *rstd;
	float *grad_gamma, *grad_beta;      /* in the slab */
	float *s1, *s2;                     /* NULL: private */
	float *a, *b, *c;                   /* [channels]; shared: [due] */
	const float *unscale;               /* 1 / loss scale; NULL: 1 */
	double pixels;
	float factor;                       /* of the slab's gradients: 1 / micro-batches */
	int accumulate, first, parts, channels;
	int from, due;
};

DEVICE void keep_gradients(const bn_backward_sums &p, int c, double beta, double gamma)
{
	const float factor = p.factor * (p.unscale ? *p.unscale : 1);
	p.grad_beta[c] = (p.accumulate ? p.grad_beta[c] : 0) + factor * (float)beta;
	p.grad_gamma[c] = (p.accumulate ? p.grad_gamma[c] : 0) + factor * (float)gamma;
}

struct channel_coefficients {
	float a, b, c;
};

/* Of a private normalisation's channel, from its two sums. */
DEVICE channel_coefficients private_coefficients(double pixels, float gamma_of, float mean, float rstd, double beta, double gamma)
{
	const double scale = (double)gamma_of * rstd, slope = gamma * rstd / pixels;
	return { (float)scale, (float)(-scale * slope), (float)(scale * (slope * mean - beta / pixels)) };
}

template <int depth> DEVICE void merge_backward(const bn_backward_sums &p, int block)
{
	double sum[2];
	int c = block * MERGE_CHANNELS + (int)threadIdx.x % MERGE_CHANNELS;
	const int asked = c < p.channels ? c : 0; /* before its sums are there */
	const float gamma_of = p.gamma[asked], mean = p.mean[asked], rstd = p.rstd[asked], old1 = p.s1 && !p.first ? p.s1[asked] : 0, old2 = p.s1 && !p.first ? p.s2[asked] : 0;
	if (!merge_parts<depth>(p.partial, p.parts, p.channels, p.channels, block, &c, sum))
		return;
	const double beta = sum[0], gamma = sum[1];
	keep_gradients(p, c, beta, gamma);
	if (!p.s1) {
		const channel_coefficients of = private_coefficients(p.pixels, gamma_of, mean, rstd, beta, gamma);
		p.a[c] = of.a;
		p.b[c] = of.b;
		p.c[c] = of.c;
		return;
	}
	const float s1 = old1 + gamma_of * (float)beta, s2 = old2 + gamma_of * (float)gamma;
	p.s1[c] = s1;
	p.s2[c] = s2;
	if (c >= p.from && c < p.from + p.due) {
		const double slope = (double)rstd * s2 / p.pixels;
		p.a[c - p.from] = rstd;
		p.b[c - p.from] = (float)(-rstd * slope);
		p.c[c - p.from] = (float)(rstd * (slope * mean - s1 / p.pixels));
	}
}

KERNEL THREADS(MERGE_THREADS, 1) bn_backward_sums_kernel(const bn_backward_sums p)
{
	begin_kernel();
	merge_backward<MERGE_DEPTH>(p, (int)blockIdx.x);
}

inline int bn_backward_sums_launch(const bn_backward_sums &p, device_stream stream)
{
	return launch(bn_backward_sums_kernel, (unsigned)merge_blocks(p.channels), MERGE_THREADS, MERGE_BYTES, stream, p);
}

/* ---- in the kernel that needs them ----
 * A launch takes longer than a merge: where few sums are wanted, each block of the next kernel merges them for itself, while its first tiles are on their way, and block 0
 * keeps what others need later. All of a kernel's blocks have the same bits: each adds in the same order. */

/* The sums of columns, `columns` of them (a multiple of four), over the parts: a thread takes four columns of every groups-th part. room: ROOM bytes of the block's memory. */
template <int threads> struct column_merge {
	enum { COLUMNS = 4, DEPTH = 12 /* parts that a thread waits for at once, of which each four are added in fp32 */, ROOM = threads * COLUMNS * (int)sizeof(double) };
	const double *sums; /* [groups][columns] */
	int columns, groups;

	DEVICE column_merge(const float *partial, int parts, int all_columns, void *room) : sums((const double *)room), columns(all_columns), groups(threads / (all_columns / COLUMNS))
	{
		const int lanes = columns / COLUMNS, group = (int)threadIdx.x / lanes, column = (int)threadIdx.x % lanes * COLUMNS;
		double sum[COLUMNS] = {};
		if (group < groups)
			SERIAL for (int first = group; first < parts; first += DEPTH * groups) {
				vector16 v[DEPTH];
				UNROLL for (int i = 0; i < DEPTH; i++)
					v[i] = read_or_zeros(partial + (size_t)(first + i * groups) * (size_t)columns + column, first + i * groups < parts);
				UNROLL for (int i = 0; i < DEPTH; i += 4)
					UNROLL for (int j = 0; j < COLUMNS; j++)
						sum[j] += (bits_float(v[i].word[j]) + bits_float(v[i + 1].word[j])) + (bits_float(v[i + 2].word[j]) + bits_float(v[i + 3].word[j]));
			}
		if (group < groups)
			UNROLL for (int j = 0; j < COLUMNS; j++)
				((double *)room)[group * columns + column + j] = sum[j];
		sync_block();
	}
	DEVICE double sum(int column) const
	{
		double sum = 0;
		UNROLL_FOUR for (int g = 0; g < groups; g++)
			sum += sums[g * columns + column];
		return sum;
	}
};

struct known_channel {
	gamma_beta of;
	float mean, rstd, square;
};

/* Scale and bias of p.next to the block's memory, [room] each, zeros behind its channels. There after a barrier, which also makes merge_room free. AHEAD · threads channels wait for the
 * memory once. */
template <int AHEAD, int threads> DEVICE void scale_in_place(const bn_statistics &p, float *scale, float *bias, int room, void *merge_room)
{
	const int t = (int)threadIdx.x;
	const bool keeps = blockIdx.x == 0;
	auto known = [&](int c) { return c < p.next.channels && (c < p.from || c >= p.from + p.channels); };
	auto ask = [&](int c) {
		return known(c) ? known_channel{ gamma_beta_of(p.next, c), p.next.mean[c], p.next.rstd[c], keeps ? p.next.square[c] : 0 } : known_channel{};
	};
	/* Asked for before the sums are there: what belongs to this thread's new channel, and its first known ones. */
	const gamma_beta of = gamma_beta_of(p.next, p.from + (t < p.channels ? t : 0));
	known_channel first[AHEAD];
	UNROLL for (int i = 0; i < AHEAD; i++)
		first[i] = ask(t + i * threads);
	const column_merge<threads> merged(p.partial, p.parts, 2 * p.stride, merge_room);
	if (t < p.channels) {
		const channel_scale put = scale_merged(p, t, of, merged.sum(t), merged.sum(p.stride + t), keeps);
		scale[p.from + t] = put.scale;
		bias[p.from + t] = put.bias;
	}
	auto put_known = [&](int c, const known_channel &k) {
		if (c >= room || (c >= p.from && c < p.from + p.channels))
			return;
		const channel_scale put = known(c) ? scale_from(p.next, c, k.of, k.mean, k.rstd, k.square, keeps) : channel_scale{};
		scale[c] = put.scale;
		bias[c] = put.bias;
	};
	UNROLL for (int i = 0; i < AHEAD; i++)
		put_known(t + i * threads, first[i]);
	SERIAL for (int c = t + AHEAD * threads; c < room; c += threads)
		put_known(c, ask(c));
}

/* The same for the coefficients of a private normalisation. */
template <int threads> DEVICE void coefficients_in_place(const bn_backward_sums &p, float *a, float *b, float *c, int room, void *merge_room)
{
	const int t = (int)threadIdx.x, asked = t < p.channels ? t : 0;
	const float gamma_of = p.gamma[asked], mean = p.mean[asked], rstd = p.rstd[asked];
	const column_merge<threads> merged(p.partial, p.parts, 2 * p.channels, merge_room);
	if (t >= room)
		return;
	channel_coefficients of = {};
	if (t < p.channels) {
		const double beta = merged.sum(t), gamma = merged.sum(p.channels + t);
		of = private_coefficients(p.pixels, gamma_of, mean, rstd, beta, gamma);
		if (blockIdx.x == 0)
			keep_gradients(p, t, beta, gamma);
	}
	a[t] = of.a;
	b[t] = of.b;
	c[t] = of.c;
}

#endif

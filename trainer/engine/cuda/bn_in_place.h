/* SPDX-License-Identifier: Apache-2.0
 * Batch normalisation, merged by the kernel that needs it. A launch takes longer than a merge: each block of a fused kernel merges for itself what the kernel before it left, while
 * its first tiles are on their way, and block 0 keeps what others need later. All of a kernel's blocks have the same bits: each adds in the same order. */
#ifndef CUDA_BN_IN_PLACE_H
#define CUDA_BN_IN_PLACE_H

#include "bn_channel.h"
#include "tile.h"

/* The sums of columns, `columns` of them (a multiple of four), over the parts: a thread takes four columns of every groups-th part. room: ROOM bytes of the block's memory. */
template <int threads> struct column_merge {
	enum { COLUMNS = 4, DEPTH = 20 /* parts that a thread waits for at once, of which each four are added in fp32 */, ROOM = threads * COLUMNS * (int)sizeof(double) };
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
		of = private_coefficients(p.share, gamma_of, mean, rstd, beta, gamma);
		if (blockIdx.x == 0)
			keep_gradients(p, t, beta, gamma);
	}
	a[t] = of.a;
	b[t] = of.b;
	c[t] = of.c;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Sums that a kernel leaves in parts, added in a fixed order: what a block does of it, in a launch for nothing else (bn_merge.h, weight_gradient.h) or beside the next
 * kernel's own blocks, on multiprocessors for which that one has no tile. A block's bits are the same in either, however many threads it has. */
#ifndef CUDA_LAYER_MERGE_H
#define CUDA_LAYER_MERGE_H

#include "bn_channel.h"
#include "tile.h"

/* ---- a normalisation's two sums ---- */

enum { MERGE_THREADS = 512, MERGE_CHANNELS = 16 /* 64 bytes of a part's row */, MERGE_ROWS = MERGE_THREADS / MERGE_CHANNELS, MERGE_GROUPS = 8, LAYER_DEPTH = 5 /* parts of a row that a thread waits for at once: 160 in all, and no more registers than two blocks of MERGE_THREADS a multiprocessor leave */ };

/* Bytes that merging `width` channels takes. */
constexpr int merge_bytes(int width)
{
	return MERGE_ROWS * 2 * width * (int)sizeof(double);
}

/* There are up to SUM_BLOCKS parts, and a thread a channel would wait for one load after the other, a hundred microseconds for each of a DenseNet-121's merges. Of the
 * `width` channels from `first` on, those before `end`: row r adds parts r, r + MERGE_ROWS, …, then rows are added in their order, by groups and the groups. A thread has
 * one column of as many rows as there are too few threads for. True where *channel's sums are there. room: merge_bytes(width) of the block's memory, free after a barrier. */
template <int depth, int threads, int width> DEVICE bool merge_parts(const float *partial, int parts, int stride, int first, int end, void *room, int *channel, double (&sum)[2])
{
	enum { APART = threads / width, MINE = MERGE_ROWS / APART, COLUMNS = 2 * width, GROUP = MERGE_ROWS / MERGE_GROUPS };
	static_assert(threads % width == 0 && MERGE_ROWS % APART == 0, "every thread has as many rows");
	double *rows = (double *)room; /* [MERGE_ROWS] of [2][width]; a group's sum in the place of its first row's */
	const int t = (int)threadIdx.x, column = t % width, row = t / width, c = first + column;
	double mine[MINE][2] = {};
	if (c < end)
		SERIAL for (int from = row; from < parts; from += depth * MERGE_ROWS) {
			float value[MINE][depth][2];
			UNROLL for (int m = 0; m < MINE; m++)
				UNROLL for (int i = 0; i < depth; i++)
					UNROLL for (int which = 0; which < 2; which++) {
						const int part = from + m * APART + i * MERGE_ROWS;
						value[m][i][which] = part < parts ? partial[((size_t)part * 2 + (size_t)which) * (size_t)stride + (size_t)c] : 0;
					}
			UNROLL for (int m = 0; m < MINE; m++)
				UNROLL for (int i = 0; i < depth; i++)
					UNROLL for (int which = 0; which < 2; which++)
						mine[m][which] += value[m][i][which];
		}
	UNROLL for (int m = 0; m < MINE; m++)
		UNROLL for (int which = 0; which < 2; which++)
			rows[(row + m * APART) * COLUMNS + which * width + column] = mine[m][which];
	sync_block();
	UNROLL for (int first_of = 0; first_of < MERGE_GROUPS * COLUMNS; first_of += threads) {
		const int i = first_of + t;
		double *of = rows + i / COLUMNS * GROUP * COLUMNS + i % COLUMNS, total = 0;
		if (i >= MERGE_GROUPS * COLUMNS)
			break;
		UNROLL for (int r = 0; r < GROUP; r++)
			total += of[r * COLUMNS];
		*of = total;
	}
	sync_block();
	if (t >= width || c >= end)
		return false;
	sum[0] = sum[1] = 0;
	UNROLL for (int g = 0; g < MERGE_GROUPS; g++)
		UNROLL for (int which = 0; which < 2; which++)
			sum[which] += rows[g * GROUP * COLUMNS + which * width + column];
	*channel = c;
	return true;
}

/* The MERGE_CHANNELS channels of block `block`. due_elsewhere: due_in_place() makes the coefficients of channels that are due, and reads s1 and s2 as they were, perhaps at this moment. */
template <int depth, int threads, bool due_elsewhere = false> DEVICE void merge_backward(const bn_backward_sums &p, int block)
{
	double sum[2];
	const int first = block * MERGE_CHANNELS;
	int c = first + (int)threadIdx.x % MERGE_CHANNELS;
	const int asked = c < p.channels ? c : first; /* before its sums are there; never what another block writes */
	const float gamma_of = p.gamma[asked], mean = p.mean[asked], rstd = p.rstd[asked], old1 = p.s1 && !p.first ? p.s1[asked] : 0, old2 = p.s1 && !p.first ? p.s2[asked] : 0;
	if (!merge_parts<depth, threads, MERGE_CHANNELS>(p.partial, p.parts, p.channels, first, p.channels, shared_memory(), &c, sum))
		return;
	const double beta = sum[0], gamma = sum[1];
	keep_gradients(p, c, beta, gamma);
	if (!p.s1) {
		const channel_coefficients of = private_coefficients(p.share, gamma_of, mean, rstd, beta, gamma);
		p.a[c] = of.a;
		p.b[c] = of.b;
		p.c[c] = of.c;
		return;
	}
	const bool due = c >= p.from && c < p.from + p.due;
	if (due_elsewhere && due)
		return;
	const map_sums s = map_sums_with(old1, old2, gamma_of, beta, gamma);
	p.s1[c] = s.s1;
	p.s2[c] = s.s2;
	if (due) {
		const channel_coefficients of = due_coefficients(p.share, mean, rstd, s);
		p.a[c - p.from] = of.a;
		p.b[c - p.from] = of.b;
		p.c[c - p.from] = of.c;
	}
}

inline int merge_blocks(int channels)
{
	return (channels + MERGE_CHANNELS - 1) / MERGE_CHANNELS;
}

/* A shared normalisation's coefficients of the channels that are due, at most `room`, to the block's memory, zeros behind them: for the kernel that corrects them, in whose launch other blocks
 * merge the rest (due_elsewhere). There after a barrier. merge_room: merge_bytes(room). */
template <int threads, int room> DEVICE void due_in_place(const bn_backward_sums &p, float *a, float *b, float *c, void *merge_room)
{
	const int t = (int)threadIdx.x, asked = p.from + (t < p.due ? t : 0);
	const float gamma_of = p.gamma[asked], mean = p.mean[asked], rstd = p.rstd[asked], old1 = p.first ? 0 : p.s1[asked], old2 = p.first ? 0 : p.s2[asked];
	double sum[2];
	int channel;
	channel_coefficients of = {};
	if (merge_parts<LAYER_DEPTH, threads, room>(p.partial, p.parts, p.channels, p.from, p.from + p.due, merge_room, &channel, sum))
		of = due_coefficients(p.share, mean, rstd, map_sums_with(old1, old2, gamma_of, sum[0], sum[1]));
	if (t >= room)
		return;
	a[t] = of.a;
	b[t] = of.b;
	c[t] = of.c;
}

/* ---- a weight's gradient ---- */

enum { WEIGHT_VECTOR = 4, MERGE_WARPS = MERGE_THREADS / 32, MERGE_WEIGHTS = 32 * WEIGHT_VECTOR, WEIGHT_DEPTH = 9 /* parts that a thread waits for at once */ };

struct weight_gradient {
	const float *partial; /* [parts][c_out][taps][c_padded] */
	float *out;
	const float *unscale;  /* 1 / loss scale; NULL: 1 */
	float factor;
	int c_out, c_in, c_padded, taps, parts, accumulate;

	HD int count() const
	{
		return c_out * taps * c_padded;
	}
	/* The sum of all parts at place i. */
	DEVICE void put(int i, float sum) const
	{
		unsigned to = (unsigned)i; /* divisions take longer than all the rest of a short kernel */
		if (taps > 1 || c_padded > c_in) {
			const unsigned line = to / (unsigned)c_padded, c = to - line * (unsigned)c_padded, row = line / (unsigned)taps, tap = line - row * (unsigned)taps;
			if (c >= (unsigned)c_in)
				return;
			to = (row * (unsigned)c_in + c) * (unsigned)taps + tap;
		}
		out[to] = (accumulate ? out[to] : 0) + factor * (unscale ? *unscale : 1) * sum;
	}
};

/* Of many: MERGE_WEIGHTS of them are added by merge_team() warps, warp w of those parts w, w + team, …, and the warps' sums in their order. There are as many in a team
 * as give a thread no more than it waits for at once: a quarter of a block that does four times the weights takes no longer. */
HD int merge_team(int parts)
{
	int team = 1;
	while (team < MERGE_WARPS && team * WEIGHT_DEPTH < parts)
		team *= 2;
	return team;
}

HD int block_weights(int parts)
{
	return MERGE_WEIGHTS * (MERGE_WARPS / merge_team(parts));
}

/* Block `block` has block_weights(). A warp does the work of as many as there are too few. */
template <int threads> DEVICE void merge_weights(const weight_gradient &p, int block)
{
	enum { WARPS = threads / 32, MINE = MERGE_WARPS / WARPS };
	float *shared = (float *)shared_memory(); /* [MERGE_WARPS][MERGE_WEIGHTS] */
	const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32, team = merge_team(p.parts), first = block * block_weights(p.parts), count = p.count();
	const int apart = team > WARPS ? WARPS : 0; /* parts between what a thread adds as one warp and as the next: where that one is of the same team */
	int at[MINE];
	UNROLL for (int m = 0; m < MINE; m++)
		at[m] = first + (warp + m * WARPS) / team * MERGE_WEIGHTS + lane * WEIGHT_VECTOR;
	float sum[MINE][WEIGHT_VECTOR] = {};
	if (at[0] < count)
		SERIAL for (int part = warp % team; part < p.parts; part += team * WEIGHT_DEPTH) {
			vector16 v[MINE][WEIGHT_DEPTH];
			UNROLL for (int m = 0; m < MINE; m++)
				UNROLL for (int k = 0; k < WEIGHT_DEPTH; k++) {
					const int of = part + m * apart + k * team;
					v[m][k] = read_or_zeros(p.partial + (size_t)of * (size_t)count + (size_t)at[m], of < p.parts && (!m || at[m] < count));
				}
			UNROLL for (int m = 0; m < MINE; m++)
				UNROLL for (int k = 0; k < WEIGHT_DEPTH; k++)
					UNROLL for (int j = 0; j < WEIGHT_VECTOR; j++)
						sum[m][j] += bits_float(v[m][k].word[j]);
		}
	UNROLL for (int m = 0; m < MINE; m++)
		UNROLL for (int j = 0; j < WEIGHT_VECTOR; j++)
			shared[(warp + m * WARPS) * MERGE_WEIGHTS + lane * WEIGHT_VECTOR + j] = sum[m][j];
	sync_block();
	SERIAL for (int to = t; to < block_weights(p.parts) && first + to < count; to += threads) {
		const float *from = shared + to / MERGE_WEIGHTS * team * MERGE_WEIGHTS + to % MERGE_WEIGHTS;
		float total = from[0];
		for (int w = 1; w < team; w++)
			total += from[w * MERGE_WEIGHTS];
		p.put(first + to, total);
	}
}

inline int weight_blocks(const weight_gradient &p)
{
	return (p.count() + block_weights(p.parts) - 1) / block_weights(p.parts);
}

/* ---- all that a fused layer leaves ---- */

/* Two weights' gradients and a normalisation's sums; what has no parts is not there. */
struct layer_sums {
	weight_gradient weight[2];
	bn_backward_sums bn;
	int first, both, blocks; /* blocks of the first weight, of both, of all */
};

inline layer_sums layer_sums_of(const weight_gradient &weight, const weight_gradient &second, const bn_backward_sums &bn)
{
	const int first = weight.parts ? weight_blocks(weight) : 0, both = first + (second.parts ? weight_blocks(second) : 0);
	return { { weight, second }, bn, first, both, both + (bn.parts ? merge_blocks(bn.channels) : 0) };
}

enum { LAYER_BYTES = merge_bytes(MERGE_CHANNELS) };
static_assert((int)LAYER_BYTES >= MERGE_WARPS * MERGE_WEIGHTS * (int)sizeof(float), "both kinds of blocks ask for the same shared memory");

/* What block `block` of p.blocks does, in LAYER_BYTES. */
template <int threads, bool due_elsewhere = false> DEVICE void merge_layer(const layer_sums &p, int block)
{
	if (block >= p.both)
		merge_backward<LAYER_DEPTH, threads, due_elsewhere>(p.bn, block - p.both);
	else if (block >= p.first)
		merge_weights<threads>(p.weight[1], block - p.first);
	else
		merge_weights<threads>(p.weight[0], block);
}

/* Blocks behind a kernel's own, which come last, to multiprocessors that are free. Only a kernel whose parameters P have `beside` (P::MERGES) has the code for them, an instance of its own:
 * the usual one's registers and instructions are as if there were none. */
template <class P> HD unsigned blocks_beside(const P &p)
{
	if constexpr (P::MERGES)
		return (unsigned)p.beside.blocks;
	return 0;
}

/* Those that are the kernel's own. */
template <class P> DEVICE unsigned own_blocks(const P &p)
{
	return gridDim.x - blocks_beside(p);
}

/* True where this block is one of the others. */
template <int threads, class P> DEVICE bool merges_beside(const P &p)
{
	if constexpr (P::MERGES) {
		const unsigned own = own_blocks(p);
		if (blockIdx.x < own)
			return false;
		wait_for_writes();
		merge_layer<threads, true>(p.beside, (int)(blockIdx.x - own));
		return true;
	}
	return false;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 * The skeleton of every element-wise kernel: a walk over [pixels][channels] in which a thread keeps its eight channels,
 * and with them the channels' parameters in registers, and may gather two sums a channel in a fixed order.
 *
 * An operation is a struct with
 *     enum { SUMS };                                     whether it gathers sums
 *     struct state;  state begin(int channel) const;     the parameters of eight channels
 *     void apply(const state &, long pixel, int channel, octet (&sum)[2]) const; */
#ifndef CUDA_CHANNEL_PASS_H
#define CUDA_CHANNEL_PASS_H

#include "device.h"
#include "vector.h"

struct no_state {}; /* of operations without parameters */

/* Where a pixel is, of those of square maps numbered image by image, row by row. There are fewer than 2^32, which divide several times as fast as
 * longer numbers. */
struct map_pixel {
	int image, row, column;
};

DEVICE map_pixel map_pixel_of(long pixel, int side)
{
	const unsigned whole = (unsigned)side, line = (unsigned)pixel / whole, image = line / whole;
	return { (int)image, (int)(line - image * whole), (int)((unsigned)pixel - line * whole) };
}

enum { PASS_THREADS = 256, PASS_MAX_CHANNELS = 8 * PASS_THREADS };

template <class Op> struct channel_pass {
	Op op;
	float *partial; /* [blocks][2][channels] where Op::SUMS */
	long pixels;
	int channels;   /* a multiple of 8, at most PASS_MAX_CHANNELS */
};

template <class Op> KERNEL THREADS(PASS_THREADS, 2) channel_pass_kernel(const channel_pass<Op> p)
{
	begin_kernel();
	const int groups = p.channels / 8, rows = PASS_THREADS / groups;
	const int t = (int)threadIdx.x, row = t / groups, channel = t % groups * 8;
	octet sum[2] = {};
	if (row < rows) {
		const typename Op::state state = p.op.begin(channel);
		for (long pixel = (long)blockIdx.x * rows + row; pixel < p.pixels; pixel += (long)gridDim.x * rows)
			p.op.apply(state, pixel, channel, sum);
	}
	if (!Op::SUMS)
		return;
	float *shared = (float *)shared_memory(); /* [rows][2][channels] */
	if (row < rows)
		UNROLL for (int which = 0; which < 2; which++)
			UNROLL for (int i = 0; i < 8; i++)
				shared[(row * 2 + which) * p.channels + channel + i] = sum[which].v[i];
	sync_block();
	for (int c = t; c < 2 * p.channels; c += PASS_THREADS) {
		float total = 0;
		for (int r = 0; r < rows; r++)
			total += shared[r * 2 * p.channels + c];
		p.partial[(size_t)blockIdx.x * 2 * (size_t)p.channels + (size_t)c] = total;
	}
}

/* Blocks for a walk: enough to fill the device, never more than `most` (the room for partial sums). */
inline int channel_pass_blocks(long pixels, int channels, int most)
{
	const long rows = PASS_THREADS / (channels / 8), steps = (pixels + rows - 1) / rows;
	return steps < most ? (int)steps : most;
}

template <class Op> int channel_pass_launch(const Op &op, long pixels, int channels, float *partial, int blocks, device_stream stream)
{
	const channel_pass<Op> p = { op, partial, pixels, channels };
	const size_t rows = (size_t)(PASS_THREADS / (channels / 8));
	return launch(channel_pass_kernel<Op>, (unsigned)blocks, PASS_THREADS, Op::SUMS ? rows * 2 * (size_t)channels * sizeof(float) : 0, stream, p);
}

#endif

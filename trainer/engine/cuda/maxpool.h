/* SPDX-License-Identifier: Apache-2.0
 * The stem's BN, ReLU and 3×3 max pool with stride 2. Forward reads the raw convolution once and keeps, in a byte, which of a window's pixels
 * was the greatest: to find it again would take backward twenty loads a pixel, most of a step's tenth; the bytes are 0.2 MB an image of 224². */
#ifndef CUDA_MAXPOOL_H
#define CUDA_MAXPOOL_H

#include "batchnorm.h"

enum { NO_PLACE = 9 };

/* Of eight channels: the place in the window, 0 … 8; NO_PLACE where nothing is above 0, so that backward need not look. */
struct alignas(8) places {
	uint32_t word[2];

	DEVICE int of(int i) const
	{
		return (int)(word[i / 4] >> 8 * (i % 4) & 0xff);
	}
};

/* Eight channels' greatest value so far, with its place, as one number: the value's bits, which is not negative, above 8 - place. So one comparison does for
 * both; of equal values the first of a window is greatest, as in PyTorch, and NaN is greater than all. */
template <class T> struct greatest {
	uint32_t key[8] = {};

	/* Values are compared as they would be stored. `inside` is that of place 4, a window's own pixel, always. */
	DEVICE void take(const octet &z, int place, bool inside)
	{
		const uint32_t behind = inside ? 8 - (uint32_t)place : 0, keep = inside ? 0x7fff7fffu : 0; /* -0 is 0 */
		UNROLL for (int i = 0; i < 8; i++) {
			const uint32_t word = pack_relu<T>(z.v[i & ~1], z.v[i | 1]) & keep, one = i % 2 ? (word & 0xffff0000u) + behind : (word << 16) + behind;
			key[i] = one > key[i] ? one : key[i];
		}
	}
	DEVICE void store(T *to) const
	{
		vector16 words;
		UNROLL for (int i = 0; i < 4; i++)
			words.word[i] = key[2 * i] >> 16 | (key[2 * i + 1] & 0xffff0000u);
		*(vector16 *)to = words;
	}
	DEVICE int place(int i) const
	{
		return key[i] >> 16 ? 8 - (int)(key[i] & 0xf) : NO_PLACE;
	}
};

template <> struct greatest<float> {
	uint64_t key[8] = {};

	DEVICE void take(const octet &z, int place, bool inside)
	{
		UNROLL for (int i = 0; i < 8; i++) {
			const uint64_t one = inside ? (uint64_t)(float_bits(z.v[i] <= 0 ? 0 : z.v[i]) & 0x7fffffffu) << 32 | (8 - (uint32_t)place) : 0;
			key[i] = one > key[i] ? one : key[i];
		}
	}
	DEVICE void store(float *to) const
	{
		octet o;
		UNROLL for (int i = 0; i < 8; i++)
			o.v[i] = bits_float((uint32_t)(key[i] >> 32));
		store8(to, o);
	}
	DEVICE int place(int i) const
	{
		return key[i] >> 32 ? 8 - (int)(key[i] & 0xf) : NO_PLACE;
	}
};

/* A walk over the pooled pixels; pooled side = (side + 1) / 2. */
template <class T> struct bn_relu_maxpool {
	const T *x;        /* [images][side][side][channels] raw convolution */
	T *out;            /* [images][pooled][pooled] of out_pitch */
	uint8_t *place;    /* [images][pooled][pooled][channels]; NULL: not wanted */
	const float *scale, *bias;
	int side, channels, out_pitch;
	enum { SUMS = 0 };
	typedef scale_bias state;

	DEVICE state begin(int channel) const
	{
		return { load8(scale + channel), load8(bias + channel) };
	}
	DEVICE void apply(const state &s, long pixel, int channel, octet (&)[2]) const
	{
		const map_pixel at = map_pixel_of(pixel, (side + 1) / 2);
		const T *const middle = x + ((size_t)(at.image * side + 2 * at.row) * side + 2 * at.column) * channels + channel;
		octet v[9]; /* all on their way before the first is waited for */
		bool inside[9];
		UNROLL for (int k = 0; k < 9; k++) {
			const int r = 2 * at.row - 1 + k / 3, c = 2 * at.column - 1 + k % 3;
			inside[k] = r >= 0 && r < side && c >= 0 && c < side;
			v[k] = load8_or_zeros(middle + ((k / 3 - 1) * (long)side + k % 3 - 1) * channels, inside[k]);
		}
		greatest<T> most;
		UNROLL for (int k = 0; k < 9; k++) {
			UNROLL for (int i = 0; i < 8; i++)
				v[k].v[i] = fmaf(v[k].v[i], s.scale.v[i], s.bias.v[i]);
			most.take(v[k], k, inside[k]);
		}
		most.store(out + (size_t)pixel * out_pitch + channel);
		if (place) {
			places all = {};
			UNROLL for (int i = 0; i < 8; i++)
				all.word[i / 4] |= (uint32_t)most.place(i) << 8 * (i % 4);
			*(places *)(place + (size_t)pixel * channels + channel) = all;
		}
	}
};

/* From the gradient of the pooled map to dz of the raw convolution's normalisation, with its sums. A walk over the pooled pixels: the four raw ones that begin at
 * twice a pooled one's row and column lie in no windows but its own, the next, and those below the two. */
template <class T> struct bn_relu_maxpool_backward {
	const T *x;            /* like bn_relu_maxpool's */
	const T *gradient;     /* [images][pooled][pooled] of gradient_pitch */
	const uint8_t *place;
	T *dz;                 /* like x */
	const float *mean, *rstd;
	int side, channels, gradient_pitch;
	enum { SUMS = 1 };
	struct state {
		octet mean, rstd;
	};

	DEVICE state begin(int channel) const
	{
		return { load8(mean + channel), load8(rstd + channel) };
	}
	DEVICE void apply(const state &s, long pixel, int channel, octet (&sum)[2]) const
	{
		const int pooled = (side + 1) / 2;
		const map_pixel at = map_pixel_of(pixel, pooled);
		const size_t first = ((size_t)(at.image * side + 2 * at.row) * side + 2 * at.column) * channels + channel, window = (size_t)pixel;
		octet in[4], g[4]; /* all on their way before the first is waited for */
		places from[4];
		bool inside[4];
		UNROLL for (int k = 0; k < 4; k++) {
			inside[k] = 2 * at.row + k / 2 < side && 2 * at.column + k % 2 < side; /* else nobody's greatest value is there */
			in[k] = load8_or_zeros(x + first + (k / 2 * side + k % 2) * channels, inside[k]);
		}
		UNROLL for (int k = 0; k < 4; k++) {
			const bool exists = at.row + k / 2 < pooled && at.column + k % 2 < pooled; /* else there is no gradient */
			const int further = k / 2 * pooled + k % 2;
			from[k] = exists ? *(const places *)(place + window * channels + channel + further * channels) : places{};
			g[k] = load8_or_zeros(gradient + window * gradient_pitch + channel + further * gradient_pitch, exists);
		}
		UNROLL for (int i = 0; i < 8; i++) /* channel by channel, or more is in registers at once than there are */
			UNROLL for (int p = 0; p < 4; p++) {
				float d = 0;
				UNROLL for (int k = 0; k < 4; k++)
					if (k / 2 <= p / 2 && k % 2 <= p % 2 && from[k].of(i) == (p / 2 - 2 * (k / 2) + 1) * 3 + p % 2 - 2 * (k % 2) + 1)
						d += g[k].v[i];
				sum[0].v[i] += d;
				sum[1].v[i] = fmaf(d, (in[p].v[i] - s.mean.v[i]) * s.rstd.v[i], sum[1].v[i]);
				in[p].v[i] = d;
			}
		UNROLL for (int p = 0; p < 4; p++)
			if (inside[p])
				store8(dz + first + (p / 2 * side + p % 2) * channels, in[p]);
	}
};

#endif

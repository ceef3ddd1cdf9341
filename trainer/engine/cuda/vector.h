/* SPDX-License-Identifier: Apache-2.0
 * Eight neighbouring channels of a pixel: what one thread of an element-wise kernel reads and writes at once. */
#ifndef CUDA_VECTOR_H
#define CUDA_VECTOR_H

#include "tile.h"

struct octet {
	float v[8];
};

/* Where !inside zeros, and nothing is read. */
template <class T> DEVICE octet load8_or_zeros(const T *from, bool inside)
{
	octet o;
	const vector16 words = read_or_zeros(from, inside);
	UNROLL for (int i = 0; i < 4; i++) {
		o.v[2 * i] = low_half<T>(words.word[i]);
		o.v[2 * i + 1] = high_half<T>(words.word[i]);
	}
	return o;
}

template <> DEVICE octet load8_or_zeros<float>(const float *from, bool inside)
{
	octet o;
	UNROLL for (int half = 0; half < 2; half++) {
		const vector16 words = read_or_zeros(from + 4 * half, inside);
		UNROLL for (int i = 0; i < 4; i++)
			o.v[4 * half + i] = bits_float(words.word[i]);
	}
	return o;
}

template <class T> DEVICE octet load8(const T *from)
{
	return load8_or_zeros(from, true);
}

template <class T> DEVICE void store8(T *to, const octet &o)
{
	vector16 words;
	UNROLL for (int i = 0; i < 4; i++)
		words.word[i] = pack<T>(o.v[2 * i], o.v[2 * i + 1]);
	*(vector16 *)to = words;
}

template <> DEVICE void store8<float>(float *to, const octet &o)
{
	UNROLL for (int half = 0; half < 2; half++) {
		vector16 words;
		UNROLL for (int i = 0; i < 4; i++)
			words.word[i] = float_bits(o.v[4 * half + i]);
		((vector16 *)to)[half] = words;
	}
}

/* Two channels in a register: round(relu(scale · x + bias)). */
template <class T> DEVICE uint32_t normalise_relu(uint32_t word, float scale0, float bias0, float scale1, float bias1)
{
	return pack_relu<T>(fmaf(low_half<T>(word), scale0, bias0), fmaf(high_half<T>(word), scale1, bias1));
}

template <class T> DEVICE float rounded(float x)
{
	return to_float(from_float<T>(x));
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 * The engine's number formats: float, bf16 and fp16, converted with round-to-nearest-even on both sides. */
#ifndef CUDA_NUMBER_H
#define CUDA_NUMBER_H

#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define HD __host__ __device__ __forceinline__
#else
#define HD inline
#endif

struct bf16 {
	uint16_t bits;
};

struct fp16 {
	uint16_t bits;
};

HD uint32_t float_bits(float x)
{
#ifdef __CUDA_ARCH__
	return __float_as_uint(x);
#else
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
#endif
}

HD float bits_float(uint32_t bits)
{
#ifdef __CUDA_ARCH__
	return __uint_as_float(bits);
#else
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
#endif
}

HD float to_float(float x)
{
	return x;
}

HD float to_float(bf16 x)
{
	return bits_float((uint32_t)x.bits << 16);
}

HD float to_float(fp16 x)
{
#ifdef __CUDA_ARCH__
	float y;
	asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
	return y;
#else
	int exponent = x.bits >> 10 & 31, fraction = x.bits & 1023;
	float y = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent ? ldexpf((float)(fraction | 1024), exponent - 25) : ldexpf((float)fraction, -24);
	return x.bits & 0x8000 ? -y : y;
#endif
}

template <class T> HD T from_float(float x);

template <> HD float from_float<float>(float x)
{
	return x;
}

template <> HD bf16 from_float<bf16>(float x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	bf16 y;
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
	return y;
#else
	uint32_t bits = float_bits(x);
	if (x != x)
		return bf16{ 0x7fff };
	return bf16{ (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16) };
#endif
}

template <> HD fp16 from_float<fp16>(float x)
{
#ifdef __CUDA_ARCH__
	fp16 y;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
	return y;
#else
	uint16_t sign = (uint16_t)(float_bits(x) >> 16 & 0x8000);
	float magnitude = fabsf(x);
	if (x != x)
		return fp16{ 0x7fff };
	if (magnitude >= 65520) /* rounds past the largest finite value, 65504 */
		return fp16{ (uint16_t)(sign | 0x7c00) };
	if (magnitude < 0x1p-14f) /* zero and subnormals: multiples of 2^-24 */
		return fp16{ (uint16_t)(sign | (uint16_t)nearbyintf(ldexpf(magnitude, 24))) };
	int exponent;
	frexpf(magnitude, &exponent);
	uint32_t fraction = (uint32_t)nearbyintf(ldexpf(magnitude, 11 - exponent)); /* 1024…2048 */
	return fp16{ (uint16_t)(sign | (((uint32_t)(exponent + 13) << 10) + fraction)) };
#endif
}

/* Two values in one register, the first in the low half. */
template <class T> HD uint32_t pack(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	uint32_t word;
	if constexpr (sizeof(T) == 2 && !__is_same(T, fp16))
		asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
	else
		asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
	return word;
#else
	return (uint32_t)from_float<T>(low).bits | (uint32_t)from_float<T>(high).bits << 16;
#endif
}

/* The same of relu(low) and relu(high); NaN stays NaN. */
template <class T> HD uint32_t pack_relu(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	uint32_t word;
	if constexpr (sizeof(T) == 2 && !__is_same(T, fp16))
		asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
	else
		asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
	return word;
#else
	return pack<T>(low <= 0 ? 0 : low, high <= 0 ? 0 : high);
#endif
}

template <class T> HD float low_half(uint32_t word)
{
	return to_float(T{ (uint16_t)word });
}

template <class T> HD float high_half(uint32_t word)
{
	return to_float(T{ (uint16_t)(word >> 16) });
}

#endif

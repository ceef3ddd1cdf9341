/* SPDX-License-Identifier: Apache-2.0
 * A convolution without tricks: any kernel size and stride, NHWC slices, fp32 sums. The oracle on a device, and the way
 * where cuDNN has none. */
#ifndef CUDA_CONVOLUTION_H
#define CUDA_CONVOLUTION_H

#include "device.h"

enum { CONVOLUTION_THREADS = 128 };

struct convolution_shape {
	int images, h_in, h_out, c_in, c_out; /* square maps; c_in as padded in the weight's copy */
	int kernel, stride, pad;
	int in_pitch, out_pitch;              /* elements a pixel */
};

template <class T> struct convolution {
	convolution_shape s;
	const T *in;      /* forward, weight: the input */
	const T *weight;  /* [c_out][kernel²][c_in] */
	const T *gradient; /* data, weight: of the output */
	T *out;           /* forward: the output; data: the input's gradient */
	float *dweight;   /* weight: [parts][c_out][kernel²][c_in] */
	int parts;        /* images are divided among the parts */
};

template <class T> KERNEL THREADS(CONVOLUTION_THREADS, 1) convolution_forward_kernel(const convolution<T> p)
{
	begin_kernel();
	const convolution_shape &s = p.s;
	const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= (long)s.images * s.h_out * s.h_out * s.c_out)
		return;
	const int k = (int)(i % s.c_out), column = (int)(i / s.c_out % s.h_out), row = (int)(i / s.c_out / s.h_out % s.h_out);
	const long image = i / s.c_out / s.h_out / s.h_out;
	float sum = 0;
	for (int tap = 0; tap < s.kernel * s.kernel; tap++) {
		const int r = row * s.stride - s.pad + tap / s.kernel, c = column * s.stride - s.pad + tap % s.kernel;
		if (r < 0 || r >= s.h_in || c < 0 || c >= s.h_in)
			continue;
		const T *x = p.in + ((size_t)(image * s.h_in + r) * (size_t)s.h_in + (size_t)c) * (size_t)s.in_pitch;
		const T *w = p.weight + ((size_t)k * (size_t)(s.kernel * s.kernel) + (size_t)tap) * (size_t)s.c_in;
		for (int j = 0; j < s.c_in; j++)
			sum = fmaf(to_float(x[j]), to_float(w[j]), sum);
	}
	p.out[(size_t)(i / s.c_out) * (size_t)s.out_pitch + (size_t)k] = from_float<T>(sum);
}

template <class T> KERNEL THREADS(CONVOLUTION_THREADS, 1) convolution_data_kernel(const convolution<T> p)
{
	begin_kernel();
	const convolution_shape &s = p.s;
	const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= (long)s.images * s.h_in * s.h_in * s.c_in)
		return;
	const int j = (int)(i % s.c_in), column = (int)(i / s.c_in % s.h_in), row = (int)(i / s.c_in / s.h_in % s.h_in);
	const long image = i / s.c_in / s.h_in / s.h_in;
	float sum = 0;
	for (int tap = 0; tap < s.kernel * s.kernel; tap++) {
		const int r = row + s.pad - tap / s.kernel, c = column + s.pad - tap % s.kernel;
		if (r < 0 || c < 0 || r % s.stride || c % s.stride || r / s.stride >= s.h_out || c / s.stride >= s.h_out)
			continue;
		const T *g = p.gradient + ((size_t)(image * s.h_out + r / s.stride) * (size_t)s.h_out + (size_t)(c / s.stride)) * (size_t)s.out_pitch;
		for (int k = 0; k < s.c_out; k++)
			sum = fmaf(to_float(g[k]), to_float(p.weight[((size_t)k * (size_t)(s.kernel * s.kernel) + (size_t)tap) * (size_t)s.c_in + (size_t)j]), sum);
	}
	p.out[(size_t)(i / s.c_in) * (size_t)s.in_pitch + (size_t)j] = from_float<T>(sum);
}

template <class T> KERNEL THREADS(CONVOLUTION_THREADS, 1) convolution_weight_kernel(const convolution<T> p)
{
	begin_kernel();
	const convolution_shape &s = p.s;
	const int taps = s.kernel * s.kernel;
	const long weights = (long)s.c_out * taps * s.c_in, i = (long)blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= weights * p.parts)
		return;
	const int part = (int)(i / weights), j = (int)(i % s.c_in), tap = (int)(i / s.c_in % taps), k = (int)(i / s.c_in / taps % s.c_out);
	float sum = 0;
	for (long image = (long)s.images * part / p.parts; image < (long)s.images * (part + 1) / p.parts; image++)
		for (int row = 0; row < s.h_out; row++) {
			const int r = row * s.stride - s.pad + tap / s.kernel;
			if (r < 0 || r >= s.h_in)
				continue;
			for (int column = 0; column < s.h_out; column++) {
				const int c = column * s.stride - s.pad + tap % s.kernel;
				if (c >= 0 && c < s.h_in)
					sum = fmaf(to_float(p.gradient[((size_t)(image * s.h_out + row) * (size_t)s.h_out + (size_t)column) * (size_t)s.out_pitch + (size_t)k]),
					           to_float(p.in[((size_t)(image * s.h_in + r) * (size_t)s.h_in + (size_t)c) * (size_t)s.in_pitch + (size_t)j]), sum);
			}
		}
	p.dweight[i] = sum;
}

template <class T> int convolution_launch(void (*kernel)(convolution<T>), const convolution<T> &p, long threads, device_stream stream)
{
	return launch(kernel, (unsigned)((threads + CONVOLUTION_THREADS - 1) / CONVOLUTION_THREADS), CONVOLUTION_THREADS, 0, stream, p);
}

template <class T> int convolution_forward(const convolution<T> &p, device_stream stream)
{
	return convolution_launch(convolution_forward_kernel<T>, p, (long)p.s.images * p.s.h_out * p.s.h_out * p.s.c_out, stream);
}

template <class T> int convolution_data(const convolution<T> &p, device_stream stream)
{
	return convolution_launch(convolution_data_kernel<T>, p, (long)p.s.images * p.s.h_in * p.s.h_in * p.s.c_in, stream);
}

template <class T> int convolution_weight(const convolution<T> &p, device_stream stream)
{
	return convolution_launch(convolution_weight_kernel<T>, p, (long)p.s.c_out * p.s.kernel * p.s.kernel * p.s.c_in * p.parts, stream);
}

#endif

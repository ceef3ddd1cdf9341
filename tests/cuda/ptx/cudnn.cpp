/* SPDX-License-Identifier: Apache-2.0
 * In place of cuDNN: the engine's convolutions in plain C++, on the machine's memory. */
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
#include "engine/cuda/cudnn.h"
}
#include "number.h"
#include "profile.h"
#include "ptx.h"

struct cudnn_plan {
	cudnn_convolution c;
};

namespace {

enum { WORKSPACE = 1000 }; /* bytes: written, so that they must be there */

template <class T> struct maps {
	const cudnn_convolution &c;
	T *in, *weight, *out;
	float *dweight; /* where the gradient is in fp32 */

	/* Calls f(in, weight, out) with the places of every product. */
	template <class F> void each(F f) const
	{
		for (long image = 0; image < c.images; image++)
			for (int row = 0; row < c.h_out; row++)
				for (int column = 0; column < c.h_out; column++)
					for (int tap = 0; tap < c.kernel * c.kernel; tap++) {
						const int r = row * c.stride - c.pad + tap / c.kernel, s = column * c.stride - c.pad + tap % c.kernel;
						if (r < 0 || s < 0 || r >= c.h_in || s >= c.h_in)
							continue;
						const size_t from = (size_t)((image * c.h_in + r) * c.h_in + s), to = (size_t)((image * c.h_out + row) * c.h_out + column);
						for (int k = 0; k < c.c_out; k++)
							for (int j = 0; j < c.c_in; j++)
								f(from * (size_t)c.in_pitch + (size_t)j, ((size_t)k * (size_t)(c.kernel * c.kernel) + (size_t)tap) * (size_t)c.c_in + (size_t)j, to * (size_t)c.out_pitch + (size_t)k);
					}
	}
	void give(T *to, const std::vector<float> &sums, int channels, int pitch) const
	{
		for (size_t pixel = 0; pixel * (size_t)pitch < sums.size(); pixel++)
			for (int j = 0; j < channels; j++) {
				const size_t at = pixel * (size_t)pitch + (size_t)j;
				to[at] = from_float<T>(sums[at]);
				ptx::memory_written(&to[at], sizeof(T));
			}
	}
	void run() const
	{
		const size_t pixels_in = (size_t)c.images * (size_t)(c.h_in * c.h_in), pixels_out = (size_t)c.images * (size_t)(c.h_out * c.h_out);
		const size_t weights = (size_t)c.c_out * (size_t)(c.kernel * c.kernel) * (size_t)c.c_in;
		std::vector<float> sums(c.pass == CUDNN_PASS_FORWARD ? pixels_out * (size_t)c.out_pitch : c.pass == CUDNN_PASS_DATA ? pixels_in * (size_t)c.in_pitch : weights);
		if (c.pass == CUDNN_PASS_FORWARD) {
			each([&](size_t i, size_t w, size_t o) { sums[o] += to_float(in[i]) * to_float(weight[w]); });
			give(out, sums, c.c_out, c.out_pitch);
		} else if (c.pass == CUDNN_PASS_DATA) {
			each([&](size_t i, size_t w, size_t o) { sums[i] += to_float(out[o]) * to_float(weight[w]); });
			give(in, sums, c.c_in, c.in_pitch);
		} else {
			each([&](size_t i, size_t w, size_t o) { sums[w] += to_float(out[o]) * to_float(in[i]); });
			if (!dweight)
				return give(weight, sums, 1, 1);
			memcpy(dweight, sums.data(), weights * sizeof(float));
			ptx::memory_written(dweight, weights * sizeof(float));
		}
	}
};

/* Every byte of the maps and weights once. */
void count(const cudnn_convolution &c)
{
	static const char *const passes[] = { "cuDNN forward", "cuDNN data", "cuDNN weight" };
	const uint64_t element = c.precision == PRECISION_BF16 || c.precision == PRECISION_FP16 ? 2 : 4, images = (uint64_t)c.images;
	const uint64_t in = element * images * (uint64_t)(c.h_in * c.h_in * c.c_in), out = element * images * (uint64_t)(c.h_out * c.h_out * c.c_out);
	const uint64_t weight = (c.pass == CUDNN_PASS_WEIGHT && c.weight_fp32 ? 4 : element) * (uint64_t)(c.c_out * c.kernel * c.kernel * c.c_in);
	char name[80];
	snprintf(name, sizeof name, "%s %dx%d %d -> %d on %d", passes[c.pass], c.kernel, c.kernel, c.c_in, c.c_out, c.h_in);
	ptx::counts *p = ptx::profile_of(name);
	if (!p)
		return;
	p->launches++;
	p->sectors_read += (c.pass == CUDNN_PASS_FORWARD ? in + weight : c.pass == CUDNN_PASS_DATA ? out + weight : in + out) / 32;
	p->sectors_written += (c.pass == CUDNN_PASS_FORWARD ? out : c.pass == CUDNN_PASS_DATA ? in : weight) / 32;
	p->products += images * (uint64_t)(c.h_out * c.h_out) * (uint64_t)(c.c_out * c.kernel * c.kernel * c.c_in) / 2048;
}

template <class T> void run(const cudnn_convolution &c, void *in, void *weight, void *out)
{
	maps<T>{ c, (T *)in, (T *)weight, (T *)out, c.pass == CUDNN_PASS_WEIGHT && c.weight_fp32 ? (float *)weight : nullptr }.run();
}

}

extern "C" {

int cudnn_open(struct cudnn **cudnn, const char *, struct error *)
{
	*cudnn = nullptr;
	return 0;
}

void cudnn_close(struct cudnn *)
{
}

/* Weight gradients of 16-bit maps in 16 bits only, as cuDNN 9 offers them. */
int cudnn_plan_make(struct cudnn *, const struct cudnn_convolution *c, struct cudnn_plan **plan, struct error *e)
{
	*plan = nullptr;
	if (c->weight_fp32 && (c->precision == PRECISION_BF16 || c->precision == PRECISION_FP16))
		return fail(e, EXIT_INTERNAL, "cuDNN: no weight gradient in fp32 of 16-bit maps");
	*plan = new cudnn_plan{ *c };
	return 0;
}

void cudnn_plan_free(struct cudnn *, struct cudnn_plan *plan)
{
	delete plan;
}

size_t cudnn_plan_workspace(const struct cudnn_plan *)
{
	return WORKSPACE;
}

/* PTX_CUDNN_FAILS=PASS: plans of that pass can be made and not run. */
int cudnn_plan_run(struct cudnn *, const struct cudnn_plan *plan, void *in, void *weight, void *out, void *workspace, void *stream, struct error *e)
{
	const cudnn_convolution c = plan->c;
	const char *fails = getenv("PTX_CUDNN_FAILS");
	if (fails && atoi(fails) == (int)c.pass)
		return fail(e, EXIT_INTERNAL, "cuDNN: pass %d cannot be run", (int)c.pass);
	ptx::enqueue(stream, [=] {
		if (!ptx::memory_is_device(workspace) || !ptx::memory_is_device((char *)workspace + WORKSPACE - 1))
			abort();
		memset(workspace, 0xff, WORKSPACE);
		count(c);
		if (c.precision == PRECISION_BF16)
			run<bf16>(c, in, weight, out);
		else if (c.precision == PRECISION_FP16)
			run<fp16>(c, in, weight, out);
		else
			run<float>(c, in, weight, out);
	});
	return 0;
}

}

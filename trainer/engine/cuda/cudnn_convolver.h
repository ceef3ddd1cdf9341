/* SPDX-License-Identifier: Apache-2.0
 * The engine's convolutions by cuDNN: all plans are made when the engine opens; where cuDNN has none, convolution.h
 * computes, and one line says so. */
#ifndef CUDA_CUDNN_CONVOLVER_H
#define CUDA_CUDNN_CONVOLVER_H

#include <memory>
#include <vector>

#include "engine/cuda/cudnn.h"
#include "step.h"

/* A weight gradient that cuDNN gives in 16 bits only, as the floats that the reduction reads. */
template <class T> struct widen {
	const T *from;
	float *to;
	size_t count;
};

template <class T> KERNEL THREADS(256, 1) widen_kernel(const widen<T> p)
{
	begin_kernel();
	const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (i < p.count)
		p.to[i] = to_float(p.from[i]);
}

template <class T> struct cudnn_convolver : convolver<T> {
	struct planned {
		cudnn_convolution what;
		cudnn_plan *plan; /* NULL: convolution.h */
		bool broken;      /* it cannot be run: convolution.h. It stays, for captured graphs may hold kernels of it */
	};
	cudnn *library = nullptr;
	std::vector<planned> plans;
	enum precision precision;
	size_t weight_bytes = 0; /* at the workspace's start: the largest 16-bit weight gradient */
	void *workspace = nullptr;
	char *description = nullptr; /* of the engine: from here on it says how many plans are missing or broken */
	size_t room = 0;             /* there, bytes */
	int slow = 0;
	error err = {};

	~cudnn_convolver() override
	{
		for (const planned &p : plans)
			cudnn_plan_free(library, p.plan);
		cudnn_close(library);
	}
	static bool same(const cudnn_convolution &a, const cudnn_convolution &b)
	{
		return a.pass == b.pass && a.h_in == b.h_in && a.c_in == b.c_in && a.c_out == b.c_out && a.kernel == b.kernel && a.stride == b.stride && a.in_pitch == b.in_pitch && a.out_pitch == b.out_pitch;
	}
	/* The plan of a pass that each_call() named; NULL for any other: a fault of the step's, and no reason to be slow in silence. */
	planned *find(cudnn_pass pass, const convolution_shape &s)
	{
		const cudnn_convolution wanted = { pass, precision, s.images, s.h_in, s.h_out, s.c_in, s.c_out, s.kernel, s.stride, s.pad, s.in_pitch, s.out_pitch, 0 };
		for (planned &p : plans)
			if (same(p.what, wanted))
				return &p;
		return nullptr;
	}
	/* Makes the plan unless an equal one is there; *most grows to the workspace it needs. */
	void make(cudnn_pass pass, const convolution_shape &s, size_t *most)
	{
		if (find(pass, s))
			return;
		planned p = { { pass, precision, s.images, s.h_in, s.h_out, s.c_in, s.c_out, s.kernel, s.stride, s.pad, s.in_pitch, s.out_pitch, pass == CUDNN_PASS_WEIGHT && sizeof(T) == 2 }, nullptr, false };
		error why = {};
		if (cudnn_plan_make(library, &p.what, &p.plan, &why) && p.what.weight_fp32) {
			why = {};
			p.what.weight_fp32 = 0;
			cudnn_plan_make(library, &p.what, &p.plan, &why);
		}
		if (!p.plan)
			be_slow(why);
		const size_t bytes = (size_t)s.c_out * (size_t)(s.kernel * s.kernel) * (size_t)s.c_in * sizeof(T);
		if (pass == CUDNN_PASS_WEIGHT && p.plan && !p.what.weight_fp32 && sizeof(T) == 2)
			weight_bytes = bytes > weight_bytes ? (bytes + 255) / 256 * 256 : weight_bytes;
		if (p.plan && cudnn_plan_workspace(p.plan) > *most)
			*most = cudnn_plan_workspace(p.plan);
		plans.push_back(p);
	}
	void be_slow(const error &why)
	{
		fprintf(stderr, "%s: the engine's own slow kernel computes it\n", why.text);
		slow++;
		describe(description, room);
	}
	void describe(char *text, size_t size)
	{
		description = text;
		room = size;
		if (slow && text)
			snprintf(text, size, ", %d convolution%s by slow kernels", slow, slow > 1 ? "s" : "");
	}
	/* Does a plan do it? *rc: 0, or why nothing can be done any more. A plan that could be made but cannot be run shows in the first step, before any graph. */
	bool runs(planned *p, const void *in, const void *weight, const void *out, device_stream stream, int *rc)
	{
		*rc = 0;
		if (!p->plan || p->broken)
			return false;
		err = {};
		if (!cudnn_plan_run(library, p->plan, const_cast<void *>(in), const_cast<void *>(weight), const_cast<void *>(out), (char *)workspace + weight_bytes, stream, &err))
			return true;
		*rc = device_fault(stream); /* of a kernel before it, which no plan is to blame for */
		if (*rc)
			return true;
		p->broken = true;
		be_slow(err);
		return false;
	}
	int forward(const convolution<T> &c, device_stream stream) override
	{
		planned *p = find(CUDNN_PASS_FORWARD, c.s);
		if (!p)
			return cudaErrorInvalidConfiguration;
		int rc;
		return runs(p, c.in, c.weight, c.out, stream, &rc) ? rc : convolution_forward(c, stream);
	}
	int data(const convolution<T> &c, device_stream stream) override
	{
		planned *p = find(CUDNN_PASS_DATA, c.s);
		if (!p)
			return cudaErrorInvalidConfiguration;
		int rc;
		return runs(p, c.out, c.weight, c.gradient, stream, &rc) ? rc : convolution_data(c, stream);
	}
	int weight(const convolution<T> &c, device_stream stream) override
	{
		planned *p = find(CUDNN_PASS_WEIGHT, c.s);
		if (!p)
			return cudaErrorInvalidConfiguration;
		const bool narrow = sizeof(T) == 2 && !p->what.weight_fp32;
		int rc;
		if (!runs(p, c.in, narrow ? workspace : (void *)c.dweight, c.gradient, stream, &rc))
			return convolution_weight(c, stream);
		if (rc || !narrow)
			return rc;
		const size_t count = (size_t)c.s.c_out * (size_t)(c.s.kernel * c.s.kernel) * (size_t)c.s.c_in;
		return launch(widen_kernel<T>, (unsigned)((count + 255) / 256), 256, 0, stream, widen<T>{ (const T *)workspace, c.dweight, count });
	}
};

/* Every convolution of the step that no fused kernel takes, with its pitches, as step.h calls them. device: a description, or NULL for the one that is there. *workspace: bytes the
 * engine has to provide. */
template <class T> int cudnn_convolver_make(std::unique_ptr<convolver<T>> *out, const step<T> &s, const char *device, size_t *workspace, error *e)
{
	auto *c = new cudnn_convolver<T>();
	out->reset(c);
	c->precision = s.conf->precision;
	int rc = cudnn_open(&c->library, device, e);
	if (rc)
		return rc;
	size_t most = 0;
	const cudnn_pass passes[] = { CUDNN_PASS_FORWARD, CUDNN_PASS_DATA, CUDNN_PASS_WEIGHT };
	each_call(s, [&](convolution_pass pass, const convolution_shape &shape) { c->make(passes[pass], shape, &most); });
	*workspace = most + c->weight_bytes;
	return 0;
}

#endif

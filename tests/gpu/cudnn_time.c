/* SPDX-License-Identifier: Apache-2.0
 * How much faster than the plan that the engine takes, the first acceptable one, the best of the first acceptable ones is: convolution by convolution at
 * batch 256, and over the networks. It decides nothing: two runs that choose by time would not give the same bits. */
#include "cudnn_time.h"

#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>

enum { IMAGES = 256, MOST = 8, RUNS = 5, TELL_EVERY = 5 };

enum net { RESNET, DENSENET, NETS };

/* What no fused kernel computes at 224², with how often a network has it. The few of DenseNet come first: time may run out. */
static const struct shape {
	enum net net;
	const char *name;
	int times, h_in, h_out, c_in, c_out, kernel, stride, pad, out_pitch;
} shapes[] = {
	{ DENSENET, "gray stem 4x4", 1, 115, 112, 8, 64, 4, 1, 0, 64 },
	{ DENSENET, "transition 1", 1, 28, 28, 256, 128, 1, 1, 0, 128 },
	{ DENSENET, "transition 2", 1, 14, 14, 512, 256, 1, 1, 0, 256 },
	{ DENSENET, "transition 3", 1, 7, 7, 1024, 512, 1, 1, 0, 512 },
	{ RESNET, "gray stem 4x4", 1, 115, 112, 8, 64, 4, 1, 0, 64 },
	{ RESNET, "3x3 64", 3, 56, 56, 64, 64, 3, 1, 1, 64 },
	{ RESNET, "3x3 128", 3, 28, 28, 128, 128, 3, 1, 1, 128 },
	{ RESNET, "3x3 256", 5, 14, 14, 256, 256, 3, 1, 1, 256 },
	{ RESNET, "3x3 512", 2, 7, 7, 512, 512, 3, 1, 1, 512 },
	{ RESNET, "1x1 64-256", 4, 56, 56, 64, 256, 1, 1, 0, 256 },
	{ RESNET, "1x1 256-64", 2, 56, 56, 256, 64, 1, 1, 0, 64 },
	{ RESNET, "1x1 128-512", 4, 28, 28, 128, 512, 1, 1, 0, 512 },
	{ RESNET, "1x1 512-128", 3, 28, 28, 512, 128, 1, 1, 0, 128 },
	{ RESNET, "1x1 256-1024", 6, 14, 14, 256, 1024, 1, 1, 0, 1024 },
	{ RESNET, "1x1 1024-256", 5, 14, 14, 1024, 256, 1, 1, 0, 256 },
	{ RESNET, "1x1 512-2048", 3, 7, 7, 512, 2048, 1, 1, 0, 2048 },
	{ RESNET, "1x1 2048-512", 2, 7, 7, 2048, 512, 1, 1, 0, 512 },
	{ RESNET, "3x3/2 128", 1, 56, 28, 128, 128, 3, 2, 1, 128 },
	{ RESNET, "3x3/2 256", 1, 28, 14, 256, 256, 3, 2, 1, 256 },
	{ RESNET, "3x3/2 512", 1, 14, 7, 512, 512, 3, 2, 1, 512 },
	{ RESNET, "1x1/2 256-512", 1, 56, 28, 256, 512, 1, 2, 0, 512 },
	{ RESNET, "1x1/2 512-1024", 1, 28, 14, 512, 1024, 1, 2, 0, 1024 },
	{ RESNET, "1x1/2 1024-2048", 1, 14, 7, 1024, 2048, 1, 2, 0, 2048 },
	{ RESNET, "1x1 64-64", 1, 56, 56, 64, 64, 1, 1, 0, 64 },
	{ RESNET, "1x1 256-128", 1, 56, 56, 256, 128, 1, 1, 0, 128 },
	{ RESNET, "1x1 512-256", 1, 28, 28, 512, 256, 1, 1, 0, 256 },
	{ RESNET, "1x1 1024-512", 1, 14, 14, 1024, 512, 1, 1, 0, 512 },
};

static const char *const net_names[NETS] = { "resnet50", "densenet121" };
static const char *const pass_names[] = { "forward", "data", "weight" };

/* Device memory for one convolution at a time. */
struct bench {
	struct cudnn *cudnn;
	void *map[3]; /* in, weight, out: what is read */
	void *result; /* in place of the one that a pass writes, so that the others keep their numbers */
	void *workspace;
	size_t workspace_bytes;
	cudaStream_t stream;
	cudaEvent_t from, to;
};

static size_t largest(int output)
{
	size_t most = 0;
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
		const struct shape *s = &shapes[i];
		size_t elements = output ? (size_t)IMAGES * (size_t)(s->h_out * s->h_out) * (size_t)s->out_pitch : (size_t)IMAGES * (size_t)(s->h_in * s->h_in) * (size_t)s->c_in;
		most = elements > most ? elements : most;
	}
	return 2 * most;
}

/* Random bf16, 0.5 to 2 of either sign: speed depends on the bits. */
static int fill(void *to, size_t bytes)
{
	enum { N = 1 << 20 };
	uint16_t *noise = malloc(N * sizeof *noise);
	uint64_t x = 88172645463325252u;
	int code = noise ? 0 : cudaErrorMemoryAllocation;
	for (int i = 0; i < N && noise; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		noise[i] = (uint16_t)((x & 0x80ff) | 0x3f00);
	}
	for (size_t at = 0; at < bytes && !code; at += N * sizeof *noise)
		code = cudaMemcpy((char *)to + at, noise, bytes - at < N * sizeof *noise ? bytes - at : N * sizeof *noise, cudaMemcpyHostToDevice);
	free(noise);
	return code;
}

static int prepare(struct bench *b)
{
	const size_t bytes[3] = { largest(0), 2 * 3 * 3 * 512 * 512, largest(1) };
	int code = cudaMalloc(&b->result, bytes[0] > bytes[2] ? bytes[0] : bytes[2]);
	for (int i = 0; i < 3 && !code; i++) {
		code = cudaMalloc(&b->map[i], bytes[i]);
		code = code ? code : fill(b->map[i], bytes[i]);
	}
	code = code ? code : (int)cudaStreamCreate(&b->stream);
	code = code ? code : (int)cudaEventCreate(&b->from);
	return code ? code : (int)cudaEventCreate(&b->to);
}

static int run(struct bench *b, enum cudnn_pass pass, const struct cudnn_plan *plan, int times)
{
	struct error e = { 0 };
	void *in = pass == CUDNN_PASS_DATA ? b->result : b->map[0], *weight = pass == CUDNN_PASS_WEIGHT ? b->result : b->map[1], *out = pass == CUDNN_PASS_FORWARD ? b->result : b->map[2];
	for (int i = 0; i < times; i++)
		if (cudnn_plan_run(b->cudnn, plan, in, weight, out, b->workspace, b->stream, &e))
			return -1;
	return 0;
}

/* Microseconds of a run; negative: it cannot be run. The runs before it keep the device busy while those that are timed are enqueued. */
static double timed(struct bench *b, enum cudnn_pass pass, const struct cudnn_plan *plan)
{
	float ms = 0;
	if (cudnn_plan_workspace(plan) > b->workspace_bytes) {
		cudaFree(b->workspace);
		b->workspace_bytes = cudnn_plan_workspace(plan);
		if (cudaMalloc(&b->workspace, b->workspace_bytes))
			b->workspace = NULL, b->workspace_bytes = 0;
		if (!b->workspace)
			return -1;
	}
	if (run(b, pass, plan, 1) || cudaStreamSynchronize(b->stream) || run(b, pass, plan, RUNS) || cudaEventRecord(b->from, b->stream) || run(b, pass, plan, RUNS) ||
	    cudaEventRecord(b->to, b->stream) || cudaEventSynchronize(b->to) || cudaEventElapsedTime(&ms, b->from, b->to)) {
		cudaGetLastError();
		return -1;
	}
	return 1000.0 * ms / RUNS;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What has been found out. */
struct found {
	size_t cudnn;
	int timed, without, left; /* without: no plan, or the first cannot be run; they are in no sum */
	double first_ms[NETS], best_ms[NETS];
	char rows[12000];
};

/* One line of JSON. It may be the last one: whoever runs this may end it at any time. */
static void tell(const struct found *f, int partial)
{
	printf("{\"cudnn\": %zu, \"batch\": %d, \"timed\": %d, \"without\": %d, \"left\": %d, "
	       "\"columns\": \"convolution, times, first us, best us, best plan, plans, bytes of workspace\", \"plans\": [%s]",
	       f->cudnn, IMAGES, f->timed, f->without, f->left, f->rows);
	for (int n = 0; n < NETS; n++)
		printf(", \"%s_first_ms\": %.3f, \"%s_best_ms\": %.3f", net_names[n], f->first_ms[n], net_names[n], f->best_ms[n]);
	printf(", \"note\": \"resnet50 %.2f ms by first plans, %.2f by the best; densenet121 %.2f, %.2f; %d convolutions, %d without, %d left\"%s}\n", f->first_ms[RESNET],
	       f->best_ms[RESNET], f->first_ms[DENSENET], f->best_ms[DENSENET], f->timed, f->without, f->left, partial ? ", \"partial\": true" : "");
	fflush(stdout);
}

/* Microseconds of each plan; zero or less: it cannot be run. While plans are built the GPU's clocks fall: the first plan, which all others
 * are compared with, is timed only after some work and once more at the end. */
static void time_plans(struct bench *b, enum cudnn_pass pass, struct cudnn_plan *const *plans, int count, double *us)
{
	for (const double until = now() + 0.05; count && now() < until && timed(b, pass, plans[0]) > 0;)
		;
	for (int p = 0; p < count; p++)
		us[p] = timed(b, pass, plans[p]);
	const double again = count > 1 && us[0] > 0 ? timed(b, pass, plans[0]) : 0;
	if (again > 0 && again < us[0])
		us[0] = again;
}

static void time_convolution(struct bench *b, int live, const struct shape *s, enum cudnn_pass pass, struct found *f)
{
	const struct cudnn_convolution v = { pass, PRECISION_BF16, IMAGES, s->h_in, s->h_out, s->c_in, s->c_out, s->kernel, s->stride, s->pad, s->c_in, s->out_pitch, 0 };
	struct cudnn_plan *plans[MOST];
	struct error why = { 0 };
	int count = 0, best = -1;
	double us[MOST] = { 0 };
	if (cudnn_plans_make(b->cudnn, &v, MOST, plans, &count, &why))
		printf("%s %s %s: %s\n", net_names[s->net], s->name, pass_names[pass], why.text);
	if (live)
		time_plans(b, pass, plans, count, us);
	for (int p = 0; p < count; p++) {
		us[p] = live ? us[p] : 1 + p;
		if (us[p] > 0 && (best < 0 || us[p] < us[best]))
			best = p;
	}
	if (us[0] > 0) {
		f->timed++;
		f->first_ms[s->net] += s->times * us[0] / 1000;
		f->best_ms[s->net] += s->times * us[best] / 1000;
	} else
		f->without++;
	const size_t at = strlen(f->rows);
	snprintf(f->rows + at, sizeof f->rows - at, "%s[\"%s %s %s\", %d, %.1f, %.1f, %d, %d, %zu]", at ? ", " : "", net_names[s->net], s->name, pass_names[pass], s->times, us[0],
	         best < 0 ? 0 : us[best], best, count, count ? cudnn_plan_workspace(plans[0]) : 0);
	printf("%s %s %s: %.1f, best %.1f us (plan %d of %d)\n", net_names[s->net], s->name, pass_names[pass], us[0], best < 0 ? 0 : us[best], best + 1, count);
	fflush(stdout);
	for (int p = 0; p < count; p++)
		cudnn_plan_free(b->cudnn, plans[p]);
}

int cudnn_time(struct cudnn *cudnn, int live, double seconds)
{
	struct bench b = { .cudnn = cudnn };
	struct found found = { .cudnn = cudnn_version(cudnn) };
	const int code = live ? prepare(&b) : 0;
	const double begin = now();
	if (code) {
		printf("{\"note\": \"%s\"}\n", cudaGetErrorString((cudaError_t)code));
		return EXIT_INTERNAL;
	}
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (enum cudnn_pass pass = CUDNN_PASS_FORWARD; pass <= CUDNN_PASS_WEIGHT; pass++) {
			if (pass == CUDNN_PASS_DATA && shapes[i].c_in == 8)
				continue; /* nobody wants the gradient of the pixels */
			if (now() - begin > seconds) {
				found.left++;
				continue;
			}
			time_convolution(&b, live, &shapes[i], pass, &found);
			if ((found.timed + found.without) % TELL_EVERY == 0)
				tell(&found, 1);
		}
	tell(&found, 0);
	return found.timed ? 0 : EXIT_INTERNAL;
}

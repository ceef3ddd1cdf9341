/* SPDX-License-Identifier: Apache-2.0
 * Convolutions by cuDNN's backend API: NHWC maps whose channels may be a slice of a wider buffer, plans chosen by
 * cuDNN's heuristics and never by time, libcudnn.so.9 opened at run time.
 *
 * Plans can be asked for without a GPU, for a device described by JSON; then they are chosen and their workspace is known, but they
 * cannot run. */
#ifndef CUDA_CUDNN_H
#define CUDA_CUDNN_H

#include <stddef.h>

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

enum cudnn_pass { CUDNN_PASS_FORWARD, CUDNN_PASS_DATA, CUDNN_PASS_WEIGHT };

struct cudnn_convolution {
	enum cudnn_pass pass;
	enum precision precision; /* FP32, TF32, BF16, FP16 */
	int images, h_in, h_out, c_in, c_out;
	int kernel, stride, pad;
	int in_pitch, out_pitch;  /* elements a pixel; >= c_in, c_out */
	int weight_fp32;          /* WEIGHT: the gradient in fp32 though the maps are 16-bit */
};

struct cudnn;
struct cudnn_plan;

/* device: JSON of CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, or NULL for the current CUDA device. EXIT_INTERNAL where
 * libcudnn.so.9 cannot be opened: the line names the places searched. */
int cudnn_open(struct cudnn **cudnn, const char *device, struct error *e);
void cudnn_close(struct cudnn *c);
/* 91900 for 9.19.0 */
size_t cudnn_version(const struct cudnn *c);

/* How many deterministic engine configurations (and, for FP32, without tensor cores) the heuristics offer. */
int cudnn_offers(struct cudnn *c, const struct cudnn_convolution *v, int *count, struct error *e);

/* Builds the first of them that the device can run. */
int cudnn_plan_make(struct cudnn *c, const struct cudnn_convolution *v, struct cudnn_plan **plan, struct error *e);
/* Builds the first `most` of them that the device can run, into plans[]; *count: how many there are. */
int cudnn_plans_make(struct cudnn *c, const struct cudnn_convolution *v, int most, struct cudnn_plan **plans, int *count, struct error *e);
void cudnn_plan_free(struct cudnn *c, struct cudnn_plan *plan);
size_t cudnn_plan_workspace(const struct cudnn_plan *plan);

/* Enqueues on `stream` (cudaStream_t). FORWARD writes out, DATA writes in, WEIGHT writes weight ([c_out][k²][c_in]). */
int cudnn_plan_run(struct cudnn *c, const struct cudnn_plan *plan, void *in, void *weight, void *out, void *workspace, void *stream, struct error *e);

#ifdef __cplusplus
}
#endif
#endif

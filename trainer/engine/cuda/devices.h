/* SPDX-License-Identifier: Apache-2.0
 * GPUs by their data sheets: for plans that are made where there is none. */
#ifndef CUDA_DEVICES_H
#define CUDA_DEVICES_H

#include <stddef.h>

#include "error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpu_sheet {
	const char *name;       /* "h200" */
	const char *full_name;
	int capability;         /* 90: sm_90 */
	int sms;
	double memory;          /* bytes */
	int clock_khz, memory_khz, l2, shared; /* shared: bytes a block can have */
};

/* *sheet for "h200", "a100", … or for a number of GiB, which stands for an H200 with that much memory. EXIT_USAGE with the names that
 * are known. */
int gpu_sheet_find(struct gpu_sheet *sheet, const char *name, struct error *e);

/* What cuDNN takes as a description of a device. */
void gpu_sheet_json(const struct gpu_sheet *sheet, char *json, size_t size);

#ifdef __cplusplus
}
#endif
#endif

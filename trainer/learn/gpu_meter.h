/* SPDX-License-Identifier: Apache-2.0
 * What a GPU is doing, as NVML tells it. The library is opened at run time: it comes with the driver, its header does not. */
#ifndef LEARN_GPU_METER_H
#define LEARN_GPU_METER_H

struct gpu_meter;

struct gpu_reading {
	double busy;                       /* share of NVML's last sample period in which a kernel ran, 0 … 1 */
	double memory_used, memory_total;  /* bytes */
	double watts;
};

/* name: a PCI id ("0000:15:00.0"), a UUID ("GPU-…", "MIG-…") or an index in NVML's order (which is CUDA's where CUDA_DEVICE_ORDER is
 * PCI_BUS_ID or all GPUs are alike), or a list of these, whose first counts; as world.h's struct place holds it. NULL where NVML or
 * the GPU does not answer. Samples in a thread of its own from now on. */
struct gpu_meter *gpu_meter_open(const char *name);
void gpu_meter_close(struct gpu_meter *m);

/* The state of now. 0, or -1 when NVML fails. */
int gpu_meter_read(struct gpu_meter *m, struct gpu_reading *r);

/* Since gpu_meter_start(), at first since it was opened. */
struct gpu_summary {
	int samples;
	double busy;       /* mean share */
	double dips;       /* share of samples below GPU_DIP */
};
void gpu_meter_start(struct gpu_meter *m);
struct gpu_summary gpu_meter_summary(struct gpu_meter *m);

#define GPU_DIP 0.25   /* a dip: less than this busy */
#define GPU_WARN 0.90  /* a run below this owes its user a line */
#define GPU_FAIL 0.80  /* a benchmark below this has measured something else */

#endif

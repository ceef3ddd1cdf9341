/* SPDX-License-Identifier: Apache-2.0
 * Slurm's names for the GPUs of a step, translated to GPUs of the node. Refuses rather than guesses. */
#ifndef SPANK_DEVICES_H
#define SPANK_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

#include "placement.h"

enum { DEVICE_TOKEN = 80 };

struct step_devices {
	int count;
	int gpu[STEP_MAX_DEVICES];                  /* index into node.gpu; -1: known by name only (a MIG instance) */
	char token[STEP_MAX_DEVICES][DEVICE_TOKEN]; /* what CUDA_VISIBLE_DEVICES calls it */
	bool by_index;                              /* tokens are numbers in bus order */
	bool no_uuid;                               /* UUIDs were wanted, but the driver gives none */
};

/* global: SLURM_STEP_GPUS, numbers that hold for the whole node; visible: CUDA_VISIBLE_DEVICES as Slurm (or, in a step
 * without GPUs of its own, the user) set it: names, or numbers that hold among the devices that may be opened. Either
 * may be NULL. Returns 0; or -1 with one line. No list at all is no device. */
int step_devices(const struct node *node, const char *global, const char *visible, bool want_index, struct step_devices *out, char *error, size_t size);

/* Index of the GPU a CUDA name stands for ("GPU-8a1b…", an unambiguous beginning of it, "MIG-GPU-UUID/1/0"); -1 unknown. */
int gpu_by_name(const struct node *node, const char *name);

#endif

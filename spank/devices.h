/* SPDX-License-Identifier: Apache-2.0
 * Slurm's names for the GPUs of a step, translated to GPUs of the node. Refuses rather than guesses. */
#ifndef SPANK_DEVICES_H
#define SPANK_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

#include "placement.h"

enum { DEVICE_TOKEN = 80 };

/* How Slurm numbers the GPUs of a node. */
enum numbers { NUMBERS_UNKNOWN, NUMBERS_BUS /* in bus order */, NUMBERS_MINOR /* in the order of /dev/nvidiaN */ };

struct step_devices {
	int count;
	int gpu[STEP_MAX_DEVICES];                  /* index into node.gpu; -1: known by name only (a MIG instance) */
	char token[STEP_MAX_DEVICES][DEVICE_TOKEN]; /* what CUDA_VISIBLE_DEVICES calls it */
	bool by_index;                              /* tokens are numbers in bus order */
	bool no_uuid;                               /* UUIDs were wanted, but the driver gives none */
	bool unplaced;                              /* some gpu[] is -1 */
	bool in_doubt;                              /* gpu[] is one way to read the numbers, and Slurm may mean another one: error says so */
};

/* global: SLURM_STEP_GPUS, numbers that hold for the whole node; visible: CUDA_VISIBLE_DEVICES as Slurm set it: names,
 * or numbers that hold among the devices that may be opened. Either may be NULL. Returns 0; or -1 with one line. No list at all is no device. */
int step_devices(const struct node *node, enum numbers numbers, const char *global, const char *visible, bool want_index, struct step_devices *out, char *error, size_t size);

/* True for the name of a part of a GPU, "MIG-…". */
bool is_instance(const char *name);

/* Index of the GPU a CUDA name stands for ("GPU-8a1b…", an unambiguous beginning of it, "MIG-GPU-UUID/1/0"); the newer
 * "MIG-UUID" says it only where all instances of the node are cut from one GPU. -1 unknown. */
int gpu_by_name(const struct node *node, const char *name);

/* Index of the GPU with this PCI address, -1 none. */
int gpu_by_address(const struct node *node, const char *pci);

#endif

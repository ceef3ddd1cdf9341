/* SPDX-License-Identifier: Apache-2.0
 * The words of SLURM_TRES_BIND, by which sbatch and salloc (since 23.11) hand a job's --gpu-bind to its sruns. */
#ifndef SPANK_TRES_BIND_H
#define SPANK_TRES_BIND_H

#include <stdbool.h>
#include <stddef.h>

/* True if a user chose how GPUs are bound to tasks: "gres/gpu:closest+gres/nic:closest". "per_task:N" is none: Slurm puts
 * it there by itself for --gpus-per-task. Nor is our own word "none:socket". */
bool tres_binds_gpus(const char *text);

/* Writes the text with "gres/gpu:none" in place of what it says of GPUs. Returns buf, or NULL if that has no room. */
char *tres_bind_no_gpus(const char *text, char *buf, size_t size);

#endif

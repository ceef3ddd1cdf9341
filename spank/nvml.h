/* SPDX-License-Identifier: Apache-2.0
 * The few questions to the NVIDIA driver that /proc does not answer. libnvidia-ml.so.1 opens the driver and may start
 * its helper: only for processes all of whose user ids are the user's. */
#ifndef SPANK_NVML_H
#define SPANK_NVML_H

#include <stddef.h>
#include <sys/types.h>

struct nvml;

/* NULL where there is no library, no driver, or a user id that is root's and not the user's. */
struct nvml *nvml_open(void);
void nvml_close(struct nvml *nvml);

/* "GPU 0000:15:00.0 already holds memory of python3 (pid 4711, uid 1000, 3.1 GiB)": every process on the GPU, or on the
 * instance "MIG-…", but those that descend from `family` (0: nobody's). "" if there is none, or the driver does not tell. Returns buf. */
char *nvml_users(const struct nvml *nvml, const char *name, pid_t family, char *buf, size_t size);

/* The PCI address of the GPU that the instance "MIG-…" is cut from. Returns 0 or -1. */
int nvml_parent(const struct nvml *nvml, const char *instance, char pci[16]);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * GPUs and network cards of the running machine. */
#ifndef SPANK_SYSFS_H
#define SPANK_SYSFS_H

#include "placement.h"

/* Adds the NVIDIA GPUs and the InfiniBand and RoCE cards of SYS/bus/pci/devices to a node whose CPUs are known; virtual
 * functions and display controllers of other makers are none. Returns 0, or -1 if there are more than fit.
 *
 * hwloc could tell the same, but reads every device's configuration space for it: on a virtual machine 3 to 8 ms a
 * device, measured on one with 6 devices, where that was 24 of its 29 ms. Nothing here leaves the kernel's own memory. */
int read_pci_devices(const char *sys, struct node *node);

#endif

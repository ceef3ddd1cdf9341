/* SPDX-License-Identifier: Apache-2.0
 * What the NVIDIA driver tells about its GPUs in /proc/driver/nvidia, without opening a device. */
#ifndef SPANK_NVIDIA_H
#define SPANK_NVIDIA_H

#include <stdbool.h>
#include <stddef.h>

enum { CLASS_DISPLAY = 0x03 }; /* upper byte of the class of a GPU, or of any other display controller */

/* A PCI function of this vendor and class (the upper two bytes) is a GPU: display controllers of other makers, such as
 * the board management controller's, are not, nor are a GPU's audio and USB functions. */
bool is_nvidia_gpu(unsigned vendor, unsigned class);

struct nvidia_gpu {
	char pci[16];   /* "0000:15:00.0" */
	char uuid[48];  /* "GPU-…"; empty: the file does not say */
	char model[48];
	int minor;      /* N of /dev/nvidiaN; -1: the file does not say */
	bool divided;   /* MIG instances are cut from it */
};

/* Copies printable ASCII up to the end of the line, without spaces at either end. */
void copy_printable(const char *p, char *out, size_t size);

/* Reads the text of one gpus/BUSID/information file into all fields but pci and divided. Any text is accepted. */
void nvidia_parse_information(const char *text, struct nvidia_gpu *out);

/* Reads DIR/gpus, and DIR/capabilities for the GPUs that are divided. Returns the number of GPUs (at most max), 0 where there is no driver. */
int nvidia_read_proc(const char *dir, struct nvidia_gpu *out, int max);

/* "0000:15:00.0", also in capitals or with an 8-digit domain, to domain, bus, device, function as one number that
 * sorts in bus order, and to its usual spelling. Returns 0 or -1. */
int pci_parse(const char *text, unsigned long long *order, char canonical[16]);

#endif

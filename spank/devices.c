/* SPDX-License-Identifier: Apache-2.0 */
#include "devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies the comma-separated items; returns their number, or -1 if one is empty, too long or there are too many. */
static int split(const char *list, char (*item)[DEVICE_TOKEN])
{
	int n = 0;
	if (!list || !*list)
		return 0;
	for (const char *p = list;; p++) {
		size_t len = strcspn(p, ",");
		if (!len || len >= DEVICE_TOKEN || n == STEP_MAX_DEVICES)
			return -1;
		memcpy(item[n], p, len);
		item[n++][len] = '\0';
		p += len;
		if (!*p)
			return n;
	}
}

/* 0 … 9999, or -1. */
static int small_number(const char *text)
{
	size_t n = strlen(text);
	return n && n <= 4 && strspn(text, "0123456789") == n ? atoi(text) : -1;
}

bool is_instance(const char *name)
{
	return !strncmp(name, "MIG-", 4);
}

/* The one GPU of the node that has instances; -1 if there are several, or none. */
static int only_divided(const struct node *node)
{
	int found = -1;
	for (int g = 0; g < node->gpus; g++)
		if (node->gpu[g].divided) {
			if (found >= 0)
				return -1;
			found = g;
		}
	return found;
}

int gpu_by_name(const struct node *node, const char *name)
{
	const char *uuid = is_instance(name) ? name + 4 : name;
	size_t n = is_instance(name) ? strcspn(uuid, "/") : strlen(uuid);
	int found = -1;

	if (is_instance(name) && strncmp(uuid, "GPU-", 4))
		return only_divided(node);
	if (strncmp(uuid, "GPU-", 4) || n < 5)
		return -1;
	for (int g = 0; g < node->gpus; g++)
		if (strlen(node->gpu[g].uuid) >= n && !strncmp(node->gpu[g].uuid, uuid, n)) {
			if (found >= 0)
				return -1;
			found = g;
		}
	return found;
}

int gpu_by_address(const struct node *node, const char *pci)
{
	for (int g = 0; g < node->gpus; g++)
		if (!strcmp(node->gpu[g].at.pci, pci))
			return g;
	return -1;
}

/* Slurm numbers GPUs in the order of gres.conf's lines or of their device files, or in bus order where NVML told it, and counts each
 * instance of a divided one; refuse where these differ and nobody says which it is, and where a device number is not known at all
 * take bus order. Slurm's numbers have no gaps: where those of the device files do, or a GPU is missing here, they are not Slurm's. */
static int gpu_by_number(const struct node *node, enum numbers numbers, int number, bool *in_doubt)
{
	int by_minor = -1;
	bool minors = node->gpus > 0, divided = false, gap = false;

	for (int g = 0; g < node->gpus; g++) {
		minors &= node->gpu[g].minor >= 0;
		gap |= node->gpu[g].minor >= node->gpus;
		if (node->gpu[g].minor == number)
			by_minor = g;
		divided |= (numbers == NUMBERS_MINOR ? node->gpu[g].minor : g) <= number && node->gpu[g].divided;
	}
	*in_doubt = divided || (numbers == NUMBERS_UNKNOWN && number < node->gpus && minors && by_minor != number);
	if (numbers == NUMBERS_MINOR && minors)
		return gap ? -1 : by_minor;
	return number < node->gpus ? number : -1;
}

/* Position in bus order among all GPUs of the node, or among those of the step. */
static int bus_position(const struct node *node, const struct step_devices *d, int gpu, bool among_step)
{
	int before = 0;
	if (!among_step) {
		for (int g = 0; g < node->gpus; g++)
			before += node->gpu[g].at.order < node->gpu[gpu].at.order;
		return before;
	}
	for (int i = 0; i < d->count; i++)
		before += node->gpu[d->gpu[i]].at.order < node->gpu[gpu].at.order;
	return before;
}

static int from_names(const struct node *node, struct step_devices *out, char *error, size_t size)
{
	for (int i = 0; i < out->count; i++) {
		out->gpu[i] = gpu_by_name(node, out->token[i]);
		out->unplaced |= out->gpu[i] < 0;
		if (out->gpu[i] < 0 && !is_instance(out->token[i])) {
			snprintf(error, size, "the step has GPU '%s', which this node's driver does not show", out->token[i]);
			return -1;
		}
	}
	return 0;
}

/* Whether the numbers, of which gpu[] is bus order's reading, mean the same GPUs by device file. No instance has a number of its own there. */
static bool same_either_way(const struct node *node, const struct step_devices *d)
{
	bool same = true;

	for (int g = 0; g < node->gpus; g++)
		if (node->gpu[g].divided)
			return false;
	for (int i = 0; i < d->count; i++) {
		bool found = false;
		for (int k = 0; k < d->count; k++)
			found |= node->gpu[d->gpu[k]].minor == small_number(d->token[i]);
		same &= found;
	}
	return same;
}

static int from_numbers(const struct node *node, enum numbers numbers, bool relative, bool want_index, struct step_devices *out, char *error, size_t size)
{
	for (int i = 0; i < out->count; i++) {
		int number = small_number(out->token[i]);
		bool in_doubt = false;
		out->gpu[i] = number < 0 ? -1 : gpu_by_number(node, numbers, number, &in_doubt);
		const int minor = out->gpu[i] < 0 ? -1 : node->gpu[out->gpu[i]].minor;
		if (in_doubt && (minor < 0 || minor == number || numbers)) {
			snprintf(error, size, "Slurm may mean another one by GPU %d, since GPUs before it are divided into instances: divide all of this node's, or none", number);
			return -1;
		}
		if (out->gpu[i] < 0 && number >= 0 && number < node->gpus) {
			snprintf(error, size, "which one is Slurm's GPU %d is not known by numbers=minor, since the numbers of this node's /dev/nvidia files have a gap: hvd-map selfcheck tells what to write", number);
			return -1;
		}
		if (out->gpu[i] < 0) {
			snprintf(error, size, "the step has GPU '%s', but this node shows %d GPU%s", out->token[i], node->gpus, node->gpus == 1 ? "" : "s");
			return -1;
		}
		if (in_doubt && !out->in_doubt)
			snprintf(error, size, "GPU %d is /dev/nvidia%d by bus order, and Slurm may mean another one: hvd-map selfcheck tells which numbers=… plugstack.conf needs",
				number, minor);
		out->in_doubt |= in_doubt;
		for (int k = 0; k < i; k++)
			if (out->gpu[k] == out->gpu[i]) {
				snprintf(error, size, "the step has GPU %d twice", number);
				return -1;
			}
	}
	out->in_doubt &= !same_either_way(node, out);
	for (int i = 0; i < out->count; i++)
		out->no_uuid |= !want_index && !node->gpu[out->gpu[i]].uuid[0];
	out->by_index = want_index || out->no_uuid;
	for (int i = 0; i < out->count; i++) {
		if (out->by_index)
			snprintf(out->token[i], DEVICE_TOKEN, "%d", bus_position(node, out, out->gpu[i], relative));
		else
			snprintf(out->token[i], DEVICE_TOKEN, "%s", node->gpu[out->gpu[i]].uuid);
	}
	return 0;
}

int step_devices(const struct node *node, enum numbers numbers, const char *global, const char *visible, bool want_index, struct step_devices *out, char *error, size_t size)
{
	bool names;

	out->by_index = out->no_uuid = out->unplaced = out->in_doubt = false;
	if (visible && (!strcmp(visible, "NoDevFiles") || !strcmp(visible, "-1")))
		visible = NULL;
	names = visible && small_number((char[2]){ visible[0], '\0' }) < 0;
	/* numbers in `visible` are relative when devices are confined: only the global ones say which GPU is meant */
	const char *list = names || !global || !*global ? visible : global;
	out->count = split(list, out->token);
	if (out->count < 0) {
		out->count = 0;
		snprintf(error, size, "the step's list of GPUs is not understood: %.128s", list);
		return -1;
	}
	bool relative = global && visible && strcmp(global, visible);
	int rc = names ? from_names(node, out, error, size) : from_numbers(node, numbers, relative, want_index, out, error, size);
	if (rc)
		out->count = 0;
	return rc;
}

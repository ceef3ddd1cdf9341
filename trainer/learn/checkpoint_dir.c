/* SPDX-License-Identifier: Apache-2.0
 * A directory of checkpoints. */
#include "learn/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void checkpoint_path(char *path, size_t size, const char *directory, uint64_t step)
{
	snprintf(path, size, "%s/checkpoint-%08" PRIu64 ".safetensors", directory, step);
}

/* The step in a checkpoint's file name, or -1 for any other name. */
static int64_t step_of(const char *name)
{
	static const char head[] = "checkpoint-";
	char *end;

	if (strncmp(name, head, sizeof head - 1) || name[sizeof head - 1] < '0' || name[sizeof head - 1] > '9')
		return -1;
	int64_t step = strtoll(name + sizeof head - 1, &end, 10);
	return strcmp(end, ".safetensors") == 0 ? step : -1;
}

static int only_checkpoints(const struct dirent *entry)
{
	return step_of(entry->d_name) >= 0;
}

static int by_step(const struct dirent **a, const struct dirent **b)
{
	int64_t x = step_of((*a)->d_name), y = step_of((*b)->d_name);

	return (x > y) - (x < y);
}

int checkpoint_below(char *path, size_t size, const char *directory, uint64_t *step, struct error *e)
{
	struct dirent **entries;
	int n = scandir(directory, &entries, only_checkpoints, by_step), found = 0;
	uint64_t below = *step;

	if (n < 0)
		return errno == ENOENT ? 0 : fail(e, EXIT_INTERNAL, "%s: %s", directory, strerror(errno));
	for (int i = 0; i < n; i++) {
		uint64_t at = (uint64_t)step_of(entries[i]->d_name);

		if (at < below) {
			found = 1;
			*step = at;
			snprintf(path, size, "%s/%s", directory, entries[i]->d_name);
		}
		free(entries[i]);
	}
	free(entries);
	return found;
}

int checkpoint_latest(char *path, size_t size, const char *directory, struct error *e)
{
	uint64_t step = UINT64_MAX;

	return checkpoint_below(path, size, directory, &step, e);
}

int checkpoint_abandon(const char *directory, uint64_t step)
{
	struct dirent **entries;
	int n = scandir(directory, &entries, only_checkpoints, by_step), abandoned = 0;

	for (int i = 0; i < n; i++) {
		char path[4096], aside[sizeof path + 16];

		if ((uint64_t)step_of(entries[i]->d_name) > step && snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name) < (int)sizeof path) {
			snprintf(aside, sizeof aside, "%s.abandoned", path);
			abandoned += rename(path, aside) == 0;
		}
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	return abandoned;
}

void checkpoint_prune(const char *directory, int keep, uint64_t step)
{
	struct dirent **entries;
	int n = scandir(directory, &entries, only_checkpoints, by_step), reached = n;

	while (reached > 0 && (uint64_t)step_of(entries[reached - 1]->d_name) > step)
		reached--;
	for (int i = 0; i < n; i++) {
		char path[4096];

		if (i < reached - keep && snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name) < (int)sizeof path)
			unlink(path);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
}

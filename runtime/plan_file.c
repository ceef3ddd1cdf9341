/* SPDX-License-Identifier: Apache-2.0 */
#include "boot.h"
#include "planner.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define FIRST_LINE "hvd plan 1: %d gradients, hash %" SCNx64 ", %d buckets; the last gradient of each\n"

int plan_read(const char *path, uint64_t hash, int n, int *last, char *why)
{
	FILE *f = fopen(path, "r");
	int gradients = 0, buckets = 0, read = 0;
	uint64_t theirs = 0;
	if (!f && errno == ENOENT)
		return 0;
	bool plan = f && fscanf(f, FIRST_LINE, &gradients, &theirs, &buckets) == 3 && buckets > 0 && buckets <= gradients;
	bool ours = plan && gradients == n && theirs == hash;
	while (ours && read < buckets && fscanf(f, "%d", &last[read]) == 1 && last[read] < n && (!read || last[read] > last[read - 1]))
		read++;
	if (!f)
		snprintf(why, WHY_BYTES, "%.200s: %s", path, strerror(errno));
	else if (plan && !ours)
		snprintf(why, WHY_BYTES, "%.200s is the plan of other gradients (%d of them, here %d): remove it", path, gradients, n);
	else
		snprintf(why, WHY_BYTES, "%.200s is no plan, or a damaged one: remove it", path);
	if (f)
		fclose(f);
	return read && read == buckets && last[read - 1] == n - 1 && last[0] >= 0 ? buckets : -1;
}

int plan_write(const char *path, uint64_t hash, int n, const int *last, int buckets, char *why)
{
	char fresh[4096];
	snprintf(fresh, sizeof fresh, "%.4000s.new", path);
	FILE *f = fopen(fresh, "w");
	if (f) {
		fprintf(f, "hvd plan 1: %d gradients, hash %" PRIx64 ", %d buckets; the last gradient of each\n", n, hash, buckets);
		for (int b = 0; b < buckets; b++)
			fprintf(f, "%d\n", last[b]);
	}
	if (f && !fclose(f) && !rename(fresh, path))
		return 0;
	snprintf(why, WHY_BYTES, "cannot write %.200s: %s", path, strerror(errno));
	return -1;
}

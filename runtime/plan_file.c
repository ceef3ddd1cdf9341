/* SPDX-License-Identifier: Apache-2.0 */
#include "base.h"
#include "planner.h"

#include <errno.h>
#include <locale.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_LINE "hvd plan 1: %d gradients, hash %" SCNx64 ", %d buckets; the last gradient of each\n"
#define MEASURED_LINE " measured by %d ranks: step %lf s, all-reduce %lf s + %lf s a byte; bytes and seconds of each gradient\n"
#define GRADIENTS_MAX 1000000

/* After the first line: does the cut make sense, whatever number of buckets that line has? last: [n], or NULL where nobody wants it. */
static bool read_cut(FILE *f, int n, int *last, int buckets)
{
	int before = -1, next;
	for (int b = 0; b < buckets; b++, before = next) {
		if (fscanf(f, "%d", &next) != 1 || next <= before || next >= n)
			return false;
		if (last)
			last[b] = next;
	}
	return before == n - 1;
}

/* A regular file only: for the writer of a pipe a whole world would wait, and the plan would take the place of a link to nothing. NULL and errno, 0: something else. */
static FILE *open_plan(const char *path)
{
	struct stat st;
	if (stat(path, &st) ? errno != ENOENT || lstat(path, &st) : S_ISREG(st.st_mode))
		return fopen(path, "re");
	errno = 0;
	return NULL;
}

int plan_read(const char *path, uint64_t hash, int n, int *last, int *ranks, char *why)
{
	FILE *f = open_plan(path);
	int gradients = 0, buckets = 0;
	uint64_t theirs = 0;
	if (!f && errno == ENOENT)
		return 0;
	bool plan = f && fscanf(f, FIRST_LINE, &gradients, &theirs, &buckets) == 3;
	bool ours = plan && gradients == n && theirs == hash;
	bool whole = ours && read_cut(f, n, last, buckets);
	if (whole && fscanf(f, " measured by %d ranks", &gradients) == 1)
		*ranks = gradients;
	if (!f || ferror(f))
		snprintf(why, WHY_BYTES, "%.200s: %s", path, errno ? strerror(errno) : "not a regular file, nor a link to one: name another");
	else if (plan && !ours)
		snprintf(why, WHY_BYTES, "%.200s is the plan of other gradients (%d of them, here %d): name another file, or remove it", path, gradients, n);
	else
		snprintf(why, WHY_BYTES, "%.200s is no plan, or a damaged one: name another file, or remove it if it is an old plan", path);
	if (f)
		fclose(f);
	return whole ? buckets : -1;
}

/* Beside the plan, under a name that nobody has. */
static FILE *open_fresh(char *fresh, size_t size, const char *path)
{
	unsigned any;
	if (getrandom(&any, sizeof any, 0) < 0)
		return NULL;
	snprintf(fresh, size, "%.4000s.new-%08x", path, any);
	return fopen(fresh, "wxe");
}

static int cannot_write(const char *path, int error, char *why)
{
	snprintf(why, WHY_BYTES, "cannot write %.200s: %s", path, strerror(error));
	return -1;
}

int plan_writable(const char *path, char *why)
{
	char fresh[4096];
	FILE *f = open_fresh(fresh, sizeof fresh, path);
	if (!f)
		return cannot_write(path, errno, why);
	fclose(f);
	unlink(fresh);
	return 0;
}

int plan_write(const char *path, uint64_t hash, int n, const int *last, int buckets, const struct profile *measured, char *why)
{
	char fresh[4096];
	FILE *f = open_fresh(fresh, sizeof fresh, path);
	locale_t c = newlocale(LC_NUMERIC_MASK, "C", NULL), own = uselocale(c); /* for numbers that any program reads */
	if (f) {
		fprintf(f, "hvd plan 1: %d gradients, hash %" PRIx64 ", %d buckets; the last gradient of each\n", n, hash, buckets);
		for (int b = 0; b < buckets; b++)
			fprintf(f, "%d\n", last[b]);
	}
	if (f && measured) {
		fprintf(f, "measured by %d ranks: step %.9f s, all-reduce %.9f s + %.15f s a byte; bytes and seconds of each gradient\n", measured->ranks,
			measured->step, measured->cost.latency, measured->cost.per_byte);
		for (int i = 0; i < measured->n; i++)
			fprintf(f, "%zu %.9f\n", measured->bytes[i], measured->ready[i]);
	}
	uselocale(own);
	if (c)
		freelocale(c);
	int error = !f || fflush(f) || ferror(f) ? errno : 0;
	if (f && fclose(f) && !error)
		error = errno; /* where a network file system says that there is no room */
	if (!error && rename(fresh, path))
		error = errno;
	if (f && error)
		unlink(fresh);
	return error ? cannot_write(path, error, why) : 0;
}

/* After the cut. */
static bool read_measurements(FILE *f, struct profile *p)
{
	if (fscanf(f, MEASURED_LINE, &p->ranks, &p->step, &p->cost.latency, &p->cost.per_byte) != 4)
		return false;
	for (int i = 0; i < p->n; i++)
		if (fscanf(f, "%zu %lf", &p->bytes[i], &p->ready[i]) != 2 || p->bytes[i] >> 40 || !(p->ready[i] >= (i ? p->ready[i - 1] : 0)))
			return false;
	return p->ranks > 0 && p->cost.latency >= 0 && p->cost.latency < 1e9 && p->cost.per_byte >= 0 && p->cost.per_byte < 1e9 && p->step >= p->ready[p->n - 1] && p->step > 0 && p->step < 1e9;
}

int profile_read(const char *path, struct profile *p, char *why)
{
	FILE *f = open_plan(path);
	int buckets = 0;
	uint64_t hash;
	*p = (struct profile){ .n = 0 };
	bool plan = f && fscanf(f, FIRST_LINE, &p->n, &hash, &buckets) == 3 && p->n > 0 && p->n <= GRADIENTS_MAX;
	if (plan) {
		p->bytes = calloc((size_t)p->n, sizeof *p->bytes);
		p->ready = calloc((size_t)p->n, sizeof *p->ready);
	}
	bool whole = p->bytes && p->ready && read_cut(f, p->n, NULL, buckets) && read_measurements(f, p);
	if (!f || ferror(f))
		snprintf(why, WHY_BYTES, "%.200s: %s", path, errno ? strerror(errno) : "not a regular file");
	else
		snprintf(why, WHY_BYTES, "%.200s holds no measurements: it is what a training with HVD_PLAN leaves that found no such file", path);
	if (f)
		fclose(f);
	return whole ? 0 : -1;
}

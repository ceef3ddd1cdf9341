/* SPDX-License-Identifier: Apache-2.0 */
#include "planner.h"

#include <stdlib.h>

enum { ENDS_MAX = 1024 }; /* a plan takes milliseconds then, however many tensors there are */

int plan_fill(const size_t *bytes, int n, size_t bucket_bytes, bool statistics, int *last)
{
	size_t sum = 0;
	int buckets = 0;
	for (int i = 0; i < n; i++) {
		sum += bytes[i];
		if (sum >= bucket_bytes || (statistics && i == n - 2) || i == n - 1) {
			last[buckets++] = i;
			sum = 0;
		}
	}
	return buckets;
}

static double carried(const struct cost *cost, double bytes)
{
	return bytes + cost->hops * (bytes < cost->piece ? bytes : cost->piece);
}

static double seconds_of(const struct cost *cost, double bytes)
{
	return cost->latency + cost->per_byte * carried(cost, bytes);
}

double plan_through(const double *ready, const size_t *bytes, const struct cost *cost, const int *last, int buckets)
{
	double t = 0;
	for (int b = 0, i = 0; b < buckets; b++) {
		size_t sum = 0;
		for (; i <= last[b]; i++)
			sum += bytes[i];
		t = (t > ready[last[b]] ? t : ready[last[b]]) + seconds_of(cost, (double)sum);
	}
	return t;
}

/* Where buckets may end: after every tensor, of very many after those that bring another ENDS_MAX-th of the bytes. Returns how many those are;
 * end[n], before[k]: bytes up to the k-th of them. */
static int find_ends(const size_t *bytes, int n, int *end, double *before)
{
	double total = 0, sum = 0;
	int ends = 0;
	for (int i = 0; i < n; i++)
		total += (double)bytes[i];
	for (int i = 0; i < n; i++) {
		sum += (double)bytes[i];
		if (n <= ENDS_MAX || sum * ENDS_MAX > total * ends || i == n - 1) {
			end[ends++] = i;
			before[ends] = sum;
		}
	}
	return ends;
}

/* best[b][j]: when the tensors up to the j-th end are through in b buckets; from[b][j]: after which end the last of them begins. An earlier
 * time is never worse for what follows, so the best of a longer prefix extends a best of a shorter one. */
int plan_cut(const double *ready, const size_t *bytes, int n, const struct cost *cost, int most, int *last)
{
	size_t row = (size_t)n + 1;
	double *best = malloc(((size_t)most + 1) * row * sizeof *best), *before = calloc(row, sizeof *before);
	int *from = malloc(((size_t)most + 1) * row * sizeof *from), *end = malloc(row * sizeof *end), buckets = 0, ends;
	if (!best || !from || !before || !end)
		goto out;
	ends = find_ends(bytes, n, end, before);
	for (int j = 0; j <= ends; j++)
		best[j] = j ? 1e300 : 0;
	for (int b = 1; b <= most; b++) {
		double *now = best + (size_t)b * row, *then = now - row;
		for (int j = 0; j <= ends; j++) {
			now[j] = 1e300;
			for (int i = 0; i < j; i++) {
				double begin = then[i] > ready[end[j - 1]] ? then[i] : ready[end[j - 1]];
				double t = begin + seconds_of(cost, before[j] - before[i]);
				if (t < now[j]) {
					now[j] = t;
					from[(size_t)b * row + (size_t)j] = i;
				}
			}
		}
		if (!buckets || now[ends] < best[(size_t)buckets * row + (size_t)ends] * (1 - 1e-9))
			buckets = b;
	}
	for (int b = buckets, j = ends; b > 0; b--) {
		last[b - 1] = end[j - 1];
		j = from[(size_t)b * row + (size_t)j];
	}
out:
	free(best);
	free(from);
	free(before);
	free(end);
	return buckets;
}

struct cost plan_fit(const double *bytes, const double *seconds, int n, double hops, double piece)
{
	struct cost cost = { .hops = hops, .piece = piece };
	double sum = 0, x = 0, y = 0, xx = 0, xy = 0;
	for (int i = 0; i < n; i++) {
		double weight = 1 / (seconds[i] * seconds[i]);
		sum += weight;
		x += weight * carried(&cost, bytes[i]);
		y += weight * seconds[i];
	}
	for (int i = 0; i < n; i++) {
		double weight = 1 / (seconds[i] * seconds[i]), dx = carried(&cost, bytes[i]) - x / sum;
		xx += weight * dx * dx;
		xy += weight * dx * (seconds[i] - y / sum);
	}
	cost.per_byte = xx > 0 && xy > 0 ? xy / xx : 0;
	cost.latency = (y - cost.per_byte * x) / sum;
	cost.latency = cost.latency > 0 ? cost.latency : 0;
	return cost;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "planner.h"

#include <stdlib.h>

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

/* best[b][j]: when the first j tensors are through in b buckets; from[b][j]: where the last of them begins. An earlier end is never
 * worse for what follows, so the best of a longer prefix extends a best of a shorter one. */
int plan_cut(const double *ready, const size_t *bytes, int n, const struct cost *cost, int most, int *last, double *through)
{
	size_t row = (size_t)n + 1;
	double *best = malloc(((size_t)most + 1) * row * sizeof *best), *before = calloc(row, sizeof *before);
	int *from = malloc(((size_t)most + 1) * row * sizeof *from), buckets = 0;
	if (!best || !from || !before)
		goto out;
	for (int j = 0; j < n; j++)
		before[j + 1] = before[j] + (double)bytes[j];
	for (int j = 0; j <= n; j++)
		best[j] = j ? 1e300 : 0;
	for (int b = 1; b <= most; b++) {
		double *now = best + (size_t)b * row, *then = now - row;
		for (int j = 0; j <= n; j++) {
			now[j] = 1e300;
			for (int i = 0; i < j; i++) {
				double begin = then[i] > ready[j - 1] ? then[i] : ready[j - 1];
				double end = begin + seconds_of(cost, before[j] - before[i]);
				if (end < now[j]) {
					now[j] = end;
					from[(size_t)b * row + (size_t)j] = i;
				}
			}
		}
		if (!buckets || now[n] < best[(size_t)buckets * row + (size_t)n] * (1 - 1e-9))
			buckets = b;
	}
	*through = best[(size_t)buckets * row + (size_t)n];
	for (int b = buckets, j = n; b > 0; b--) {
		last[b - 1] = j - 1;
		j = from[(size_t)b * row + (size_t)j];
	}
out:
	free(best);
	free(from);
	free(before);
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

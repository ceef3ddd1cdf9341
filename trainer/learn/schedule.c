/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/schedule.h"

#include <limits.h>
#include <math.h>

int schedule_global_batch(int batch, int accumulate, int ranks, struct error *e)
{
	if ((int64_t)batch * accumulate > INT_MAX / ranks)
		return fail(e, EXIT_USAGE, "--batch=%d x --accumulate=%d x %d rank%s: no more than %d images a step", batch, accumulate, ranks, ranks == 1 ? "" : "s", INT_MAX);
	return batch * accumulate * ranks;
}

double schedule_peak(const struct schedule *s)
{
	double k = (double)s->global_batch / s->base_batch;

	if (k <= 1)
		return s->rate;
	switch (s->scaling) {
	case SCALING_NONE:
		break;
	case SCALING_SQRT:
		return s->rate * sqrt(k);
	case SCALING_LINEAR:
		return s->rate * k;
	}
	return s->rate;
}

int schedule_warms_up(const struct schedule *s, uint64_t step)
{
	return step - (uint64_t)s->moved < s->warmup;
}

double schedule_rate(const struct schedule *s, uint64_t step)
{
	double peak = schedule_peak(s);
	uint64_t steps = s->steps - (uint64_t)s->moved;

	const int warms_up = schedule_warms_up(s, step);

	step -= (uint64_t)s->moved;
	if (warms_up)
		return peak * (double)(step + 1) / (double)s->warmup;
	if (s->decay == DECAY_PLATEAU && s->factor > 0)
		return peak * s->factor;
	if (s->decay != DECAY_COSINE || steps <= s->warmup)
		return peak;
	double done = (double)(step - s->warmup) / (double)(steps - s->warmup);
	if (done > 1)
		done = 1;
	return peak * (s->final_share + (1 - s->final_share) * 0.5 * (1 + cos(3.14159265358979323846 * done)));
}

/* SPDX-License-Identifier: Apache-2.0
 * Scores of one finding's probabilities as a whole, with intervals. Each is a function of means over images, so by its linear terms a patient moves it by
 * the sum of what the images do, and its variance is the sum of the squares (Liang and Zeger 1986). Spread as few.h says, and symmetric on
 * the scale of logits, of log(1 - skill) and of the ratio's logarithm: about the Brier score itself an interval is too short at its upper end,
 * about the skill at its lower one. */
#include "learn/calibration_images.h"

#include <math.h>
#include <string.h>

enum measure { BRIER, SKILL, RATIO, LEVEL, MEASURES };

/* What is added to all logits so that the mean probability is the share (Cox 1958, with the slope held at 1). Between the two values by
 * which each probability would be the share or less, or the share or more, Newton's steps, or halves where these lead out. */
static double find_level(const struct entry *e, size_t n, double share)
{
	const double at = log(share / (1 - share));
	double low = at - e[n - 1].logit, high = at - e[0].logit, level = (low + high) / 2; /* logits ascend */

	for (int round = 0; round < 200 && high - low > 1e-12 * (1 + fabs(level)); round++) {
		double rest = (double)n * share, weight = 0;

		for (size_t i = 0; i < n; i++) {
			double q = probability(e[i].logit + level);

			rest -= q;
			weight += q * (1 - q);
		}
		*(rest > 0 ? &low : &high) = level;
		double step = rest / weight;

		if (fabs(step) < 1e-12 * (1 + fabs(level)))
			break;
		level = level + step > low && level + step < high ? level + step : (low + high) / 2;
	}
	return level;
}

/* An interval of no width but for rounding, as where every image is said to show it by a half, would be none. */
static struct interval about(double value, double low, double high, double se)
{
	if (!(se > 1e-12 * fabs(value)) || !isfinite(low) || !isfinite(high))
		return value_only(value);
	return (struct interval){ value, low, high, se, METHOD_NONE };
}

static double logit(double p)
{
	return log(p / (1 - p));
}

void calibration_scores(struct calibration *c, const struct entry *e, size_t n, const struct room *room, double effective, double *moves)
{
	const double share = (double)c->positives / (double)n;
	double error = 0, said = 0, weight = 0, variance[MEASURES] = { 0 };

	for (size_t i = 0; i < n; i++) {
		error += (e[i].p - e[i].positive) * (e[i].p - e[i].positive) / (double)n;
		said += e[i].p / (double)n;
	}
	c->brier.value = error;
	if (!c->positives || c->positives == n)
		return;
	const double level = find_level(e, n, share), skill = 1 - error / (share * (1 - share)), ratio = share / said;

	for (size_t i = 0; i < n; i++) {
		double q = probability(e[i].logit + level);

		weight += q * (1 - q);
	}
	memset(room->sum, 0, room->patients * sizeof *room->sum);
	for (size_t i = 0; i < n; i++) {
		double *sum = room->sum[e[i].patient];
		const double y = e[i].positive, own = ((e[i].p - y) * (e[i].p - y) - error) / (double)n;

		sum[BRIER] += own;
		sum[SKILL] += own / error - (1 - 2 * share) / (share * (1 - share)) * (y - share) / (double)n; /* of log(1 - skill) */
		sum[RATIO] += (y / share - e[i].p / said) / (double)n;                                          /* of its log */
		sum[LEVEL] += (y - probability(e[i].logit + level)) / weight;
	}
	for (size_t i = 0; i < room->patients; i++) {
		for (int k = 0; k < MEASURES; k++)
			variance[k] += room->sum[i][k] * room->sum[i][k];
		if (moves)
			moves[i] = -(1 - skill) * room->sum[i][SKILL];
	}
	const double spread = NORMAL_95 * few_spread((size_t)fmax(effective, LEAST_POSITIVES)), se[MEASURES] = { sqrt(variance[BRIER]), sqrt(variance[SKILL]), sqrt(variance[RATIO]), sqrt(variance[LEVEL]) };
	const double at = logit(error), half = spread * se[BRIER] / (error * (1 - error)), by = exp(spread * se[SKILL]), times = exp(spread * se[RATIO]);

	c->brier = about(error, probability(at - half), probability(at + half), se[BRIER]);
	c->skill = about(skill, 1 - (1 - skill) * by, 1 - (1 - skill) / by, (1 - skill) * se[SKILL]);
	c->ratio = about(ratio, ratio / times, ratio * times, ratio * se[RATIO]);
	c->level = about(level, level - spread * se[LEVEL], level + spread * se[LEVEL], se[LEVEL]);
}

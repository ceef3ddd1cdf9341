/* SPDX-License-Identifier: Apache-2.0
 * ROC and precision-recall curves and average precision against their definitions, and their bands against simulation. */
#include "tests/unit/test.h"

#include <math.h>
#include <omp.h>

#include "learn/curves.h"

static uint64_t random_state = 977;

static double uniform(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (double)(random_state >> 11) / 9007199254740992.0;
}

static double normal(void)
{
	return sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform());
}

/* For every distinct score: images at or above it. */
static double precision_sum(const float *score, const uint8_t *positive, size_t n)
{
	double sum = 0, all = 0;

	for (size_t i = 0; i < n; i++)
		all += positive[i];
	for (size_t i = 0; i < n; i++) {
		double tp = 0, predicted = 0, here = 0, first = 1;

		for (size_t j = 0; j < n; j++) {
			predicted += score[j] >= score[i];
			tp += positive[j] && score[j] >= score[i];
			here += positive[j] && score[j] == score[i];
			first = score[j] == score[i] && j < i ? 0 : first;
		}
		sum += first * here / all * (tp / predicted);
	}
	return sum;
}

static void average_precision_equals_its_definition(void **state)
{
	enum { N = 83 };
	float score[N];
	uint8_t positive[N];

	(void)state;
	printf("# seed %llu\n", (unsigned long long)random_state);
	for (int round = 0; round < 60; round++) {
		int levels = round % 2 ? 5 : 1000000;

		for (int i = 0; i < N; i++) {
			positive[i] = i == 0 || uniform() < 0.15;
			score[i] = (float)floor(levels * (uniform() + 0.3 * positive[i]));
		}
		assert_close(average_precision(score, positive, N), precision_sum(score, positive, N), 1e-12);
	}
}

/* scikit-learn's documentation of average_precision_score: 0.83; by hand 1/2 · 1 + 1/2 · 2/3. */
static void the_documented_example_gives_five_sixths(void **state)
{
	static const float score[] = { 0.1f, 0.4f, 0.35f, 0.8f };
	static const uint8_t positive[] = { 0, 0, 1, 1 };

	(void)state;
	assert_close(average_precision(score, positive, 4), 5.0 / 6, 1e-15);
	assert_true(isnan(average_precision(score, (const uint8_t[4]){ 0 }, 4)));
}

static double area(const struct curve *c)
{
	double sum = 0;

	for (size_t i = 1; i < c->n; i++)
		sum += (c->points[i].x - c->points[i - 1].x) * (c->points[i].y + c->points[i - 1].y) / 2;
	return sum;
}

enum { MANY = 400 };

struct sample_set {
	float logits[MANY][2];
	uint32_t labels[MANY], known[MANY], patient[MANY];
	struct scores scores;
};

/* Class 1: scores N(0, 1), positives N(shift, 1); levels > 0 makes ties. */
static void draw(struct sample_set *s, double shift, double prevalence, int levels)
{
	for (int i = 0; i < MANY; i++) {
		int positive = uniform() < prevalence;
		double z = normal() + positive * shift;

		s->labels[i] = positive ? 2 : 0;
		s->known[i] = i % 10 ? 3 : 1;
		s->patient[i] = (uint32_t)i;
		s->logits[i][0] = 0;
		s->logits[i][1] = (float)(levels ? floor(z * levels) : z);
	}
	s->scores = (struct scores){ MANY, 2, &s->logits[0][0], s->labels, s->known, s->patient };
}

static void the_area_below_the_roc_curve_is_the_auroc(void **state)
{
	(void)state;
	for (int round = 0; round < 20; round++) {
		struct sample_set s;
		struct curves c;
		float score[MANY];
		uint8_t positive[MANY];
		size_t n = 0;

		draw(&s, 1, 0.2, round % 2 ? 2 : 0);
		for (int i = 0; i < MANY; i++)
			if (s.known[i] & 2) {
				score[n] = s.logits[i][1];
				positive[n++] = s.labels[i] >> 1;
			}
		assert_int_equal(curves_of(&s.scores, 1, 20, 1, &c), 0);
		assert_close(area(&c.roc), auroc(score, positive, n), 1e-12);
		assert_close(c.average_precision.value, average_precision(score, positive, n), 1e-15);
		assert_close(c.roc.points[0].x + c.roc.points[0].y, 0, 0);
		assert_close(c.roc.points[c.roc.n - 1].x + c.roc.points[c.roc.n - 1].y, 2, 1e-15);
		assert_close(c.pr.points[c.pr.n - 1].x, 1, 0);
		assert_true(c.pr.points[0].x > 0 && (c.pr.n == 1 || c.pr.points[c.pr.n - 2].x < 1));
		assert_true(c.pr.points[c.pr.n - 1].y >= (double)c.positives / (double)n);
		assert_int_equal(c.positives + c.negatives, n);
		curves_free(&c);
	}
}

static void a_finding_without_positives_has_no_curve(void **state)
{
	struct sample_set s;
	struct curves c;

	(void)state;
	draw(&s, 1, 0.2, 0);
	assert_int_equal(curves_of(&s.scores, 0, 20, 1, &c), 0);
	assert_int_equal(c.roc.n, 0);
	assert_int_equal(c.pr.n, 0);
	assert_true(isnan(c.average_precision.value));
	curves_free(&c);
}

/* The true positive rate of the binormal model at a false positive rate of 0.2 is Φ(shift - 0.8416). */
static void the_band_holds_the_true_curve_about_95_times_in_100(void **state)
{
	enum { ROUNDS = 300, AT = 20 };
	const double truth = 0.5 * erfc(-(1.2 - 0.8416212335729143) / sqrt(2));
	int held = 0;

	(void)state;
	printf("# seed %llu\n", (unsigned long long)random_state);
	for (int round = 0; round < ROUNDS; round++) {
		struct sample_set s;
		struct curves c;

		draw(&s, 1.2, 0.3, 0);
		assert_int_equal(curves_of(&s.scores, 1, 200, (uint64_t)round, &c), 0);
		held += c.roc.low[AT] <= truth && truth <= c.roc.high[AT];
		curves_free(&c);
	}
	printf("# held in %d of %d\n", held, ROUNDS);
	assert_in_range(held, 270, 298); /* 95 % ± 4 standard errors is 270 to 300; the percentile band is a little narrow */
}

/* True positive rate at x between the curve's points; the upper end of upright stretches. */
static double interpolate(const struct curve *c, double x)
{
	size_t i = 0;

	while (i + 1 < c->n && c->points[i + 1].x <= x)
		i++;
	if (i + 1 == c->n)
		return c->points[i].y;
	const struct point *a = &c->points[i], *b = a + 1;

	return a->y + (b->y - a->y) * (x - a->x) / (b->x - a->x);
}

/* When all images belong to one patient, every resample is the whole set, and the band is the curve. */
static void the_band_of_a_single_patient_is_the_curve_itself(void **state)
{
	struct sample_set s;
	struct curves c;

	(void)state;
	for (int round = 0; round < 10; round++) {
		draw(&s, round % 3 ? 1 : -1, 0.3, round % 2 ? 2 : 0); /* -1: the highest score is none that has it */
		memset(s.patient, 0, sizeof s.patient);
		assert_int_equal(curves_of(&s.scores, 1, 2, 1, &c), 0);
		for (int i = 0; i < CURVE_GRID; i++) {
			double x = (double)i / (CURVE_GRID - 1);
			size_t k = 0;

			assert_close(c.roc.low[i], interpolate(&c.roc, x), 1e-12);
			assert_close(c.roc.high[i], c.roc.low[i], 0);
			while (c.pr.points[k].x < x - 1e-12)
				k++;
			assert_close(c.pr.low[i], c.pr.points[k].y, 1e-12);
		}
		assert_close(c.average_precision.low, c.average_precision.value, 0);
		curves_free(&c);
	}
}

static void a_second_copy_of_every_image_leaves_the_bands_as_they_are(void **state)
{
	enum { HALF = MANY / 2 };
	struct sample_set s;
	struct curves once, twice;

	(void)state;
	draw(&s, 1, 0.3, 3);
	s.scores.known = NULL;
	for (int i = HALF; i < MANY; i++) {
		s.labels[i] = s.labels[i - HALF];
		s.patient[i] = s.patient[i - HALF];
		s.logits[i][1] = s.logits[i - HALF][1];
	}
	assert_int_equal(curves_of(&s.scores, 1, 100, 5, &twice), 0);
	s.scores.n = HALF;
	assert_int_equal(curves_of(&s.scores, 1, 100, 5, &once), 0);
	for (int i = 0; i < CURVE_GRID; i++) {
		assert_close(once.roc.low[i], twice.roc.low[i], 1e-12);
		assert_close(once.roc.high[i], twice.roc.high[i], 1e-12);
		assert_close(once.pr.low[i], twice.pr.low[i], 1e-12);
		assert_close(once.pr.high[i], twice.pr.high[i], 1e-12);
	}
	assert_close(once.average_precision.low, twice.average_precision.low, 1e-12);
	assert_close(once.average_precision.high, twice.average_precision.high, 1e-12);
	curves_free(&once);
	curves_free(&twice);
}

/* ---- the interval of average precision --------------------------------------------------------------- */

static double quantile_of_normal(double share)
{
	double low = -12, high = 12;

	for (int i = 0; i < 60; i++) {
		double middle = (low + high) / 2;

		*(0.5 * erfc(-middle / sqrt(2)) < share ? &low : &high) = middle;
	}
	return low;
}

/* Of endless images, of which `share` show the finding with scores N(shift, 1), the others N(0, 1). */
static double true_average_precision(double shift, double share)
{
	double sum = 0, before = 0;

	for (double t = 14; t > -14; t -= 0.001) {
		double tpr = 0.5 * erfc((t - shift) / sqrt(2)), fpr = 0.5 * erfc(t / sqrt(2));

		sum += (tpr - before) * share * tpr / (share * tpr + (1 - share) * fpr + 1e-300);
		before = tpr;
	}
	return sum;
}

/* n images, each another patient's, of which the first `with` show the finding with scores N(shift, 1), the others N(0, 1). */
static struct scores draw_few(size_t with, size_t n, double shift, float *score, uint32_t *label)
{
	for (size_t i = 0; i < n; i++) {
		label[i] = i < with;
		score[i] = (float)(normal() + label[i] * shift);
	}
	return (struct scores){ .n = n, .classes = 1, .logits = score, .labels = label };
}

/* By simulation in % of 300 rounds, but for those in which all resamples agree, percentiles of resamples -> the interval given. Scores of those with the
 * finding vary half as much as those of the others (0.5), or as much:
 *
 *    with it   without it   AUROC 0.85, 0.5   0.97, 0.5     0.85, 1      0.97, 1
 *       40          5          65 ->  99      68 -> 100    83 -> 100    85 ->  99
 *       40         20          86 ->  92      67 ->  98    93 ->  98    84 -> 100
 *      400          5          63 ->  90      47 -> 100    78 -> 100    64 -> 100
 *      400         10          67 ->  82      54 ->  99    87 ->  99    74 -> 100
 *      400         20          78 ->  90      54 ->  98    89 ->  97    81 ->  99
 *      400         40          84 ->  92      70 ->  85    96 ->  98    80 -> 100
 */
static void an_average_precisions_interval_holds_the_truth(void **state)
{
	enum { ROUNDS = 200, RESAMPLES = 100, MOST = 400 };
	static const int with[] = { 5, 20, MOST, MOST, MOST, MOST, 40, 20 }, without[] = { MOST, MOST, MOST, 40, 10, 5, 5, 40 };
	static const double aurocs[] = { 0.7, 0.85, 0.97 };
	static float score[2 * MOST];
	static uint32_t label[2 * MOST];

	(void)state;
	for (size_t k = 0; k < sizeof with / sizeof with[0]; k++)
		for (size_t a = 0; a < sizeof aurocs / sizeof aurocs[0]; a++) {
			const size_t n = (size_t)with[k] + (size_t)without[k];
			const double shift = quantile_of_normal(aurocs[a]) * sqrt(2), truth = true_average_precision(shift, with[k] / (double)n);
			int percentiles = 0, held = 0, given = 0;

			random_state = 20261130 + k * 1000003 + a * 7919; /* every case has numbers of its own */
			for (int round = 0; round < ROUNDS; round++) {
				const struct scores s = draw_few((size_t)with[k], n, shift, score, label);
				struct auroc_table t;
				struct curves c;

				assert_int_equal(auroc_bootstrap(&s, 40, (uint64_t)round, &t, NULL), 0);
				assert_int_equal(curves_of(&s, 0, RESAMPLES, (uint64_t)round, &c), 0);
				struct interval before = c.average_precision, *now = &c.average_precision;

				curves_judge(&c, &t, 0);
				if (!isnan(now->low)) {
					given++;
					percentiles += before.low <= truth && truth <= before.high;
					held += now->low <= truth && truth <= now->high;
					assert_true(now->low > 0 && now->low < now->value && now->value < now->high && now->high < 1);
					assert_string_equal(interval_method(now), "logit");
				}
				curves_free(&c);
			}
			printf("# %3d with it, %3d without, AUROC %.2f: percentiles %d -> %d of %d\n", with[k], without[k], aurocs[a], percentiles, held, given);
			assert_true(given > 0.35 * ROUNDS && held > 0.92 * given);
		}
}

/* log(0.8 / 0.2) and 1.96 · Student's spread for 10 · 0.05 / 0.16 to both sides, unless the AUROC's reaches further. */
static void it_is_symmetric_on_the_logit_scale(void **state)
{
	struct interval r = { .value = 0.8, .low = 0.7, .high = 0.9, .se = 0.05, .method = METHOD_PERCENTILE };
	const struct interval sure = { .value = 0.5, .low = 0.49, .high = 0.51 }, unsure = { .value = 0.5, .low = 0.1, .high = 0.51 };
	const double half = 1.959964 * few_spread(10) * 0.05 / 0.16;

	(void)state;
	interval_of_precision(&r, 10.9, &sure);
	assert_close(log(r.low / (1 - r.low)), log(4) - half, 1e-5);
	assert_close(log(r.high / (1 - r.high)), log(4) + half, 1e-5);
	assert_close(r.se, 0.05, 0);
	interval_of_precision(&r, 10, &unsure);
	assert_close(log(r.low / (1 - r.low)), log(4) - log(9), 1e-12);
	assert_close(log(r.high / (1 - r.high)), log(4) + half, 1e-5);
	interval_of_precision(&r, 2, &sure); /* five patients who have as much to say as two are spread as five are */
	assert_close(log(r.high / (1 - r.high)), log(4) + 1.959964 * few_spread(LEAST_POSITIVES) * 0.05 / 0.16, 1e-5);
	r.value = 1;
	interval_of_precision(&r, 10, &sure);
	assert_true(isnan(r.low) && isnan(r.high));
}

/* Of the ROC curve at a false positive rate of 0.1, 0.2 and 0.5, and of precision at a recall of 0.2, 0.5 and 0.8. By simulation percentiles of resamples hold
 * the truth in 10 % of the rounds where 20 of 420 show it, the AUROC is 0.97 and the rate 0.5, and in 4 % where 10 of 410 do not and the recall is 0.5. */
static void bands_hold_the_truth_where_patients_are_few(void **state)
{
	enum { ROUNDS = 150, RESAMPLES = 100, MOST = 400, SHOWN = 6 };
	static const int with[] = { 5, 20, MOST, MOST }, without[] = { MOST, MOST, 10, 20 }, at[SHOWN] = { 10, 20, 50, 20, 50, 80 };
	static const double aurocs[] = { 0.7, 0.97 };
	static float score[2 * MOST];
	static uint32_t label[2 * MOST];

	(void)state;
	for (size_t k = 0; k < sizeof with / sizeof with[0]; k++)
		for (size_t a = 0; a < sizeof aurocs / sizeof aurocs[0]; a++) {
			const size_t n = (size_t)with[k] + (size_t)without[k];
			const double shift = quantile_of_normal(aurocs[a]) * sqrt(2), share = with[k] / (double)n;
			int percentiles[SHOWN] = { 0 }, held[SHOWN] = { 0 }, given = 0;

			random_state = 20261130 + k * 1000003 + a * 7919;
			for (int round = 0; round < ROUNDS; round++) {
				const struct scores s = draw_few((size_t)with[k], n, shift, score, label);
				struct auroc_table t;
				struct curves before, c;

				assert_int_equal(auroc_bootstrap(&s, 40, (uint64_t)round, &t, NULL), 0);
				assert_int_equal(curves_of(&s, 0, RESAMPLES, (uint64_t)round, &before), 0);
				assert_int_equal(curves_of(&s, 0, RESAMPLES, (uint64_t)round, &c), 0);
				curves_judge(&c, &t, 0);
				for (int x = 0; x < SHOWN && !isnan(c.roc.low[50]); x++) {
					const struct curve *was = x < 3 ? &before.roc : &before.pr, *now = x < 3 ? &c.roc : &c.pr;
					const double by = at[x] / 100.0, threshold = x < 3 ? -quantile_of_normal(by) : shift - quantile_of_normal(by);
					const double tpr = 0.5 * erfc((threshold - shift) / sqrt(2)), fpr = 0.5 * erfc(threshold / sqrt(2));
					const double truth = x < 3 ? tpr : share * tpr / (share * tpr + (1 - share) * fpr);

					given += x == 0;
					percentiles[x] += was->low[at[x]] <= truth && truth <= was->high[at[x]];
					held[x] += now->low[at[x]] <= truth && truth <= now->high[at[x]];
					assert_true(now->low[at[x]] <= was->low[at[x]] && was->high[at[x]] <= now->high[at[x]]);
				}
				assert_true(isnan(c.roc.low[50]) || (c.roc.low[CURVE_GRID - 1] == 1 && c.roc.high[CURVE_GRID - 1] == 1));
				curves_free(&before);
				curves_free(&c);
			}
			printf("# %3d with it, %3d without, AUROC %.2f:", with[k], without[k], aurocs[a]);
			for (int x = 0; x < SHOWN; x++)
				printf(" %s%d -> %d", x == 3 ? "| " : "", percentiles[x], held[x]);
			printf(" of %d\n", given);
			for (int x = 0; x < SHOWN; x++)
				assert_true(given > 0.35 * ROUNDS && held[x] > 0.80 * given);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(average_precision_equals_its_definition),
		cmocka_unit_test(the_documented_example_gives_five_sixths),
		cmocka_unit_test(the_area_below_the_roc_curve_is_the_auroc),
		cmocka_unit_test(a_finding_without_positives_has_no_curve),
		cmocka_unit_test(the_band_holds_the_true_curve_about_95_times_in_100),
		cmocka_unit_test(the_band_of_a_single_patient_is_the_curve_itself),
		cmocka_unit_test(a_second_copy_of_every_image_leaves_the_bands_as_they_are),
		cmocka_unit_test(an_average_precisions_interval_holds_the_truth),
		cmocka_unit_test(bands_hold_the_truth_where_patients_are_few),
		cmocka_unit_test(it_is_symmetric_on_the_logit_scale),
	};

	omp_set_num_threads(1); /* small work: threads would only wait for each other */
	return cmocka_run_group_tests(tests, NULL, NULL);
}

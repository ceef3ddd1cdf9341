/* SPDX-License-Identifier: Apache-2.0
 * How often the intervals of scores of probabilities as a whole hold the truth. By simulation: who shows a finding and who does not are normal with an AUROC
 * of 0.8, logits are what that says, or shifted by 3, or twice as far from 0; patients have an image each, or one in ten has 15 and the others 2, alike to the
 * share of 0.6. Who shows it is drawn too, and rounds with fewer than 10 patients on a side are left out. Held in % of 2,000 rounds (the test makes fewer):
 *
 *   patients with it  images  shift slope   Brier      skill      ratio      level: the truth, and how often it is held
 *    20 of  40   1         +0  1    0.18  96   0.27  97   1.00  97   0.00  98
 *    12 of 400   1         +0  1    0.03  98   0.07  95   1.00  97   0.00  97
 *    40 of 400   1         +0  1    0.08  96   0.15  95   1.00  96   0.00  96
 *   380 of 400   1         +0  1    0.04  98   0.10  95   1.00  97   0.00  98
 *    20 of 400   15 or 2   +0  1    0.04  91   0.10  95   1.00  92   0.00  92
 *    40 of 100   15 or 2   +0  1    0.18  95   0.27  96   1.00  94   0.00  94
 *    12 of 400   1         +3  1    0.12  97  -3.26  97   0.10  97  -3.00  98
 *    40 of 100   1         +3  1    0.42  97  -0.74  96   0.46  96  -3.00  96
 *    20 of 400   15 or 2   +3  1    0.19  98  -2.98  91   0.13  91  -3.00  92
 *    20 of  40   1         +0  2    0.19  96   0.22  96   1.00  98   0.00  97
 *    40 of 400   1         +0  2    0.08  97   0.09  94   2.50  96   1.55  96
 *    40 of 400   15 or 2   +0  2    0.08  94   0.09  93   2.50  95   1.55  96
 *    12 of 400   1         +0  2    0.03  98   0.02  80   7.16  95   2.53  98
 *
 * The last: probabilities are a seventh of the share, but for the few patients that a sample with twelve lacks.
 */
#include "tests/unit/test.h"

#include <math.h>

#include "learn/calibration_table.h"

static uint64_t random_state;

static double uniform(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (double)(random_state >> 11) / 9007199254740992.0;
}

static double normal(void)
{
	return sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform());
}

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

/* ---- what is drawn, and the truth of it --------------------------------------------------------------- */

struct draw {
	int patients, with; /* on average */
	int many;           /* images a patient: 15 of one in ten, 2 of the others; else one */
	double shift, slope; /* of the logits, from what they ought to be */
};

enum { DISTANCE_10 = 12, MOST = 400 * 15 };

static double said(const struct draw *d, double x)
{
	const double distance = DISTANCE_10 / 10.0, share = (double)d->with / d->patients;

	return d->shift + d->slope * (distance * x - distance * distance / 2 + log(share / (1 - share)));
}

enum { BRIER, SKILL, RATIO, LEVEL, MEASURES };
static const char *const names[MEASURES] = { "Brier", "skill", "ratio", "level" };

static double mean_over(const struct draw *d, double (*of)(double logit, int shows, double level), double level)
{
	const double share = (double)d->with / d->patients;
	double sum = 0, all = 0;

	for (int i = -800; i <= 800; i++) {
		double x = i / 100.0, density = exp(-x * x / 2);

		all += density;
		sum += density * (share * of(said(d, x + DISTANCE_10 / 10.0), 1, level) + (1 - share) * of(said(d, x), 0, level));
	}
	return sum / all;
}

static double squared(double logit, int shows, double level)
{
	double left = sigmoid(logit + level) - shows;

	return left * left;
}

static double probable(double logit, int shows, double level)
{
	(void)shows;
	return sigmoid(logit + level);
}

static void tell_truth(const struct draw *d, double truth[MEASURES])
{
	const double share = (double)d->with / d->patients;
	double low = -30, high = 30;

	truth[BRIER] = mean_over(d, squared, 0);
	truth[SKILL] = 1 - truth[BRIER] / (share * (1 - share));
	truth[RATIO] = share / mean_over(d, probable, 0);
	for (int i = 0; i < 60; i++) {
		double middle = (low + high) / 2;

		*(mean_over(d, probable, middle) < share ? &low : &high) = middle;
	}
	truth[LEVEL] = low;
}

static float logits[MOST];
static uint8_t positive[MOST];
static uint32_t patient[MOST];

/* Fewer patients of either side than least: 0. */
static size_t draw_images(const struct draw *d, int least)
{
	size_t n = 0;
	int with = 0;

	for (int p = 0; p < d->patients; p++) {
		const int shows = uniform() < (double)d->with / d->patients, images = !d->many ? 1 : uniform() < 0.1 ? 15 : 2;
		const double own = normal();

		with += shows;
		for (int i = 0; i < images; i++) {
			double x = d->many ? sqrt(0.6) * own + sqrt(0.4) * normal() : own;

			logits[n] = (float)said(d, x + shows * DISTANCE_10 / 10.0);
			positive[n] = (uint8_t)shows;
			patient[n++] = (uint32_t)p;
		}
	}
	return with >= least && d->patients - with >= least ? n : 0;
}

static const struct interval *measure(const struct calibration *c, int k)
{
	const struct interval *const all[MEASURES] = { &c->brier, &c->skill, &c->ratio, &c->level };

	return all[k];
}

static void the_intervals_hold_the_truth(void **state)
{
	static const struct draw draws[] = {
		{ 40, 20, 0, 0, 1 },  { 400, 12, 0, 0, 1 }, { 400, 40, 0, 0, 1 }, { 400, 380, 0, 0, 1 }, { 400, 20, 1, 0, 1 }, { 100, 40, 1, 0, 1 }, { 400, 12, 0, 3, 1 },
		{ 100, 40, 0, 3, 1 }, { 400, 20, 1, 3, 1 }, { 40, 20, 0, 0, 2 },  { 400, 40, 0, 0, 2 },  { 400, 40, 1, 0, 2 }, { 400, 12, 0, 0, 2 },
	};
	const int rounds = getenv("TEST_ROUNDS") ? atoi(getenv("TEST_ROUNDS")) : 200;
	double all = 0;

	(void)state;
	for (size_t k = 0; k < sizeof draws / sizeof draws[0]; k++) {
		const struct draw *d = &draws[k];
		const int hard = d->slope == 2 && d->with == 12; /* probabilities a seventh of the share, but for the few that no sample of 12 has */
		double truth[MEASURES];
		int held[MEASURES] = { 0 }, counted = 0;

		random_state = 20261130 + k;
		tell_truth(d, truth);
		while (counted < rounds) {
			struct calibration c;
			size_t n = draw_images(d, FEW_POSITIVES);

			if (!n)
				continue;
			counted++;
			assert_int_equal(calibration_of(logits, positive, patient, n, &c, NULL), 0);
			for (int m = 0; m < MEASURES; m++)
				held[m] += measure(&c, m)->low <= truth[m] && truth[m] <= measure(&c, m)->high;
		}
		printf("#   %3d of %3d   %s   %+.0f  %.0f ", d->with, d->patients, d->many ? "15 or 2" : "1      ", d->shift, d->slope);
		for (int m = 0; m < MEASURES; m++) {
			printf("  %5.2f %3.0f", truth[m], 100.0 * held[m] / rounds);
			assert_true(held[m] > (hard && m == SKILL ? 0.7 : 0.85) * rounds);
			all += hard ? 0 : 1.0 * held[m] / rounds / MEASURES;
		}
		printf("\n");
	}
	assert_true(all > 0.94 * (sizeof draws / sizeof draws[0] - 1));
}

/* The findings of a network that is calibrated, each with its own share, and one latent state of a patient behind all of them. */
static void the_mean_skills_interval_holds_the_truth(void **state)
{
	enum { PATIENTS = 200, ROUNDS = 200 };
	static float drawn[PATIENTS * 2][FINDINGS];
	static uint32_t labels[PATIENTS * 2], who[PATIENTS * 2];
	int held = 0;
	double truth = 0;

	(void)state;
	random_state = 20261131;
	for (int f = 0; f < FINDINGS; f++) {
		double one[MEASURES];

		tell_truth(&(struct draw){ 20, 3 + f % 5, 0, 0, 1 }, one);
		truth += one[SKILL] / FINDINGS;
	}
	for (int round = 0; round < ROUNDS; round++) {
		struct scores s = { .n = PATIENTS * 2, .classes = FINDINGS, .logits = drawn[0], .labels = labels, .patient = who };
		struct auroc_table t;
		struct calibration_table c;

		memset(labels, 0, sizeof labels);
		for (int i = 0; i < PATIENTS * 2; i++)
			who[i] = (uint32_t)(i / 2);
		for (int p = 0; p < PATIENTS; p++) {
			const double own = normal();

			for (int f = 0; f < FINDINGS; f++) {
				const struct draw d = { 20, 3 + f % 5, 0, 0, 1 };
				const int shows = uniform() < d.with / 20.0;

				for (int i = 2 * p; i < 2 * p + 2; i++) {
					labels[i] |= (uint32_t)shows << f;
					drawn[i][f] = (float)said(&d, sqrt(0.5) * own + sqrt(0.5) * normal() + shows * DISTANCE_10 / 10.0);
				}
			}
		}
		assert_int_equal(auroc_bootstrap(&s, 0, 1, &t, NULL), 0);
		assert_int_equal(calibration_table_of(&s, &t, &c), 0);
		assert_int_equal(c.judged, FINDINGS);
		assert_string_equal(interval_method(&c.skill), "square-and-add");
		held += c.skill.low <= truth && truth <= c.skill.high;
	}
	printf("# the mean's in %d of %d\n", held, ROUNDS);
	assert_true(held > 0.9 * ROUNDS && held < ROUNDS);
}

/* ---- what they are ------------------------------------------------------------------------------------ */

/* Every patient left out once, by Tukey's jackknife: it needs no derivative. */
static void errors_are_those_of_leaving_patients_out(void **state)
{
	const struct draw d = { 300, 60, 1, 0.7, 1.4 };
	static float l[MOST];
	static uint8_t y[MOST];
	static uint32_t who[MOST];
	static double moves[400], without[400][MEASURES];
	double mean[MEASURES] = { 0 }, sum[MEASURES] = { 0 };
	struct calibration all;

	(void)state;
	random_state = 3;
	const size_t n = draw_images(&d, 10);

	assert_int_equal(calibration_of(logits, positive, patient, n, &all, moves), 0);
	for (int p = 0; p < d.patients; p++) {
		struct calibration c;
		size_t k = 0;

		for (size_t i = 0; i < n; i++)
			if (patient[i] != (uint32_t)p) {
				l[k] = logits[i];
				y[k] = positive[i];
				who[k++] = patient[i];
			}
		assert_int_equal(calibration_of(l, y, who, k, &c, NULL), 0);
		for (int m = 0; m < MEASURES; m++) {
			without[p][m] = measure(&c, m)->value;
			mean[m] += without[p][m] / d.patients;
		}
		assert_close(all.skill.value - without[p][SKILL], moves[p], 0.15 * fabs(moves[p]) + 1e-4);
	}
	for (int m = 0; m < MEASURES; m++) {
		for (int p = 0; p < d.patients; p++)
			sum[m] += (without[p][m] - mean[m]) * (without[p][m] - mean[m]);
		printf("# %s: %.5f, left out %.5f\n", names[m], measure(&all, m)->se, sqrt(sum[m] * (d.patients - 1) / d.patients));
		assert_close(measure(&all, m)->se / sqrt(sum[m] * (d.patients - 1) / d.patients), 1, 0.08);
	}
}

/* Every image three times says no more than once, when they are a patient's; and intervals are those of the scale that is said. */
static void copies_add_no_certainty(void **state)
{
	const struct draw d = { 300, 60, 0, 0.7, 1.4 };
	struct calibration once, thrice, apart;

	(void)state;
	random_state = 4;
	const size_t n = draw_images(&d, 10);
	uint32_t images[2][300] = { { 0 } };

	for (size_t i = 0; i < n; i++)
		images[positive[i]][patient[i]]++;
	for (size_t i = n; i < 3 * n; i++) {
		logits[i] = logits[i - n];
		positive[i] = positive[i - n];
		patient[i] = patient[i - n];
	}
	assert_int_equal(calibration_of(logits, positive, NULL, n, &once, NULL), 0);
	assert_int_equal(calibration_of(logits, positive, patient, 3 * n, &thrice, NULL), 0);
	assert_int_equal(calibration_of(logits, positive, NULL, 3 * n, &apart, NULL), 0);
	for (int m = 0; m < MEASURES; m++) {
		const struct interval *a = measure(&once, m), *b = measure(&thrice, m);

		assert_close(b->value, a->value, 1e-9);
		assert_close(b->low, a->low, 1e-9);
		assert_close(b->high, a->high, 1e-9);
		assert_close(measure(&apart, m)->se, a->se / sqrt(3), 1e-9);
	}
	const double spread = 1.959964 * few_spread((size_t)fmin(patients_effective(images[0], 300), patients_effective(images[1], 300)));
	const double b = once.brier.value, half = spread * once.brier.se / (b * (1 - b));

	assert_close(log(once.brier.high / (1 - once.brier.high)), log(b / (1 - b)) + half, 1e-6);
	assert_close(log(once.brier.low / (1 - once.brier.low)), log(b / (1 - b)) - half, 1e-6);
	assert_close(log((1 - once.skill.low) / (1 - once.skill.value)), spread * once.skill.se / (1 - once.skill.value), 1e-6);
	assert_close(log(once.ratio.high / once.ratio.value), spread * once.ratio.se / once.ratio.value, 1e-6);
	assert_close(log(once.ratio.value / once.ratio.low), spread * once.ratio.se / once.ratio.value, 1e-6);
	assert_close(once.level.high - once.level.value, spread * once.level.se, 1e-6);
	assert_close(once.level.value - once.level.low, spread * once.level.se, 1e-6);
}

/* Wherever the logits lie, what is added to them makes the mean probability the share. */
static void the_level_makes_the_mean_the_share(void **state)
{
	static const struct {
		double from, to;
		int shows; /* of 100 */
	} cases[] = { { -3, 3, 50 }, { -60, 90, 1 }, { -60, 90, 99 }, { 30, 31, 7 }, { -500, -499, 50 }, { 0, 0, 20 }, { -700, 700, 30 } };

	(void)state;
	for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
		struct calibration c;
		double mean = 0, p = 0;

		for (int i = 0; i < 100; i++) {
			logits[i] = (float)(cases[k].from + (cases[k].to - cases[k].from) * i / 99);
			positive[i] = i * 37 % 100 < cases[k].shows;
			p += sigmoid(logits[i]) / 100;
		}
		assert_int_equal(calibration_of(logits, positive, NULL, 100, &c, NULL), 0);
		for (int i = 0; i < 100; i++)
			mean += sigmoid(logits[i] + c.level.value) / 100;
		assert_close(mean, cases[k].shows / 100.0, 1e-9);
		assert_close(c.ratio.value * p, cases[k].shows / 100.0, 1e-9);
	}
}

/* Nobody shows it, or all do; one half is said of every image; all that is said is right, to the last digit, or wrong. */
static void where_nothing_tells_how_sure_there_is_no_interval(void **state)
{
	(void)state;
	for (int k = 0; k < 5; k++) {
		struct calibration c;

		for (int i = 0; i < 60; i++) {
			positive[i] = k == 0 ? 0 : k == 1 ? 1 : i % 3 == 0;
			logits[i] = k < 2 ? (float)i / 30 : k == 2 ? 0 : (k == 3) == positive[i] ? 800 : -800;
		}
		assert_int_equal(calibration_of(logits, positive, NULL, 60, &c, NULL), 0);
		assert_true(!isnan(c.brier.value) && isnan(c.brier.low) && isnan(c.brier.high));
		assert_int_equal(isnan(c.skill.value), k < 2);
		for (int m = SKILL; k < 2 && m < MEASURES; m++)
			assert_true(isnan(measure(&c, m)->value) && isnan(measure(&c, m)->low) && isnan(measure(&c, m)->high));
		for (int m = 0; m < MEASURES; m++)
			assert_true(isnan(measure(&c, m)->low) == isnan(measure(&c, m)->high) && !isinf(measure(&c, m)->low) && !isinf(measure(&c, m)->high));
	}
	struct calibration c;

	for (int i = 0; i < 60; i++)
		logits[i] = -800; /* to double precision no image is said to show it, and a third do */
	assert_int_equal(calibration_of(logits, positive, NULL, 60, &c, NULL), 0);
	assert_true(isnan(c.ratio.low) && isnan(c.ratio.high));
	assert_close(c.skill.value, 1 - (1.0 / 3) / (2.0 / 9), 1e-9);
	assert_int_equal(calibration_of(logits, positive, NULL, 0, &c, NULL), 0);
	assert_true(isnan(c.brier.value) && isnan(c.ratio.value));
}

/* ---- what is told of them ----------------------------------------------------------------------------- */

static char *printed(const struct calibration_table *c)
{
	char *text;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	assert_non_null(f);
	calibration_table_print(c, f);
	fclose(f);
	return text;
}

/* 15 patients have Mass, 9 have Edema, nobody another finding. */
static void the_table_has_the_findings_that_are_judged(void **state)
{
	enum { N = 90, MASS = 4, EDEMA = 9 };
	static float drawn[N][FINDINGS];
	static uint32_t labels[N];
	struct scores s = { .n = N, .classes = FINDINGS, .logits = drawn[0], .labels = labels };
	struct auroc_table t;
	struct calibration_table c;
	char row[160];

	(void)state;
	random_state = 8;
	for (int i = 0; i < N; i++) {
		labels[i] = (uint32_t)(i < 15) << MASS | (uint32_t)(i < 9) << EDEMA;
		for (int f = 0; f < FINDINGS; f++)
			drawn[i][f] = (float)(normal() + 2 * (labels[i] >> f & 1) - 2);
	}
	assert_int_equal(auroc_bootstrap(&s, 0, 1, &t, NULL), 0);
	assert_int_equal(calibration_table_of(&s, &t, &c), 0);
	assert_int_equal(c.judged, 1);
	assert_int_equal(memcmp(&c.skill, &c.finding[MASS].skill, sizeof c.skill), 0); /* one alone is the mean, and as sure */
	assert_true(!isnan(c.finding[EDEMA].brier.value) && isnan(c.finding[EDEMA].brier.low) && isnan(c.finding[EDEMA].ratio.value));
	const struct calibration k = c.finding[MASS];
	char *text = printed(&c);

	snprintf(row, sizeof row, "\n  Mass                   %.3f  %.3f to %.3f  %+.3f  %+.3f to %+.3f    %.2f  %.2f to %.2f      %.2f  %.2f to %.2f\n  skill, mean of 1 ", k.brier.value, k.brier.low,
		 k.brier.high, k.skill.value, k.skill.low, k.skill.high, k.ratio.value, k.ratio.low, k.ratio.high, k.slope.value, k.slope.low, k.slope.high);
	if (!strstr(text, row))
		fail_msg("no \"%s\" in \"%s\"", row, text);
	assert_null(strstr(text, "Edema"));
	assert_null(strstr(text, " \n"));
	free(text);
	cJSON *o = cJSON_CreateObject();

	calibration_json(&k, o);
	calibration_mean_json(&c, o);
	assert_close(cJSON_GetObjectItemCaseSensitive(o, "observed_to_expected_high")->valuedouble, k.ratio.high, 0);
	assert_close(cJSON_GetObjectItemCaseSensitive(o, "mean_brier_skill_low")->valuedouble, k.skill.low, 0);
	assert_close(cJSON_GetObjectItemCaseSensitive(o, "mean_brier_skill_of")->valuedouble, 1, 0);
	cJSON_Delete(o);
	calibration_table_bare(&c);
	text = printed(&c);
	assert_non_null(strstr(text, "Mass  "));
	assert_null(strstr(text, " to 0")); /* no interval, and no word of one */
	assert_null(strstr(text, "interval"));
	assert_null(strstr(text, " \n"));
	free(text);
	c.finding[MASS].slope.value = NAN; /* no fit */
	text = printed(&c);
	assert_non_null(strstr(text, "     n/a\n"));
	free(text);
	c.judged = 0;
	text = printed(&c);
	assert_string_equal(text, "");
	free(text);
}

/* 9 of 120 patients have Edema, which is not judged, and Fibrosis is known of the first 80 alone. */
static void a_finding_that_is_not_judged_moves_no_mean(void **state)
{
	enum { N = 120, MASS = 4, EDEMA = 9, FIBROSIS = 11 };
	static float drawn[N][FINDINGS];
	static uint32_t labels[N], known[2][N];
	struct calibration_table c[2];

	(void)state;
	random_state = 9;
	for (int i = 0; i < N; i++) {
		labels[i] = (uint32_t)(i % 6 == 0) << MASS | (uint32_t)(i >= N - 9) << EDEMA | (uint32_t)(i % 4 == 0) << FIBROSIS;
		known[0][i] = 1u << MASS | (uint32_t)(i < 80) << FIBROSIS;
		known[1][i] = known[0][i] | 1u << EDEMA;
		for (int f = 0; f < FINDINGS; f++)
			drawn[i][f] = (float)(normal() + 2 * (labels[i] >> f & 1) - 2);
	}
	for (int k = 0; k < 2; k++) {
		struct scores s = { .n = N, .classes = FINDINGS, .logits = drawn[0], .labels = labels, .known = known[k] };
		struct auroc_table t;

		assert_int_equal(auroc_bootstrap(&s, 0, 1, &t, NULL), 0);
		assert_int_equal(calibration_table_of(&s, &t, &c[k]), 0);
		assert_int_equal(c[k].judged, 2);
	}
	assert_true(c[1].finding[EDEMA].brier.value > 0);
	assert_int_equal(memcmp(&c[0].skill, &c[1].skill, sizeof c[0].skill), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_intervals_hold_the_truth),
		cmocka_unit_test(the_mean_skills_interval_holds_the_truth),
		cmocka_unit_test(errors_are_those_of_leaving_patients_out),
		cmocka_unit_test(copies_add_no_certainty),
		cmocka_unit_test(the_level_makes_the_mean_the_share),
		cmocka_unit_test(the_table_has_the_findings_that_are_judged),
		cmocka_unit_test(a_finding_that_is_not_judged_moves_no_mean),
		cmocka_unit_test(where_nothing_tells_how_sure_there_is_no_interval),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * Calibration measures against figures worked out by hand and published ones. */
#include "tests/unit/test.h"

#include <math.h>

#include "learn/calibration_finding.h"

static float logit(double p)
{
	return (float)log(p / (1 - p));
}

static struct calibration of(const float *logits, const uint8_t *positive, size_t n)
{
	struct calibration c;

	assert_int_equal(calibration_of(logits, positive, NULL, n, &c, NULL), 0);
	return c;
}

/* Six images in three of 15 bins: 0.10 twice (one positive), 0.30 three times (one positive), 0.90 once (positive). */
static void error_and_brier_score_by_hand(void **state)
{
	const float logits[] = { logit(0.9), logit(0.3), logit(0.1), logit(0.3), logit(0.1), logit(0.3) };
	static const uint8_t positive[] = { 1, 0, 0, 1, 1, 0 };
	struct calibration c = of(logits, positive, 6);

	(void)state;
	assert_close(c.ece, (fabs(1 - 0.2) + fabs(1 - 0.9) + fabs(1 - 0.9)) / 6, 1e-7);
	assert_close(c.brier.value, (0.01 + 0.81 + 0.09 + 0.49 + 0.09 + 0.01) / 6, 1e-7);
	assert_close(c.skill.value, 1 - c.brier.value / 0.25, 1e-15);
	assert_int_equal(c.bins, 1); /* three positives do not make two groups */
	assert_close(c.bin[0].predicted, 2.0 / 6, 1e-7);
	assert_close(c.bin[0].observed, 0.5, 1e-15);
}

/* A probability of exactly 1 belongs to the last bin, not to the one before, where its error would cancel the other's. */
static void a_certain_probability_is_in_the_last_bin(void **state)
{
	const float logits[] = { 200, logit(0.9) };
	struct calibration c = of(logits, (const uint8_t[]){ 0, 1 }, 2);

	(void)state;
	assert_close(c.ece, (1 + 0.1) / 2, 1e-7);
	const float beside[] = { 200, logit(0.95) };

	c = of(beside, (const uint8_t[]){ 0, 1 }, 2);
	assert_close(c.ece, (1 - 0.05) / 2, 1e-7);
}

/* Labels drawn by the very probabilities: what is left of the error is chance, a tenth and more on few images. */
static void the_error_that_chance_leaves_is_told(void **state)
{
	enum { MOST = 6400, ROUNDS = 300 };
	static float logits[MOST];
	static uint8_t positive[MOST];
	uint64_t random = 20261130;

	(void)state;
	for (int rare = 0; rare < 2; rare++)
		for (int n = 64; n <= MOST; n *= 10) {
			double ece = 0, by_chance = 0;

			for (int round = 0; round < ROUNDS; round++) {
				for (int i = 0; i < n; i++) {
					random = random * 6364136223846793005u + 1442695040888963407u;
					logits[i] = (float)(i % 64 / 16.0 - 4 - 2 * rare); /* of probabilities up to one half, or to one in nine */
					positive[i] = (double)(random >> 11) / 9007199254740992.0 < 1 / (1 + exp(-logits[i]));
				}
				struct calibration c = of(logits, positive, (size_t)n);

				ece += c.ece / ROUNDS;
				by_chance += c.ece_by_chance / ROUNDS;
			}
			printf("# %d images, %s: ECE %.4f, by chance %.4f\n", n, rare ? "rare" : "common", ece, by_chance);
			assert_close(by_chance / ece, 1, 0.12);
			assert_true(n > 64 || ece > (rare ? 0.02 : 0.08));
		}
	const float sure[] = { -12, -12, 12 };
	struct calibration c = of(sure, (const uint8_t[]){ 0, 0, 1 }, 3);

	assert_close(c.ece_by_chance, 2 / (1 + exp(12)), 1e-9); /* of three each 2 p (1 - p), by three */
	assert_close(c.ece, 1 / (1 + exp(12)), 1e-9);
}

/* Newcombe, Statistics in Medicine 17 (1998), table I, method 3. */
static void wilsons_interval_gives_the_published_figures(void **state)
{
	static const struct {
		size_t positives, n;
		double low, high;
	} published[] = { { 81, 263, 0.2553, 0.3662 }, { 15, 148, 0.0624, 0.1605 }, { 0, 20, 0, 0.1611 }, { 1, 29, 0.0061, 0.1718 } };
	float logits[263] = { 0 };
	uint8_t positive[263];

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		for (size_t j = 0; j < published[i].n; j++)
			positive[j] = j < published[i].positives;
		struct calibration c = of(logits, positive, published[i].n);

		assert_int_equal(c.bins, 1);
		assert_close(c.bin[0].low, published[i].low, 5e-5);
		assert_close(c.bin[0].high, published[i].high, 5e-5);
	}
}

/* With two distinct logits the regression passes through both observed shares, and what a patient's images do to either share they do to its
 * logit: an error of the slope that needs no matrix. Newton's own step from a slope of 1 leads away from the fit where logits are far out,
 * and there is none where all are above 37. */
static void slope_intercept_and_error_in_closed_form(void **state)
{
	static const float at[][2] = { { -3, 1 }, { -10, 6 }, { 2, 12 }, { -9, -5 }, { 40, 44 } };
	enum { N = 100, LOW = 60, PATIENTS = 30 };
	float logits[N];
	uint8_t positive[N];
	uint32_t patient[N];

	(void)state;
	for (size_t k = 0; k < sizeof at / sizeof at[0]; k++)
		for (int grouped = 0; grouped < 2; grouped++) {
			const double share[2] = { 12.0 / 60, 30.0 / 40 }, weight[2] = { LOW * share[0] * (1 - share[0]), (N - LOW) * share[1] * (1 - share[1]) };
			const double low = log(share[0] / (1 - share[0])), high = log(share[1] / (1 - share[1])), run = at[k][1] - at[k][0];
			double influence[N] = { 0 }, variance = 0, spread = 1.959964;
			uint32_t images[2][N] = { { 0 } };
			struct calibration c;

			for (int i = 0; i < N; i++) {
				int side = i >= LOW;

				logits[i] = at[k][side];
				positive[i] = i < LOW ? i < 12 : i < 90; /* 12 of 60 and 30 of 40 */
				patient[i] = (uint32_t)(grouped ? i * i % PATIENTS : i);
				images[positive[i]][patient[i]]++;
				influence[patient[i]] += (side ? 1 : -1) * (positive[i] - share[side]) / weight[side] / run;
			}
			for (int i = 0; i < N; i++)
				variance += influence[i] * influence[i];
			assert_int_equal(calibration_of(logits, positive, grouped ? patient : NULL, N, &c, NULL), 0);
			assert_close(c.slope.value, (high - low) / run, 1e-8);
			assert_close(c.intercept.value, high - c.slope.value * at[k][1], 1e-7);
			assert_close(c.slope.se, sqrt(variance), 1e-6 * sqrt(variance));
			spread *= few_spread((size_t)fmin(patients_effective(images[0], N), patients_effective(images[1], N)));
			assert_close(c.slope.low, c.slope.value - spread * c.slope.se, 1e-6);
			assert_close(c.slope.high, c.slope.value + spread * c.slope.se, 1e-6);
			if (!grouped) /* and so by the usual formula for a difference of two log odds */
				assert_close(c.slope.se, sqrt(1 / weight[0] + 1 / weight[1]) / run, 1e-6);
		}
}

static void a_network_that_is_twice_too_sure_has_slope_one_half(void **state)
{
	enum { N = 40000 };
	float *logits = malloc(N * sizeof *logits);
	uint8_t *positive = malloc(N);
	uint64_t random = 3;

	(void)state;
	for (int i = 0; i < N; i++) {
		double z = 6.0 * i / N - 4;

		random = random * 6364136223846793005u + 1442695040888963407u;
		positive[i] = (double)(random >> 11) / 9007199254740992.0 < 1 / (1 + exp(-z));
		logits[i] = (float)(2 * z + 1);
	}
	struct calibration c = of(logits, positive, N);
	size_t n = 0;

	assert_close(c.slope.value, 0.5, 0.02);
	assert_close(c.intercept.value, -0.5, 0.05);
	assert_true(c.ece > 0.05);
	assert_int_equal(c.bins, CALIBRATION_BINS);
	for (int b = 0; b < c.bins; b++) {
		double rarer = (double)c.bin[b].n * (2 * c.positives <= N ? c.bin[b].observed : 1 - c.bin[b].observed);

		assert_true(fabs(rarer - (double)(2 * c.positives <= N ? c.positives : N - c.positives) / CALIBRATION_BINS) <= 1);
		assert_true(b == 0 || c.bin[b].predicted > c.bin[b - 1].predicted);
		n += c.bin[b].n;
	}
	assert_int_equal(n, N);
	free(logits);
	free(positive);
}

/* One image in 100 shows it: groups of equal numbers of images would put nine of ten at 0. */
static void groups_of_a_rare_finding_tell_its_probabilities_apart(void **state)
{
	enum { N = 20000 };
	float *logits = malloc(N * sizeof *logits);
	uint8_t *positive = malloc(N);
	uint64_t random = 5;

	(void)state;
	for (int i = 0; i < N; i++) {
		double z = -7 + 5.0 * i / N;

		random = random * 6364136223846793005u + 1442695040888963407u;
		positive[i] = (double)(random >> 11) / 9007199254740992.0 < 1 / (1 + exp(-z));
		logits[i] = (float)z;
	}
	struct calibration c = of(logits, positive, N);
	int held = 0;

	assert_int_equal(c.bins, CALIBRATION_BINS);
	for (int b = 0; b < c.bins; b++) {
		held += c.bin[b].low <= c.bin[b].predicted && c.bin[b].predicted <= c.bin[b].high;
		assert_true(c.bin[b].observed > 0);
	}
	assert_true(held >= 9); /* it is calibrated, and no group leans */
	assert_true(c.bin[CALIBRATION_BINS / 2].predicted > 0.3 * c.bin[CALIBRATION_BINS - 1].predicted);
	assert_true(c.slope.low < 1 && 1 < c.slope.high);
	/* and of one that nearly all images show those of the few others */
	for (int i = 0; i < N; i++) {
		logits[i] = -logits[i];
		positive[i] = !positive[i];
	}
	struct calibration mirrored = of(logits, positive, N);

	assert_int_equal(mirrored.bins, c.bins);
	for (int b = 0; b < c.bins; b++) {
		const struct calibration_bin *other = &mirrored.bin[c.bins - 1 - b];

		assert_close((double)other->n * (1 - other->observed), (double)c.bin[b].n * c.bin[b].observed, 1.5);
		assert_close(1 - other->predicted, c.bin[b].predicted, 0.05 * c.bin[b].predicted);
	}
	free(logits);
	free(positive);
}

/* Every tenth of 100 images shows it. Of two groups the first has five of those, the last at 40, and the next one is at 50, or 51: each gets half of the
 * images between. Images with one logit stay together, in the first of both, unless nothing is left for the second. */
static void a_group_ends_half_way_to_the_next_one_that_shows_it(void **state)
{
	enum { N = 100 };
	static const struct {
		int next;
		int first, last; /* images with one logit */
		size_t ends;     /* the first group; 0: there is one alone */
	} cases[] = { { 50, 0, 0, 45 }, { 51, 0, 0, 46 }, { 50, 43, 44, 45 }, { 50, 44, 45, 46 }, { 50, 43, 48, 49 }, { 50, 45, 48, 45 }, { 50, 44, 99, 0 } };

	(void)state;
	for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
		for (int mirrored = 0; mirrored < 2; mirrored++) { /* nine of ten show it, and the others count */
			float logits[N];
			uint8_t positive[N];

			for (int i = 0; i < N; i++) {
				logits[i] = (float)(i >= cases[k].first && i <= cases[k].last ? cases[k].first : i) / 20;
				positive[i] = (i == cases[k].next || (i % 10 == 0 && i != 50)) != mirrored;
			}
			struct calibration c = of(logits, positive, N);

			assert_int_equal(c.bins, cases[k].ends ? 2 : 1);
			assert_int_equal(c.bin[0].n, cases[k].ends ? cases[k].ends : N);
			if (cases[k].ends)
				assert_close(fabs(mirrored - c.bin[0].observed), 5.0 / (double)cases[k].ends, 1e-12);
		}
}

/* Every image three times says no more of the slope than once, when they are a patient's. */
static void copies_of_images_add_no_certainty_to_the_slope(void **state)
{
	enum { N = 900 };
	float logits[N];
	uint8_t positive[N];
	uint32_t patient[N];
	uint64_t random = 9;
	struct calibration once, thrice;

	(void)state;
	for (int i = 0; i < N; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		logits[i] = i < N / 3 ? (float)(i % 100) / 25 - 2 : logits[i - N / 3];
		positive[i] = i < N / 3 ? (double)(random >> 11) / 9007199254740992.0 < 1 / (1 + exp(-(double)logits[i])) : positive[i - N / 3];
		patient[i] = (uint32_t)(1000 + i % (N / 3)); /* numbers above those of the images */
	}
	assert_int_equal(calibration_of(logits, positive, NULL, N / 3, &once, NULL), 0);
	assert_int_equal(calibration_of(logits, positive, patient, N, &thrice, NULL), 0);
	assert_close(thrice.slope.value, once.slope.value, 1e-9);
	assert_close(thrice.slope.se, once.slope.se, 1e-9);
	assert_in_range((int)(1000 * once.slope.se), 80, 150); /* about 1 / sqrt(sum of p (1 - p) x²) */
	assert_int_equal(calibration_of(logits, positive, NULL, N, &thrice, NULL), 0);
	assert_close(thrice.slope.se, once.slope.se / sqrt(3), 1e-9);
}

static double normal(uint64_t *random)
{
	double u[2];

	for (int i = 0; i < 2; i++) {
		*random = *random * 6364136223846793005u + 1442695040888963407u;
		u[i] = (double)(*random >> 11) / 9007199254740992.0;
	}
	return sqrt(-2 * log(1 - u[0])) * cos(6.283185307179586 * u[1]);
}

/* Of 300 patients 12 show it; one in ten has 15 images, the others 2, and a patient's are alike to the share of 0.6. Logits are what the images say, so
 * the slope is 1. By the normal quantile it is within in 80 % of the rounds. */
static void the_interval_of_a_slope_holds_it_where_few_patients_have_many_images(void **state)
{
	enum { PATIENTS = 300, WITH = 12, ROUNDS = 400, N = PATIENTS / 10 * 15 + PATIENTS * 9 / 10 * 2 };
	static float logits[N];
	static uint8_t positive[N];
	static uint32_t patient[N];
	uint64_t random = 20261125;
	int held = 0, rounds = 0;

	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		struct calibration c;
		size_t n = 0;

		for (int p = 0; p < PATIENTS; p++) {
			const int shows = p < WITH, images = (p + round) % 10 ? 2 : 15;
			const double distance = 1.2, own = normal(&random);

			for (int i = 0; i < images; i++) {
				double x = sqrt(0.6) * own + sqrt(0.4) * normal(&random) + shows * distance;

				logits[n] = (float)(distance * x - distance * distance / 2 + log((double)WITH / (PATIENTS - WITH)));
				positive[n] = (uint8_t)shows;
				patient[n++] = (uint32_t)p;
			}
		}
		assert_true(n == N);
		assert_int_equal(calibration_of(logits, positive, patient, n, &c, NULL), 0);
		rounds += !isnan(c.slope.value);
		held += c.slope.low <= 1 && 1 <= c.slope.high;
	}
	printf("# held %d of %d\n", held, rounds);
	assert_int_equal(rounds, ROUNDS);
	assert_true(held > 0.91 * ROUNDS);
}

/* Patients with six images each that nearly always show it or do not, and are alike to the share of 0.6: with all images for independent the bars hold the
 * probability in 88 of 100 groups, and chance leaves a fifth more of the error than is told. */
static void bars_and_chance_go_by_patients(void **state)
{
	enum { PATIENTS = 250, EACH = 6, N = PATIENTS * EACH, ROUNDS = 150 };
	static float logits[N];
	static uint8_t positive[N];
	static uint32_t patient[N];
	const double share = 0.3, distance = 1.2;
	uint64_t random = 20261130;
	int held = 0, bars = 0;
	double ece = 0, by_chance = 0;

	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		struct calibration c;
		double own = 0;
		int shows = 0;

		for (int i = 0; i < N; i++) {
			double u[3];

			for (int k = 0; k < 3; k++) {
				random = random * 6364136223846793005u + 1442695040888963407u;
				u[k] = (double)(random >> 11) / 9007199254740992.0;
			}
			if (i % EACH == 0) {
				own = normal(&random);
				shows = u[0] < share;
			}
			positive[i] = (uint8_t)(u[1] < 0.9 ? shows : u[2] < share);
			patient[i] = (uint32_t)(i / EACH);
			double x = sqrt(0.6) * own + sqrt(0.4) * normal(&random) + positive[i] * distance;

			logits[i] = (float)(distance * x - distance * distance / 2 + log(share / (1 - share)));
		}
		assert_int_equal(calibration_of(logits, positive, patient, N, &c, NULL), 0);
		for (int k = 0; k < c.bins; k++)
			held += c.bin[k].low <= c.bin[k].predicted && c.bin[k].predicted <= c.bin[k].high;
		bars += c.bins;
		ece += c.ece / ROUNDS;
		by_chance += c.ece_by_chance / ROUNDS;
	}
	printf("# bars hold it in %d of %d; ECE %.4f, by chance %.4f\n", held, bars, ece, by_chance);
	assert_true(held > 0.92 * bars);
	assert_close(by_chance / ece, 1, 0.1);
	/* a group of one patient's images says what one image does, whether all show it or half of them; of two patients who differ, hardly more */
	for (int shown = 10; shown >= 5; shown -= 5)
		for (int patients = 1; patients <= 2; patients++) {
			struct calibration c;
			struct interval few = { .value = shown / 10.0 };

			for (int i = 0; i < 10; i++) {
				logits[i] = 0;
				positive[i] = i < shown;
				patient[i] = patients == 1 || i < 5 ? 7 : 3;
			}
			assert_int_equal(calibration_of(logits, positive, patient, 10, &c, NULL), 0);
			interval_of_share(&few, patients == 1 ? 1 : shown == 10 ? 2 : 10 / 9.0);
			assert_close(c.bin[0].low, few.low, 1e-12);
			assert_close(c.bin[0].high, few.high, 1e-12);
		}
}

static void where_there_is_nothing_to_fit_there_is_no_slope(void **state)
{
	static const float logits[] = { -2, -1, 1, 2 };
	struct calibration separable = of(logits, (const uint8_t[]){ 0, 0, 1, 1 }, 4);
	struct calibration constant = of((const float[4]){ 0 }, (const uint8_t[]){ 0, 0, 1, 1 }, 4);
	struct calibration negative = of(logits, (const uint8_t[4]){ 0 }, 4);
	struct calibration empty = of(logits, NULL, 0);

	(void)state;
	assert_true(isnan(separable.slope.value));
	assert_true(isnan(constant.slope.value));
	assert_true(isnan(negative.slope.value) && isnan(negative.skill.value) && !isnan(negative.brier.value));
	assert_true(isnan(empty.ece) && empty.bins == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(error_and_brier_score_by_hand),
		cmocka_unit_test(a_certain_probability_is_in_the_last_bin),
		cmocka_unit_test(the_error_that_chance_leaves_is_told),
		cmocka_unit_test(wilsons_interval_gives_the_published_figures),
		cmocka_unit_test(slope_intercept_and_error_in_closed_form),
		cmocka_unit_test(a_network_that_is_twice_too_sure_has_slope_one_half),
		cmocka_unit_test(groups_of_a_rare_finding_tell_its_probabilities_apart),
		cmocka_unit_test(a_group_ends_half_way_to_the_next_one_that_shows_it),
		cmocka_unit_test(copies_of_images_add_no_certainty_to_the_slope),
		cmocka_unit_test(the_interval_of_a_slope_holds_it_where_few_patients_have_many_images),
		cmocka_unit_test(bars_and_chance_go_by_patients),
		cmocka_unit_test(where_there_is_nothing_to_fit_there_is_no_slope),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * AUROC and its intervals against definitions, a published example and simulation. */
#include "tests/unit/test.h"

#include <math.h>
#include <omp.h>

#include "learn/auroc.h"
#include "learn/resample.h"

static uint64_t random_state = 20240611;

static double uniform(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (double)(random_state >> 11) / 9007199254740992.0;
}

static double normal(void)
{
	return sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform());
}

/* The definition: every pair of a positive and a negative. */
static double placement(const float *score, const uint8_t *positive, size_t n, size_t i)
{
	double sum = 0;
	size_t others = 0;

	for (size_t j = 0; j < n; j++) {
		if (positive[j] == positive[i])
			continue;
		double d = positive[i] ? (double)score[i] - score[j] : (double)score[j] - score[i];

		sum += d > 0 ? 1 : d == 0 ? 0.5 : 0;
		others++;
	}
	return sum / (double)others;
}

static double variance_of_mean(const double *v, size_t n)
{
	double mean = 0, square = 0;

	for (size_t i = 0; i < n; i++)
		mean += v[i] / (double)n;
	for (size_t i = 0; i < n; i++)
		square += (v[i] - mean) * (v[i] - mean);
	return square / (double)(n - 1) / (double)n;
}

static void auroc_and_delong_equal_their_definitions(void **state)
{
	(void)state;
	printf("# seed %llu\n", (unsigned long long)random_state);
	for (int round = 0; round < 40; round++) {
		enum { N = 97 };
		float score[N];
		uint8_t positive[N];
		double side[2][N], sum = 0;
		size_t count[2] = { 0, 0 };
		int levels = round % 2 ? 6 : 100000; /* odd rounds: many ties */

		for (size_t i = 0; i < N; i++) {
			positive[i] = i < 2 || (i > 3 && uniform() < 0.2);
			score[i] = (float)(floor(levels * uniform()) + (positive[i] ? 0.2 * levels : 0));
		}
		for (size_t i = 0; i < N; i++)
			side[positive[i]][count[positive[i]]++] = placement(score, positive, N, i);
		for (size_t i = 0; i < count[1]; i++)
			sum += side[1][i];
		struct interval r = auroc_delong(score, positive, N);

		assert_close(r.value, sum / (double)count[1], 1e-12);
		assert_close(r.se, sqrt(variance_of_mean(side[0], count[0]) + variance_of_mean(side[1], count[1])), 1e-12);
		assert_close(auroc(score, positive, N), r.value, 0);
	}
}

/* Hanley and McNeil 1982, table I: 109 CT images rated 1 to 5. Stata's manual (roctab) prints 0.8932, standard error 0.0307
 * and the interval 0.83295 to 0.95339 for them. */
static void the_ct_ratings_give_the_published_figures(void **state)
{
	(void)state;
	static const int ratings[2][5] = { { 33, 6, 6, 11, 2 }, { 3, 2, 2, 11, 33 } };
	float score[109];
	uint8_t positive[109];
	size_t n = 0;

	for (int p = 0; p < 2; p++)
		for (int rating = 0; rating < 5; rating++)
			for (int i = 0; i < ratings[p][rating]; i++) {
				score[n] = (float)(rating + 1);
				positive[n++] = (uint8_t)p;
			}
	assert_int_equal(n, 109);
	struct interval r = auroc_delong(score, positive, n);

	assert_close(r.value, 0.8932, 5e-5);
	assert_close(r.se, 0.0307, 5e-5);
	assert_close(r.low, 0.83295, 5e-6);
	assert_close(r.high, 0.95339, 5e-6);
}

/* Of a ranking with one pair the wrong way round, or the right way. */
static void delongs_interval_ends_at_0_and_at_1(void **state)
{
	float score[20];
	uint8_t positive[20];

	(void)state;
	for (int sign = -1; sign <= 1; sign += 2) {
		for (int i = 0; i < 20; i++) {
			positive[i] = i >= 10;
			score[i] = (float)(sign * (i == 9 ? 10 : i == 10 ? 9 : i));
		}
		struct interval r = auroc_delong(score, positive, 20);

		assert_close(r.value, sign > 0 ? 0.99 : 0.01, 1e-6);
		assert_true(r.value + 2 * sign * r.se > 1 || r.value + 2 * sign * r.se < 0);
		assert_close(sign > 0 ? r.high : r.low, sign > 0, 0);
		assert_true(sign > 0 ? r.low < 0.99 : r.high > 0.01);
	}
}

static void without_positives_or_negatives_there_is_no_auroc(void **state)
{
	(void)state;
	float logits[] = { 1, 5, 2, 6, 3, 7, 4, 8 }; /* [4][2] */
	uint32_t labels[] = { 0, 1, 0, 1 };          /* class 1 never */
	struct scores s = { .n = 4, .classes = 2, .logits = logits, .labels = labels };
	struct auroc_table t;

	assert_int_equal(auroc_bootstrap(&s, 100, 1, &t, NULL), 0);
	assert_close(t.class[0].value, 0.75, 1e-15);
	assert_true(isnan(t.class[1].value) && isnan(t.class[1].low) && isnan(t.class[1].se));
	assert_int_equal(t.positives[1], 0);
	assert_int_equal(t.negatives[1], 4);
	assert_int_equal(t.counted, 1);
	assert_close(t.mean.value, 0.75, 1e-15);
	s.labels = (uint32_t[]){ 1, 0, 0, 2 }; /* the lowest score of one class, the highest of the other */
	assert_int_equal(auroc_bootstrap(&s, 100, 1, &t, NULL), 0);
	for (int c = 0; c < 2; c++) {
		assert_true(t.positives[c] == 1 && t.negatives[c] == 3 && t.positive_patients[c] == 1 && t.negative_patients[c] == 3);
		assert_close(t.class[c].value, c, 0);
	}
	assert_true(isnan(auroc(logits, (uint8_t[]){ 1, 1 }, 2)));
}

static void unknown_labels_do_not_count(void **state)
{
	(void)state;
	float logits[] = { 1, 2, 3, 4, 9 };
	uint32_t labels[] = { 0, 1, 0, 1, 0 }, known[] = { 1, 1, 1, 1, 0 };
	struct scores s = { .n = 5, .classes = 1, .logits = logits, .labels = labels, .known = known };
	struct auroc_table t;

	assert_int_equal(auroc_bootstrap(&s, 10, 1, &t, NULL), 0);
	assert_close(t.class[0].value, 0.75, 1e-15);
	assert_int_equal(t.negatives[0], 2);
}

/* n images of one finding, `each` of a patient; the patient's share of the score's noise is `within`. */
struct study {
	size_t n;
	float logits[4000];
	uint32_t labels[4000], patient[4000];
};

static struct scores simulate(struct study *t, size_t n, size_t each, double effect, double within)
{
	double patient_noise = 0;
	uint32_t label = 0;

	t->n = n;
	for (size_t i = 0; i < n; i++) {
		if (i % each == 0) {
			patient_noise = normal();
			label = uniform() < 0.3;
		}
		t->patient[i] = (uint32_t)(i / each * 7 + 3);
		t->labels[i] = label;
		t->logits[i] = (float)(effect * label + sqrt(within) * patient_noise + sqrt(1 - within) * normal());
	}
	return (struct scores){ .n = n, .classes = 1, .logits = t->logits, .labels = t->labels, .patient = t->patient };
}

static struct study study, copy;

static void images_of_their_own_agree_with_delong(void **state)
{
	(void)state;
	struct scores s = simulate(&study, 1500, 1, 1.0, 0);
	struct auroc_table t;
	uint8_t positive[1500];

	for (size_t i = 0; i < s.n; i++)
		positive[i] = (uint8_t)s.labels[i];
	struct interval d = auroc_delong(s.logits, positive, s.n);

	assert_int_equal(auroc_bootstrap(&s, 2000, 7, &t, NULL), 0);
	assert_close(t.class[0].value, d.value, 1e-12);
	assert_true(fabs(t.class[0].se / d.se - 1) < 0.1);
	assert_true(fabs(t.class[0].low - d.low) < 0.1 * (d.high - d.low));
	assert_true(fabs(t.class[0].high - d.high) < 0.1 * (d.high - d.low));
}

static void a_second_copy_of_every_image_adds_no_certainty(void **state)
{
	(void)state;
	struct scores s = simulate(&study, 400, 1, 0.7, 0), twice;
	struct auroc_table one, two;

	for (size_t i = 0; i < 800; i++) {
		copy.logits[i] = s.logits[i / 2];
		copy.labels[i] = s.labels[i / 2];
		copy.patient[i] = s.patient[i / 2];
	}
	twice = (struct scores){ .n = 800, .classes = 1, .logits = copy.logits, .labels = copy.labels, .patient = copy.patient };
	assert_int_equal(auroc_bootstrap(&s, 300, 3, &one, NULL), 0);
	assert_int_equal(auroc_bootstrap(&twice, 300, 3, &two, NULL), 0);
	assert_close(two.class[0].value, one.class[0].value, 1e-12);
	assert_close(two.class[0].low, one.class[0].low, 1e-12);
	assert_close(two.class[0].high, one.class[0].high, 1e-12);
	twice.patient = NULL; /* taken for 800 independent images the interval is too narrow */
	assert_int_equal(auroc_bootstrap(&twice, 300, 3, &two, NULL), 0);
	assert_true(two.class[0].se < 0.85 * one.class[0].se);
}

static void the_interval_holds_the_truth_about_95_times_in_100(void **state)
{
	(void)state;
	enum { ROUNDS = 300 };
	double truth = 0.5 * erfc(-0.8 / 2); /* Phi(effect / sqrt 2) */
	int held = 0;

	printf("# seed %llu\n", (unsigned long long)random_state);
	for (int round = 0; round < ROUNDS; round++) {
		struct scores s = simulate(&study, 600, 4, 0.8, 0.6);
		struct auroc_table t;

		assert_int_equal(auroc_bootstrap(&s, 300, (uint64_t)round, &t, NULL), 0);
		held += t.class[0].low <= truth && truth <= t.class[0].high;
	}
	printf("# held in %d of %d\n", held, ROUNDS);
	assert_in_range(held, 0.90 * ROUNDS, 0.99 * ROUNDS);
}

/* 12 images of one patient say as little as one image; a resample without that patient has another mean, of other findings. */
static void a_finding_of_one_patient_neither_looks_sure_nor_moves_the_mean(void **state)
{
	(void)state;
	enum { N = 300, RARE = 12, CLASSES = 8, RESAMPLES = 400 };
	static float logits[N][CLASSES];
	static uint32_t labels[N], patient[N];
	static double replicates[RESAMPLES][CLASSES];
	struct auroc_table t;
	int lacking = 0;

	for (uint32_t i = 0; i < N; i++) {
		patient[i] = i < RARE ? 0 : i;
		labels[i] = (uint32_t)(uniform() < 0.5) | (i < RARE ? 2u : 0);
		logits[i][0] = (float)(normal() + 0.4 * (labels[i] & 1));
		logits[i][1] = (float)(normal() + (i < RARE ? 20 : 0));
		for (uint32_t c = 2; c < CLASSES; c++) /* each of one patient, another one */
			labels[i] |= (uint32_t)(i == 20 * c) << c;
	}
	struct scores s = { .n = N, .classes = CLASSES, .logits = &logits[0][0], .labels = labels, .patient = patient };
	uint32_t known[N];

	for (int i = 0; i < N; i++)
		known[i] = 3;
	s.known = known;
	assert_int_equal(auroc_bootstrap(&s, RESAMPLES, 5, &t, &replicates[0][0]), 0);
	assert_int_equal(t.positives[1], RARE);
	assert_int_equal(t.positive_patients[1], 1);
	assert_true(t.positive_patients[0] < t.positives[0] && t.positive_patients[0] >= t.positives[0] - RARE);
	for (int b = 0; b < RESAMPLES; b++)
		lacking += isnan(replicates[b][1]);
	assert_in_range(lacking, 0.25 * RESAMPLES, 0.5 * RESAMPLES);
	assert_int_equal(t.left_out, lacking);
	assert_true(isnan(t.class[1].low) && t.class[1].value > 0.99);
	assert_true(t.mean.low < (t.class[0].low + 1) / 2 - 0.1 && t.mean.high < 1); /* one patient does not make the mean sure either */
	s.known = NULL; /* seven findings of one patient each: hardly a resample has all */
	assert_int_equal(auroc_bootstrap(&s, RESAMPLES, 5, &t, NULL), 0);
	assert_true(t.left_out > 0.9 * RESAMPLES && !isnan(t.mean.value) && isnan(t.mean.low));
	memset(labels, 0, sizeof labels); /* without a finding that counts there is none to lack */
	assert_int_equal(auroc_bootstrap(&s, RESAMPLES, 5, &t, NULL), 0);
	assert_int_equal(t.counted, 0);
	assert_int_equal(t.left_out, 0);
	assert_true(isnan(t.mean.value) && isnan(t.mean.low));
}

/* The largest and the smallest of two means are no 2.5 and 97.5 percentiles, even where no resample lacks a finding. */
static void fewer_than_40_resamples_give_the_mean_no_interval(void **state)
{
	(void)state;
	enum { N = 400 };
	static float logits[N];
	static uint32_t labels[N];
	struct scores s = { .n = N, .classes = 1, .logits = logits, .labels = labels };
	struct auroc_table t;

	for (int i = 0; i < N; i++) {
		labels[i] = (uint32_t)i & 1;
		logits[i] = (float)(normal() + labels[i]);
	}
	for (int resamples = 0; resamples <= 41; resamples++) {
		assert_int_equal(auroc_bootstrap(&s, resamples, 1, &t, NULL), 0);
		assert_int_equal(t.left_out, 0);
		assert_int_equal(isnan(t.mean.low), resamples < 40);
		assert_int_equal(isnan(t.mean.high), resamples < 40);
		assert_false(isnan(t.mean.value));
	}
}

static void the_mean_has_an_interval_of_its_own(void **state)
{
	(void)state;
	enum { N = 300, CLASSES = 3, RESAMPLES = 200 };
	static float logits[N][CLASSES];
	static uint32_t labels[N];
	static double replicates[RESAMPLES][CLASSES];
	struct auroc_table t;
	double low = 1, high = 0;

	for (size_t i = 0; i < N; i++) {
		labels[i] = (uint32_t)(8 * uniform());
		for (int c = 0; c < CLASSES; c++)
			logits[i][c] = (float)((labels[i] >> c & 1) * 0.5 * c + normal());
	}
	struct scores s = { .n = N, .classes = CLASSES, .logits = &logits[0][0], .labels = labels };

	assert_int_equal(auroc_bootstrap(&s, RESAMPLES, 11, &t, &replicates[0][0]), 0);
	assert_int_equal(t.counted, 3);
	assert_close(t.mean.value, (t.class[0].value + t.class[1].value + t.class[2].value) / 3, 1e-12);
	for (int b = 0; b < RESAMPLES; b++) {
		double mean = (replicates[b][0] + replicates[b][1] + replicates[b][2]) / 3;

		low = mean < low ? mean : low;
		high = mean > high ? mean : high;
	}
	assert_true(low < t.mean.low && t.mean.low < t.mean.value && t.mean.value < t.mean.high && t.mean.high < high);
	assert_true(t.mean.se < t.class[0].se);
}

static void threads_do_not_change_a_bit(void **state)
{
	(void)state;
	static double one[500], four[500];
	struct scores s = simulate(&study, 1000, 3, 0.5, 0.5);
	struct auroc_table t;
	int threads = omp_get_max_threads();

	omp_set_num_threads(1);
	assert_int_equal(auroc_bootstrap(&s, 500, 5, &t, one), 0);
	omp_set_num_threads(4);
	assert_int_equal(auroc_bootstrap(&s, 500, 5, &t, four), 0);
	omp_set_num_threads(threads);
	assert_memory_equal(one, four, sizeof one);
	assert_int_equal(auroc_bootstrap(&s, 500, 6, &t, four), 0);
	assert_memory_not_equal(one, four, sizeof one);
}

/* By the definition, pair by pair, and whatever the number of resamples: they are computed several at a time. Logits are rounded, so that there are ties. */
static void every_resample_is_the_auroc_of_the_patients_drawn_in_it(void **state)
{
	(void)state;
	enum { N = 300, EACH = 3, RESAMPLES = 37 };
	static uint16_t weight[N / EACH];
	double replicates[RESAMPLES];
	struct scores s = simulate(&study, N, EACH, 0.5, 0.5);
	struct auroc_table t;

	for (int i = 0; i < N; i++)
		study.logits[i] = roundf(study.logits[i] * 4);
	assert_int_equal(auroc_bootstrap(&s, RESAMPLES, 5, &t, replicates), 0);
	for (int b = 0; b < RESAMPLES; b++) {
		double wins = 0, pairs = 0;

		patients_draw(weight, N / EACH, 5, b);
		for (int i = 0; i < N; i++)
			for (int j = 0; j < N; j++)
				if (study.labels[i] && !study.labels[j]) {
					double w = (double)weight[i / EACH] * weight[j / EACH];
					pairs += w;
					wins += study.logits[i] > study.logits[j] ? w : study.logits[i] < study.logits[j] ? 0 : w / 2;
				}
		assert_close(replicates[b], wins / pairs, 1e-12);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(auroc_and_delong_equal_their_definitions),
		cmocka_unit_test(the_ct_ratings_give_the_published_figures),
		cmocka_unit_test(delongs_interval_ends_at_0_and_at_1),
		cmocka_unit_test(without_positives_or_negatives_there_is_no_auroc),
		cmocka_unit_test(unknown_labels_do_not_count),
		cmocka_unit_test(images_of_their_own_agree_with_delong),
		cmocka_unit_test(a_second_copy_of_every_image_adds_no_certainty),
		cmocka_unit_test(the_interval_holds_the_truth_about_95_times_in_100),
		cmocka_unit_test(a_finding_of_one_patient_neither_looks_sure_nor_moves_the_mean),
		cmocka_unit_test(fewer_than_40_resamples_give_the_mean_no_interval),
		cmocka_unit_test(the_mean_has_an_interval_of_its_own),
		cmocka_unit_test(threads_do_not_change_a_bit),
		cmocka_unit_test(every_resample_is_the_auroc_of_the_patients_drawn_in_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

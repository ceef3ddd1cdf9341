/* SPDX-License-Identifier: Apache-2.0
 * How often an interval of 95 % holds the truth where patients with a finding are few. By simulation: positives and negatives are
 * normal, 400 negatives, 2,000 rounds of 400 resamples each (the test makes fewer), percentiles of resamples -> the interval given;
 * held in % of the rounds:
 *
 *   patients with it   AUROC 0.5   0.8         0.95        0.99
 *      1                 9 -> 100    11 -> 94    14 -> 96     18 -> 98     (not shown)
 *      2                54 -> 95     54 -> 97    47 -> 97     40 -> 98     (not shown)
 *      5                89 -> 96     84 -> 98    72 -> 98     61 -> 98
 *     10                92 -> 96     90 -> 97    79 -> 98     69 -> 98
 *     20                94 -> 94     92 -> 97    87 -> 98     78 -> 99
 *     30                94 -> 94     93 -> 97    89 -> 98     83 -> 99
 *     60                94 -> 94     94 -> 94    91 -> 98     87 -> 99
 *
 * That is for equal spreads. Where those of whom there are few vary twice as much as the others it holds 91 % and more; Newcombe's interval alone 84 %.
 */
#include "tests/unit/test.h"

#include <math.h>
#include <omp.h>

#include "learn/compare.h"

static uint64_t random_state = 20261123;

static double uniform(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (double)(random_state >> 11) / 9007199254740992.0;
}

static double normal(void)
{
	return sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform());
}

enum { NEGATIVES = 400, MOST = 60, RESAMPLES = 200 };

static float score[(MOST + NEGATIVES) * 4], logits[NEGATIVES][FINDINGS], others[NEGATIVES][FINDINGS];
static uint32_t labels[(MOST + NEGATIVES) * 4], patient[(MOST + NEGATIVES) * 4];

/* Of positives with a standard deviation of `sd`, whose AUROC is to be so much. */
static double distance(double auc, double sd)
{
	double low = -12, high = 12;

	for (int i = 0; i < 60; i++) {
		double middle = (low + high) / 2;

		*(0.5 * erfc(-middle / sqrt(2)) < auc ? &low : &high) = middle;
	}
	return low * sqrt(1 + sd * sd);
}

static int holds(const struct interval *r, double truth)
{
	return r->low <= truth && truth <= r->high;
}

struct count {
	int percentiles, given, shown;
};

/* Every case has numbers of its own: what others draw does not move it. images of each patient, whose errors are alike to the share of 0.6 where there are several */
static struct count count(int positives, double auc, double sd, size_t images, int rounds, int resamples)
{
	static double replicates[1000], column[1000];
	struct count c = { 0 };
	size_t n = ((size_t)positives + NEGATIVES) * images;

	random_state = 20261123 + (uint64_t)positives * 1000003 + (uint64_t)(auc * 1000) * 7919 + (uint64_t)(sd * 4) * 104729 + images;
	for (int round = 0; round < rounds; round++) {
		double own = 0;

		for (size_t i = 0; i < n; i++) {
			labels[i] = i < (size_t)positives * images;
			patient[i] = (uint32_t)(i / images);
			own = i % images == 0 ? normal() : own;
			score[i] = (float)((labels[i] ? distance(auc, sd) : 0) + (labels[i] ? sd : 1) * (images > 1 ? sqrt(0.6) * own + sqrt(0.4) * normal() : own));
		}
		struct scores s = { .n = n, .classes = 1, .logits = score, .labels = labels, .patient = patient };
		struct auroc_table t;

		assert_int_equal(auroc_bootstrap(&s, resamples, (uint64_t)round, &t, replicates), 0);
		struct interval percentiles = { .value = t.class[0].value };

		memcpy(column, replicates, (size_t)resamples * sizeof *column);
		interval_set(&percentiles, column, (size_t)resamples);
		c.percentiles += holds(&percentiles, auc);
		c.given += holds(&t.rough[0], auc);
		c.shown += !isnan(t.class[0].low);
	}
	return c;
}

static void an_interval_holds_the_truth_where_it_is_given(void **state)
{
	static const int positives[] = { 1, 2, 5, 10, 20, 30, 60 };
	static const double aurocs[] = { 0.5, 0.8, 0.95, 0.99 };
	const int rounds = getenv("TEST_ROUNDS") ? atoi(getenv("TEST_ROUNDS")) : 200, resamples = rounds > 200 ? 400 : RESAMPLES;
	int least = rounds;

	(void)state;
	printf("# seed %llu\n", (unsigned long long)random_state);
	for (size_t p = 0; p < sizeof positives / sizeof positives[0]; p++) {
		printf("#   %2d               ", positives[p]);
		for (size_t a = 0; a < sizeof aurocs / sizeof aurocs[0]; a++) {
			struct count c = count(positives[p], aurocs[a], 1, 1, rounds, resamples);

			printf("%4.0f -> %3.0f  ", 100.0 * c.percentiles / rounds, 100.0 * c.given / rounds);
			if (positives[p] < LEAST_POSITIVES)
				assert_true(c.shown == 0 && c.percentiles < 0.7 * rounds);
			else
				assert_int_equal(c.shown, rounds);
			least = c.given < least ? c.given : least;
		}
		printf("%s\n", positives[p] < LEAST_POSITIVES ? "not shown" : "");
	}
	assert_true(least > 0.89 * rounds);
}

/* Positives that vary less or more than negatives, and images that are alike in a patient. */
static void it_does_so_for_other_shapes_too(void **state)
{
	enum { ROUNDS = 200 };

	(void)state;
	for (int positives = 5; positives <= 20; positives *= 2)
		for (double sd = 0.5; sd <= 2; sd *= 2)
			for (int k = 0; k < 4; k++) {
				const size_t images = k % 2 ? 4 : 1;
				const double auc = k / 2 ? 0.9 : 0.7;
				struct count c = count(positives, auc, sd, images, ROUNDS, 100);

				printf("# %d patients with it, AUROC %g, standard deviation %g, %zu images each: %d -> %d of %d\n", positives, auc, sd, images, c.percentiles, c.given,
				       ROUNDS);
				assert_true(c.given > 0.89 * ROUNDS);
			}
}

/* Three findings, of 4 patients each up to `few`, of 40 the others. */
static void a_mean_of_mostly_few_has_no_interval(void **state)
{
	static float scores[NEGATIVES][3];
	static uint32_t carried[NEGATIVES];

	(void)state;
	for (int few = 0; few <= 3; few++) {
		struct scores s = { .n = NEGATIVES, .classes = 3, .logits = scores[0], .labels = carried };
		struct auroc_table t;

		random_state = 7;
		for (int i = 0; i < NEGATIVES; i++) {
			carried[i] = 0;
			for (int c = 0; c < 3; c++) {
				int with = i < (c < few ? 4 : 40);

				carried[i] |= (uint32_t)with << c;
				scores[i][c] = (float)(normal() + with);
			}
		}
		assert_int_equal(auroc_bootstrap(&s, 200, 1, &t, NULL), 0);
		assert_int_equal(t.counted, 3);
		assert_int_equal(isnan(t.mean.low), few >= 2);
		assert_int_equal(t.mostly_few, few >= 2);
	}
}

/* As with --mask or on a set of pneumonia alone: the same number is not told with two intervals. */
static void a_mean_of_one_is_as_sure_as_that_one(void **state)
{
	static float scores[NEGATIVES][2];
	static uint32_t carried[NEGATIVES];
	static const int with[] = { 0, 4, 6, 12, 100 };

	(void)state;
	random_state = 11;
	for (size_t k = 0; k < sizeof with / sizeof with[0]; k++)
		for (int only = 0; only < 2; only++) {
			struct scores s = { .n = with[k] < 12 ? 12 : NEGATIVES, .classes = 2, .logits = scores[0], .labels = carried };
			struct auroc_table t;

			for (int i = 0; i < (int)s.n; i++) {
				carried[i] = (uint32_t)(i < with[k]) << only;
				scores[i][0] = scores[i][1] = (float)(normal() + (i < with[k]));
			}
			assert_int_equal(auroc_bootstrap(&s, 200, 1, &t, NULL), 0);
			assert_int_equal(t.counted, with[k] > 0);
			assert_int_equal(isnan(t.mean.low), with[k] < LEAST_POSITIVES);
			assert_int_equal(memcmp(&t.mean.low, &t.class[only].low, sizeof t.mean.low), 0);
			assert_int_equal(memcmp(&t.mean.high, &t.class[only].high, sizeof t.mean.high), 0);
			assert_string_equal(interval_method(&t.mean), interval_method(&t.class[only]));
		}
}

/* One score for all images: every resample says 0.5, and none how sure that is. */
static void scores_that_are_all_alike_are_not_sure(void **state)
{
	enum { N = 100 };
	struct scores s = { .n = N, .classes = 2, .logits = score, .labels = labels };
	struct auroc_table t;

	(void)state;
	for (int i = 0; i < N; i++) {
		labels[i] = i % 2 * 3u;
		score[2 * i] = score[2 * i + 1] = 1;
	}
	assert_int_equal(auroc_bootstrap(&s, 200, 1, &t, NULL), 0);
	struct interval newcombe = { .value = 0.5 };

	interval_of_few(&newcombe, 50, 50);
	for (int c = 0; c < 2; c++) {
		assert_close(t.class[c].value, 0.5, 0);
		assert_close(t.class[c].low, newcombe.low, 1e-12);
		assert_close(t.class[c].high, newcombe.high, 1e-12);
		assert_close(t.class[c].se, newcombe.se, 1e-12);
	}
	assert_true(newcombe.low > 0.3 && newcombe.low < 0.42);
	assert_string_equal(interval_method(&t.class[0]), "newcombe");
	assert_string_equal(interval_method(&t.mean), "square-and-add");
	assert_close(0.5 - t.mean.low, (0.5 - newcombe.low) / sqrt(2), 1e-12);
	assert_close(t.mean.high - 0.5, (newcombe.high - 0.5) / sqrt(2), 1e-12);
}

/* Five of 20 are a quarter, and all but five three quarters. */
static void resamples_tell_where_five_are_on_either_side(void **state)
{
	(void)state;
	assert_true(resamples_tell(0.25, 20) && resamples_tell(0.75, 20) && resamples_tell(0.5, 10));
	assert_false(resamples_tell(0.249, 20) || resamples_tell(0.751, 20) || resamples_tell(0.5, 9.9) || resamples_tell(0, 1000) || resamples_tell(1, 1000));
}

/* The finding's absence, by the scores turned round, is as hard to tell as the finding. */
static void few_without_a_finding_are_as_unsure_as_few_with_it(void **state)
{
	static float turned[MOST + NEGATIVES];
	static uint32_t absent[MOST + NEGATIVES];

	(void)state;
	for (int with = LEAST_POSITIVES; with <= 20; with *= 2) {
		struct auroc_table t, u;

		random_state = 5;
		for (int i = 0; i < with + NEGATIVES; i++) {
			labels[i] = i < with;
			absent[i] = !labels[i];
			score[i] = (float)(normal() + 2.3 * labels[i]);
			turned[i] = -score[i];
		}
		struct scores s = { .n = (size_t)with + NEGATIVES, .classes = 1, .logits = score, .labels = labels }, r = { s.n, 1, turned, absent, NULL, NULL };

		assert_int_equal(auroc_bootstrap(&s, 200, 1, &t, NULL), 0);
		assert_int_equal(auroc_bootstrap(&r, 200, 1, &u, NULL), 0);
		assert_string_equal(interval_method(&t.class[0]), "newcombe");
		assert_string_equal(interval_method(&u.class[0]), "newcombe");
		assert_close(t.class[0].low, u.class[0].low, 1e-12);
		assert_close(t.class[0].high, u.class[0].high, 1e-12);
		assert_close(t.effective[0], u.effective[0], 0);
	}
}

static void a_perfect_ranking_is_not_sure(void **state)
{
	(void)state;
	for (size_t i = 0; i < 12 + NEGATIVES; i++) {
		labels[i] = i < 12;
		score[i] = (float)labels[i] * 10 + (float)uniform();
	}
	struct scores s = { .n = 12 + NEGATIVES, .classes = 1, .logits = score, .labels = labels };
	struct auroc_table t;

	assert_int_equal(auroc_bootstrap(&s, 100, 1, &t, NULL), 0);
	assert_close(t.class[0].value, 1, 0);
	assert_close(t.class[0].high, 1, 0);
	assert_true(t.class[0].low > 0.7 && t.class[0].low < 0.95);
	assert_close(t.mean.low, t.class[0].low, 1e-9);
	uint8_t positive[12 + NEGATIVES];

	for (size_t i = 0; i < 12 + NEGATIVES; i++)
		positive[i] = i < 12;
	assert_true(isnan(auroc_delong(score, positive, 12 + NEGATIVES).low));
}

/* Newcombe 2006, part 2: his equation, solved by trying every value. */
static void newcombes_interval_equals_its_definition(void **state)
{
	(void)state;
	for (int round = 0; round < 20; round++) {
		double m = 1 + floor(30 * uniform()), n = 1 + floor(500 * uniform()), low = 1, high = 0;
		struct interval r = { .value = round == 0 ? 1 : round == 1 ? 0 : uniform() };

		interval_of_few(&r, m, n);
		for (int i = 0; i <= 100000; i++) {
			double a = i / 1e5, v = a * (1 - a) * (1 + ((m + n) / 2 - 1) * ((1 - a) / (2 - a) + a / (1 + a))) / (m * n);

			if (fabs(a - r.value) <= 1.959964 * sqrt(v)) {
				low = fmin(low, a);
				high = fmax(high, a);
			}
		}
		assert_close(r.low, fmin(low, r.value), 2e-5);
		assert_close(r.high, fmax(high, r.value), 2e-5);
	}
}

/* What resamples know of a member is in the mean's interval already; the rest of the member's is added, a share of it, in squares. */
static void a_mean_is_widened_by_what_resamples_do_not_know(void **state)
{
	(void)state;
	const double z = 1.959963984540054;
	const struct interval before = { .value = 0.8, .low = 0.7, .high = 0.85 }, member = { .value = 0.6, .low = 0.3, .high = 0.8 };
	for (int known = 0; known < 2; known++) {
		struct interval mean = before;
		double less = known ? z * 0.05 : 0;

		interval_add(&mean, &member, known ? 0.05 : NAN, 4);
		assert_close(mean.value, 0.8, 0);
		assert_close(mean.low, 0.8 - sqrt(0.1 * 0.1 + (0.3 * 0.3 - less * less) / 16), 1e-12);
		assert_close(mean.high, 0.8 + sqrt(0.05 * 0.05 + (0.2 * 0.2 - less * less) / 16), 1e-12);
		assert_close(mean.se, (mean.high - mean.low) / (2 * z), 1e-12);
	}
	struct interval mean = before;
	interval_add(&mean, &member, 1, 4); /* resamples know more than there is */
	assert_true(fabs(mean.low - before.low) < 1e-12 && fabs(mean.high - before.high) < 1e-12);
	mean = (struct interval){ .value = 0.99, .low = 0.98, .high = 1 };
	interval_add(&mean, &(struct interval){ .value = 0.5, .low = 0, .high = 1 }, 0, 1);
	assert_close(mean.high, 1, 0);
	mean = (struct interval){ .value = 0.01, .low = 0, .high = 0.02 };
	interval_add(&mean, &(struct interval){ .value = 0.5, .low = 0, .high = 1 }, 0, 1);
	assert_close(mean.low, 0, 0);
	for (int way = 0; way < 2; way++) {
		struct interval r = { .value = 0.9 };

		if (way)
			interval_of_share(&r, 20);
		else
			interval_of_few(&r, 5, 80);
		assert_close(r.se, (r.high - r.low) / (2 * z), 1e-12);
	}
}

/* Unless it is as wide already. */
static void few_are_no_surer_than_resamples_say(void **state)
{
	const double z = 1.959963984540054, half = z * 0.1 / 0.16;
	struct interval r = { .value = 0.8, .low = 0.7, .high = 0.95, .method = METHOD_NEWCOMBE }, same = { .value = 0.8, .low = 0.1, .high = 0.99, .method = METHOD_NEWCOMBE };

	(void)state;
	interval_no_narrower(&r, 0.1);
	assert_close(log(r.low / (1 - r.low)), log(4) - half, 1e-12);
	assert_close(r.high, 0.95, 0); /* 4 exp(1.22) to 1 is 0.932 */
	assert_close(r.se, (r.high - r.low) / (2 * z), 1e-12);
	assert_string_equal(interval_method(&r), "newcombe");
	for (int k = 0; k < 3; k++) {
		interval_no_narrower(&same, k == 0 ? 0.1 : k == 1 ? 0 : NAN);
		assert_true(same.low == 0.1 && same.high == 0.99);
	}
	r = (struct interval){ .value = 1, .low = 0.6, .high = 1, .method = METHOD_NEWCOMBE };
	interval_no_narrower(&r, 0.1);
	assert_true(r.low == 0.6 && r.high == 1);
}

static void an_interval_says_how_it_was_made(void **state)
{
	static float scores[NEGATIVES][3];
	static uint32_t carried[NEGATIVES];
	struct scores s = { .n = NEGATIVES, .classes = 3, .logits = scores[0], .labels = carried };
	struct auroc_table t;
	double replicates[200][3], lacking = NAN, mean = 0, square = 0;

	(void)state;
	for (int few = 0; few < 2; few++) {
		for (int i = 0; i < NEGATIVES; i++) {
			carried[i] = (uint32_t)(i < 40) | (uint32_t)(i < (few ? 6 : 40)) << 1;
			for (int c = 0; c < 3; c++)
				scores[i][c] = (float)(normal() + (carried[i] >> c & 1));
		}
		assert_int_equal(auroc_bootstrap(&s, 200, 1, &t, replicates[0]), 0);
		assert_string_equal(interval_method(&t.class[0]), "percentile");
		assert_string_equal(interval_method(&t.class[1]), few ? "newcombe" : "percentile");
		assert_string_equal(interval_method(&t.class[2]), "");
		assert_string_equal(interval_method(&t.mean), few ? "square-and-add" : "percentile");
	}
	for (int b = 0; b < 200; b++)
		mean += replicates[b][0] / 200;
	for (int b = 0; b < 200; b++)
		square += (replicates[b][0] - mean) * (replicates[b][0] - mean);
	assert_close(t.class[0].se, sqrt(square / 199), 1e-12);
	assert_close(t.class[1].se, (t.class[1].high - t.class[1].low) / 3.919927969080108, 1e-12);
	assert_close(t.mean.se, (t.mean.high - t.mean.low) / 3.919927969080108, 1e-12);
	interval_set(&t.mean, &lacking, 1);
	assert_string_equal(interval_method(&t.mean), "");
	interval_of_share(&t.class[0], 20);
	assert_string_equal(interval_method(&t.class[0]), "wilson");
	uint8_t positive[NEGATIVES];

	for (int i = 0; i < NEGATIVES; i++)
		positive[i] = i < 40;
	struct interval delong = auroc_delong(scores[0], positive, NEGATIVES);

	assert_string_equal(interval_method(&delong), "delong");
}

/* 0.975 quantiles of Student's distribution, as every table has them. */
static void differences_are_spread_by_students_quantiles(void **state)
{
	static const struct {
		size_t patients;
		double quantile;
	} table[] = { { 5, 2.776 }, { 6, 2.571 }, { 10, 2.262 }, { 20, 2.093 }, { 31, 2.042 }, { 121, 1.980 } };

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		double n = (double)table[i].patients;

		assert_close(few_spread(table[i].patients) / (table[i].quantile / 1.959964 * sqrt(n / (n - 1))), 1, 0.004);
	}
}

/* Findings of 1, 2, … patients each, as on a small validation split. */
static void the_mean_of_rare_findings_holds_the_truth_too(void **state)
{
	enum { ROUNDS = 200, N = 160 };
	int held = 0, percentiles = 0, given = 0;
	static double replicates[RESAMPLES][FINDINGS], column[RESAMPLES];

	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		memset(labels, 0, sizeof labels);
		for (int f = 0; f < FINDINGS; f++)
			for (int i = 0; i < 3 + 2 * f; i++)
				labels[(int)(N * uniform())] |= 1u << f;
		for (int i = 0; i < N; i++)
			for (int f = 0; f < FINDINGS; f++)
				logits[i][f] = (float)(normal() + (labels[i] >> f & 1 ? distance(0.8, 1) : 0));
		struct scores s = { .n = N, .classes = FINDINGS, .logits = &logits[0][0], .labels = labels };
		struct auroc_table t;

		assert_int_equal(auroc_bootstrap(&s, RESAMPLES, (uint64_t)round, &t, &replicates[0][0]), 0);
		struct interval old = t.mean;

		for (int b = 0; b < RESAMPLES; b++)
			column[b] = auroc_mean(&t, replicates[b]);
		interval_set(&old, column, RESAMPLES);
		percentiles += holds(&old, 0.8);
		held += holds(&t.mean, 0.8);
		given += !isnan(t.mean.low);
	}
	printf("# percentiles hold it in %d, the interval in %d of %d; given %d\n", percentiles, held, ROUNDS, given);
	assert_true(given == ROUNDS && held > 0.91 * ROUNDS && percentiles < held);
}

/* ---- two models ------------------------------------------------------------------------------------- */

static struct comparison compare_drawn(int positives, int rare, double signal, double better)
{
	enum { N = 200 };
	static struct sample samples[N];
	struct predictions a = { .n = N, .samples = samples, .logits = &logits[0][0], .has_patients = 1 }, b = a;
	struct comparison c;
	struct error e = { 0 };

	b.logits = &others[0][0];
	memset(logits, 0, sizeof logits);
	memset(others, 0, sizeof others);
	memset(samples, 0, sizeof samples);
	for (int i = 0; i < N; i++) {
		snprintf(samples[i].id, SAMPLE_ID, "%08d.png", i);
		samples[i].patient = (uint32_t)i;
		samples[i].known = 0x3FFF;
		samples[i].labels = (uint32_t)(i < positives) | (uint32_t)(i < rare) << 1;
		for (int f = 0; f < 2; f++) {
			double shared = normal(), with = samples[i].labels >> f & 1;

			logits[i][f] = (float)(shared + normal() + signal * with);
			others[i][f] = (float)(shared + normal() + (signal + better) * with);
		}
	}
	assert_int_equal(compare_predictions(&c, &a, &b, "a.csv", "b.csv", RESAMPLES, 1, &e), 0);
	return c;
}

static void equals_are_found_equal_where_patients_are_few(void **state)
{
	enum { ROUNDS = 200 };

	(void)state;
	for (int positives = 5; positives <= 20; positives *= 2) {
		int differ = 0, held = 0, mean = 0;

		for (int round = 0; round < ROUNDS; round++) {
			struct comparison c = compare_drawn(positives, 2, 1.5, 0);

			differ += c.finding[0].p <= 0.05;
			held += holds(&c.finding[0].difference, 0);
			mean += holds(&c.mean.difference, 0);
			assert_true(isnan(c.finding[1].difference.low) && isnan(c.finding[1].p) && !isnan(c.finding[1].difference.value));
			assert_int_equal(c.tested, 1);
		}
		printf("# %d patients: %d of %d found to differ, the interval holds 0 in %d; the mean's with one of 2 patients in %d\n", positives, differ, ROUNDS, held, mean);
		assert_true(differ < 0.1 * ROUNDS && held > 0.9 * ROUNDS && mean > 0.9 * ROUNDS);
	}
}

static void none_of_so_many_begins_at_zero(void **state)
{
	(void)state;
	for (int n = 1; n < 3000; n++) {
		struct interval none = { .value = 0 }, all = { .value = 1 };

		interval_of_share(&none, n);
		interval_of_share(&all, n);
		assert_true(none.low == 0 && none.high > 0 && all.low < 1 && all.high == 1); /* 3.84 / (n + 3.84) by Wilson's formula */
		assert_close(none.high, 3.8414588 / (n + 3.8414588), 1e-6);
		assert_close(all.low, 1 - none.high, 1e-12);
	}
}

/* Both rank perfectly: that they do so in every resample too is no proof that they are equal. */
static void two_perfect_rankings_show_no_difference_and_no_equality(void **state)
{
	struct comparison c = compare_drawn(12, 0, 100, 1);

	(void)state;
	assert_close(c.finding[0].a, 1, 0);
	assert_close(c.finding[0].b, 1, 0);
	assert_true(isnan(c.finding[0].p) && isnan(c.finding[0].difference.low) && isnan(c.mean.p));
	assert_int_equal(c.tested, 0);
	c = compare_drawn(40, 40, 0, 100);
	assert_int_equal(c.tested, 2);
	for (int f = 0; f < 2; f++) {
		assert_true(c.finding[f].p_bound && c.finding[f].p_holm_bound);
		assert_close(c.finding[f].p, c.p_floor, 0);
		assert_close(c.finding[f].p_holm, 2 * c.p_floor, 1e-15);
	}
	assert_true(comparison_can_show(&c));
	c.p_floor = 0.03; /* as 65 resamples have it */
	assert_true(!comparison_can_show(&c));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_interval_holds_the_truth_where_it_is_given),
		cmocka_unit_test(it_does_so_for_other_shapes_too),
		cmocka_unit_test(a_mean_of_mostly_few_has_no_interval),
		cmocka_unit_test(none_of_so_many_begins_at_zero),
		cmocka_unit_test(a_mean_of_one_is_as_sure_as_that_one),
		cmocka_unit_test(scores_that_are_all_alike_are_not_sure),
		cmocka_unit_test(resamples_tell_where_five_are_on_either_side),
		cmocka_unit_test(few_without_a_finding_are_as_unsure_as_few_with_it),
		cmocka_unit_test(a_perfect_ranking_is_not_sure),
		cmocka_unit_test(newcombes_interval_equals_its_definition),
		cmocka_unit_test(a_mean_is_widened_by_what_resamples_do_not_know),
		cmocka_unit_test(few_are_no_surer_than_resamples_say),
		cmocka_unit_test(an_interval_says_how_it_was_made),
		cmocka_unit_test(differences_are_spread_by_students_quantiles),
		cmocka_unit_test(the_mean_of_rare_findings_holds_the_truth_too),
		cmocka_unit_test(equals_are_found_equal_where_patients_are_few),
		cmocka_unit_test(two_perfect_rankings_show_no_difference_and_no_equality),
	};

	omp_set_num_threads(1); /* small work: threads would only wait for each other */
	return cmocka_run_group_tests(tests, NULL, NULL);
}

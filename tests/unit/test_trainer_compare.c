/* SPDX-License-Identifier: Apache-2.0
 * Paired comparison of two models: DeLong's test by its definition and a published standard error, the patient bootstrap by
 * simulation. */
#include "tests/unit/test.h"

#include <math.h>
#include <omp.h>

#include "learn/compare.h"

static uint64_t random_state = 4711;

static double uniform(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (double)(random_state >> 11) / 9007199254740992.0;
}

static double normal(void)
{
	return sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform());
}

/* ---- DeLong ----------------------------------------------------------------------------------------- */

static double kernel(double positive, double negative)
{
	return positive > negative ? 1 : positive == negative ? 0.5 : 0;
}

/* Equations 4 to 7 of the paper, over every pair of a positive and a negative. */
static void by_definition(const float *score[2], const uint8_t *positive, size_t n, double *difference, double *variance)
{
	double v10[2][200], v01[2][200], theta[2] = { 0, 0 }, s10[2][2] = { { 0 } }, s01[2][2] = { { 0 } };
	size_t m = 0, k = 0;

	for (size_t i = 0; i < n; i++)
		*(positive[i] ? &m : &k) += 1;
	for (int r = 0; r < 2; r++) {
		size_t at[2] = { 0, 0 };

		for (size_t i = 0; i < n; i++) {
			double sum = 0;

			for (size_t j = 0; j < n; j++)
				if (positive[i] != positive[j])
					sum += positive[i] ? kernel(score[r][i], score[r][j]) : kernel(score[r][j], score[r][i]);
			if (positive[i])
				v10[r][at[1]++] = sum / (double)k;
			else
				v01[r][at[0]++] = sum / (double)m;
		}
		for (size_t i = 0; i < m; i++)
			theta[r] += v10[r][i] / (double)m;
	}
	for (int r = 0; r < 2; r++)
		for (int s = 0; s < 2; s++) {
			for (size_t i = 0; i < m; i++)
				s10[r][s] += (v10[r][i] - theta[r]) * (v10[s][i] - theta[s]) / (double)(m - 1);
			for (size_t i = 0; i < k; i++)
				s01[r][s] += (v01[r][i] - theta[r]) * (v01[s][i] - theta[s]) / (double)(k - 1);
		}
	*difference = theta[1] - theta[0];
	*variance = (s10[0][0] + s10[1][1] - 2 * s10[0][1]) / (double)m + (s01[0][0] + s01[1][1] - 2 * s01[0][1]) / (double)k;
}

static void delongs_test_equals_its_definition(void **state)
{
	enum { N = 120 };

	(void)state;
	printf("# seed %llu\n", (unsigned long long)random_state);
	for (int round = 0; round < 40; round++) {
		float a[N], b[N];
		uint8_t positive[N];
		double difference, variance, p;
		int levels = round % 2 ? 3 : 100000;

		for (int i = 0; i < N; i++) {
			double shared = normal();

			positive[i] = i < 2 || (i > 3 && uniform() < 0.3);
			a[i] = (float)floor(levels * (shared + normal() + positive[i]));
			b[i] = (float)floor(levels * (shared + normal() + 0.6 * positive[i]));
		}
		struct interval r = delong_difference(a, b, positive, N, &p);

		by_definition((const float *[]){ a, b }, positive, N, &difference, &variance);
		assert_close(r.value, difference, 1e-12);
		assert_close(r.se, sqrt(variance), 1e-12);
		assert_close(p, erfc(fabs(difference) / sqrt(variance) / sqrt(2)), 1e-12);
		assert_close(r.value, auroc(b, positive, N) - auroc(a, positive, N), 1e-12);
	}
}

/* Against a reader who sees nothing the difference has the AUROC's own standard error: for the CT ratings of Hanley and McNeil
 * (1982) Stata's manual prints 0.8932 and 0.0307. */
/* With one positive, or one negative, there is no spread to judge a difference by. */
static void delongs_test_of_one_is_none(void **state)
{
	static const float a[] = { 0, 1, 2, 3 }, b[] = { 3, 1, 2, 0 };
	static const uint8_t one[] = { 0, 0, 0, 1 }, others[] = { 1, 1, 1, 0 };

	(void)state;
	for (int side = 0; side < 2; side++)
		for (size_t n = 0; n <= 4; n += 4) {
			double p = 0.5;
			struct interval d = delong_difference(a, b, side ? others : one, n, &p);

			assert_true(isnan(p) && isnan(d.value) && isnan(d.se) && isnan(d.low) && isnan(d.high));
		}
}

static void against_a_constant_the_published_standard_error_remains(void **state)
{
	static const int ratings[2][5] = { { 33, 6, 6, 11, 2 }, { 3, 2, 2, 11, 33 } };
	float score[109], constant[109] = { 0 };
	uint8_t positive[109];
	size_t n = 0;
	double p;

	(void)state;
	for (int side = 0; side < 2; side++)
		for (int rating = 0; rating < 5; rating++)
			for (int i = 0; i < ratings[side][rating]; i++) {
				score[n] = (float)rating;
				positive[n++] = (uint8_t)side;
			}
	struct interval r = delong_difference(constant, score, positive, n, &p);

	assert_close(r.value, 0.3932, 5e-5);
	assert_close(r.se, 0.0307, 5e-5);
	assert_true(p < 1e-30);
}

/* ---- files of predictions --------------------------------------------------------------------------- */

enum { IMAGES = 160, REPEATS = 4 };

struct pair {
	struct sample sa[IMAGES], sb[IMAGES];
	float la[IMAGES][FINDINGS], lb[IMAGES][FINDINGS];
	struct predictions a, b;
};

/* Two equally good models, or b better by `better`, whose errors are a patient's own: every patient has REPEATS images alike.
 * b lists its images backwards. Only Effusion has both positives and negatives. */
static void draw(struct pair *p, double better)
{
	double ea = 0, eb = 0;
	int sick = 0;

	memset(p, 0, sizeof *p);
	for (int i = 0; i < IMAGES; i++) {
		int j = IMAGES - 1 - i;

		if (i % REPEATS == 0) {
			sick = uniform() < 0.4;
			ea = normal();
			eb = normal();
		}
		snprintf(p->sa[i].id, SAMPLE_ID, "%08d_%03d.png", i / REPEATS, i % REPEATS);
		p->sa[i].patient = (uint32_t)(i / REPEATS);
		p->sa[i].labels = (uint32_t)sick << 2;
		p->sa[i].known = 0x3FFF;
		p->sb[j] = p->sa[i];
		p->la[i][2] = (float)(ea + 0.1 * normal() + sick);
		p->lb[j][2] = (float)(eb + 0.1 * normal() + (1 + better) * sick);
	}
	p->a = (struct predictions){ .n = IMAGES, .samples = p->sa, .logits = &p->la[0][0], .has_patients = 1 };
	p->b = (struct predictions){ .n = IMAGES, .samples = p->sb, .logits = &p->lb[0][0], .has_patients = 1 };
}

static struct comparison compare(const struct pair *p, int resamples)
{
	struct comparison c;
	struct error e = { 0 };

	assert_int_equal(compare_predictions(&c, &p->a, &p->b, "a.csv", "b.csv", resamples, 1, &e), 0);
	return c;
}

/* With whole patients alike, a test that takes images for independent finds differences that are not there. */
static void resampling_patients_keeps_its_promise_where_delongs_test_cannot(void **state)
{
	enum { ROUNDS = 300 };
	struct pair p;
	int bootstrap = 0, delong = 0, held = 0;

	(void)state;
	printf("# seed %llu\n", (unsigned long long)random_state);
	for (int round = 0; round < ROUNDS; round++) {
		draw(&p, 0);
		struct comparison c = compare(&p, 200);
		const struct paired *f = &c.finding[2];

		bootstrap += f->p <= 0.05;
		delong += f->p_delong <= 0.05;
		held += f->difference.low <= 0 && f->difference.high >= 0;
		assert_int_equal(c.patients, IMAGES / REPEATS);
		assert_int_equal(c.counted, 1);
	}
	printf("# of %d comparisons of equals: bootstrap rejects %d, DeLong %d; the interval holds 0 in %d\n", ROUNDS, bootstrap, delong, held);
	assert_in_range(bootstrap, 3, 30);
	assert_in_range(held, 270, 297);
	assert_true(delong > 75);
}

static void a_better_model_is_found(void **state)
{
	struct pair p;

	(void)state;
	draw(&p, 3);
	struct comparison c = compare(&p, 1000);

	assert_true(c.finding[2].p < 0.01 && c.finding[2].difference.low > 0);
	assert_true(c.finding[2].b > c.finding[2].a);
	assert_close(c.finding[2].difference.value, c.finding[2].b - c.finding[2].a, 0);
	assert_close(c.finding[2].p_holm, c.finding[2].p, 1e-15);
	assert_close(c.mean.difference.value, c.finding[2].difference.value, 1e-15);
	assert_close(c.mean.difference.low, c.finding[2].difference.low, 1e-12);
	assert_true(isnan(c.finding[0].p) && isnan(c.finding[0].a));
}

static void a_model_does_not_differ_from_itself(void **state)
{
	struct pair p;

	(void)state;
	draw(&p, 0);
	p.b = p.a;
	struct comparison c = compare(&p, 100);

	assert_close(c.finding[2].p, 1, 0);
	assert_close(c.finding[2].p_delong, 1, 0);
	assert_close(c.finding[2].difference.se, 0, 0);
}

static void only_shared_images_count_and_labels_and_patients_must_agree(void **state)
{
	struct pair p;
	struct comparison c;
	struct error e = { 0 };

	(void)state;
	draw(&p, 0);
	p.a.n = IMAGES - 20;
	p.b.n = IMAGES - 12;
	c = compare(&p, 10);
	assert_int_equal(c.n, IMAGES - 32);
	assert_int_equal(c.only_a, 12);
	assert_int_equal(c.only_b, 20);

	p.sa[77].labels ^= 1u << 9;
	assert_int_equal(compare_predictions(&c, &p.a, &p.b, "a.csv", "b.csv", 10, 1, &e), -EXIT_DATA);
	assert_string_equal(e.text, "image 00000019_001.png: Edema is 1 in a.csv and 0 in b.csv: these are predictions for different labels");

	e = (struct error){ 0 };
	p.sa[76].patient = 4;
	assert_int_equal(compare_predictions(&c, &p.a, &p.b, "a.csv", "b.csv", 10, 1, &e), -EXIT_DATA);
	assert_string_equal(e.text, "image 00000019_000.png: of patient 4 in a.csv and of patient 19 in b.csv: these are predictions for different images");
	p.a.has_patients = 0; /* nobody says so then */
	p.sa[77].known &= ~(1u << 9); /* what a does not know cannot contradict b */
	assert_int_equal(compare(&p, 10).n, IMAGES - 32);
	for (int i = 0; i < IMAGES; i++)
		p.sa[i].patient = 0;
	assert_int_equal(compare(&p, 10).patients, (IMAGES - 32) / REPEATS); /* as b names them */
	p.sa[40].known &= ~4u; /* nor is it judged what one of them does not know */
	p.sb[30].known &= ~4u;
	c = compare(&p, 10);
	assert_int_equal(c.n, IMAGES - 32);
	assert_int_equal(c.finding[2].positives + c.finding[2].negatives, IMAGES - 34);
	float a[IMAGES], b[IMAGES];
	uint8_t positive[IMAGES];
	size_t n = 0;
	double delong;

	for (int i = 12; i < IMAGES - 20; i++)
		if (p.sa[i].known & p.sb[IMAGES - 1 - i].known & 4u) {
			a[n] = p.la[i][2];
			b[n] = p.lb[IMAGES - 1 - i][2];
			positive[n++] = p.sa[i].labels >> 2 & 1;
		}
	delong_difference(a, b, positive, n, &delong);
	assert_close(c.finding[2].p_delong, delong, 1e-12);
	p.b.has_patients = 0; /* nobody names them, and nobody counts them */
	c = compare(&p, 10);
	cJSON *json = cJSON_CreateObject();

	comparison_json(&c, json);
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(json, "patients")));
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(cJSON_GetObjectItem(cJSON_GetObjectItem(json, "findings"), "Effusion"), "positive_patients")));
	assert_int_equal(c.patients, IMAGES - 32); /* each image is one */
	cJSON_Delete(json);

	e = (struct error){ 0 };
	p.a.n = 4;
	p.b.n = 4;
	assert_int_equal(compare_predictions(&c, &p.a, &p.b, "a.csv", "b.csv", 10, 1, &e), -EXIT_DATA);
	assert_string_equal(e.text, "a.csv and b.csv have no image in common");
}

/* Of five patients each, spread by Student's quantile: no difference of two AUROCs is above 1. */
static void an_interval_stays_within_what_a_difference_can_be(void **state)
{
	struct pair p;

	(void)state;
	draw(&p, 0);
	p.a.n = 10 * REPEATS;
	for (int i = 0; i < 10 * REPEATS; i++) {
		struct sample *s = &p.sa[i];
		float *a = &p.la[i][2], *b = &p.lb[IMAGES - 1 - i][2];
		int sick = i < 5 * REPEATS;

		s->labels = p.sb[IMAGES - 1 - i].labels = (uint32_t)sick << 2;
		*a = (float)(i / REPEATS % 5 == 4 ? -!sick : !sick); /* a ranks one patient of ten rightly, b all */
		*b = (float)sick;
	}
	struct comparison c = compare(&p, 200);

	assert_close(c.finding[2].difference.value, 0.8, 1e-12);
	assert_close(c.finding[2].difference.high, 1, 0);
	assert_close(c.mean.difference.high, 1, 0);
	for (int i = 0; i < 10 * REPEATS; i++) { /* the other way round */
		float a = p.la[i][2];

		p.la[i][2] = p.lb[IMAGES - 1 - i][2];
		p.lb[IMAGES - 1 - i][2] = a;
	}
	c = compare(&p, 200);
	assert_close(c.finding[2].difference.low, -1, 0);
	assert_close(c.mean.difference.low, -1, 0);
}

/* One patient shows the other finding, of which both say the same: who is not drawn is no resample of the mean's. */
static void a_mean_counts_the_resamples_that_it_has(void **state)
{
	enum { RESAMPLES = 400 };
	struct pair p;

	(void)state;
	draw(&p, 3);
	for (int i = 0; i < IMAGES; i++) {
		uint32_t shows = (uint32_t)(i < REPEATS) << 3;
		int j = IMAGES - 1 - i;

		p.sa[i].labels |= shows;
		p.sb[j].labels |= shows;
		p.la[i][2] = (float)normal(); /* knows nothing */
		p.la[i][3] = p.lb[j][3] = (float)(i % 7);
	}
	struct comparison c = compare(&p, RESAMPLES);

	assert_int_equal(c.counted, 2);
	assert_in_range(c.left_out, RESAMPLES / 4, RESAMPLES / 2); /* (1 - 1/40)^40 = 0.36 of them */
	assert_true(c.mean.p_bound && c.mean.difference.low > 0);
	assert_close(c.mean.p, 2.0 / (RESAMPLES - c.left_out + 1), 1e-15);
	assert_close(c.finding[2].p, 2.0 / (RESAMPLES + 1), 1e-15);
	assert_true(isnan(c.finding[3].p));
}

/* B - A is what A - B is not, also where one patient alone shows a finding that A and B rank differently. */
static void the_other_way_round_the_interval_is_the_other_way_round(void **state)
{
	struct pair p;

	(void)state;
	for (int few = 1; few <= 2; few++) { /* of two, or three, findings */
		draw(&p, 1);
		for (int i = 0; i < IMAGES; i++) {
			uint32_t shows = i < REPEATS ? (1u << few) - 1 : 0;
			int j = IMAGES - 1 - i;

			p.sa[i].labels |= shows << 3;
			p.sb[j].labels |= shows << 3;
			for (int f = 3; f < 3 + few; f++) {
				p.la[i][f] = (float)(i < REPEATS ? 4 : i % 7);
				p.lb[j][f] = (float)(i < REPEATS ? 6.5 : i % 7);
			}
		}
		struct comparison c = compare(&p, 300);
		struct predictions a = p.a;

		p.a = p.b;
		p.b = a;
		struct comparison d = compare(&p, 300);

		assert_int_equal(c.counted, 1 + few);
		assert_close(c.mean.difference.value, -d.mean.difference.value, 1e-12);
		assert_int_equal(isnan(c.mean.difference.low), few == 2); /* most findings have none of their own */
		assert_int_equal(isnan(c.mean.p), few == 2);
		if (few == 2)
			continue;
		assert_close(c.mean.difference.low, -d.mean.difference.high, 1e-12);
		assert_close(c.mean.difference.high, -d.mean.difference.low, 1e-12);
		assert_close(c.mean.p, d.mean.p, 1e-12);
	}
}

enum { SPREAD = 200 };
static double replicates[2][SPREAD][FINDINGS];

/* Both models' tables and resamples, whose images are in one order. */
static void resample_both(struct pair *p, struct auroc_table t[2])
{
	uint32_t labels[IMAGES], patient[IMAGES];

	for (int i = 0; i < IMAGES; i++) {
		p->sb[i] = p->sa[i];
		labels[i] = p->sa[i].labels;
		patient[i] = p->sa[i].patient;
	}
	for (int m = 0; m < 2; m++) {
		struct scores s = { .n = IMAGES, .classes = FINDINGS, .logits = m ? p->lb[0] : p->la[0], .labels = labels, .patient = patient };

		assert_int_equal(auroc_bootstrap(&s, SPREAD, 1, &t[m], replicates[m][0]), 0);
	}
}

static double spread_of(const struct paired *p)
{
	return few_spread(p->positive_patients < p->negative_patients ? p->positive_patients : p->negative_patients);
}

static void differences_are_spread_by_students_quantile(void **state)
{
	static double difference[SPREAD];
	struct auroc_table t[2];
	struct pair p;

	(void)state;
	draw(&p, 0.5);
	resample_both(&p, t);
	struct comparison c = compare(&p, SPREAD);

	for (int b = 0; b < SPREAD; b++)
		difference[b] = replicates[1][b][2] - replicates[0][b][2];
	struct interval plain = { .value = c.finding[2].difference.value };
	const double by = spread_of(&c.finding[2]);

	interval_set(&plain, difference, SPREAD);
	assert_true(by > 1.02);
	assert_close(c.finding[2].difference.se, by * plain.se, 1e-12);
	assert_close(c.finding[2].difference.low - plain.value, by * (plain.low - plain.value), 1e-12);
	assert_close(c.finding[2].difference.high - plain.value, by * (plain.high - plain.value), 1e-12);
}

/* One patient shows the second finding, and without that one a resample has no mean: the variance is as if the models erred on different patients, added
 * to what the others say about their own mean, and all lies about the estimate. */
static void what_resamples_do_not_tell_of_a_finding_widens_the_mean(void **state)
{
	double difference[SPREAD], mean = 0, variance = 0;
	struct auroc_table t[2];
	struct pair p;
	int n = 0;

	(void)state;
	draw(&p, 0.5);
	for (int i = 0; i < IMAGES; i++) {
		p.sa[i].labels |= (uint32_t)(i < REPEATS) << 3;
		p.la[i][3] = (float)(i < REPEATS ? 4 : i % 7);
		p.lb[i][3] = (float)(i < REPEATS ? 5 : i % 7);
	}
	resample_both(&p, t);
	struct comparison c = compare(&p, SPREAD);
	const struct interval *of = &c.finding[2].difference;

	for (int b = 0; b < SPREAD; b++) {
		double second = replicates[1][b][3] - replicates[0][b][3];

		if (isnan(second))
			continue;
		difference[n] = (of->value + spread_of(&c.finding[2]) * (replicates[1][b][2] - replicates[0][b][2] - of->value) + second) / 2;
		mean += difference[n++];
	}
	mean /= n;
	for (int b = 0; b < n; b++)
		variance += (difference[b] - mean) * (difference[b] - mean) / (n - 1);
	const double more = (t[0].rough[3].se * t[0].rough[3].se + t[1].rough[3].se * t[1].rough[3].se) / 4;
	struct interval all = { .value = c.mean.difference.value };

	for (int b = 0; b < n; b++)
		difference[b] = all.value + sqrt(1 + more / variance) * (difference[b] - mean);
	interval_set(&all, difference, (size_t)n);
	assert_int_equal(n, SPREAD - c.left_out);
	assert_true(more > 0 && fabs(all.value) > 0.01);
	assert_close(c.mean.difference.se, sqrt(variance + more), 1e-12);
	assert_close(c.mean.difference.low, all.low, 1e-12);
	assert_close(c.mean.difference.high, all.high, 1e-12);
	assert_true(isnan(c.mean.p_delong)); /* DeLong's test is of one finding */
}

/* The largest of rank-weighted p-values up to and including a finding's own. */
static void holms_correction_equals_its_definition(void **state)
{
	struct pair p;

	(void)state;
	for (int round = 0; round < 20; round++) {
		draw(&p, 0.5);
		for (int i = 0; i < IMAGES; i++)
			for (int f = 0; f < 4; f++) {
				if (f == 2)
					continue;
				p.sa[i].labels |= (p.sa[i].labels >> 2 & 1) << f;
				p.sb[i].labels |= (p.sb[i].labels >> 2 & 1) << f;
				p.la[i][f] = p.la[i][2] + (float)((f + 3) * normal());
				p.lb[i][f] = p.lb[i][2];
			}
		struct comparison c = compare(&p, 200);

		assert_int_equal(c.counted, 4);
		for (int f = 0; f < 4; f++) {
			double largest = 0;

			for (int g = 0; g < 4; g++) {
				double rank = 0;

				for (int h = 0; h < 4; h++)
					rank += c.finding[h].p < c.finding[g].p;
				if (c.finding[g].p <= c.finding[f].p)
					largest = fmax(largest, fmin(1, (4 - rank) * c.finding[g].p));
			}
			assert_close(c.finding[f].p_holm, largest, 1e-15);
		}
	}
}

/* Of two findings one has the smallest p that so many resamples can give, and the other twice as much: Holm's p is as large of both, but the true one of
 * the first may be smaller, and that of the other is its own p. One that says 1 is no bound. */
static void holms_p_is_a_bound_where_it_rests_on_one(void **state)
{
	enum { RESAMPLES = 40 };
	struct pair p;
	int found = 0;

	(void)state;
	for (int round = 0; round < 400 && !found; round++) {
		draw(&p, 3);
		for (int i = 0; i < IMAGES; i++) {
			int j = IMAGES - 1 - i;

			p.sa[i].labels |= (p.sa[i].labels >> 2 & 1) << 3;
			p.sb[j].labels = p.sa[i].labels;
			p.la[i][3] = p.la[i][2];
			p.lb[j][3] = (float)(p.lb[j][2] - 2 * (p.sa[i].labels >> 3 & 1));
		}
		struct comparison c = compare(&p, RESAMPLES);
		const struct paired *first = &c.finding[2], *other = &c.finding[3];

		assert_int_equal(c.tested, 2);
		if (!first->p_bound || other->p != 2 * first->p)
			continue;
		found = 1;
		assert_close(first->p, c.p_floor, 0);
		assert_close(first->p_holm, other->p_holm, 0);
		assert_true(first->p_holm_bound && !other->p_bound && !other->p_holm_bound);
	}
	assert_true(found);
	draw(&p, 3);
	for (int i = 0; i < IMAGES; i++)
		for (int f = 3; f < 8; f++) {
			p.sa[i].labels |= (p.sa[i].labels >> 2 & 1) << f;
			p.sb[i].labels |= (p.sb[i].labels >> 2 & 1) << f;
			p.la[i][f] = p.la[i][2];
			p.lb[i][f] = p.lb[i][2];
		}
	for (int resamples = 10; resamples <= 11; resamples++) { /* six times 2/11, and 2/12 */
		struct comparison c = compare(&p, resamples);

		for (int f = 2; f < 8; f++) {
			assert_true(c.finding[f].p_bound && !c.finding[f].p_holm_bound);
			assert_close(c.finding[f].p_holm, 1, 1e-15);
		}
	}
	struct comparison c = compare(&p, 12);

	assert_true(c.finding[2].p_holm_bound && c.finding[2].p_holm < 1);
}

static void a_p_value_is_never_shown_as_zero(void **state)
{
	static const struct {
		double p;
		int bound;
		const char *text;
	} cases[] = { { 1, 0, "1.000" }, { 0.042, 0, "0.042" }, { 0.0005, 0, "0.001" }, { 0.0004999, 0, "<0.001" }, { 2e-5, 1, "<0.001" }, { 0, 0, "<0.001" },
		      { 2.0 / 1001, 1, "<=0.002" }, { NAN, 0, "" }, { NAN, 1, "" } };
	char text[16];
	(void)state;

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_string_equal(p_text(cases[i].p, cases[i].bound, text), cases[i].text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(delongs_test_equals_its_definition),
		cmocka_unit_test(delongs_test_of_one_is_none),
		cmocka_unit_test(against_a_constant_the_published_standard_error_remains),
		cmocka_unit_test(resampling_patients_keeps_its_promise_where_delongs_test_cannot),
		cmocka_unit_test(a_better_model_is_found),
		cmocka_unit_test(a_model_does_not_differ_from_itself),
		cmocka_unit_test(only_shared_images_count_and_labels_and_patients_must_agree),
		cmocka_unit_test(an_interval_stays_within_what_a_difference_can_be),
		cmocka_unit_test(a_mean_counts_the_resamples_that_it_has),
		cmocka_unit_test(the_other_way_round_the_interval_is_the_other_way_round),
		cmocka_unit_test(differences_are_spread_by_students_quantile),
		cmocka_unit_test(what_resamples_do_not_tell_of_a_finding_widens_the_mean),
		cmocka_unit_test(a_p_value_is_never_shown_as_zero),
		cmocka_unit_test(holms_correction_equals_its_definition),
		cmocka_unit_test(holms_p_is_a_bound_where_it_rests_on_one),
	};

	omp_set_num_threads(1); /* small work: threads would only wait for each other */
	return cmocka_run_group_tests(tests, NULL, NULL);
}

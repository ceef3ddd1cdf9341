/* SPDX-License-Identifier: Apache-2.0
 * Ensembles: averages by hand, alignment by image, and what is refused. */
#include "tests/unit/test.h"

#include <math.h>

#include "learn/calibration_finding.h"
#include "learn/ensemble.h"

enum { MEMBERS = 3, IMAGES = 2 };

struct set {
	struct sample samples[MEMBERS][IMAGES];
	float logits[MEMBERS][IMAGES][FINDINGS];
	struct predictions p[MEMBERS];
	struct spread spread[IMAGES * FINDINGS];
	double alone[MEMBERS][FINDINGS];
};
static const char *const paths[] = { "one.csv", "two.csv", "three.csv" };

static float logit(double p)
{
	return (float)log(p / (1 - p));
}

/* Finding 3 of image x.png has probabilities 0.1, 0.2, 0.6; the last member lists its images backwards. */
static void make(struct set *s)
{
	static const double p[MEMBERS] = { 0.1, 0.2, 0.6 };

	memset(s, 0, sizeof *s);
	for (int m = 0; m < MEMBERS; m++) {
		for (int i = 0; i < IMAGES; i++) {
			int at = m == 2 ? 1 - i : i;

			strcpy(s->samples[m][at].id, i ? "y.png" : "x.png");
			s->samples[m][at].known = 0x3FFF;
			for (int f = 0; f < FINDINGS; f++)
				s->logits[m][at][f] = i == 0 && f == 3 ? logit(p[m]) : i ? 50 : 0;
		}
		s->p[m] = (struct predictions){ .n = IMAGES, .samples = s->samples[m], .logits = &s->logits[m][0][0] };
		strcpy(s->p[m].about.policy, "official");
	}
}

static void averages_by_hand(void **state)
{
	struct set s;
	struct predictions out;
	struct error e = { 0 };

	(void)state;
	make(&s);
	assert_int_equal(ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_PROBABILITIES, &e), 0);
	assert_close(1 / (1 + exp(-out.logits[3])), 0.3, 1e-7);
	assert_close(out.logits[0], 0, 0);
	assert_close(out.logits[FINDINGS], 50, 1e-5); /* not infinite, though 1 - p is below what a double near 1 can hold */
	assert_close(s.spread[3].sd, sqrt((0.04 + 0.01 + 0.09) / 2), 1e-7);
	assert_close(s.spread[3].low, 0.1, 1e-7);
	assert_close(s.spread[3].high, 0.6, 1e-7);
	assert_string_equal(out.about.policy, "official");
	assert_string_equal(out.samples[0].id, "x.png");
	struct spread_summary sum = spread_summarise(s.spread, out.n, 3);

	assert_close(sum.sd, sqrt(0.07) / 2, 1e-7);
	assert_close(sum.variation, sqrt(0.07) / 0.3 / 2, 1e-6);
	assert_close(sum.log_range, log(6) / 2, 1e-6);
	predictions_free(&out);

	assert_int_equal(ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_LOGITS, &e), 0);
	assert_close(out.logits[3], (log(1.0 / 9) + log(0.25) + log(1.5)) / 3, 1e-6);
	assert_close(s.spread[3].mean, 0.3, 1e-7);
	predictions_free(&out);
}

/* Scores that are far out, as another program's may be, are ranked all the same: at 700 exp() ends, and all above were one. */
static void logits_beyond_what_probabilities_tell_keep_their_order(void **state)
{
	static const float far[] = { 300, 800, 1e6f, 3e38f };
	double before = 0;

	(void)state;
	for (size_t k = 0; k < sizeof far / sizeof far[0]; k++) {
		struct set s;
		struct predictions out;
		struct error e = { 0 };

		make(&s);
		for (int m = 0; m < MEMBERS; m++)
			for (int f = 0; f < 2; f++)
				s.logits[m][m == 2][f] = (f ? -1 : 1) * far[k]; /* of x.png */
		s.logits[2][1][0] = s.logits[2][1][1] = 0;
		assert_int_equal(ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_PROBABILITIES, &e), 0);
		assert_close(out.logits[0], log(5), 1e-6); /* two of three are sure, the third tosses a coin */
		assert_close(out.logits[1], -log(5), 1e-6);
		predictions_free(&out);
		s.logits[2][1][0] = far[k];
		s.logits[2][1][1] = -far[k];
		assert_int_equal(ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_PROBABILITIES, &e), 0);
		assert_close(out.logits[0], far[k], 1e-6 * far[k]);
		assert_close(out.logits[1], -far[k], 1e-6 * far[k]);
		assert_true(out.logits[0] > before);
		before = out.logits[0];
		predictions_free(&out);
	}
}

static void one_member_that_saw_the_patients_is_enough(void **state)
{
	static const long cases[][4] = { { 0, 0, 0, 0 }, { 0, 5, 0, 5 }, { -1, 5, 9, 9 }, { 0, -1, 0, -1 }, { -1, -1, -1, -1 }, { 4, 0, -1, 4 }, { 0, 1, 0, 1 }, { 1, -1, 0, 1 } };

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct set s;
		struct predictions out;
		struct error e = { 0 };

		make(&s);
		for (int m = 0; m < MEMBERS; m++)
			s.p[m].about.leaked = cases[i][m];
		s.p[1].about.leaky = i & 1;
		assert_int_equal(ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_LOGITS, &e), 0);
		assert_int_equal(out.about.leaked, cases[i][3]);
		assert_int_equal(out.about.leaky, i & 1);
		predictions_free(&out);
	}
}

/* Whoever asks whether weights are among the members' must not be told no for want of a member's word. */
static void an_ensemble_knows_the_weights_of_all_members_or_none(void **state)
{
	(void)state;
	for (int silent = 0; silent <= MEMBERS; silent++) {
		struct set s;
		struct predictions out;
		struct error e = { 0 };

		make(&s);
		for (int m = 0; m < MEMBERS; m++)
			if (m != silent)
				snprintf(s.p[m].about.weights_hash, sizeof s.p[m].about.weights_hash, "000000000000000%d", m);
		assert_int_equal(ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_LOGITS, &e), 0);
		assert_string_equal(out.about.weights_hash, silent < MEMBERS ? "" : "0000000000000000,0000000000000001,0000000000000002");
		predictions_free(&out);
	}
}

/* Another program's file; all numbers of a model between 0 and 1 are no logits, unless they are all one: as of a model that has learnt nothing. */
static void a_member_with_probabilities_for_logits_is_refused(void **state)
{
	(void)state;
	for (int negative = 0; negative < 2; negative++) {
		struct set s;
		struct predictions out;
		struct error e = { 0 };

		make(&s);
		for (int i = 0; i < IMAGES; i++)
			for (int f = 0; f < FINDINGS; f++)
				s.logits[1][i][f] = i ? 0.7f : 0.1f;
		s.logits[1][1][13] = negative ? -0.1f : 0;
		s.logits[1][1][12] = 1;
		ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_LOGITS, &e);
		assert_string_equal(e.text, negative ? "" : "two.csv: every logit is between 0 and 1, as probabilities p are: write log(p / (1 - p)) in their place");
		predictions_free(&out);
	}
	assert_false(logits_like_probabilities((const float[]){ 0, 0, 0 }, 3));
	assert_false(logits_like_probabilities((const float[]){ 0, 1, 1.5f }, 3));
	assert_true(logits_like_probabilities((const float[]){ 0, 1, 1 }, 3));
}

/* Whatever the order of its images and the name of its file. */
static void a_model_that_is_there_twice_is_refused(void **state)
{
	(void)state;
	for (int last = 0; last < 2; last++) {
		struct set s;
		struct predictions out;
		struct error e = { 0 };

		make(&s);
		s.logits[2][1][3] = logit(0.2); /* x.png */
		s.logits[2][0][13] = last ? 50 : 49; /* y.png */
		ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_LOGITS, &e);
		assert_string_equal(e.text, last ? "three.csv: every logit is that of two.csv, and one model would count for two: leave it out, or train with another --seed" : "");
		assert_int_equal(e.code, last ? EXIT_DATA : 0);
		predictions_free(&out);
	}
}

static void weights_that_members_share_are_found(void **state)
{
	static const struct {
		const char *a, *b, *shared;
	} cases[] = { { "", "", NULL },
		      { "", "0000000000000001", NULL },
		      { "0000000000000001", "0000000000000001", "0000000000000001" },
		      { "0000000000000001", "0000000000000002", NULL },
		      { "0000000000000001,0000000000000002", "0000000000000003,0000000000000002", "0000000000000002" },
		      { "0000000000000002", "0000000000000001,0000000000000002", "0000000000000002" },
		      { "00", "0000000000000001", NULL } };

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct predictions a = { 0 }, b = { 0 };
		char hash[WEIGHTS_HASH];

		strcpy(a.about.weights_hash, cases[i].a);
		strcpy(b.about.weights_hash, cases[i].b);
		assert_int_equal(ensemble_share_weights(&a, &b, hash), cases[i].shared != NULL);
		if (cases[i].shared)
			assert_string_equal(hash, cases[i].shared);
	}
}

static void other_images_and_other_labels_are_refused(void **state)
{
	struct set s;
	struct predictions out;
	struct error e = { 0 };

	(void)state;
	for (int i = 0; i < IMAGES; i++) {
		make(&s);
		e = (struct error){ 0 };
		strcpy(s.samples[1][i].id, "z.png");
		assert_int_equal(ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_LOGITS, &e), -EXIT_DATA);
		assert_string_equal(e.text, i ? "two.csv: image y.png is missing; one.csv has it" : "two.csv: image x.png is missing; one.csv has it");
		predictions_free(&out);
	}

	make(&s);
	e = (struct error){ 0 };
	s.p[0].n = 1;
	assert_int_equal(ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_LOGITS, &e), -EXIT_DATA);
	assert_string_equal(e.text, "two.csv has 2 images, one.csv has 1: an ensemble needs the same");
	predictions_free(&out);

	make(&s);
	e = (struct error){ 0 };
	s.samples[2][0].labels = 1u << 13;
	assert_int_equal(ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_LOGITS, &e), -EXIT_DATA);
	assert_non_null(strstr(e.text, "Hernia is 0 in one.csv and 1 in three.csv"));
	predictions_free(&out);
}

static void labels_are_those_that_all_members_know(void **state)
{
	struct set s;
	struct predictions out;
	struct error e = { 0 };

	(void)state;
	make(&s);
	s.samples[2][1].known = 0x1FFF; /* x.png */
	s.samples[0][1].known = 0x3FFE; /* y.png */
	assert_int_equal(ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_LOGITS, &e), 0);
	assert_int_equal(out.samples[0].known, 0x1FFF);
	assert_int_equal(out.samples[1].known, 0x3FFE);
	predictions_free(&out);
}

/* Patients of whichever member names them, and those that name others are refused, also where the first member names none. */
static void patients_are_those_that_any_member_names(void **state)
{
	struct set s;
	struct predictions out;
	struct error e = { 0 };

	(void)state;
	make(&s);
	assert_int_equal(ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_LOGITS, &e), 0);
	assert_int_equal(out.has_patients, 0);
	predictions_free(&out);
	s.p[2].has_patients = 1;
	s.samples[2][1].patient = 7; /* x.png */
	s.samples[2][0].patient = 8;
	assert_int_equal(ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_LOGITS, &e), 0);
	assert_true(out.has_patients && out.samples[0].patient == 7 && out.samples[1].patient == 8);
	predictions_free(&out);
	s.p[1].has_patients = 1;
	s.samples[1][0].patient = 7;
	s.samples[1][1].patient = 9;
	assert_int_equal(ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_LOGITS, &e), -EXIT_DATA);
	assert_string_equal(e.text, "image y.png: of patient 9 in two.csv and of patient 8 in three.csv: these are predictions for different images");
	predictions_free(&out);
	e = (struct error){ 0 };
	s.p[0].has_patients = 1;
	assert_int_equal(ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_LOGITS, &e), -EXIT_DATA);
	assert_string_equal(e.text, "image x.png: of patient 0 in one.csv and of patient 7 in two.csv: these are predictions for different images");
	predictions_free(&out);
}

/* Labels that one member's file lacks judge no member: otherwise the first would be wrong once in six, and the ensemble never. */
static void members_are_judged_on_the_labels_of_the_ensemble(void **state)
{
	enum { N = 5 };
	struct sample samples[2][N] = { 0 };
	float logits[2][N][FINDINGS] = { 0 };
	struct predictions p[2] = { { .n = N, .samples = samples[0], .logits = &logits[0][0][0] }, { .n = N, .samples = samples[1], .logits = &logits[1][0][0] } }, out;
	struct spread spread[N * FINDINGS];
	double alone[2][FINDINGS];
	struct error e = { 0 };

	(void)state;
	for (int i = 0; i < N; i++) {
		for (int m = 0; m < 2; m++) { /* the second lists its images backwards */
			int at = m ? N - 1 - i : i;

			snprintf(samples[m][at].id, SAMPLE_ID, "%d.png", i);
			samples[m][at].labels = i < 2;
			samples[m][at].known = 0x3FFF;
			logits[m][at][0] = m ? 0 : (float)-i;
		}
	}
	logits[0][4][0] = -0.5f; /* between both positives */
	struct sample *unknown = &samples[1][0];

	assert_int_equal(ensemble_make(&out, spread, alone, p, paths, 2, ENSEMBLE_LOGITS, &e), 0);
	assert_close(alone[0][0], 5.0 / 6, 1e-12);
	assert_close(alone[1][0], 0.5, 0);
	assert_true(isnan(alone[0][1]));
	predictions_free(&out);
	unknown->known = 0x3FFE;
	assert_int_equal(ensemble_make(&out, spread, alone, p, paths, 2, ENSEMBLE_LOGITS, &e), 0);
	assert_close(alone[0][0], 1, 0);
	assert_close(alone[1][0], 0.5, 0);
	predictions_free(&out);
}

/* Pairs of a positive and a negative image, one after the other. */
static double pairs_won(const float *score, const int *positive, int n)
{
	double won = 0, pairs = 0;

	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++)
			if (positive[i] == 1 && positive[j] == 0) {
				won += score[i] > score[j] ? 1 : score[i] == score[j] ? 0.5 : 0;
				pairs++;
			}
	return won / pairs;
}

/* Three files in different orders, with labels missing here and there: everything that is said of an image is about that image. */
static void every_finding_of_every_image_is_counted_by_hand(void **state)
{
	enum { N = 41 };
	static const int stride[MEMBERS] = { 1, 7, 30 };
	static struct sample samples[MEMBERS][N];
	static float logits[MEMBERS][N][FINDINGS];
	struct predictions p[MEMBERS], out;
	struct spread spread[N * FINDINGS];
	double alone[MEMBERS][FINDINGS];
	struct error e = { 0 };
	uint32_t seed = 5;

	(void)state;
	for (int m = 0; m < MEMBERS; m++)
		p[m] = (struct predictions){ .n = N, .samples = samples[m], .logits = &logits[m][0][0] };
	for (int i = 0; i < N; i++) {
		uint32_t labels = (seed = seed * 1664525 + 1013904223) >> 12 & 0x3FFF;

		for (int m = 0; m < MEMBERS; m++) {
			int at = i * stride[m] % N;

			snprintf(samples[m][at].id, SAMPLE_ID, "%d.png", i);
			samples[m][at].known = 0x3FFF & ~(1u << ((seed = seed * 1664525 + 1013904223) >> 27));
			samples[m][at].labels = labels & samples[m][at].known;
			for (int f = 0; f < FINDINGS; f++)
				logits[m][at][f] = (float)((int)((seed = seed * 1664525 + 1013904223) >> 28) - 8) / 2;
		}
	}
	for (int average = 0; average < 2; average++) {
		assert_int_equal(ensemble_make(&out, spread, alone, p, paths, MEMBERS, average ? ENSEMBLE_LOGITS : ENSEMBLE_PROBABILITIES, &e), 0);
		for (int f = 0; f < FINDINGS; f++) {
			float score[MEMBERS][N];
			int positive[N];
			double sd = 0, variation = 0, range = 0;

			for (int i = 0; i < N; i++) {
				double z[MEMBERS], q[MEMBERS], pair = 0;
				const struct spread *x = &spread[i * FINDINGS + f];

				assert_string_equal(out.samples[i].id, samples[0][i].id);
				positive[i] = (int)(samples[0][i].labels >> f & 1);
				for (int m = 0; m < MEMBERS; m++) {
					int at = i * stride[m] % N;

					score[m][i] = logits[m][at][f];
					z[m] = score[m][i];
					q[m] = 1 / (1 + exp(-z[m]));
					if (!(samples[m][at].known >> f & 1))
						positive[i] = -1;
				}
				assert_int_equal(out.samples[i].known >> f & 1, positive[i] >= 0);
				if (positive[i] >= 0)
					assert_int_equal(out.samples[i].labels >> f & 1, positive[i]);
				double mean = (q[0] + q[1] + q[2]) / 3, said = average ? (z[0] + z[1] + z[2]) / 3 : log(mean / (1 - mean));

				assert_close(out.logits[i * FINDINGS + f], said, 1e-6);
				/* a variance is half the mean squared difference of two */
				for (int a = 0; a < MEMBERS; a++)
					for (int b = 0; b < a; b++)
						pair += (q[a] - q[b]) * (q[a] - q[b]) / 6;
				assert_close(x->mean, mean, 1e-12);
				assert_close(x->sd, sqrt(pair), 1e-12);
				assert_close(x->low, fmin(q[0], fmin(q[1], q[2])), 1e-12);
				assert_close(x->high, fmax(q[0], fmax(q[1], q[2])), 1e-12);
				sd += x->sd / N;
				variation += x->sd / mean / N;
				range += log(x->high / x->low) / N;
			}
			for (int m = 0; m < MEMBERS; m++)
				assert_close(alone[m][f], pairs_won(score[m], positive, N), 1e-12);
			struct spread_summary sum = spread_summarise(spread, N, f);

			assert_close(sum.sd, sd, 1e-12);
			assert_close(sum.variation, variation, 1e-12);
			assert_close(sum.log_range, range, 1e-12);
		}
		predictions_free(&out);
	}
}

/* What a reader of the averaged file is told about where it comes from: a word that is not true of all members is not said of them. */
static void where_an_ensemble_comes_from_is_true_of_all_members(void **state)
{
	struct set s;
	struct predictions out;
	struct error e = { 0 };

	(void)state;
	for (int odd = -1; odd < MEMBERS; odd++) {
		make(&s);
		for (int m = 0; m < MEMBERS; m++) {
			struct provenance *about = &s.p[m].about;
			const char *word = m == odd ? "another" : "one";

			for (size_t k = 0; k < 7; k++)
				strcpy((char *[]){ about->model, about->data, about->policy, about->trained_on, about->source, about->pos_weight, about->split }[k], word);
			if (m != 1)
				snprintf(about->checkpoint, sizeof about->checkpoint, "%d.safetensors", m);
		}
		assert_int_equal(ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_LOGITS, &e), 0);
		const struct provenance *about = &out.about;

		assert_string_equal(about->checkpoint, "average of 3: 0.safetensors two.csv 2.safetensors");
		assert_string_equal(about->version, HVD_VERSION);
		assert_string_equal(about->model, odd < 0 ? "one" : "several");
		assert_string_equal(about->data, odd < 0 ? "one" : "");
		assert_string_equal(about->policy, odd < 0 ? "one" : "several");
		assert_string_equal(about->trained_on, odd < 0 ? "one" : "several");
		assert_string_equal(about->source, odd < 0 ? "one" : "");
		assert_string_equal(about->pos_weight, odd < 0 ? "one" : "some members");
		assert_string_equal(about->split, odd < 0 ? "one" : "mixed");
		predictions_free(&out);
	}
	/* names that do not all fit are cut with a mark, and weights of which some do not fit are not named */
	for (int m = 0; m < MEMBERS; m++) {
		memset(s.p[m].about.checkpoint, 'c', sizeof s.p[m].about.checkpoint - 1);
		memset(s.p[m].about.weights_hash, 'a', m < 2 ? sizeof s.p[m].about.weights_hash / 2 - 1 : 1);
	}
	assert_int_equal(ensemble_make(&out, s.spread, s.alone, s.p, paths, MEMBERS, ENSEMBLE_LOGITS, &e), 0);
	assert_int_equal(strlen(out.about.checkpoint), sizeof out.about.checkpoint - 1);
	assert_string_equal(out.about.checkpoint + sizeof out.about.checkpoint - 5, "c…");
	assert_string_equal(out.about.weights_hash, "");
	predictions_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(averages_by_hand),
		cmocka_unit_test(logits_beyond_what_probabilities_tell_keep_their_order),
		cmocka_unit_test(every_finding_of_every_image_is_counted_by_hand),
		cmocka_unit_test(where_an_ensemble_comes_from_is_true_of_all_members),
		cmocka_unit_test(one_member_that_saw_the_patients_is_enough),
		cmocka_unit_test(labels_are_those_that_all_members_know),
		cmocka_unit_test(patients_are_those_that_any_member_names),
		cmocka_unit_test(members_are_judged_on_the_labels_of_the_ensemble),
		cmocka_unit_test(an_ensemble_knows_the_weights_of_all_members_or_none),
		cmocka_unit_test(a_member_with_probabilities_for_logits_is_refused),
		cmocka_unit_test(a_model_that_is_there_twice_is_refused),
		cmocka_unit_test(weights_that_members_share_are_found),
		cmocka_unit_test(other_images_and_other_labels_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

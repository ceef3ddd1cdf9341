/* SPDX-License-Identifier: Apache-2.0
 * What the report says: the measures, whose they are, and what the numbers cannot carry. */
#include "tests/unit/report_page.h"

#include <omp.h>

static void it_says_what_the_measures_say(void **state)
{
	struct predictions p = draw(900, 0);
	struct report_input in = input(&p);
	struct page page = make(&in);
	struct score_arrays a;
	struct auroc_table t;
	char text[128];

	(void)state;
	assert_sound(&page);
	assert_int_equal(predictions_scores(&p, &a), 0);
	assert_int_equal(auroc_bootstrap(&a.scores, in.resamples, in.seed, &t, NULL), 0);
	snprintf(text, sizeof text, "<div class=\"big\">%.3f</div>", t.mean.value);
	assert_present(page.text, text);
	snprintf(text, sizeof text, "interval <b>%.3f to %.3f</b>", t.mean.low, t.mean.high);
	assert_present(page.text, text);
	for (int f = 0; f < FINDINGS; f++) {
		snprintf(text, sizeof text, "%.3f <small>%.3f&#8211;%.3f</small>", t.class[f].value, t.class[f].low, t.class[f].high);
		assert_present(page.text, text);
		snprintf(text, sizeof text, "AUROC <span class=\"ka\">%.3f</span>", t.class[f].value);
		assert_present(page.text, text);
		snprintf(text, sizeof text, "<td class=\"n\">%zu<br><small>of %zu patients</small></td>", t.positives[f], t.positive_patients[f]);
		assert_present(page.text, text);
	}
	assert_present(page.text, "Pleural Thickening");
	assert_present(page.text, "<dd>300</dd>"); /* patients */
	assert_present(page.text, "Wilson's intervals of the images over their design effect");
	assert_present(page.text, "make less than 5: there the interval of an operating point or of a share of hits is Wilson's (1927), a band is no narrower, and an AUROC's is Newcombe's");
	assert_present(page.text, "Not looked at: the view (AP or PA), age, sex");
	assert_present(page.text, "at each rate of false alarms by itself");
	assert_present(page.text, "at each recall by itself");
	assert_present(page.text, "precision, the PPV");
	assert_present(page.text, "recall, the sensitivity");
	score_arrays_free(&a);
	free(page.text);
	predictions_free(&p);
}

static void it_warns_of_what_the_numbers_cannot_carry(void **state)
{
	static const char *const warnings[] = {
		"<b>Leak.</b> The model was trained on images of 7 patients", "Leak not checked", "Not NIH's official split", "Few patients", "Validation split.",
		"These are training images", "Too few to judge:", "Not part of the mean:", "No patients are named", "Synthetic images",
		"<b>Leak.</b> The model was trained on splits that share patients",
	};
	static const struct {
		long leaked;
		const char *policy, *split;
		size_t n;
		int empty, anonymous, leaky;
		unsigned expected; /* bit i: warnings[i] */
	} cases[] = {
		{ 0, "official", "test", 900, 0, 0, 0, 0 },
		{ 7, "official", "test", 900, 0, 0, 0, 1u << 0 },
		{ 7, "official", "test", 900, 0, 0, 1, 1u << 0 },
		{ 0, "official", "test", 900, 0, 0, 1, 1u << 10 },
		{ -1, "official", "test", 900, 0, 0, 0, 1u << 1 },
		{ -1, "official", "test", 900, 0, 0, 1, 1u << 1 | 1u << 10 },
		{ 0, "chexnet", "test", 900, 0, 0, 0, 1u << 2 },
		{ 0, "official", "val", 900, 0, 0, 0, 1u << 4 },
		{ 0, "official", "train", 900, 0, 0, 0, 1u << 5 },
		{ 0, "official", "test", 900, 2, 0, 0, 1u << 7 },
		{ 0, "official", "test", 900, 0, 1, 0, 1u << 8 },
		{ 0, "synthetic", "test", 60, 0, 0, 0, 1u << 3 | 1u << 6 | 1u << 9 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct predictions p = draw(cases[i].n, cases[i].empty);
		struct report_input in = input(&p);

		p.about.leaked = cases[i].leaked;
		p.about.leaky = cases[i].leaky;
		p.has_patients = !cases[i].anonymous;
		strcpy(p.about.policy, cases[i].policy);
		strcpy(p.about.split, cases[i].split);
		struct page page = make(&in);

		assert_sound(&page);
		for (size_t w = 0; w < sizeof warnings / sizeof warnings[0]; w++)
			if ((strstr(page.text, warnings[w]) != NULL) != (cases[i].expected >> w & 1))
				fail_msg("case %zu: \"%s\" is %s", i, warnings[w], cases[i].expected >> w & 1 ? "missing" : "there");
		free(page.text);
		predictions_free(&p);
	}
}

/* A mean of which nobody knows how sure it is looks as firm as any other. */
static void a_mean_without_an_interval_is_not_told_as_one_of_others(void **state)
{
	static const char unsure[] = "! no interval: too few patients, so on others it may be far off";

	(void)state;
	for (int few = 0; few < 2; few++) {
		struct predictions p = draw(few ? 12 : 900, 0);
		struct report_input in = input(&p);
		struct page page = make(&in);

		assert_int_equal(strstr(page.text, unsure) != NULL, few);
		assert_present(page.text, "Of two of these images, one with a finding and one without");
		free(page.text);
		predictions_free(&p);
	}
}

/* A program that looks at "leak" alone takes false for an all-clear. */
static void json_does_not_deny_a_leak_that_nobody_looked_for(void **state)
{
	(void)state;
	for (int leaky = 0; leaky < 2; leaky++)
		for (long leaked = -1; leaked <= 1; leaked++) {
			struct predictions p = draw(60, 0);
			struct report_input in = input(&p);
			struct page page = { 0 };
			struct error e = { 0 };
			char *json;

			p.about.leaked = leaked;
			p.about.leaky = leaky;
			assert_int_equal(report_make(&page, &json, &in, &e), 0);
			cJSON *o = cJSON_Parse(json), *leak = cJSON_GetObjectItem(o, "leak");

			assert_int_equal(cJSON_IsTrue(leak), leaked > 0 || leaky);
			assert_int_equal(cJSON_IsNull(leak), leaked < 0 && !leaky);
			assert_int_equal(cJSON_IsTrue(cJSON_GetObjectItem(o, "leak_checked")), leaked >= 0);
			cJSON_Delete(o);
			cJSON_free(json);
			free(page.text);
			predictions_free(&p);
		}
}

/* Nobody was trained, or chosen, on another data set's split, whatever its name. */
static void a_split_of_other_images_is_none_of_the_trainings(void **state)
{
	static const char *const splits[] = { "train", "val" }, *const says[] = { "These are training images", "The weights were chosen on these images" };

	(void)state;
	for (int s = 0; s < 2; s++)
		for (int other = 0; other < 2; other++) {
			struct predictions p = draw(60, 0);
			struct report_input in = input(&p);

			strcpy(p.about.split, splits[s]);
			strcpy(p.about.trained_on, other ? "synthetic" : "ChestX-ray14, labels of 2017");
			strcpy(p.about.source, "ChestX-ray14, labels of 2020");
			struct page page = make(&in);

			assert_int_equal(strstr(page.text, says[s]) != NULL, !other);
			assert_int_equal(strstr(page.text, "Other images than in training") != NULL, other);
			free(page.text);
			predictions_free(&p);
		}
}

static void labels_of_other_images_are_not_called_nih_s(void **state)
{
	static const char *const sources[] = { "", "ChestX-ray14, labels of 2020", "TFRecord, labels in named order" };

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct predictions p = draw(900, 0);
		struct report_input in = input(&p);

		strcpy(p.about.source, sources[i]);
		struct page page = make(&in);

		assert_int_equal(strstr(page.text, "The labels of ChestX-ray14 were mined") != NULL, i < 2);
		assert_present(page.text, "A model can be no better than the labels it is judged by.");
		free(page.text);
		predictions_free(&p);
	}
}

static void twelve_images_of_one_patient_are_few(void **state)
{
	struct predictions p = draw(900, 1);
	struct report_input in = input(&p);
	struct page page = { 0 };
	struct error e = { 0 };
	char *json;

	(void)state;
	for (size_t i = 0; i < 12; i++) { /* Hernia, which nobody else has */
		p.samples[i].patient = 0;
		p.samples[i].labels |= 1u << (FINDINGS - 1);
		p.logits[i * FINDINGS + FINDINGS - 1] = 9;
	}
	p.logits[20 * FINDINGS + FINDINGS - 1] = 10; /* one of 888 others */
	assert_int_equal(report_make(&page, &json, &in, &e), 0);
	assert_present(page.text, "<b>Too few to judge:</b> Hernia: fewer than 5 patients show it");
	assert_present(page.text, "of the resamples lack a finding and are no part of the mean's interval");
	assert_absent(page.text, "Few patients with it");
	assert_present(page.text, "Brier skill");
	assert_present(page.text, "mean of 13 findings"); /* a finding of one patient says nothing of probabilities */
	assert_absent(page.text, "percentage points");
	assert_absent(strstr(page.text, "<h2>Calibration"), "slope <span class=\"ka\">-");
	assert_present(page.text, "<td class=\"n soft\">0.999 <small>(too few)</small></td>");
	assert_present(strstr(page.text, "<tr class=\"mean\">"), "<small>(too few resamples left)</small>"); /* of 50, a third lack Hernia */
	const char *hernia = strstr(json, "\"Hernia\"");

	assert_non_null(hernia);
	assert_non_null(strstr(hernia, "\"positives\":\t12,"));
	assert_non_null(strstr(hernia, "\"positive_patients\":\t1,"));
	for (int i = 0; i < 3; i++) { /* neither of the AUROC, be it DeLong's, nor of average precision */
		static const char *const of[] = { "\"auroc\"", "\"auroc_delong\"", "\"average_precision\"" };
		const char *interval = strstr(hernia, of[i]);

		assert_non_null(interval);
		const char *low = strstr(interval, "\"low\":\t");

		assert_true(low && strncmp(low + 7, "null", 4) == 0);
	}
	free(json);
	free(page.text);
	predictions_free(&p);
}

/* One of the sections of curves: whether it has a panel of Atelectasis, and one of Mass, and which it names as missing. */
static void assert_panels(const char *page, const char *heading, int atelectasis, int mass, const char *missing)
{
	const char *begin = strstr(page, heading);

	assert_non_null(begin);
	char *section = strndup(begin, (size_t)(strstr(begin, "</section>") - begin));

	(atelectasis ? assert_present : assert_absent)(section, "<b>Atelectasis</b>");
	(mass ? assert_present : assert_absent)(section, "<b>Mass</b>");
	assert_present(section, missing);
	assert_present(section, "<b>Edema</b>");
	free(section);
}

/* Who has a finding, or has it not: whichever are fewer decide what is told of it, in every part of the page alike. */
static void few_on_either_side_are_judged_alike(void **state)
{
	static const char *const told[] = { "ece", "brier_low", "brier_skill", "observed_to_expected", "calibration_in_the_large", "calibration_slope", "calibration_intercept" };
	enum { MASS = 4 };

	(void)state;
	for (int rare = 0; rare < 2; rare++) {
		struct predictions p = draw(900, 1), q = draw(900, 1);
		struct report_input in = input(&p);
		struct page page = { 0 };
		struct error e = { 0 };
		char *json;

		for (size_t i = 0; i < p.n; i++) { /* patients have three images each: 4 show Atelectasis, or do not, and 9 Mass */
			uint32_t few = (uint32_t)(p.samples[i].patient < p.samples[12].patient) | (uint32_t)(p.samples[i].patient < p.samples[27].patient) << MASS;

			p.samples[i].labels = (p.samples[i].labels & ~(1u | 1u << MASS)) | ((rare ? few : ~few) & (1u | 1u << MASS));
			q.samples[i] = p.samples[i];
			p.logits[i * FINDINGS] = p.samples[i].labels & 1 ? 3 : -3;
			q.logits[i * FINDINGS] = -p.logits[i * FINDINGS];
		}
		in.other = &q;
		assert_int_equal(report_make(&page, &json, &in, &e), 0);
		assert_panels(page.text, "<h2>ROC curves", 0, 1, "or do not: Atelectasis, Hernia (fewer than 5).");
		assert_panels(page.text, "<h2>Precision and recall", 0, 1, "or do not: Atelectasis, Hernia (fewer than 5).");
		assert_panels(page.text, "<h2>Calibration", 0, 0, "or do not: Atelectasis, Mass, Hernia (fewer than 10).");
		assert_present(page.text, "<b>Few patients with it, or without it:</b> Mass: 5 to 9 patients each.");
		assert_present(page.text, rare ? "<td class=\"n\">12 <span class=\"warn\">!" : "<td class=\"n\">888 <span class=\"warn\">!");
		assert_present(page.text, rare ? "<td class=\"n\">27 <span class=\"warn\">!" : "<td class=\"n\">873 <span class=\"warn\">!");
		assert_present(page.text, "<td class=\"n soft\">-1.0000 <small>(too few)</small>");
		assert_present(strstr(page.text, "<h2>Is B better"), ">-1.0</text>"); /* the scale holds values without an interval too */
		assert_absent(page.text, ">-0.0</text>");
		for (int f = 0; f <= MASS; f += MASS) {
			const char *row = strstr(strstr(json, "\"findings\":\t{\n\t\t\"Atelectasis"), f ? "\"Mass\"" : "\"Atelectasis\"");

			for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
				char text[64];

				snprintf(text, sizeof text, "\"%s\":\tnull,", told[i]);
				assert_true(strstr(row, text) < strstr(row, "\"operating_points\""));
			}
			assert_true(strncmp(strstr(row, "\"brier\":\t"), "\"brier\":\tnull", 13));
		}
		free(json);
		free(page.text);
		predictions_free(&p);
		predictions_free(&q);
	}
}

/* The mean's interval allows for findings without one where there is an interval of the mean. */
static void no_interval_is_said_to_allow_for_anything_where_there_is_none(void **state)
{
	static const char too_few[] = "Such a value may be anything, so it has no interval and no curve", allows[] = "so it has no interval and no curve; the mean counts it as any other, and the mean's interval allows for it.";
	struct predictions p = draw(900, 0);
	struct report_input in = input(&p);

	(void)state;
	for (int first = FINDINGS - 1; first >= 0; first -= FINDINGS - 1) {
		for (size_t i = 0; i < p.n; i++) /* those from the first on are four patients' */
			p.samples[i].labels = (p.samples[i].labels & ((1u << first) - 1)) | (i < 12 ? 0x3FFFu << first & 0x3FFF : 0);
		struct page page = make(&in);

		assert_present(page.text, too_few);
		(first ? assert_present : assert_absent)(page.text, allows);
		(first ? assert_present : assert_absent)(page.text, "95&nbsp;% confidence interval <b>");
		free(page.text);
	}
	predictions_free(&p);
}

/* Another program's file, which has probabilities in the columns of logits. */
static void probabilities_in_the_place_of_logits_are_told(void **state)
{
	struct predictions p = draw(300, 0);
	struct report_input in = input(&p);

	(void)state;
	for (int probabilities = 0; probabilities < 2; probabilities++) {
		for (size_t i = 0; probabilities && i < p.n * FINDINGS; i++)
			p.logits[i] = 1 / (1 + expf(-p.logits[i]));
		struct page page = make(&in);

		(probabilities ? assert_present : assert_absent)(page.text, "<b>Probabilities for logits?</b>");
		free(page.text);
	}
	predictions_free(&p);
}

static void one_finding_is_no_plural(void **state)
{
	struct predictions p = draw(300, FINDINGS - 1);
	struct report_input in = input(&p);

	(void)state;
	struct page page = make(&in);

	assert_present(page.text, "chest X-rays: 1 finding</h1>");
	assert_absent(page.text, "1 findings");
	free(page.text);
	predictions_free(&p);
}

/* Of 300 patients, and nobody errs. */
static void a_perfect_ranking_is_not_called_one_of_few(void **state)
{
	struct predictions p = draw(900, 0);
	struct report_input in = input(&p);

	(void)state;
	for (size_t i = 0; i < p.n; i++)
		p.logits[i * FINDINGS] = (float)(uniform() + 2 * (p.samples[i].labels & 1));
	struct page page = make(&in);

	assert_present(page.text, "<td class=\"n\">1.000 <small>(all resamples agree)</small>");
	assert_absent(page.text, "(too few)");
	free(page.text);
	predictions_free(&p);
}

/* What is wrong with B is said like what is wrong with A. */
static void the_other_models_leak_and_split_are_told(void **state)
{
	struct predictions p = draw(900, 0), q = draw(900, 0);
	struct report_input in = input(&p);

	(void)state;
	compare_with(&in, &q);
	struct page page = make(&in);

	assert_absent(page.text, "Leak");
	assert_absent(page.text, "different splits");
	free(page.text);
	*q.about.policy = 0;
	page = make(&in);
	assert_present(page.text, "<b>Whether A and B come from the same split is not known:</b> A from test, policy official; B from test, policy not named.");
	assert_absent(page.text, "different splits");
	free(page.text);
	q.about.leaked = 7;
	strcpy(q.about.policy, "chexnet");
	page = make(&in);
	assert_sound(&page);
	assert_present(page.text, "<b>Leak.</b> The other model, B, was trained on images of 7 patients");
	assert_present(page.text, "Patients in training of B</dt><dd><span class=\"bad\">");
	assert_present(page.text, "<b>A and B come from different splits:</b> A from test, policy official; B from test, policy chexnet.");
	assert_present(page.text, "7 patients</span> were trained on");
	free(page.text);
	q.about.leaked = 1;
	page = make(&in);
	assert_present(page.text, "on images of 1 patient of this split");
	assert_present(page.text, "1 patient</span> was trained on");
	free(page.text);
	q.about.leaked = -1;
	page = make(&in);
	assert_present(page.text, "those that the other model, B, was trained on");
	free(page.text);
	for (size_t i = 0; i < q.n; i++)
		q.samples[i].known &= 0x1FFF; /* not Hernia */
	page = make(&in);
	assert_sound(&page);
	assert_int_equal(occurrences(strstr(page.text, ">Mean of 13<"), "<small>of those that both have</small>"), 2);
	assert_int_equal(occurrences(page.text, "; of B n/a\""), 1);
	assert_absent(page.text, "not of the same images");
	free(page.text);
	q.n -= 12;
	page = make(&in);
	assert_sound(&page);
	assert_present(page.text, "<b>A and B are not of the same images:</b> only A has 12, only B 0.");
	free(page.text);
	q.n += 12;
	in.predictions = &q;
	in.other = &p;
	page = make(&in);
	assert_sound(&page);
	assert_int_equal(occurrences(page.text, "AUROC of A n/a; of B 0."), 1);
	free(page.text);
	predictions_free(&p);
	predictions_free(&q);
}

/* The smallest p that so many resamples can give is a bound, but none of 0.000. */
static void no_p_is_zero(void **state)
{
	struct predictions p = draw(150, 0), q = draw(150, 0);
	struct report_input in = input(&p);

	(void)state;
	for (size_t i = 0; i < p.n * FINDINGS; i++)
		q.logits[i] = p.samples[i / FINDINGS].labels >> i % FINDINGS & 1 ? 1.0f + (float)uniform() : -(float)uniform();
	compare_with(&in, &q);
	for (in.resamples = 400; in.resamples <= 5000; in.resamples += 4600) {
		struct page page = make(&in);

		assert_present(page.text, in.resamples == 400 ? "<td class=\"n\">&#8804;&#8239;0.005</td>" : "<td class=\"n\">&lt;&#8239;0.001</td>");
		assert_present(page.text, "<td class=\"n\">&#8804;&#8239;0.0");
		assert_absent(page.text, "0.000</td>");
		assert_present(page.text, "Holm: corrected for the 14 findings tested.");
		free(page.text);
	}
	predictions_free(&p);
	predictions_free(&q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_says_what_the_measures_say),
		cmocka_unit_test(it_warns_of_what_the_numbers_cannot_carry),
		cmocka_unit_test(a_mean_without_an_interval_is_not_told_as_one_of_others),
		cmocka_unit_test(json_does_not_deny_a_leak_that_nobody_looked_for),
		cmocka_unit_test(a_split_of_other_images_is_none_of_the_trainings),
		cmocka_unit_test(labels_of_other_images_are_not_called_nih_s),
		cmocka_unit_test(twelve_images_of_one_patient_are_few),
		cmocka_unit_test(few_on_either_side_are_judged_alike),
		cmocka_unit_test(no_interval_is_said_to_allow_for_anything_where_there_is_none),
		cmocka_unit_test(probabilities_in_the_place_of_logits_are_told),
		cmocka_unit_test(one_finding_is_no_plural),
		cmocka_unit_test(a_perfect_ranking_is_not_called_one_of_few),
		cmocka_unit_test(the_other_models_leak_and_split_are_told),
		cmocka_unit_test(no_p_is_zero),
	};

	omp_set_num_threads(1); /* small work: threads would only wait for each other */
	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

/* SPDX-License-Identifier: Apache-2.0
 * Thresholds with a specificity, or a sensitivity, of 90 %: by their definition, and how often their intervals hold the truth. */
#include "tests/unit/report_page.h"

#include <omp.h>

#include "learn/curves.h"

static double normal(void)
{
	return sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform());
}

struct tally {
	double tp, fp, tn, fn;
};

static struct tally flag(const float *score, const uint32_t *label, size_t n, double threshold)
{
	struct tally t = { 0 };

	for (size_t i = 0; i < n; i++)
		*(score[i] >= threshold ? (label[i] ? &t.tp : &t.fp) : (label[i] ? &t.fn : &t.tn)) += 1;
	return t;
}

/* Tries every score as threshold. */
static void thresholds_equal_their_definition(void **state)
{
	enum { N = 150 };

	(void)state;
	printf("# seed %llu\n", (unsigned long long)random_state);
	for (int round = 0; round < 60; round++) {
		float score[N];
		uint32_t label[N];
		double least = INFINITY, greatest = -INFINITY;
		int levels = round % 3 == 0 ? 4 : round % 3 == 1 ? 30 : 100000;

		for (int i = 0; i < N; i++) {
			label[i] = i < 2 || (i > 3 && uniform() < 0.3);
			score[i] = (float)floor(levels * (uniform() + 0.4 * label[i]));
		}
		for (int i = 0; i < N; i++) {
			struct tally t = flag(score, label, N, score[i]);

			if (10 * t.tn >= 9 * (t.tn + t.fp) && score[i] < least)
				least = score[i];
			if (10 * t.tp >= 9 * (t.tp + t.fn) && score[i] > greatest)
				greatest = score[i];
		}
		struct scores s = { .n = N, .classes = 1, .logits = score, .labels = label };
		struct curves c;

		assert_int_equal(curves_of(&s, 0, 0, 1, &c), 0);
		for (int aim = 0; aim < AIMS; aim++) {
			struct tally t = flag(score, label, N, aim == AIM_SPECIFICITY ? least : greatest);

			assert_true(c.at[aim].threshold == (aim == AIM_SPECIFICITY ? least : greatest));
			assert_close(c.at[aim].sensitivity.value, t.tp / (t.tp + t.fn), 1e-12);
			assert_close(c.at[aim].specificity.value, t.tn / (t.tn + t.fp), 1e-12);
			assert_close(c.at[aim].npv.value, t.tn / (t.tn + t.fn), 1e-12);
			if (t.tp + t.fp > 0)
				assert_close(c.at[aim].ppv.value, t.tp / (t.tp + t.fp), 1e-12);
			else
				assert_true(isnan(c.at[aim].ppv.value));
		}
		curves_free(&c);
	}
}

static double quantile_of_normal(double share)
{
	double low = -12, high = 12;

	for (int i = 0; i < 60; i++) {
		double middle = (low + high) / 2;

		*(0.5 * erfc(-middle / sqrt(2)) < share ? &low : &high) = middle;
	}
	return low;
}

/* With few positives among many negatives, or the other way round. */
static void hold_the_truth(size_t few, int few_are_positive, double auroc)
{
	enum { ROUNDS = 200, MANY = 400 };
	static float score[MANY + 80];
	static uint32_t label[MANY + 80];
	double effect = quantile_of_normal(auroc) * sqrt(2), at = quantile_of_normal(0.9);
	double truth = 0.5 * erfc(-(effect - at) / sqrt(2)); /* of both: the curve is symmetric */
	int held[AIMS] = { 0 };

	for (int round = 0; round < ROUNDS; round++) {
		size_t n = few + MANY;

		for (size_t i = 0; i < n; i++) {
			label[i] = (i < few) == few_are_positive;
			score[i] = (float)(normal() + effect * label[i]);
		}
		struct scores s = { .n = n, .classes = 1, .logits = score, .labels = label };
		struct auroc_table t;
		struct curves c;

		assert_int_equal(auroc_bootstrap(&s, 40, (uint64_t)round, &t, NULL), 0);
		assert_int_equal(curves_of(&s, 0, 200, (uint64_t)round, &c), 0);
		curves_judge(&c, &t, 0);
		for (int aim = 0; aim < AIMS; aim++) {
			const struct interval *left = aim == AIM_SPECIFICITY ? &c.at[aim].sensitivity : &c.at[aim].specificity;

			held[aim] += left->low <= truth && truth <= left->high;
		}
		curves_free(&c);
	}
	printf("# %zu %s, truth %.3f: sensitivity %d, specificity %d of %d\n", few, few_are_positive ? "positives" : "negatives", truth, held[0], held[1], ROUNDS);
	assert_true(held[!few_are_positive] > 0.88 * ROUNDS && held[few_are_positive] > 0.85 * ROUNDS);
}

static void their_intervals_hold_the_truth(void **state)
{
	(void)state;
	printf("# seed %llu\n", (unsigned long long)random_state);
	for (int k = 0; k < 3; k++) {
		double auroc = k == 0 ? 0.7 : k == 1 ? 0.9 : 0.99;

		for (size_t positives = AIM_LEAST; positives <= 80; positives *= 2)
			hold_the_truth(positives, 1, auroc);
		hold_the_truth(AIM_LEAST, 0, auroc);
	}
}

static void the_report_shows_them_and_says_where_they_come_from(void **state)
{
	struct predictions p = draw(900, 1);
	struct report_input in = input(&p);
	struct page page = { 0 };
	struct error e = { 0 };
	char *json;

	(void)state;
	for (size_t i = 0; i < 57; i++) /* Hernia: of 19 patients */
		p.samples[i].labels |= 1u << (FINDINGS - 1);
	assert_int_equal(report_make(&page, &json, &in, &e), 0);
	assert_sound(&page);
	const char *section = strstr(page.text, "<h2>Operating points");

	assert_non_null(section);
	assert_present(section, "Not for findings that too few patients show, or do not: Hernia (fewer than 20).");
	assert_present(section, "chosen on the images that they are judged on");
	assert_present(section, "chexnet eval --split val --predictions FILE, and --thresholds FILE in this command");
	assert_present(section, "A threshold is n/a where too many images have the same probability");
	const char *hernia = strstr(json, "\"Hernia\""), *points = strstr(hernia, "\"operating_points\""), *edema = strstr(json, "\"Edema\"");

	assert_non_null(points);
	assert_non_null(strstr(points, "\"threshold\":\tnull"));
	assert_true(strstr(edema, "\"threshold\":\t0.") < hernia);
	free(json);
	free(page.text);
	predictions_free(&p);
}

/* The cell that begins at *at, and what is printed in it; *at is set behind it. */
static double cell(const char **at)
{
	const char *text = strchr(strstr(*at, "<td"), '>') + 1;

	*at = text;
	return strncmp(text, "n/a", 3) == 0 ? NAN : strtod(text, NULL);
}

/* Scores lie so near to each other that three digits of a threshold flag other images. */
static void what_a_printed_threshold_promises_it_does(void **state)
{
	struct predictions p = draw(9000, 0);
	struct report_input in = input(&p);
	struct page page = { 0 };
	struct error e = { 0 };
	char *json;
	int longer = 0;

	(void)state;
	in.resamples = 3;
	for (size_t i = 0; i < p.n * FINDINGS; i++) /* from probabilities of 1 in 10,000 to those near 1 */
		p.logits[i] = 3 * p.logits[i] + (float)(i % FINDINGS) - 2;
	assert_int_equal(report_make(&page, &json, &in, &e), 0);
	const char *section = strstr(page.text, "<h2>Operating points"), *object = json;

	for (int f = 0; f < FINDINGS; f++) {
		char title[32];

		snprintf(title, sizeof title, "scope=\"row\">%s", finding_names[f]);
		title[strcspn(title, "_")] = '\0';
		const char *at = strstr(section, title);

		object = strstr(object, "\"operating_points\"");
		for (int aim = 0; aim < AIMS; aim++) {
			double threshold = cell(&at), left, ppv, npv;
			int digits = (int)strcspn(at, "<");
			struct tally t = { 0 };

			left = cell(&at);
			ppv = cell(&at);
			npv = cell(&at);
			for (size_t i = 0; i < p.n; i++) {
				int positive = p.samples[i].labels >> f & 1, flagged = 1 / (1 + exp(-(double)p.logits[i * FINDINGS + (size_t)f])) >= threshold;

				*(flagged ? (positive ? &t.tp : &t.fp) : (positive ? &t.fn : &t.tn)) += 1;
			}
			assert_true(aim == AIM_SPECIFICITY ? 10 * t.tn >= 9 * (t.tn + t.fp) : 10 * t.tp >= 9 * (t.tp + t.fn));
			assert_close(left, aim == AIM_SPECIFICITY ? t.tp / (t.tp + t.fn) : t.tn / (t.tn + t.fp), 0.0005001);
			assert_close(ppv, t.tp / (t.tp + t.fp), 0.0005001);
			assert_close(npv, t.tn / (t.tn + t.fn), 0.0005001);
			object = strstr(object, "\"threshold\"");
			object += strlen("\"threshold\":\t");
			assert_close(strtod(object, NULL), threshold, 0); /* one number in both */
			longer += digits > (threshold < 0.1 ? 6 : 5);
		}
	}
	printf("# %d of %d thresholds need more than three digits\n", longer, FINDINGS * AIMS);
	assert_true(longer > FINDINGS);
	free(json);
	free(page.text);
	predictions_free(&p);
}

static double logit(double p)
{
	return log(p / (1 - p));
}

/* One score for all images: nothing can be flagged at a specificity of 90 %; and no number parts probabilities that are one to double precision. */
static void a_threshold_that_no_probability_says_is_none(void **state)
{
	struct predictions p = draw(900, 0);
	struct report_input in = input(&p);
	struct page page = { 0 };
	struct error e = { 0 };
	char *json;

	(void)state;
	for (size_t i = 0; i < p.n; i++)
		p.logits[i * FINDINGS] = 1;
	assert_int_equal(report_make(&page, &json, &in, &e), 0);
	const char *at = strstr(strstr(page.text, "<h2>Operating points"), "scope=\"row\">Atelectasis"), *point = strstr(json, "\"specificity_90\"");

	assert_true(isnan(cell(&at)));
	assert_int_equal(strncmp(strstr(point, "\"threshold\""), "\"threshold\":\tnull", 17), 0);
	point = strstr(json, "\"sensitivity_90\"");
	assert_int_equal(strncmp(strstr(point, "\"threshold\""), "\"threshold\":\t0.731", 18), 0);
	free(json);
	free(page.text);
	predictions_free(&p);
	int digits;

	assert_true(isnan(operating_probability(&(struct operating_point){ .threshold = 41, .below = 40 }, &digits)));
	assert_close(operating_probability(&(struct operating_point){ .threshold = 0, .below = -INFINITY }, &digits), 0.5, 0);
	assert_int_equal(digits, 3);
	assert_close(operating_probability(&(struct operating_point){ .threshold = logit(0.00178056), .below = logit(0.001779) }, &digits), 0.00178, 0);
	assert_int_equal(digits, 3);
	assert_close(operating_probability(&(struct operating_point){ .threshold = logit(0.00178056), .below = logit(0.0017803) }, &digits), 0.0017805, 0);
	assert_int_equal(digits, 5);
	assert_close(operating_probability(&(struct operating_point){ .threshold = logit(0.50034), .below = 0 }, &digits), 0.5003, 0); /* 0.500 flags both */
	assert_int_equal(digits, 4);
}

/* ---- thresholds that other patients chose ------------------------------------------------------------ */

/* As draw(), of other patients. */
static struct predictions draw_others(size_t n, int empty)
{
	struct predictions p = draw(n, empty);

	for (size_t i = 0; i < n; i++) {
		snprintf(p.samples[i].id, SAMPLE_ID, "other-%08zu.png", i);
		p.samples[i].patient += 1000000;
	}
	strcpy(p.about.split, "val");
	return p;
}

/* The head of the section's table: what each of its two rows names. */
static void assert_heads(const char *section, const char *groups, const char *columns)
{
	const char *body = strstr(section, "<tbody>");
	char named[2][512] = { "", "" };

	for (const char *at = section; (at = strstr(at, "<th scope=\"col")) && at < body; at++) {
		char *of = named[strncmp(at, "<th scope=\"colgroup", 19) != 0];
		const char *text = strchr(at, '>') + 1;

		sprintf(of + strlen(of), "%.*s|", (int)strcspn(text, "<"), text);
	}
	assert_string_equal(named[0], groups);
	assert_string_equal(named[1], columns);
}

/* The cell's value and below it "part/whole". */
static void assert_counts(const char *text, double part, double whole)
{
	char expected[80], shown[80] = "";
	double low, high;

	snprintf(expected, sizeof expected, "%.3f<br><small>%.0f/%.0f</small>", part / whole, part, whole);
	assert_int_equal(sscanf(text, "%*f<br><small>%lf&#8211;%lf<br>", &low, &high), 2);
	assert_true(low <= part / whole + 0.0005 && part / whole - 0.0005 <= high && low < high);
	const char *interval = strstr(text, "<small>") + 7, *count = strstr(interval, "<br>") + 4;

	for (size_t n = 0; *text && strncmp(text, "</td>", 5) != 0 && n + 1 < sizeof shown; text = text + 1 == interval ? count : text + 1)
		if (*text != ',')
			shown[n++] = *text;
	assert_string_equal(shown, expected);
}

static void thresholds_of_others_are_judged_as_they_are_printed(void **state)
{
	struct predictions judged = draw(3000, 0), others = draw_others(2400, 1);
	struct report_input in = input(&judged), theirs = input(&others);
	struct page page = { 0 }, page_of_theirs = make(&theirs);
	struct error e = { 0 };
	char *json;

	(void)state;
	in.thresholds = &others;
	in.thresholds_path = "val.csv";
	assert_int_equal(report_make(&page, &json, &in, &e), 0);
	assert_sound(&page);
	const char *section = strstr(page.text, "<h2>Operating points"), *chosen = strstr(page_of_theirs.text, "<h2>Operating points");

	assert_present(section, "chosen on 2,400 other images of 800 patients (split val), and none of their patients is judged here");
	assert_heads(section, "Chosen for a specificity of 90&nbsp;%|Chosen for a sensitivity of 90&nbsp;%|",
		     "Finding|Threshold|Sensitivity|Specificity|PPV|NPV|Threshold|Sensitivity|Specificity|PPV|NPV|");
	assert_heads(chosen, "Specificity of 90&nbsp;%|Sensitivity of 90&nbsp;%|", "Finding|Threshold|Sensitivity|PPV|NPV|Threshold|Specificity|PPV|NPV|");
	assert_present(section, "Hernia (fewer than 20 where thresholds were chosen)");
	assert_absent(section, "flatters");
	assert_present(chosen, "give this file to its report as --thresholds");
	assert_present(page.text, "whichever are fewer (of the thresholds that were chosen on others: with it for a sensitivity, without it for a specificity), times");
	assert_present(page_of_theirs.text, "whichever are fewer, times");
	assert_present(page.text, "<dt>Thresholds chosen on</dt><dd><code>val.csv");
	assert_non_null(strstr(json, "\"thresholds_chosen_on\":\t{\n\t\t\"predictions\":\t\"val.csv\",\n\t\t\"split\":\t\"val\",\n\t\t\"images\":\t2400,\n\t\t\"patients\":\t800"));
	for (int f = 0; f < FINDINGS - 1; f++) {
		char title[32];

		snprintf(title, sizeof title, "scope=\"row\">%s", finding_names[f]);
		title[strcspn(title, "_")] = '\0';
		const char *at = strstr(section, title), *from = strstr(chosen, title);

		for (int aim = 0; aim < AIMS; aim++) {
			double threshold = cell(&at);
			struct tally t = { 0 };

			assert_close(threshold, cell(&from), 0);
			for (int column = 0; column < 3; column++)
				cell(&from);
			for (size_t i = 0; i < judged.n; i++) {
				int positive = judged.samples[i].labels >> f & 1, flagged = 1 / (1 + exp(-(double)judged.logits[i * FINDINGS + (size_t)f])) >= threshold;

				*(flagged ? (positive ? &t.tp : &t.fp) : (positive ? &t.fn : &t.tn)) += 1;
			}
			assert_close(cell(&at), t.tp / (t.tp + t.fn), 0.0005001);
			assert_int_equal(strncmp(at + 5, "<br><small>", 11), 0);
			assert_close(cell(&at), t.tn / (t.tn + t.fp), 0.0005001);
			assert_int_equal(strncmp(at + 5, "<br><small>", 11), 0);
			cell(&at);
			assert_counts(at, t.tp, t.tp + t.fp);
			cell(&at);
			assert_counts(at, t.tn, t.tn + t.fn);
		}
	}
	free(json);
	free(page.text);
	free(page_of_theirs.text);
	predictions_free(&judged);
	predictions_free(&others);
}

/* Too few patients is a count, and of labels that nobody knows there is none. */
static void a_finding_that_the_choosing_file_has_no_labels_of_is_not_called_rare(void **state)
{
	struct predictions judged = draw(3000, 0), others = draw_others(2400, 1);
	struct report_input in = input(&judged);
	struct page page = { 0 };
	struct error e = { 0 };

	(void)state;
	for (size_t i = 0; i < others.n; i++)
		others.samples[i].known &= ~2u;
	in.thresholds = &others;
	in.thresholds_path = "val.csv";
	assert_int_equal(report_make(&page, NULL, &in, &e), 0);
	const char *section = strstr(page.text, "<h2>Operating points");

	assert_present(section, "show, or do not: Hernia (fewer than 20 where thresholds were chosen).</p>");
	assert_present(section, "<p class=\"lead\">Not for findings of which no label is known where thresholds were chosen: Cardiomegaly.</p>");
	free(page.text);
	predictions_free(&judged);
	predictions_free(&others);
}

/* Three images a patient, all with one score: intervals that took them for independent would hold the truth in three rounds of four. */
static void intervals_of_a_given_threshold_hold_the_truth(void **state)
{
	enum { ROUNDS = 200, NEGATIVES = 300, IMAGES = 3 };
	static float score[IMAGES * (NEGATIVES + 80)];
	static uint32_t label[IMAGES * (NEGATIVES + 80)], patient[IMAGES * (NEGATIVES + 80)];

	(void)state;
	for (int positives = 5; positives <= 80; positives *= 4)
		for (int k = 0; k < 3; k++) {
			struct operating_point given = { .threshold = 1, .below = -INFINITY };
			int digits, held[4] = { 0 };
			double effect = quantile_of_normal(k == 0 ? 0.6 : k == 1 ? 0.9 : 0.98) + 1, at = logit(operating_probability(&given, &digits));
			double truth[4] = { 0.5 * erfc((at - effect) / sqrt(2)), 1 - 0.5 * erfc(at / sqrt(2)) };
			size_t n = IMAGES * ((size_t)positives + NEGATIVES);
			double right[2] = { positives * truth[0], NEGATIVES * truth[1] };

			truth[2] = right[0] / (right[0] + NEGATIVES * (1 - truth[1]));
			truth[3] = right[1] / (right[1] + positives * (1 - truth[0]));
			for (int round = 0; round < ROUNDS; round++) {
				struct operating_point judged = given;

				for (size_t i = 0; i < n; i++) {
					patient[i] = (uint32_t)(i / IMAGES);
					label[i] = patient[i] < (uint32_t)positives;
					score[i] = i % IMAGES ? score[i - 1] : (float)(normal() + effect * label[i]);
				}
				struct scores s = { .n = n, .classes = 1, .logits = score, .labels = label, .patient = patient };

				assert_int_equal(operating_judge(&judged, &s, 0, 200, (uint64_t)round), 0);
				const struct interval *const given_are[4] = { &judged.sensitivity, &judged.specificity, &judged.ppv, &judged.npv };

				for (int m = 0; m < 4; m++)
					held[m] += given_are[m]->low <= truth[m] && truth[m] <= given_are[m]->high;
			}
			printf("# %d positive patients, sensitivity %.3f: %d, specificity %.3f: %d, PPV %.3f: %d, NPV %.3f: %d of %d\n", positives, truth[0], held[0], truth[1], held[1], truth[2], held[2],
			       truth[3], held[3], ROUNDS);
			for (int m = 0; m < 4; m++)
				assert_true(held[m] > 0.88 * ROUNDS);
		}
}

static void without_patients_enough_a_given_threshold_has_no_interval(void **state)
{
	const float score[] = { 2, 2, 2, -2, 3, -3, -3, -3 };
	const uint32_t label[] = { 1, 1, 1, 1, 0, 0, 0, 0 };
	struct scores s = { .n = 8, .classes = 1, .logits = score, .labels = label };
	struct operating_point at = { .threshold = 0, .below = -INFINITY }, none = { .threshold = 41, .below = 40 };

	(void)state;
	assert_int_equal(operating_judge(&at, &s, 0, 100, 1), 0);
	assert_close(at.threshold, 0, 0);
	assert_close(at.sensitivity.value, 0.75, 0);
	assert_close(at.ppv.value, 0.75, 0);
	assert_true(isnan(at.sensitivity.low) && isnan(at.specificity.high));
	assert_int_equal(operating_judge(&none, &s, 0, 100, 1), 0);
	assert_true(isnan(none.sensitivity.value) && isnan(none.specificity.value) && isnan(none.ppv.value) && isnan(none.npv.value));
	static const float nine[] = { 2, 2, 2, -2, -2, 3, -3, -3, -3 };
	static const uint32_t five[2][9] = { { 0, 0, 0, 0, 0, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1, 0, 0, 0, 0 } }, known[] = { 1, 1, 1, 0, 1, 0, 1, 1, 1 };

	for (int show = 0; show < 2; show++) { /* five do not, or do */
		s = (struct scores){ .n = 9, .classes = 1, .logits = nine, .labels = five[show] };
		assert_int_equal(operating_judge(&at, &s, 0, 100, 1), 0);
		assert_int_equal(isnan(at.sensitivity.low), !show);
		assert_int_equal(isnan(at.specificity.low), show);
		assert_true(isnan(at.ppv.low) && !isnan(at.npv.low)); /* four are flagged, and five are not */
	}
	s.known = known;
	assert_int_equal(operating_judge(&at, &s, 0, 100, 1), 0);
	assert_close(at.sensitivity.value, 0.75, 0);
	assert_close(at.specificity.value, 1, 0);
}

/* An image whose probability is the threshold is flagged: of these a threshold of 0.5 flags all but one that show the finding, and one that does not. */
static void an_image_at_the_threshold_is_flagged(void **state)
{
	const float score[] = { 0, 0, 0, 1, -1, -1, -1, -2, -3, 0 };
	const uint32_t label[] = { 1, 1, 1, 1, 1, 0, 0, 0, 0, 0 };
	struct scores s = { .n = 10, .classes = 1, .logits = score, .labels = label };
	struct operating_point at = { .threshold = 0, .below = -1 };
	int digits;

	(void)state;
	assert_close(operating_probability(&at, &digits), 0.5, 0);
	assert_int_equal(operating_judge(&at, &s, 0, 100, 1), 0);
	assert_close(at.sensitivity.value, 0.8, 1e-12);
	assert_close(at.specificity.value, 0.8, 1e-12);
	assert_close(at.ppv.value, 0.8, 1e-12);
}

static void a_threshold_takes_20_patients_with_the_finding_and_20_without_it(void **state)
{
	enum { MANY = 60 };
	float score[MANY + AIM_LEAST];
	uint32_t label[MANY + AIM_LEAST];

	(void)state;
	for (int few = AIM_LEAST - 1; few <= AIM_LEAST; few++)
		for (int side = 0; side < 2; side++) {
			struct scores s = { .n = (size_t)(MANY + few), .classes = 1, .logits = score, .labels = label };
			struct auroc_table t;
			struct curves c;

			for (int i = 0; i < MANY + few; i++) {
				label[i] = (i < few) == side;
				score[i] = (float)(normal() + label[i]);
			}
			assert_int_equal(auroc_bootstrap(&s, 40, 1, &t, NULL), 0);
			assert_int_equal(curves_of(&s, 0, 40, 1, &c), 0);
			curves_judge(&c, &t, 0);
			assert_int_equal(isnan(c.at[AIM_SPECIFICITY].threshold), few < AIM_LEAST);
			assert_int_equal(isnan(c.at[AIM_SENSITIVITY].specificity.low), few < AIM_LEAST);
			assert_false(isnan(c.average_precision.low) || isnan(c.roc.low[50]));
			t.class[0].low = NAN; /* no interval of the AUROC, none of the others, either */
			curves_judge(&c, &t, 0);
			assert_true(isnan(c.average_precision.low) && isnan(c.roc.low[50]) && isnan(c.pr.high[50]));
			curves_free(&c);
		}
}

static void refuses(const struct report_input *in, const char *why)
{
	struct page page = { 0 };
	struct error e = { 0 };

	assert_int_equal(report_make(&page, NULL, in, &e), -EXIT_DATA);
	if (!strstr(e.text, why))
		fail_msg("%s, not: %s", why, e.text);
	free(page.text);
}

static void thresholds_of_the_same_patients_or_of_another_model_are_refused(void **state)
{
	struct predictions judged = draw(300, 0), others = draw_others(300, 0);
	struct report_input in = input(&judged);

	(void)state;
	in.thresholds = &others;
	in.thresholds_path = "val.csv";
	others.samples[17].patient = judged.samples[30].patient;
	refuses(&in, "patient 10 is in a.csv and in val.csv");
	others.samples[17].patient = others.samples[18].patient;
	for (size_t i = 0; i < 300; i += 299) { /* one image of one patient, the first or the last */
		uint32_t before = judged.samples[i].patient, theirs = others.samples[299 - i].patient;

		judged.samples[i].patient = others.samples[299 - i].patient = 5000;
		refuses(&in, "patient 5000 is in a.csv and in val.csv");
		judged.samples[i].patient = before;
		others.samples[299 - i].patient = theirs;
	}
	others.has_patients = 0; /* then only images tell */
	struct page page = make(&in);

	assert_present(page.text, "chosen on 300 other images (split val); whether of other patients, the files do not say");
	free(page.text);
	others.samples[17] = judged.samples[30];
	refuses(&in, "a.csv and val.csv have 1 image in common");
	strcpy(judged.about.weights_hash, "0123456789abcdef");
	strcpy(others.about.weights_hash, "0123456789abcdee");
	refuses(&in, "a.csv and val.csv come from different weights");
	*judged.about.weights_hash = '\0'; /* another program's file does not say */
	refuses(&in, "have 1 image in common");
	strcpy(judged.about.weights_hash, "0123456789abcdef");
	*others.about.weights_hash = '\0';
	refuses(&in, "have 1 image in common");
	strcpy(others.about.weights_hash, judged.about.weights_hash);
	strcpy(judged.about.crops, "ten");
	refuses(&in, "a.csv and val.csv were not scored with the same --crops, and a threshold is of one way to score: chexnet eval --crops=ten for both");
	strcpy(others.about.crops, "some members"); /* of an ensemble: to score all of it with ten is no other way than before */
	refuses(&in, "a threshold is of one way to score: chexnet eval --crops=ten for all members of both");
	predictions_free(&judged);
	predictions_free(&others);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(thresholds_equal_their_definition),
		cmocka_unit_test(their_intervals_hold_the_truth),
		cmocka_unit_test(the_report_shows_them_and_says_where_they_come_from),
		cmocka_unit_test(what_a_printed_threshold_promises_it_does),
		cmocka_unit_test(a_threshold_that_no_probability_says_is_none),
		cmocka_unit_test(thresholds_of_others_are_judged_as_they_are_printed),
		cmocka_unit_test(a_finding_that_the_choosing_file_has_no_labels_of_is_not_called_rare),
		cmocka_unit_test(intervals_of_a_given_threshold_hold_the_truth),
		cmocka_unit_test(without_patients_enough_a_given_threshold_has_no_interval),
		cmocka_unit_test(an_image_at_the_threshold_is_flagged),
		cmocka_unit_test(a_threshold_takes_20_patients_with_the_finding_and_20_without_it),
		cmocka_unit_test(thresholds_of_the_same_patients_or_of_another_model_are_refused),
	};

	omp_set_num_threads(1); /* small work: threads would only wait for each other */
	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

/* SPDX-License-Identifier: Apache-2.0
 * The report's figures, counted again from the predictions by their definitions. */
#include "tests/unit/report_page.h"

#include <cjson/cJSON.h>

static double number_of(const cJSON *object, const char *name, const char *part)
{
	const cJSON *x = cJSON_GetObjectItemCaseSensitive(object, name);

	x = part ? cJSON_GetObjectItemCaseSensitive(x, part) : x;
	assert_non_null(x);
	return cJSON_IsNumber(x) ? x->valuedouble : NAN;
}

/* A finding's images with a known label. */
struct shown {
	int n, positive[400], patient[400];
	double z[400], p[400];
};

/* AUROC and its standard error from the shares of the others that each image wins against (DeLong 1988), over all pairs. */
static double area(const struct shown *s, double *se)
{
	double sum[2] = { 0 }, square[2] = { 0 }, count[2] = { 0 }, variance = 0;

	for (int i = 0; i < s->n; i++)
		count[s->positive[i]]++;
	for (int i = 0; i < s->n; i++) {
		double won = 0;

		for (int j = 0; j < s->n; j++)
			if (s->positive[i] != s->positive[j])
				won += (s->z[i] > s->z[j] ? 1 : s->z[i] == s->z[j] ? 0.5 : 0) / count[s->positive[j]];
		sum[s->positive[i]] += won;
		square[s->positive[i]] += won * won;
	}
	for (int k = 0; k < 2; k++)
		variance += (square[k] - sum[k] * sum[k] / count[k]) / (count[k] - 1) / count[k];
	*se = sqrt(variance);
	return sum[1] / count[1];
}

/* The share of positives among the images with an image's score or more, of all positives on average. */
static double mean_precision(const struct shown *s)
{
	double mean = 0, positives = 0;

	for (int i = 0; i < s->n; i++) {
		double above[2] = { 0 };

		for (int j = 0; j < s->n; j++)
			above[s->positive[j]] += s->z[j] >= s->z[i];
		mean += s->positive[i] * above[1] / (above[0] + above[1]);
		positives += s->positive[i];
	}
	return mean / positives;
}

static void check_calibration(const cJSON *row, const struct shown *s)
{
	double bin[15] = { 0 }, brier = 0, ece = 0, share = 0, a = number_of(row, "calibration_intercept", NULL), b = number_of(row, "calibration_slope", NULL), rest[2] = { 0 };
	double patient[134][2] = { { 0 } }, h[3] = { 0 }, variance[2] = { 0 }, spread = 1.959964, expected = 0, level = number_of(row, "calibration_in_the_large", NULL), raised = 0;
	static const char *const intervals[] = { "brier", "brier_skill", "observed_to_expected", "calibration_in_the_large" };
	uint32_t images[2][134] = { { 0 } };

	for (int i = 0; i < s->n; i++) {
		double q = 1 / (1 + exp(-a - b * s->z[i])), left = s->positive[i] - q;

		for (int k = 0; k < 3; k++)
			h[k] += q * (1 - q) * pow(s->z[i], k);
		images[s->positive[i]][s->patient[i]]++;
		patient[s->patient[i]][0] += left;
		patient[s->patient[i]][1] += left * s->z[i];

		bin[(int)(s->p[i] * 15)] += (s->positive[i] - s->p[i]) / s->n;
		brier += (s->positive[i] - s->p[i]) * (s->positive[i] - s->p[i]) / s->n;
		share += (double)s->positive[i] / s->n;
		expected += s->p[i];
		raised += 1 / (1 + exp(-level - s->z[i]));
		rest[0] += left;
		rest[1] += left * s->z[i];
	}
	for (int k = 0; k < 15; k++)
		ece += fabs(bin[k]);
	assert_close(number_of(row, "ece", NULL), ece, 1e-9);
	assert_true(number_of(row, "ece_by_chance", NULL) > 0);
	assert_close(number_of(row, "brier", NULL), brier, 1e-9);
	assert_close(number_of(row, "brier_skill", NULL), 1 - brier / (share * (1 - share)), 1e-9);
	assert_close(number_of(row, "observed_to_expected", NULL), share * s->n / expected, 1e-9);
	assert_close(raised, share * s->n, 1e-6);
	for (size_t k = 0; k < sizeof intervals / sizeof intervals[0]; k++) {
		char low[48], high[48];

		snprintf(low, sizeof low, "%s_low", intervals[k]);
		snprintf(high, sizeof high, "%s_high", intervals[k]);
		assert_true(number_of(row, low, NULL) < number_of(row, intervals[k], NULL) && number_of(row, intervals[k], NULL) < number_of(row, high, NULL));
	}
	assert_close(rest[0], 0, 1e-6); /* what makes the likelihood greatest */
	assert_close(rest[1], 0, 1e-6);
	for (int i = 0; i < 134; i++) { /* what leaving this patient out would move the slope, and the intercept, by */
		variance[0] += pow((h[0] * patient[i][1] - h[1] * patient[i][0]) / (h[0] * h[2] - h[1] * h[1]), 2);
		variance[1] += pow((h[2] * patient[i][0] - h[1] * patient[i][1]) / (h[0] * h[2] - h[1] * h[1]), 2);
	}
	spread *= few_spread((size_t)fmin(patients_effective(images[0], 134), patients_effective(images[1], 134)));
	assert_close(number_of(row, "calibration_slope_low", NULL), b - spread * sqrt(variance[0]), 1e-5);
	assert_close(number_of(row, "calibration_slope_high", NULL), b + spread * sqrt(variance[0]), 1e-5);
	assert_close(number_of(row, "calibration_intercept_low", NULL), a - spread * sqrt(variance[1]), 1e-5);
	assert_close(number_of(row, "calibration_intercept_high", NULL), a + spread * sqrt(variance[1]), 1e-5);
}

static int check_operating(const cJSON *row, const struct shown *s, const char *table)
{
	static const char *const names[] = { "specificity_90", "sensitivity_90" }, *const beside[] = { "sensitivity", "specificity" };
	char cells[240];
	int points = 0;

	for (int k = 0; k < 2; k++) {
		const cJSON *point = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(row, "operating_points"), names[k]);
		double threshold = number_of(point, "threshold", NULL), n[2][2] = { { 0 } }; /* [flagged][positive] */

		if (isnan(threshold))
			continue;
		for (int i = 0; i < s->n; i++)
			n[s->p[i] >= threshold][s->positive[i]]++;
		assert_close(number_of(point, "sensitivity", "value"), n[1][1] / (n[1][1] + n[0][1]), 1e-12);
		assert_close(number_of(point, "specificity", "value"), n[0][0] / (n[0][0] + n[1][0]), 1e-12);
		assert_close(number_of(point, "ppv", NULL), n[1][1] / (n[1][1] + n[1][0]), 1e-12);
		assert_close(number_of(point, "npv", NULL), n[0][0] / (n[0][0] + n[0][1]), 1e-12);
		assert_close(number_of(point, "true_positives", NULL), n[1][1], 0);
		assert_close(number_of(point, "false_positives", NULL), n[1][0], 0);
		assert_close(number_of(point, "true_negatives", NULL), n[0][0], 0);
		snprintf(cells, sizeof cells, "<td class=\"n\">%.3f<br><small>%.3f&#8211;%.3f</small></td><td class=\"n\">%.3f<br><small>%.0f/%.0f</small></td><td class=\"n\">%.3f<br><small>%.0f/%.0f</small></td>",
			 number_of(point, beside[k], "value"), number_of(point, beside[k], "low"), number_of(point, beside[k], "high"), n[1][1] / (n[1][1] + n[1][0]), n[1][1],
			 n[1][1] + n[1][0], n[0][0] / (n[0][0] + n[0][1]), n[0][0], n[0][0] + n[0][1]);
		assert_present(table, cells);
		assert_close(number_of(point, "false_negatives", NULL), n[0][1], 0);
		assert_true(number_of(point, k ? "sensitivity" : "specificity", "value") >= 0.9);
		points++;
	}
	return points;
}

/* What a paper takes over from report.json: of the right finding, of the images whose label is known, under the right name. */
static void every_figure_in_the_json_is_counted_again(void **state)
{
	struct predictions p = draw(400, 0);
	struct report_input in = input(&p);
	struct page page = { 0 };
	struct error e = { 0 };
	char *text;
	double mean = 0, skill = 0;
	int points = 0;

	(void)state;
	for (size_t i = 0; i < p.n; i++) {
		p.samples[i].known = 0x3FFF & ~(1u << (i * 5 % 31));
		p.samples[i].labels &= p.samples[i].known;
		for (int f = 0; f < FINDINGS; f++) /* some scores come more than once */
			p.logits[i * FINDINGS + (size_t)f] = roundf(p.logits[i * FINDINGS + (size_t)f] * 50) / 50;
	}
	assert_int_equal(report_make(&page, &text, &in, &e), 0);
	cJSON *json = cJSON_Parse(text);

	for (int f = 0; f < FINDINGS; f++) {
		const cJSON *row = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(json, "findings"), finding_names[f]);
		struct shown s = { 0 };
		int positives = 0, patients = 0;
		double se;
		char cell[192];

		assert_non_null(row);
		for (size_t i = 0; i < p.n; i++) {
			if (!(p.samples[i].known >> f & 1))
				continue;
			s.positive[s.n] = (int)(p.samples[i].labels >> f & 1);
			s.z[s.n] = p.logits[i * FINDINGS + (size_t)f];
			s.p[s.n] = 1 / (1 + exp(-s.z[s.n]));
			s.patient[s.n] = (int)(i / 3);
			positives += s.positive[s.n];
			int earlier = 0;

			for (size_t j = i / 3 * 3; j < i; j++) /* three images a patient */
				earlier |= (int)(p.samples[j].labels >> f & 1);
			patients += s.positive[s.n] && !earlier;
			s.n++;
		}
		double auroc = area(&s, &se);

		assert_close(number_of(row, "positives", NULL), positives, 0);
		assert_close(number_of(row, "positive_patients", NULL), patients, 0);
		assert_close(number_of(row, "negatives", NULL), s.n - positives, 0);
		assert_close(number_of(row, "auroc", "value"), auroc, 1e-12);
		assert_close(number_of(row, "auroc_delong", "value"), auroc, 1e-12);
		assert_close(number_of(row, "auroc_delong", "se"), se, 1e-12);
		assert_close(number_of(row, "average_precision", "value"), mean_precision(&s), 1e-12);
		assert_true(number_of(row, "auroc", "low") < auroc && auroc < number_of(row, "auroc", "high"));
		check_calibration(row, &s);
		snprintf(cell, sizeof cell, "<td class=\"n\">%.3f <small>%.3f to %.3f</small></td><td class=\"n\">%+.3f <small>%+.3f to %+.3f</small></td></tr>", number_of(row, "brier", NULL),
			 number_of(row, "brier_low", NULL), number_of(row, "brier_high", NULL), number_of(row, "brier_skill", NULL), number_of(row, "brier_skill_low", NULL),
			 number_of(row, "brier_skill_high", NULL));
		assert_present(strstr(page.text, "<h2>Calibration"), cell);
		snprintf(cell, sizeof cell, "<td class=\"n soft\">%.1f&nbsp;%%<br><small>of %d</small></td>", 100.0 * positives / s.n, s.n); /* not of all 400 */
		assert_present(page.text, cell);
		points += check_operating(row, &s, strstr(page.text, "<h2>Operating points"));
		mean += auroc / FINDINGS;
		skill += number_of(row, "brier_skill", NULL) / FINDINGS;
	}
	assert_present(page.text, "Share: of the images whose label is known, which all the finding's numbers are of.");
	assert_true(points > FINDINGS);
	assert_close(number_of(json, "images", NULL), (double)p.n, 0);
	assert_close(number_of(json, "patients", NULL), 134, 0);
	assert_close(number_of(json, "counted", NULL), FINDINGS, 0);
	assert_close(number_of(json, "mean_auroc", "value"), mean, 1e-12);
	assert_close(number_of(json, "mean_brier_skill", NULL), skill, 1e-12);
	assert_true(number_of(json, "mean_brier_skill_low", NULL) < skill && skill < number_of(json, "mean_brier_skill_high", NULL));
	assert_close(number_of(json, "mean_brier_skill_of", NULL), FINDINGS, 0);
	cJSON_Delete(json);
	free(text);
	free(page.text);
	predictions_free(&p);
}

/* ---- patients and groups ---------------------------------------------------------------------------- */

/* Image i's row: of men where i is odd, one year older with each image, two of three AP; image 9 has none, image 10 does not tell. */
static void open_table(struct nih *table, struct predictions *p)
{
	struct error e = { 0 };
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs("Image Index,Finding Labels,Patient ID,Patient Age,Patient Gender,View Position\n", f);
	for (size_t i = 0; i < p->n; i++) {
		snprintf(p->samples[i].id, SAMPLE_ID, "%08u_%03zu.png", p->samples[i].patient, i % 3);
		if (i == 10)
			fprintf(f, "%s,No Finding,%u,414,,\n", p->samples[i].id, p->samples[i].patient);
		else if (i != 9)
			fprintf(f, "%s,No Finding,%u,%zu,%s,%s\n", p->samples[i].id, p->samples[i].patient, i % 80, i % 2 ? "M" : "F", i % 3 ? "AP" : "PA");
	}
	fclose(f);
	if (nih_open_tables(table, path, NULL, NULL, &e))
		fail_msg("%s", e.text);
}

static int in_group(const char *column, const char *name, size_t i)
{
	static const char *const ages[] = { "0-17", "18-39", "40-64", "65-" };
	static const size_t low[] = { 0, 18, 40, 65, 80 };

	if (i == 9 || i == 10)
		return 0;
	for (int k = 0; k < 4; k++)
		if (strcmp(name, ages[k]) == 0)
			return i % 80 >= low[k] && i % 80 < low[k + 1];
	return strcmp(name, strcmp(column, "sex") ? i % 3 ? "AP" : "PA" : i % 2 ? "male" : "female") == 0;
}

static void check_group(const cJSON *group, const char *column, const struct predictions *p)
{
	double images = 0, patients = 0, mean = 0, counted = 0, se;
	uint32_t last = UINT32_MAX;

	for (size_t i = 0; i < p->n; i++)
		if (in_group(column, group->string, i)) {
			images++;
			patients += p->samples[i].patient != last;
			last = p->samples[i].patient;
		}
	assert_close(number_of(group, "images", NULL), images, 0);
	assert_close(number_of(group, "patients", NULL), patients, 0);
	for (int f = 0; f < FINDINGS; f++) {
		const cJSON *row = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(group, "findings"), finding_names[f]);
		struct shown s = { 0 };
		int positives = 0;

		for (size_t i = 0; i < p->n; i++) {
			if (!in_group(column, group->string, i) || !(p->samples[i].known >> f & 1))
				continue;
			s.positive[s.n] = (int)(p->samples[i].labels >> f & 1);
			positives += s.positive[s.n];
			s.z[s.n++] = p->logits[i * FINDINGS + (size_t)f];
		}
		assert_close(number_of(row, "positives", NULL), positives, 0);
		assert_close(number_of(row, "negatives", NULL), s.n - positives, 0);
		if (positives && positives < s.n) {
			assert_close(number_of(row, "auroc", "value"), area(&s, &se), 1e-12);
			mean += number_of(row, "auroc", "value");
			counted++;
		}
	}
	assert_close(number_of(group, "counted", NULL), counted, 0);
	assert_close(number_of(group, "mean_auroc", "value"), mean / counted, 1e-12);
}

/* The page's rows of a column of the table: of every finding, in every group, what the JSON says. */
static void check_rows(const char *page, const cJSON *column)
{
	const cJSON *group;

	for (int f = 0; f < FINDINGS; f++) {
		char row[1024];
		int n = snprintf(row, sizeof row, "<tr><th scope=\"row\">%s</th>", finding_names[f]);

		for (char *c = row; *c; c++)
			*c = *c == '_' ? ' ' : *c;
		cJSON_ArrayForEach(group, column) {
			const cJSON *of = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(group, "findings"), finding_names[f]);
			double low = number_of(of, "auroc", "low"), positives = number_of(of, "positives", NULL), patients = number_of(of, "positive_patients", NULL);

			n += snprintf(row + n, sizeof row - (size_t)n, "<td class=\"n\">%.0f", positives);
			if (patients < positives)
				n += snprintf(row + n, sizeof row - (size_t)n, "<br><small>of %.0f patient%s</small>", patients, patients == 1 ? "" : "s");
			n += snprintf(row + n, sizeof row - (size_t)n, "</td><td class=\"n%s\">%.3f <small>", isnan(low) ? " soft" : "", number_of(of, "auroc", "value"));
			n += isnan(low) ? snprintf(row + n, sizeof row - (size_t)n, "(too few)</small></td>") :
					  snprintf(row + n, sizeof row - (size_t)n, "%.3f&#8211;%.3f</small></td>", low, number_of(of, "auroc", "high"));
		}
		snprintf(row + n, sizeof row - (size_t)n, "</tr>\n");
		assert_present(page, row);
	}
}

static void patients_and_findings_of_every_group_are_counted_again(void **state)
{
	struct predictions p = draw(400, 0);
	struct nih table;
	struct report_input in = input(&p);
	struct page page = { 0 };
	struct error e = { 0 };
	char *text;
	int groups = 0;
	const cJSON *column, *group;

	(void)state;
	open_table(&table, &p);
	in.table = &table;
	for (size_t i = 0; i < p.n; i++) {
		p.samples[i].known = 0x3FFF & ~(1u << (i * 5 % 31));
		p.samples[i].labels &= p.samples[i].known;
	}
	assert_int_equal(report_make(&page, &text, &in, &e), 0);
	cJSON *json = cJSON_Parse(text);

	cJSON_ArrayForEach(column, cJSON_GetObjectItemCaseSensitive(json, "groups")) {
		cJSON_ArrayForEach(group, column) {
			check_group(group, column->string, &p);
			groups++;
		}
		check_rows(page.text, column);
	}
	assert_int_equal(groups, 8);
	assert_sound(&page);
	assert_present(page.text, "Not told: sex of 2 images, age of 2 images, view of 2 images.");
	assert_present(page.text, "<th scope=\"row\">Female</th><td class=\"n\">132</td><td class=\"n\">199</td><td class=\"n soft\">49.8&nbsp;%</td>");
	assert_present(page.text, "<tr><td></td><th scope=\"colgroup\" class=\"n\" colspan=\"2\">Female</th><th scope=\"colgroup\" class=\"n\" colspan=\"2\">Male</th></tr>");
	assert_present(page.text, "<li>Not looked at: the time between images.");
	assert_present(page.text, "no difference between groups is tested here");
	cJSON_Delete(json);
	free(text);
	free(page.text);
	nih_close(&table);
	predictions_free(&p);
}

static void a_table_of_other_images_is_refused(void **state)
{
	struct predictions p = draw(30, 0);
	struct nih table;
	struct report_input in = input(&p);
	struct page page = { 0 };
	struct error other = { 0 }, none = { 0 };

	(void)state;
	open_table(&table, &p);
	in.table = &table;
	p.samples[4].patient = 77;
	assert_int_equal(report_make(&page, NULL, &in, &other), -EXIT_DATA);
	assert_non_null(strstr(other.text, "image 00000001_001.png: of patient 77 in a.csv and of patient 1 in "));
	for (size_t i = 0; i < p.n; i++)
		p.samples[i].id[0] = 'x';
	assert_int_equal(report_make(&page, NULL, &in, &none), -EXIT_DATA);
	assert_non_null(strstr(none.text, "has no row for any image of a.csv"));
	nih_close(&table);
	predictions_free(&p);
}

/* ---- the seed --------------------------------------------------------------------------------------- */

static cJSON *json_of(const struct report_input *in)
{
	struct page page = { 0 };
	struct error e = { 0 };
	char *text, said[64];

	assert_int_equal(report_make(&page, &text, in, &e), 0);
	snprintf(said, sizeof said, "\t\"seed\":\t%llu,", (unsigned long long)in->seed);
	assert_non_null(strstr(text, said));
	cJSON *json = cJSON_Parse(text);

	free(text);
	free(page.text);
	return json;
}

/* The lower end of what lies behind such names, the last of which is NULL. */
static double low_of(const cJSON *at, const char *const *names)
{
	for (; *names; names++)
		at = cJSON_GetObjectItemCaseSensitive(at, *names);
	return number_of(at, "low", NULL);
}

/* All of them, of A, of B's difference from it, of groups, and of thresholds that others chose. */
static void every_interval_goes_by_the_seed_that_the_json_names(void **state)
{
	static const uint64_t seeds[] = { 1, 2, UINT64_MAX };
	static const char *const names[][5] = {
		{ "mean_auroc" }, { "findings", "Mass", "auroc" }, { "findings", "Mass", "average_precision" },
		{ "findings", "Mass", "operating_points", "specificity_90", "sensitivity" }, { "findings", "Mass", "operating_points", "sensitivity_90", "specificity" },
		{ "comparison", "mean" }, { "comparison", "findings", "Mass" }, { "groups", "sex", "male", "mean_auroc" },
	};
	struct predictions p = draw(400, 0), q = draw(400, 0), others = draw(400, 0);
	struct report_input in = input(&p);
	struct nih table;
	struct score_arrays a;
	cJSON *json[2][3];

	(void)state;
	open_table(&table, &p);
	compare_with(&in, &q);
	in.table = &table;
	for (size_t i = 0; i < others.n; i++)
		others.samples[i].patient += 1000000;
	in.thresholds_path = "val.csv";
	for (int chosen = 0; chosen < 2; chosen++)
		for (int k = 0; k < 3; k++) {
			in.thresholds = chosen ? &others : NULL;
			in.seed = seeds[k];
			json[chosen][k] = json_of(&in);
		}
	assert_int_equal(predictions_scores(&p, &a), 0);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		for (int k = 0; k < 3; k++)
			for (int chosen = 0; chosen < 2; chosen++) {
				const char *to[6] = { names[i][0], names[i][1], names[i][2], names[i][3], names[i][4] };
				double one = low_of(json[chosen][k], to);

				if (isnan(one) || one == low_of(json[chosen][(k + 1) % 3], to))
					fail_msg("%s %s %s is not by the seed", to[0], to[1] ? to[1] : "", to[2] ? to[2] : "");
			}
	for (int k = 0; k < 3; k++) {
		struct auroc_table t;

		assert_int_equal(auroc_bootstrap(&a.scores, in.resamples, seeds[k], &t, NULL), 0);
		assert_close(low_of(json[0][k], (const char *const[]){ "mean_auroc", NULL }), t.mean.low, 1e-12);
	}
	for (int k = 0; k < 6; k++)
		cJSON_Delete(json[k / 3][k % 3]);
	score_arrays_free(&a);
	nih_close(&table);
	predictions_free(&p);
	predictions_free(&q);
	predictions_free(&others);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_figure_in_the_json_is_counted_again),
		cmocka_unit_test(patients_and_findings_of_every_group_are_counted_again),
		cmocka_unit_test(a_table_of_other_images_is_refused),
		cmocka_unit_test(every_interval_goes_by_the_seed_that_the_json_names),
	};
	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

/* SPDX-License-Identifier: Apache-2.0
 * Who the images are of: how many patients of which sex, age and view, and what the model is worth in each group (CLAIM 2024). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "learn/log.h"
#include "prepare/shortcuts.h"
#include "report/parts.h"

/* Where low <= shortcut_value() < high, and an image of which it is not told is in none. */
static const struct {
	enum shortcut column;
	const char *name, *title;
	float low, high;
} groups[REPORT_GROUPS] = {
	{ SHORTCUT_SEX, "female", "Female", 0, 1 },
	{ SHORTCUT_SEX, "male", "Male", 1, 2 },
	{ SHORTCUT_AGE, "0-17", "0&#8211;17 years", 0, 18 },
	{ SHORTCUT_AGE, "18-39", "18&#8211;39 years", 18, 40 },
	{ SHORTCUT_AGE, "40-64", "40&#8211;64 years", 40, 65 },
	{ SHORTCUT_AGE, "65-", "65 years and more", 65, INFINITY },
	{ SHORTCUT_VIEW, "PA", "PA view", 0, 1 },
	{ SHORTCUT_VIEW, "AP", "AP view", 1, 2 },
};

/* ---- the numbers ------------------------------------------------------------------------------------ */

static int look_up(const struct report_input *in, struct nih_facts *facts, struct error *e)
{
	const struct predictions *p = in->predictions;
	size_t found = 0;

	for (size_t i = 0; i < p->n; i++) {
		const struct nih_image *row = nih_find(in->table, p->samples[i].id);

		if (row && p->has_patients && row->sample.patient != p->samples[i].patient)
			return fail(e, EXIT_DATA, "image %s: of patient %u in %s and of patient %u in %s: these are different images", p->samples[i].id, p->samples[i].patient,
				    in->path, row->sample.patient, in->table->table);
		facts[i] = row ? row->facts : (struct nih_facts){ .age = -1, .follow_up = -1 };
		found += row != NULL;
	}
	if (!found)
		return fail(e, EXIT_DATA, "%s: has no row for any image of %s", in->table->table, in->path);
	return 0;
}

/* part: has room for all the predictions. */
static int measure_group(struct report *r, int group, const struct nih_facts *facts, struct predictions *part)
{
	const struct predictions *p = r->in->predictions;
	struct score_arrays arrays;

	part->n = 0;
	for (size_t i = 0; i < p->n; i++) {
		float value = shortcut_value(&facts[i], groups[group].column);

		if (!(value >= groups[group].low && value < groups[group].high))
			continue;
		part->samples[part->n] = p->samples[i];
		memcpy(part->logits + part->n * FINDINGS, p->logits + i * FINDINGS, FINDINGS * sizeof *p->logits);
		part->n++;
	}
	r->group[group].images = part->n;
	if (predictions_scores(part, &arrays))
		return -1;
	int rc = auroc_bootstrap(&arrays.scores, r->in->resamples, r->in->seed, &r->group[group].table, NULL);

	score_arrays_free(&arrays);
	return rc;
}

int report_measure_groups(struct report *r, struct error *e)
{
	const struct predictions *p = r->in->predictions;
	struct predictions part = { .samples = malloc(p->n * sizeof *part.samples), .logits = malloc(p->n * FINDINGS * sizeof *part.logits), .has_patients = p->has_patients };
	struct nih_facts *facts = malloc(p->n * sizeof *facts);

	if (!part.samples || !part.logits || !facts)
		fail(e, EXIT_INTERNAL, "no memory for the groups of %zu images", p->n);
	else
		look_up(r->in, facts, e);
	for (int g = 0; g < REPORT_GROUPS && !e->code; g++)
		if (measure_group(r, g, facts, &part))
			fail(e, EXIT_INTERNAL, "no memory for the groups of %zu images", p->n);
	predictions_free(&part);
	free(facts);
	return e->code ? -e->code : 0;
}

void report_groups_json(const struct report *r, cJSON *o)
{
	const int named = r->in->predictions->has_patients;

	for (int g = 0; g < REPORT_GROUPS; g++) {
		const char *column = shortcut_names[groups[g].column];
		const struct report_group *of = &r->group[g];
		cJSON *list = cJSON_GetObjectItemCaseSensitive(o, column);
		cJSON *x = cJSON_AddObjectToObject(list ? list : cJSON_AddObjectToObject(o, column), groups[g].name);

		json_number(x, "images", (double)of->images);
		json_number(x, "patients", named ? (double)of->table.patients : NAN);
		json_number(x, "counted", of->table.counted);
		json_interval(x, "mean_auroc", &of->table.mean);
		cJSON *findings = cJSON_AddObjectToObject(x, "findings");
		for (int f = 0; f < FINDINGS; f++) {
			cJSON *y = cJSON_AddObjectToObject(findings, finding_names[f]);

			json_number(y, "positives", (double)of->table.positives[f]);
			json_number(y, "positive_patients", named ? (double)of->table.positive_patients[f] : NAN);
			json_number(y, "negatives", (double)of->table.negatives[f]);
			json_interval(y, "auroc", &of->table.class[f]);
		}
	}
}

/* ---- the tables ------------------------------------------------------------------------------------- */

static void put_number(struct page *page, size_t n)
{
	page_put(page, "<td class=\"n\">");
	page_count(page, n);
	page_put(page, "</td>");
}

static void put_group(const struct report *r, struct page *page, const char *title, size_t images, const struct auroc_table *t)
{
	page_put(page, "<tr><th scope=\"row\">%s</th>", title);
	if (r->in->predictions->has_patients)
		put_number(page, t->patients);
	put_number(page, images);
	page_put(page, "<td class=\"n soft\">%.1f&nbsp;%%</td>", 100 * (double)images / (double)r->in->predictions->n);
	report_value(page, &t->mean, report_no_mean(t));
	page_put(page, "<td class=\"n soft\">%d</td></tr>\n", t->counted);
}

static void put_patients(const struct report *r, struct page *page)
{
	report_table(page, "Patients and images by sex, age and view", "narrow");
	page_put(page, "<tr><td></td>%s<th scope=\"col\" class=\"n\">Images</th><th scope=\"col\" class=\"n\">Share</th><th scope=\"col\" class=\"n\">Mean AUROC</th>"
		       "<th scope=\"col\" class=\"n\">of findings</th></tr></thead><tbody>\n", r->in->predictions->has_patients ? "<th scope=\"col\" class=\"n\">Patients</th>" : "");
	put_group(r, page, "All", r->in->predictions->n, &r->a.table);
	for (int g = 0; g < REPORT_GROUPS; g++)
		put_group(r, page, groups[g].title, r->group[g].images, &r->group[g].table);
	page_put(page, "%s", report_table_end);
}

/* The groups of one column of the label table beside each other. */
static void put_column(const struct report *r, struct page *page, enum shortcut column)
{
	static const char *const captions[SHORTCUTS] = { [SHORTCUT_VIEW] = "Findings by view", [SHORTCUT_AGE] = "Findings by age", [SHORTCUT_SEX] = "Findings by sex" };
	char name[32];

	page_put(page, "<h3>%s</h3>\n", captions[column]);
	report_table(page, captions[column], "");
	page_put(page, "<tr><td></td>");
	for (int g = 0; g < REPORT_GROUPS; g++)
		if (groups[g].column == column)
			page_put(page, "<th scope=\"colgroup\" class=\"n\" colspan=\"2\">%s</th>", groups[g].title);
	page_put(page, "</tr>\n<tr><th scope=\"col\">Finding</th>");
	for (int g = 0; g < REPORT_GROUPS; g++)
		if (groups[g].column == column)
			page_put(page, "<th scope=\"col\" class=\"n\">Images<br>with it</th><th scope=\"col\" class=\"n\">AUROC</th>");
	page_put(page, "</tr></thead><tbody>\n");
	for (int f = 0; f < FINDINGS; f++) {
		page_put(page, "<tr><th scope=\"row\">%s</th>", finding_title(f, name));
		for (int g = 0; g < REPORT_GROUPS; g++)
			if (groups[g].column == column) {
				const struct report_group *of = &r->group[g];

				if (of->images && of->table.positives[f] + of->table.negatives[f] == 0) /* no label of it is known: it is not that none shows it */
					page_put(page, "<td class=\"n soft\">n/a</td>");
				else {
					page_put(page, "<td class=\"n\">");
					page_count(page, of->table.positives[f]);
					report_of_patients(r, page, &of->table, f);
					page_put(page, "</td>");
				}
				report_value(page, &r->group[g].table.class[f], report_too_few);
			}
		page_put(page, "</tr>\n");
	}
	page_put(page, "%s", report_table_end);
}

static size_t untold(const struct report *r, enum shortcut column)
{
	size_t n = r->in->predictions->n;

	for (int g = 0; g < REPORT_GROUPS; g++)
		n -= groups[g].column == column ? r->group[g].images : 0;
	return n;
}

static void put_untold(const struct report *r, struct page *page)
{
	static const struct {
		enum shortcut column;
		const char *is;
	} told[] = { { SHORTCUT_SEX, "sex" }, { SHORTCUT_AGE, "age" }, { SHORTCUT_VIEW, "view" } };
	int n = 0;

	for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
		size_t images = untold(r, told[i].column);

		if (!images)
			continue;
		page_put(page, n++ ? ", " : " Not told: ");
		page_put(page, "%s of ", told[i].is);
		page_count(page, images);
		page_put(page, " image%s", images == 1 ? "" : "s");
	}
	page_put(page, n ? "." : "");
}

void report_groups(const struct report *r, struct page *page)
{
	if (!r->in->table)
		return;
	page_put(page, "<section><h2>Patients and groups%s</h2><p class=\"lead\">Sex, age and view as ", r->in->other ? ", AUROC of A" : "");
	page_text(page, r->in->table->table);
	page_put(page, " has them. Who was imaged at several ages or in both views counts in each group.");
	put_untold(r, page);
	page_put(page, " AUROC with 95&nbsp;%% confidence intervals; none where fewer than %d patients of the group show a finding, or do not. Of so many intervals one in twenty or so misses what it is about, and no difference between "
		       "groups is tested here. Means of groups that count other findings are not to be compared.</p>\n", LEAST_POSITIVES);
	put_patients(r, page);
	put_column(r, page, SHORTCUT_SEX);
	put_column(r, page, SHORTCUT_AGE);
	put_column(r, page, SHORTCUT_VIEW);
	page_put(page, "</section>\n");
}

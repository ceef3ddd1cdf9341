/* SPDX-License-Identifier: Apache-2.0
 * The pointing game: how often the place that speaks most for a finding lies in a radiologist's box of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "learn/log.h"
#include "report/parts.h"

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char *file_of(const char *id)
{
	const char *slash = strrchr(id, '/');

	return slash ? slash + 1 : id;
}

/* Images that are none of the predictions'. */
static int count_others(struct report *r)
{
	const struct predictions *p = r->in->predictions;
	const char **judged = malloc((p->n + 1) * sizeof *judged);

	if (!judged)
		return -1;
	for (size_t i = 0; i < p->n; i++)
		judged[i] = file_of(p->samples[i].id);
	qsort(judged, p->n, sizeof *judged, by_text);
	for (size_t i = 0; i < r->in->pointing->images; i++)
		r->pointing_others += !bsearch(&r->in->pointing->name[i], judged, p->n, sizeof *judged, by_text);
	free(judged);
	return 0;
}

int report_measure_pointing(struct report *r)
{
	return pointing_judge(&r->in->pointing->pointing, r->in->resamples, r->in->seed, &r->pointing) || count_others(r) ? -1 : 0;
}

static void put_score(struct page *page, const char *name, const char *class, const struct pointing_score *s)
{
	page_put(page, "<tr%s><th scope=\"row\">%s</th><td class=\"n\">", class, name);
	page_count(page, (size_t)s->maps);
	page_put(page, "</td><td class=\"n\">");
	page_count(page, s->patients);
	page_put(page, "</td><td class=\"n\">");
	page_count(page, (size_t)s->hits);
	page_put(page, "</td>");
	report_value(page, &s->share, report_too_few);
	page_put(page, "<td class=\"n\">%.1f</td><td class=\"n\">%.3f</td></tr>\n", s->chance, s->chance / s->maps);
}

static void put_table(const struct pointing_table *t, struct page *page)
{
	char name[32];

	report_table(page, "Maps of every finding whose strongest point lies in a box", "narrow");
	page_put(page, "<tr><th scope=\"col\">Finding</th><th scope=\"col\" class=\"n\">Maps</th><th scope=\"col\" class=\"n\">Patients</th><th scope=\"col\" class=\"n\">Hits</th>"
		       "<th scope=\"col\" class=\"n\">Share of hits</th><th scope=\"col\" class=\"n\">Hits<br>by chance</th><th scope=\"col\" class=\"n\">Share<br>by chance</th></tr></thead><tbody>\n");
	for (int f = 0; f < FINDINGS; f++)
		if (t->finding[f].maps)
			put_score(page, finding_title(f, name), "", &t->finding[f]);
	put_score(page, "All", " class=\"mean\"", &t->all);
	page_put(page, "%s", report_table_end);
}

static void put_whose(const struct report *r, struct page *page)
{
	const struct predictions *a = r->in->predictions, *b = r->in->other;
	const char *hash = r->in->pointing->weights_hash;

	if (strstr(a->about.weights_hash, hash)) {
		if (strchr(a->about.weights_hash, ','))
			page_put(page, "<p class=\"lead\">The maps are of one of the averaged models.</p>\n");
	} else if (b && strstr(b->about.weights_hash, hash)) {
		page_put(page, "<p class=\"warn\">! The maps are of the other model, B%s.</p>\n", strchr(b->about.weights_hash, ',') ? ", or of one that it averages" : "");
	} else if (*a->about.weights_hash) {
		page_put(page, "<p class=\"warn\">! The maps are of another model than these predictions', and say nothing about this one.</p>\n");
	} else {
		page_put(page, "<p class=\"warn\">! Whether this model made the maps is not known: the predictions do not say with which weights they were made.</p>\n");
	}
	if (r->pointing_others)
		page_put(page, "<p class=\"warn\">! %zu of the %zu images %s none of these predictions: the model may have been trained on %s.</p>\n", r->pointing_others,
			 r->in->pointing->images, r->pointing_others == 1 ? "is" : "are", r->pointing_others == 1 ? "it" : "them");
	if (r->pointing.all.beyond)
		page_put(page, "<p class=\"lead\">%d of the maps can hit nothing: their cells are so coarse that no cell's middle lies in a box. They count as misses.</p>\n", r->pointing.all.beyond);
	if (r->pointing.unnamed)
		page_put(page, "<p class=\"warn\">! The names of %zu image%s tell no patient, and each counts as another's: intervals may be too narrow.</p>\n", r->pointing.unnamed,
			 r->pointing.unnamed == 1 ? "" : "s");
}

void report_pointing(const struct report *r, struct page *page)
{
	const struct pointing_table *t = &r->pointing;
	char text[16];

	if (!r->in->pointing)
		return;
	page_put(page, "<section><h2>Pointing game</h2><p class=\"lead\">In how many maps the place that speaks most for a finding, whatever the model's probability, lies in a box that was drawn around "
		       "that finding (Zhang et al. 2016): of ");
	page_count(page, r->in->pointing->images);
	page_put(page, " image%s of ", r->in->pointing->images == 1 ? "" : "s");
	page_count(page, t->all.patients);
	page_put(page, " patient%s with such boxes. Share of hits: with 95&nbsp;%% confidence intervals over patients, none with fewer than %d. By chance: what cells of the maps at random would make; "
		       "large boxes are easily hit. Only images with a box count, all of which show the finding: whether maps are warm where nothing is, this does not tell, nor whether they outline what is there.</p>\n",
		 t->all.patients == 1 ? "" : "s", LEAST_POSITIVES);
	put_whose(r, page);
	put_table(t, page);
	if (!isnan(t->p)) {
		const char *digits = p_text(t->p, 1, text);

		digits += strspn(digits, "<=");
		page_put(page, "<p class=\"lead\">%.1f times as many hits as by chance; p %s&#8239;%s of cells at random being so far from it, to either side, where a patient's maps may all hit or all miss (Poisson's "
			       "distribution, an upper bound).</p>\n", t->all.hits / t->all.chance, digits == text + 1 ? "&lt;" : "&#8804;", digits);
	}
	page_put(page, "</section>\n");
}

static void put_numbers(cJSON *o, const struct pointing_score *s)
{
	json_number(o, "maps", s->maps);
	json_number(o, "patients", (double)s->patients);
	json_number(o, "hits", s->hits);
	json_number(o, "hits_by_chance", s->chance);
	json_number(o, "cannot_hit", s->beyond);
	json_interval(o, "share", &s->share);
}

void report_pointing_json(const struct report *r, cJSON *o)
{
	const struct pointing_table *t = &r->pointing;
	cJSON *findings;

	cJSON_AddStringToObject(o, "file", r->in->pointing_path);
	cJSON_AddStringToObject(o, "weights_hash", r->in->pointing->weights_hash);
	json_number(o, "images", (double)r->in->pointing->images);
	json_number(o, "images_not_predicted", (double)r->pointing_others);
	json_number(o, "images_without_patient", (double)t->unnamed);
	put_numbers(o, &t->all);
	json_number(o, "p_at_most", t->p);
	findings = cJSON_AddObjectToObject(o, "findings");
	for (int f = 0; f < FINDINGS; f++)
		if (t->finding[f].maps)
			put_numbers(cJSON_AddObjectToObject(findings, finding_names[f]), &t->finding[f]);
}

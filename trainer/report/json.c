/* SPDX-License-Identifier: Apache-2.0
 * The report's numbers for programs. */
#include <math.h>
#include <stdlib.h>

#include "learn/log.h"
#include "json.h"
#include "report/parts.h"

/* The interval that takes all images for independent, beside the one over patients. */
static void put_delong(cJSON *o, const struct predictions *p, int f, int too_few)
{
	float *score = malloc((p->n + 1) * sizeof *score);
	uint8_t *positive = malloc(p->n + 1);

	if (score && positive) {
		struct interval delong = auroc_delong(score, positive, predictions_of(p, f, score, positive));

		if (too_few)
			delong.low = delong.high = delong.se = NAN;
		json_interval(o, "auroc_delong", &delong);
		if (delong.value < 0)
			json_lacks();
	} else {
		json_lacks();
	}
	free(score);
	free(positive);
}

static void put_operating(cJSON *o, const char *name, const struct operating_point *at)
{
	cJSON *x = cJSON_AddObjectToObject(o, name);

	int digits;

	json_number(x, "threshold", operating_probability(at, &digits));
	json_interval(x, "sensitivity", &at->sensitivity);
	json_interval(x, "specificity", &at->specificity);
	json_measure(x, "ppv", &at->ppv);
	json_measure(x, "npv", &at->npv);
	const int any = !isnan(at->sensitivity.value);

	json_number(x, "true_positives", any ? (double)at->flagged[1] : NAN);
	json_number(x, "false_positives", any ? (double)at->flagged[0] : NAN);
	json_number(x, "true_negatives", any ? (double)at->passed[0] : NAN);
	json_number(x, "false_negatives", any ? (double)at->passed[1] : NAN);
}

static double patients_named(const struct predictions *p, size_t patients)
{
	return p->has_patients ? (double)patients : NAN; /* else every image counts as one */
}

static cJSON *finding(const struct report_model *m, const struct predictions *p, int f)
{
	cJSON *o = cJSON_CreateObject();

	json_number(o, "positives", (double)m->table.positives[f]);
	json_number(o, "positive_patients", patients_named(p, m->table.positive_patients[f]));
	json_number(o, "negatives", (double)m->table.negatives[f]);
	json_interval(o, "auroc", &m->table.class[f]);
	put_delong(o, p, f, isnan(m->table.class[f].low));
	json_interval(o, "average_precision", &m->curves[f].average_precision);
	calibration_json(&m->calibration.finding[f], o);
	cJSON *operating = cJSON_AddObjectToObject(o, "operating_points");

	put_operating(operating, "specificity_90", &m->curves[f].at[AIM_SPECIFICITY]);
	put_operating(operating, "sensitivity_90", &m->curves[f].at[AIM_SENSITIVITY]);
	return o;
}

/* Of one model. */
static void put_cautions(cJSON *o, const struct provenance *about)
{
	if (*about->pos_weight)
		cJSON_AddStringToObject(o, "pos_weight", about->pos_weight);
	if (*about->order)
		cJSON_AddStringToObject(o, "order", about->order);
	json_leak(o, "leak", about->leaked > 0 || about->leaky, about->leaked >= 0);
	cJSON_AddBoolToObject(o, "leak_checked", about->leaked >= 0);
	json_number(o, "leaked_patients", about->leaked < 0 ? NAN : (double)about->leaked);
}

static void put_other(cJSON *o, const char *path, const struct provenance *about)
{
	cJSON_AddStringToObject(o, "predictions", path);
	cJSON_AddStringToObject(o, "checkpoint", about->checkpoint);
	json_text(o, "weights_hash", about->weights_hash);
	cJSON_AddStringToObject(o, "split", about->split);
	cJSON_AddStringToObject(o, "split_policy", about->policy);
	json_text(o, "trained_on", about->trained_on);
	put_cautions(o, about);
}

char *report_json(const struct report *r)
{
	const struct provenance *about = &r->in->predictions->about;
	cJSON *o = cJSON_CreateObject(), *findings;

	cJSON_AddStringToObject(o, "predictions", r->in->path);
	cJSON_AddStringToObject(o, "model", about->model);
	cJSON_AddStringToObject(o, "checkpoint", about->checkpoint);
	json_text(o, "weights_hash", about->weights_hash);
	cJSON_AddStringToObject(o, "data", about->data);
	cJSON_AddStringToObject(o, "split", about->split);
	cJSON_AddStringToObject(o, "split_policy", about->policy);
	json_text(o, "source", about->source);
	json_text(o, "trained_on", about->trained_on);
	put_cautions(o, about);
	json_number(o, "images", (double)r->in->predictions->n);
	json_number(o, "patients", patients_named(r->in->predictions, r->a.table.patients));
	cJSON_AddStringToObject(o, "version", HVD_VERSION);
	json_number(o, "resamples", r->in->resamples);
	json_whole(o, "seed", r->in->seed);
	json_number(o, "counted", r->a.table.counted);
	json_interval(o, "mean_auroc", &r->a.table.mean);
	json_number(o, "mean_resamples_left_out", r->a.table.left_out);
	calibration_mean_json(&r->a.calibration, o);
	if (r->in->thresholds) {
		const struct predictions *chosen = r->in->thresholds;
		cJSON *x = cJSON_AddObjectToObject(o, "thresholds_chosen_on");

		cJSON_AddStringToObject(x, "predictions", r->in->thresholds_path);
		cJSON_AddStringToObject(x, "split", chosen->about.split);
		json_number(x, "images", (double)chosen->n);
		json_number(x, "patients", patients_named(chosen, r->chosen.table.patients));
	}
	if (r->in->other) {
		put_other(cJSON_AddObjectToObject(o, "compared_with"), r->in->other_path, &r->in->other->about);
		comparison_json(&r->comparison, cJSON_AddObjectToObject(o, "comparison"));
	}
	if (r->in->table) {
		cJSON_AddStringToObject(o, "table", r->in->table->table);
		report_groups_json(r, cJSON_AddObjectToObject(o, "groups"));
	}
	if (r->in->pointing)
		report_pointing_json(r, cJSON_AddObjectToObject(o, "pointing"));
	findings = cJSON_AddObjectToObject(o, "findings");
	for (int f = 0; f < FINDINGS; f++)
		cJSON_AddItemToObject(findings, finding_names[f], finding(&r->a, r->in->predictions, f));
	return json_finish(o, 1);
}

/* SPDX-License-Identifier: Apache-2.0
 * Where the report speaks in words: its headline, what to keep in mind, and where the numbers come from. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/parts.h"
#include "utf8.h"

/* ---- what to keep in mind --------------------------------------------------------------------------- */

/* Findings for which `is` holds, with what is wrong in front of them; returns how many. */
static int put_list(const struct report *r, struct page *page, int (*is)(const struct auroc_table *, int), const char *what)
{
	char name[32];
	int n = 0;

	for (int f = 0; f < FINDINGS; f++)
		if (is(&r->a.table, f)) {
			page_put(page, n ? ", %s" : "<li class=\"is-warn\"><b>%s:</b> ", n ? finding_title(f, name) : what);
			page_put(page, "%s", n++ ? "" : finding_title(f, name));
		}
	return n;
}

static int is_unlabelled(const struct auroc_table *t, int f)
{
	return t->positives[f] + t->negatives[f] == 0;
}

static int is_absent(const struct auroc_table *t, int f)
{
	return isnan(t->class[f].value) && !is_unlabelled(t, f);
}

static int is_too_rare(const struct auroc_table *t, int f)
{
	return !isnan(t->class[f].value) && isnan(t->class[f].low);
}

static int is_rare(const struct auroc_table *t, int f)
{
	return !isnan(t->class[f].value) && !is_too_rare(t, f) && auroc_patients(t, f) < FEW_POSITIVES;
}

static void put_rare(const struct report *r, struct page *page)
{
	if (put_list(r, page, is_too_rare, "Too few to judge"))
		page_put(page, ": fewer than %d patients show it, or fewer than %d do not. Such a value may be anything, so it has no interval and no curve; the mean counts it as any other%s.</li>\n",
			 LEAST_POSITIVES, LEAST_POSITIVES, isnan(r->a.table.mean.low) ? "" : ", and the mean's interval allows for it");
	if (put_list(r, page, is_rare, "Few patients with it, or without it"))
		page_put(page, ": %d to %d patients each. The intervals allow for that, and are wide.</li>\n", LEAST_POSITIVES, FEW_POSITIVES - 1);
	if (put_list(r, page, is_unlabelled, "Not judged"))
		page_put(page, ": no label of it is known here, or the weights were trained without any (--mask). The mean is over %d of %d findings.</li>\n", r->a.table.counted, FINDINGS);
	if (put_list(r, page, is_absent, "Not part of the mean"))
		page_put(page, ": this split lacks images with it or without it. The mean is over %d of %d findings.</li>\n", r->a.table.counted, FINDINGS);
}

/* model: as it stands behind "the". */
static void put_leak_notes(const struct provenance *about, const char *model, struct page *page)
{
	if (about->leaked > 0)
		page_put(page, "<li class=\"is-bad\"><b>Leak.</b> The %s was trained on images of %ld patient%s of this split: its numbers say nothing about new patients.</li>\n",
			 model, about->leaked, about->leaked == 1 ? "" : "s");
	else if (about->leaky)
		page_put(page, "<li class=\"is-bad\"><b>Leak.</b> The %s was trained on splits that share patients (--allow-leak): what chose its weights may flatter it.</li>\n", model);
	if (about->leaked < 0)
		page_put(page, "<li class=\"is-warn\"><b>Leak not checked.</b> Nobody has compared these patients with all those that the %s was trained on; shared patients raise every "
			       "number.</li>\n", model);
}

static void put_weighted(const struct provenance *about, const char *model, struct page *page)
{
	int some = strcmp(about->pos_weight, "balanced") != 0; /* of an ensemble's members */

	if (*about->pos_weight)
		page_put(page, "<li class=\"is-warn\"><b>Not probabilities.</b> Images with a finding weighed more when %s%s %s trained (--pos-weight=balanced): what it says ranks "
			       "images, and is %sabove the share that shows the finding. Calibration shows by how much.</li>\n", some ? "some members of the " : "the ", model,
			 some ? "were" : "was", some ? "" : "far ");
}

/* As eval said on standard error, which whoever has the page has not. */
static void put_order(const struct provenance *about, const char *model, struct page *page)
{
	char names[FINDING_HINT];

	if (*about->order)
		page_put(page, "<li class=\"is-warn\"><b>The order of the findings was assumed.</b> The weights of %sthe %s do not say which findings their outputs stand for: they were taken as "
			       "%s. In another order the numbers are those of other findings.</li>\n", strcmp(about->order, "assumed") ? "some members of " : "", model,
			 findings_write(names, sizeof names, ALL_FINDINGS, ", "));
}

static void put_other_images(const struct provenance *about, const char *model, struct page *page)
{
	if (!source_differs(about->trained_on, about->source))
		return;
	page_put(page, "<li class=\"is-warn\"><b>Other images than in training.</b> The %s was trained on \xE2\x80\x9C", model);
	page_text(page, about->trained_on);
	page_put(page, "\xE2\x80\x9D, and these images are \xE2\x80\x9C");
	page_text(page, about->source);
	page_put(page, "\xE2\x80\x9D: the numbers do not say how well it learned, and its probabilities are those of other images.</li>\n");
}

static void put_named(struct page *page, const char *name)
{
	page_text(page, *name ? name : "not named");
}

static void put_other_split(const struct provenance *a, const struct provenance *b, struct page *page)
{
	int differ = splits_differ(a, b);

	if (!differ)
		return;
	page_put(page, "<li class=\"is-warn\"><b>%s:</b> A from ", differ > 0 ? "A and B come from different splits" : "Whether A and B come from the same split is not known");
	put_named(page, a->split);
	page_put(page, ", policy ");
	put_named(page, a->policy);
	page_put(page, "; B from ");
	put_named(page, b->split);
	page_put(page, ", policy ");
	put_named(page, b->policy);
	page_put(page, ". One may have been trained, or chosen, on images that are new to the other.</li>\n");
}

static void put_not_shared(const struct comparison *c, struct page *page)
{
	if (c->only_a || c->only_b)
		page_put(page, "<li class=\"is-warn\"><b>A and B are not of the same images:</b> only A has %zu, only B %zu. Each one's own numbers and curves are of all its images; how they "
			       "compare is told by those that both have.</li>\n", c->only_a, c->only_b);
}

static void put_split_notes(const struct provenance *about, int synthetic, struct page *page)
{
	if (is_own_split(about, "train"))
		page_put(page, "<li class=\"is-bad\"><b>These are training images.</b> The numbers say how well the model remembers, not how well it reads.</li>\n");
	else if (is_own_split(about, "val"))
		page_put(page, "<li class=\"is-warn\"><b>Validation split.</b> The weights were chosen on these images, so the numbers flatter the model a little.</li>\n");
	if (synthetic)
		return;
	if (!*about->policy)
		page_put(page, "<li class=\"is-warn\"><b>Nobody says how patients were divided.</b> Do not compare the mean with published ones.</li>\n");
	else if (strcmp(about->policy, "official"))
		page_put(page, "<li class=\"is-warn\"><b>Not NIH's official split.</b> Published single models reach means of about 0.80 to 0.81 on the official split and 0.84 to 0.85 on "
			       "random divisions of the patients: compare only with results on the same one.</li>\n");
}

static int differs(const char *a, const char *b)
{
	return a && b && *a && *b && strcmp(a, b);
}

static int other_run(const struct provenance *about, const cJSON *start)
{
	int by_a_training = strncmp(about->command, "chexnet train", 13) == 0; /* and not by eval, of which no log tells */

	return (by_a_training && differs(about->command, json_get_text(start, "command"))) || differs(about->model, json_get_text(start, "model")) || differs(about->policy, json_get_text(start, "split_policy"));
}

static void put_notes(const struct report *r, struct page *page)
{
	const struct provenance *about = &r->in->predictions->about;
	const struct train_log *log = r->in->log;
	int synthetic = report_oracle(r) || strcmp(about->policy, "synthetic") == 0;

	page_put(page, "<ul class=\"notes\">\n");
	put_leak_notes(about, "model", page);
	put_weighted(about, "model", page);
	put_order(about, "model", page);
	if (logits_like_probabilities(r->in->predictions->logits, r->in->predictions->n * FINDINGS))
		page_put(page, "<li class=\"is-bad\"><b>Probabilities for logits?</b> Every logit of the predictions is between 0 and 1. If they are probabilities p, calibration and thresholds "
			       "here are wrong: the file takes log(p&#8239;/&#8239;(1&#8239;&#8722;&#8239;p)). AUROC and average precision go by the order alone.</li>\n");
	put_other_images(about, "model", page);
	if (r->in->other) {
		put_other_images(&r->in->other->about, "other model, B,", page);
		put_weighted(&r->in->other->about, "other model, B,", page);
		put_order(&r->in->other->about, "other model, B,", page);
		put_leak_notes(&r->in->other->about, "other model, B,", page);
		put_other_split(about, &r->in->other->about, page);
		put_not_shared(&r->comparison, page);
	}
	if (synthetic)
		page_put(page, "<li class=\"is-warn\"><b>Synthetic images.</b> Drawn by a program: the numbers show that training works, nothing about radiographs.</li>\n");
	put_split_notes(about, synthetic, page);
	if (r->in->predictions->has_patients && r->a.table.patients < FEW_PATIENTS)
		page_put(page, "<li class=\"is-warn\"><b>Few patients.</b> Firm numbers take more than %zu: read the intervals, not the values.</li>\n", r->a.table.patients);
	if (!r->in->predictions->has_patients)
		page_put(page, "<li class=\"is-warn\"><b>No patients are named.</b> Every image counts as a patient of its own, so the intervals may be too narrow.</li>\n");
	if (log && other_run(about, log->start))
		page_put(page, "<li class=\"is-warn\"><b>The training log may be of another run:</b> model, split policy or command are not those of the predictions.</li>\n");
	if (log && log->starts && !log->end)
		page_put(page, "<li class=\"is-warn\"><b>The training log has no end.</b> The run was cut off or is still going on.</li>\n");
	size_t foreign = report_foreign_pictures(r->in);

	if (foreign)
		page_put(page, "<li class=\"is-warn\"><b>Maps of another model.</b> %zu of the %zu pictures were made with other weights than these predictions: they show where that model "
			       "looks, and say nothing about this one.</li>\n", foreign, r->in->n_pictures);
	const char *whose_log = report_whose_log(r->in);

	if (whose_log)
		page_put(page, "<li class=\"is-warn\">%s</li>\n", whose_log);
	put_rare(r, page);
	if (!synthetic)
		page_put(page, "<li>Not looked at: %sthe time between images. A model that reads such things instead of a finding may have these numbers too "
			       "(chexnet audit tells which findings the view alone gives away).</li>\n<li>%sA model can be no better than the labels it is judged by. For research; not a medical device.</li>\n",
			 r->in->table ? "" : "the view (AP or PA), age, sex (--table tells them), and ", *about->source && !source_is_chestxray14(about->source) ? "" :
			 "The labels of ChestX-ray14 were mined from report texts, and radiologists who looked again found many of them wrong. ");
	page_put(page, "</ul>\n");
}

/* ---- headline --------------------------------------------------------------------------------------- */

static void put_leak(struct page *page, long leaked)
{
	if (leaked == 0)
		page_put(page, "<dd><span class=\"good\">&#10003; none</span> of them was trained on</dd>");
	else if (leaked < 0)
		page_put(page, "<dd><span class=\"warn\">! not checked</span></dd>");
	else
		page_put(page, "<dd><span class=\"bad\">&#10007; %ld patient%s</span> %s trained on</dd>", leaked, leaked == 1 ? "" : "s", leaked == 1 ? "was" : "were");
}

/* The mean distance between probability and share would be small for any model that says the share of every image. */
static void put_skill(const struct report *r, struct page *page)
{
	const struct interval *skill = &r->a.calibration.skill;
	const int of = r->a.calibration.judged;

	if (isnan(skill->value))
		return;
	page_put(page, "<dt>Probabilities%s</dt><dd>squared error %.1f&nbsp;%% %s that of saying every finding's share of the images (Brier skill %+.3f, mean of %d finding%s",
		 r->in->other ? " of A" : "", fabs(100 * skill->value), skill->value >= 0 ? "below" : "<span class=\"warn\">above</span>", skill->value, of, of == 1 ? "" : "s");
	if (!isnan(skill->low))
		page_put(page, "; 95&nbsp;%% confidence interval %+.3f to %+.3f", skill->low, skill->high);
	page_put(page, ")</dd>");
}

static void put_facts(const struct report *r, struct page *page)
{
	const struct predictions *p = r->in->predictions;
	const struct train_log *log = r->in->log;

	page_put(page, "<dl><dt>Images</dt><dd>");
	page_count(page, p->n);
	page_put(page, "</dd><dt>Patients</dt><dd>");
	if (p->has_patients)
		page_count(page, r->a.table.patients);
	else
		page_put(page, "<span class=\"warn\">! not named</span>");
	page_put(page, "</dd><dt>Split</dt><dd>");
	page_text(page, *p->about.split ? p->about.split : "not named");
	page_put(page, ", policy ");
	page_text(page, *p->about.policy ? p->about.policy : "not named");
	page_put(page, "</dd><dt>Patients in training</dt>");
	put_leak(page, p->about.leaked);
	if (r->in->other) {
		page_put(page, "<dt>Patients in training of B</dt>");
		put_leak(page, r->in->other->about.leaked);
	}
	put_skill(r, page);
	if (log && log->summary && !isnan(json_get_number(log->summary, "images_per_s"))) {
		double ranks = json_get_number(log->timed, "ranks"), nodes = json_get_number(log->timed, "nodes");
		double left = json_get_number(log->recovered, "ranks");

		page_put(page, "<dt>Trained at</dt><dd>");
		page_rate(page, json_get_number(log->summary, "images_per_s"));
		page_put(page, " images/s");
		if (!isnan(ranks) && !isnan(nodes))
			page_put(page, " on %.0f rank%s of %.0f node%s", ranks, ranks == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s");
		if (log->timed_losses && !isnan(left))
			page_put(page, ", %.0f in the end", left);
		page_put(page, "</dd>");
	}
	page_put(page, "</dl>\n");
}

void report_headline(const struct report *r, struct page *page)
{
	const struct interval *mean = &r->a.table.mean;
	const char *model = r->in->predictions->about.model;

	page_put(page, "<header><p class=\"kicker\">chexnet report, ");
	page_text(page, r->in->date);
	page_put(page, "</p><h1>");
	page_text(page, *model ? model : "A model");
	page_put(page, " on chest X-rays: %d finding%s</h1>\n<div class=\"head\"><div>", r->a.table.counted, r->a.table.counted == 1 ? "" : "s");
	if (isnan(mean->value)) {
		page_put(page, "<div class=\"big\">n/a</div><p>no finding has both images that show it and images that do not</p>");
	} else {
		page_put(page, "<div class=\"big\">%.3f</div><p>mean AUROC of %d finding%s", mean->value, r->a.table.counted, r->a.table.counted == 1 ? "" : "s");
		if (!isnan(mean->low))
			page_put(page, "<br>95&nbsp;%% confidence interval <b>%.3f to %.3f</b>", mean->low, mean->high);
		else if (r->in->resamples)
			page_put(page, "<br><span class=\"warn\">! no interval: too few patients, so on others it may be far off</span>");
		page_put(page, "</p><p class=\"lead\">Of two of these images, one with a finding and one without, the model ranks the right one higher %.0f times in 100. "
			       "Guessing would give 50.</p>", 100 * mean->value);
	}
	page_put(page, "</div>\n");
	put_facts(r, page);
	page_put(page, "</div>\n");
	put_notes(r, page);
	page_put(page, "</header>\n");
}

/* ---- provenance ------------------------------------------------------------------------------------- */

static void put_row(struct page *page, const char *name, const char *value)
{
	if (!value || !*value)
		return;
	page_put(page, "<dt>%s</dt><dd><code>", name);
	page_text(page, value);
	page_put(page, "</code></dd>\n");
}

static void put_number(struct page *page, const char *name, double value)
{
	if (!isnan(value))
		page_put(page, "<dt>%s</dt><dd>%.15g</dd>\n", name, value);
}

/* Of how many a split of the training was. */
static void put_split(struct page *page, const cJSON *start, const char *split, const char *name, const char *what)
{
	const cJSON *of = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(start, "splits"), split);
	const double images = json_get_number(of, "images"), patients = json_get_number(of, "patients");

	if (!(images >= 0 && images < 1e15 && patients >= 0 && patients < 1e15))
		return;
	page_put(page, "<dt>%s</dt><dd>", name);
	page_count(page, (size_t)images);
	page_put(page, " image%s of ", images == 1 ? "" : "s");
	page_count(page, (size_t)patients);
	page_put(page, " patient%s%s</dd>\n", patients == 1 ? "" : "s", what);
}

void report_provenance(const struct report *r, struct page *page)
{
	const struct report_input *in = r->in;
	const struct provenance *about = &in->predictions->about;
	const cJSON *start = in->log ? in->log->start : NULL;

	page_put(page, "<section><h2>Where these numbers come from</h2><p class=\"lead\">Every image of the split counts once. AUROC is the Mann-Whitney statistic, ties count one half; "
		       "average precision is the sum over thresholds without interpolation. Intervals and bands are percentiles over %d resamples of whole patients, "
		       "seed %llu. These promise too much where all agree, and where the effective patients with a finding or without it, whichever are fewer%s, times the value's distance from 0 or 1, "
		       "make less than %d: there the interval of an operating point or of a share of hits is Wilson's (1927), a band is no narrower, and an AUROC's is Newcombe's (2006, method 5), no narrower than the "
		       "resamples' standard deviation says on the logit scale, and the mean's is widened by it. An average precision's interval is symmetric on the logit scale (Boyd, Eng and Page 2013), from the resamples' standard deviation, and reaches there no less far than the AUROC's. Effective are as many as say as much with one image each: (\xCE\xA3n)\xC2\xB2/\xCE\xA3n\xC2\xB2 of patients with n images. Average precisions, differences and the measures of calibration are spread by "
		       "Student's quantile, these from what each patient moves them by (Liang and Zeger 1986): a Brier score symmetrically on the logit scale, observed/expected on that of logarithms, a skill on that of one less it. With fewer than %d patients there is no interval. Bands hold at each point by itself. Calibration's bars are Wilson's intervals of the images over their design effect, by how much a patient's are alike (Kish 1965). "
		       "ECE uses %d bins of equal width.", in->resamples, (unsigned long long)in->seed,
		       in->thresholds ? " (of the thresholds that were chosen on others: with it for a sensitivity, without it for a specificity)" : "", LEAST_EXPECTED, LEAST_POSITIVES, ECE_BINS);
	if (r->a.table.mostly_few)
		page_put(page, " Most of the findings are too few for an interval, so the mean has none.");
	else if (r->a.table.left_out)
		page_put(page, " %d of the resamples lack a finding and are no part of the mean's interval%s.", r->a.table.left_out,
			 isnan(r->a.table.mean.low) ? ", of which too few are left" : "");
	page_put(page, "</p>\n<dl>\n");
	put_row(page, "Predictions", in->path);
	put_row(page, "made by", about->command);
	put_row(page, "chexnet version", about->version);
	put_row(page, "Weights", about->checkpoint);
	put_row(page, "their hash", about->weights_hash);
	put_row(page, "trained on", about->trained_on);
	put_row(page, "Images", about->source);
	put_row(page, "Data hash", about->data);
	put_row(page, "Sex, age and view", in->table ? in->table->table : NULL);
	if (in->thresholds) {
		put_row(page, "Thresholds chosen on", in->thresholds_path);
		put_row(page, "made by", in->thresholds->about.command);
	}
	if (in->other) {
		put_row(page, "Compared with (B)", in->other_path);
		put_row(page, "made by", in->other->about.command);
		put_row(page, "Weights of B", in->other->about.checkpoint);
		put_row(page, "their hash", in->other->about.weights_hash);
		put_row(page, "trained on", in->other->about.trained_on);
		put_row(page, "Data hash of B", in->other->about.data);
	}
	put_row(page, "Pointing game", in->pointing_path);
	put_row(page, "Training log", in->log_path);
	put_row(page, "it ends with weights", in->log ? json_get_text(in->log->end, "weights_hash") : NULL);
	put_row(page, "Training command", json_get_text(start, "command"));
	put_row(page, "trained by version", json_get_text(start, "version"));
	put_row(page, in->log && in->log->mixed_precision ? "Precision in the end" : "Precision", json_get_text(start, "precision"));
	put_split(page, start, "train", "Trained on", "");
	put_split(page, start, "val", "Validated on", ", by which the weights were chosen");
	put_number(page, "Parameters", json_get_number(start, "parameters"));
	put_number(page, "Input, pixels a side", json_get_number(start, "image_size"));
	put_number(page, "Global batch", json_get_number(start, "global_batch"));
	if (in->log && in->log->lost_since)
		put_number(page, "Global batch in the end", json_get_number(in->log->recovered, "global_batch"));
	put_number(page, "Micro-batch", json_get_number(start, "batch"));
	put_row(page, "Seed of the training", in->log && *in->log->seed ? in->log->seed : NULL);
	put_row(page, "This report", in->command);
	put_row(page, "by chexnet version", HVD_VERSION); /* the intervals are its, and not of the version that made the predictions */
	page_put(page, "</dl></section>\n");
}

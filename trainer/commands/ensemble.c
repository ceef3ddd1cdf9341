/* SPDX-License-Identifier: Apache-2.0
 * chexnet ensemble: averages predictions and tells how far the members are apart. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "commands/commands.h"
#include "files/csv.h"
#include "files/file.h"
#include "learn/auroc.h"
#include "learn/ensemble.h"
#include "threads.h"
#include "utf8.h"

enum { MAX_MEMBERS = 64 };

struct ensemble_conf {
	int average;
	const char *spread;
};

static const char *const average_choices[] = { "probabilities", "logits", NULL };

static const struct option options[] = {
	OPTION(CHOICE, struct ensemble_conf, average, "average", "WHAT", "probabilities", "what is averaged", .choices = average_choices),
	OPTION(STRING, struct ensemble_conf, spread, "spread", "FILE", NULL,
	       "write each image's mean probability, standard deviation, lowest and highest for every finding as CSV; empty for findings that a member has no labels of and others have"),
	OPTIONS_END
};

struct members {
	int n;
	struct predictions p[MAX_MEMBERS];
	double auroc[MAX_MEMBERS][FINDINGS]; /* of each on the ensemble's labels */
};

static int knows(const struct predictions *p, int f)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->samples[i].known >> f & 1)
			return 1;
	return 0;
}

/* A finding whose labels one member's file lacks, as with --mask in training, is the ensemble's only in name. */
static int lacks_a_member(const struct members *m, const struct predictions *out, int f)
{
	int known_to_one = 0;

	for (int k = 0; k < m->n; k++)
		known_to_one |= knows(&m->p[k], f);
	return known_to_one && !knows(out, f);
}

static void say_what_is_not_judged(const struct members *m, const struct predictions *out)
{
	int n = 0;

	for (int f = 0; f < FINDINGS; f++)
		if (lacks_a_member(m, out, f))
			printf("%s%s", n++ ? ", " : "not judged, because not all members have labels: ", finding_names[f]);
	if (n)
		puts("; OUT averages what all of them say of these, learnt or not");
}

static int judge(struct auroc_table *t, const struct predictions *out, struct error *e)
{
	struct score_arrays arrays;

	if (predictions_scores(out, &arrays) || auroc_bootstrap(&arrays.scores, 0, 1, t, NULL))
		fail(e, EXIT_INTERNAL, "no memory for %zu images", out->n);
	score_arrays_free(&arrays);
	return -e->code;
}

static int print_table(const struct members *m, const struct predictions *out, const struct spread *spread, struct error *e)
{
	struct auroc_table t;
	double sum[MAX_MEMBERS] = { 0 };
	int any_few = 0;

	if (judge(&t, out, e))
		return -e->code;
	printf("%-20s %7s %-16s %8s   %s\n%-20s %7s %-16s %8s   %8s %8s %8s\n", "", "", "AUROC", "", "an image's probability, mean over images", "finding", "n+",
	       "members", "ensemble", "sd", "sd/mean", "max/min");
	for (int f = 0; f < FINDINGS; f++) {
		struct spread_summary s = spread_summarise(spread, out->n, f);
		double low = INFINITY, high = -INFINITY, whole = t.class[f].value;
		const int few = !isnan(whole) && auroc_patients(&t, f) < FEW_POSITIVES;

		for (int k = 0; k < m->n; k++) {
			low = fmin(low, m->auroc[k][f]);
			high = fmax(high, m->auroc[k][f]);
			sum[k] += isnan(whole) ? 0 : m->auroc[k][f];
		}
		any_few |= few;
		if (t.positives[f] + t.negatives[f] > 0)
			printf("%-20s %7zu", finding_names[f], t.positives[f]);
		else
			printf("%-20s %7s", finding_names[f], "n/a");
		if (isnan(whole))
			printf(" %-16s %8s", "n/a", "n/a");
		else
			printf(" %.4f to %.4f %8.4f", low, high, whole);
		if (lacks_a_member(m, out, f)) /* which may never have learnt it: the spread would be that of an answer and none */
			printf("   %8s %8s %8s\n", "n/a", "n/a", "n/a");
		else
			printf("   %8.4f %8.3f %8.2f%s\n", s.sd, s.variation, exp(s.log_range), few ? "  few" : "");
	}
	if (any_few)
		printf("few: fewer than %d patients with the finding, or without it: its AUROC says hardly anything (chexnet report has the intervals)\n", FEW_POSITIVES);
	say_what_is_not_judged(m, out);
	for (int k = 0; t.counted && k < m->n; k++)
		printf("mean AUROC of member %d: %.4f\n", k + 1, sum[k] / t.counted);
	if (t.counted)
		printf("mean AUROC of the ensemble: %.4f (%d of %d findings)\n", t.mean.value, t.counted, FINDINGS);
	return 0;
}

static int write_spread(const char *path, const struct members *m, const struct predictions *out, const struct spread *spread, struct error *e)
{
	int lacks[FINDINGS]; /* as in the table: a spread of an answer and none is none */
	struct output_file file;
	char text[2 * SAMPLE_ID + 256];
	int rc = output_open(&file, path, e);

	if (rc)
		return rc;
	for (int f = 0; f < FINDINGS; f++)
		lacks[f] = lacks_a_member(m, out, f);
	rc = output_write(&file, "id", 2, e);
	for (int i = 0; !rc && i < 4 * FINDINGS; i++) {
		static const char *const column[] = { "mean", "sd", "min", "max" };
		int n = snprintf(text, sizeof text, ",%s_%s", finding_names[i / 4], column[i % 4]);

		rc = output_write(&file, text, (size_t)n, e);
	}
	for (size_t i = 0; !rc && i < out->n * FINDINGS; i++) {
		const struct spread *s = &spread[i];
		int n = 0;

		if (i % FINDINGS == 0) {
			text[n++] = '\n';
			n += csv_quote(text + n, out->samples[i / FINDINGS].id);
		}
		n += snprintf(text + n, sizeof text - (size_t)n, lacks[i % FINDINGS] ? ",,,," : ",%.6g,%.6g,%.6g,%.6g", s->mean, s->sd, s->low, s->high);
		rc = output_write(&file, text, (size_t)n, e);
	}
	if (!rc)
		rc = output_write(&file, "\n", 1, e);
	if (!rc)
		return output_commit(&file, e);
	output_discard(&file);
	return rc;
}

/* The word OUT is easily forgotten, and the first member would be lost. */
static int check_outputs(const struct ensemble_conf *conf, const struct members *m, char **argv, struct error *e)
{
	struct predictions old = { 0 };
	struct error none = { 0 };
	struct stat st;

	output_spares(conf->spread, argv[1], e);
	for (int k = 0; !e->code && k < m->n; k++) {
		for (int i = 0; !e->code && i < k; i++)
			if (strcmp(argv[2 + i], argv[2 + k]) == 0)
				fail(e, EXIT_USAGE, "%s: is given twice, and would count for two models", argv[2 + k]);
		output_spares(argv[1], argv[2 + k], e);
		output_spares(conf->spread, argv[2 + k], e);
	}
	output_replaces(conf->spread, "id,Atelectasis_mean,", "table of a spread", e);
	output_replaces(argv[1], "# rows=", "file of predictions", e);
	if (!e->code && stat(argv[1], &st) == 0 && S_ISREG(st.st_mode) && predictions_read(&old, argv[1], &none) == 0 && strncmp(old.about.command, "chexnet ensemble", 16) != 0)
		fail(e, EXIT_USAGE, "%s: holds a model's predictions and would be replaced: OUT comes first, then each FILE", argv[1]);
	predictions_free(&old);
	if (!e->code)
		output_check(argv[1], e);
	return e->code || !conf->spread ? -e->code : output_check(conf->spread, e);
}

/* Ten crops and one, say, or an ensemble beside one of its members. */
static void say_shared_weights(const struct members *m, char **paths)
{
	char hash[WEIGHTS_HASH];

	for (int k = 1; k < m->n; k++)
		for (int i = 0; i < k; i++)
			if (ensemble_share_weights(&m->p[i], &m->p[k], hash))
				printf("%s and %s are of the same weights (%s), which count more than once: the spread is not that of trainings\n", paths[i], paths[k], hash);
}

static int make(const struct ensemble_conf *conf, struct members *m, char **argv, struct error *e)
{
	struct predictions out = { 0 };
	struct spread *spread = malloc((m->p[0].n * FINDINGS + 1) * sizeof *spread);

	if (!spread)
		return fail(e, EXIT_INTERNAL, "no memory for %zu images", m->p[0].n);
	ensemble_make(&out, spread, m->auroc, m->p, (const char *const *)argv + 2, m->n, (enum ensemble_average)conf->average, e);
	size_t used = utf8_append(out.about.command, sizeof out.about.command, 0, "chexnet ensemble --average=");

	used = utf8_append(out.about.command, sizeof out.about.command, used, average_choices[conf->average]);
	utf8_append_words(out.about.command, sizeof out.about.command, used, m->n + 1, argv + 1);
	if (!e->code && predictions_write(argv[1], &out, e) == 0 && (!conf->spread || write_spread(conf->spread, m, &out, spread, e) == 0)) {
		printf("%d members, %zu image%s, average of %s: %s\n", m->n, out.n, out.n == 1 ? "" : "s", average_choices[conf->average], argv[1]);
		if (out.about.leaked > 0)
			printf("LEAK: a member was trained on %ld patient%s of this split\n", out.about.leaked, out.about.leaked == 1 ? "" : "s");
		else if (out.about.leaky)
			printf("LEAK: a member was trained on splits that share patients (--allow-leak)\n");
		if (out.about.leaked < 0)
			printf("leak not checked: nobody has compared these patients with all those that the members were trained on\n");
		if (is_own_split(&out.about, "val"))
			printf("validation split: weights are chosen on these images, so the numbers may flatter the models a little\n");
		if (*out.about.pos_weight)
			printf("%s trained with --pos-weight=balanced: the probabilities rank images, and are above the share that shows a finding\n",
			       strcmp(out.about.pos_weight, "balanced") ? "some members were" : "all members were");
		say_shared_weights(m, argv + 2);
		print_table(m, &out, spread, e);
	}
	free(spread);
	predictions_free(&out);
	return e->code ? -e->code : 0;
}

static int run(int argc, char **argv)
{
	struct ensemble_conf conf = { 0 };
	struct error e = { 0 };
	int operands, rc = options_read(&command_ensemble, argc, argv, &conf, &operands);

	if (rc >= 0)
		return rc;
	struct members *m = calloc(1, sizeof *m);

	if (!m)
		fail(&e, EXIT_INTERNAL, "no memory");
	threads_check(0, &e);
	for (int k = 0; !e.code && k < operands - 1; k++, m->n++)
		predictions_read(&m->p[k], argv[2 + k], &e);
	if (!e.code && check_outputs(&conf, m, argv, &e) == 0)
		make(&conf, m, argv, &e);
	for (int k = 0; m && k < m->n; k++)
		predictions_free(&m->p[k]);
	free(m);
	return e.code ? report_error(&command_ensemble, &e) : EXIT_DONE;
}

const struct command command_ensemble = {
	.name = "ensemble",
	.operands = "OUT FILE FILE…",
	.min_operands = 3,
	.max_operands = MAX_MEMBERS + 1,
	.summary = "average the predictions of several models, and show how far they are apart",
	.description = "Each FILE is what chexnet eval --predictions wrote for the same images. OUT is such a file too: compare it, report on it. One model counts once: a FILE with all the logits of another is "
		       "refused, and weights that several share are named. The table tells how much "
		       "an image's probability depends on which of the models was asked.",
	.options = options,
	.run = run,
};

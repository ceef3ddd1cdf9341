/* SPDX-License-Identifier: Apache-2.0
 * chexnet compare: is model B better than model A, or only luckier? */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "commands/commands.h"
#include "json.h"
#include "learn/compare.h"
#include "learn/log.h"
#include "threads.h"

struct compare_conf {
	int resamples, json;
	uint64_t seed;
};

static const struct option options[] = {
	OPTION(INT, struct compare_conf, resamples, "resamples", "N", RESAMPLES_DEFAULT, "bootstrap resamples of patients; the smallest p-value is 2/(N+1)",
	       .min = 100, .max = 100000),
	OPTION(U64, struct compare_conf, seed, "seed", "N", "1", "of the resamples"),
	OPTION(FLAG, struct compare_conf, json, "json", NULL, NULL, "print one JSON object instead of the table"),
	OPTIONS_END
};

/* bound: no more than */
static void print_p(double p, int bound)
{
	char text[16];

	printf("  %7s", p_text(p, bound, text));
}

static int is_few(const struct paired *p)
{
	return p->positive_patients < FEW_POSITIVES || p->negative_patients < FEW_POSITIVES;
}

static void print_row(const char *name, const struct paired *p, int is_mean)
{
	printf("%-20s", name);
	if (is_mean)
		printf(" %7s", "");
	else if (p->positives + p->negatives > 0)
		printf(" %7zu", p->positives);
	else
		printf(" %7s", "n/a"); /* nobody knows how many show it */
	if (isnan(p->difference.value)) {
		puts(is_mean || p->positives + p->negatives ? "  n/a" : "  n/a  no label that both know"); /* as of a finding that one was not trained on */
		return;
	}
	printf(" %7.4f %7.4f  %+8.4f  ", p->a, p->b, p->difference.value);
	if (isnan(p->difference.low))
		printf("%-18s", "n/a (too few)");
	else
		printf("%+.4f to %+.4f", p->difference.low, p->difference.high);
	print_p(p->p, p->p_bound);
	print_p(is_mean ? NAN : p->p_holm, p->p_holm_bound);
	print_p(p->p_delong, 0);
	puts(!is_mean && is_few(p) ? "  few" : "");
}

static const char *either(int a, int b)
{
	return a && b ? "either model" : a ? "A" : "B";
}

static const char *named(const char *text)
{
	return *text ? text : "not named";
}

static void print_warnings(const struct predictions *a, const struct predictions *b, const struct comparison *c)
{
	if (c->only_a || c->only_b)
		printf("left out: %zu image%s that only A has, %zu that only B has\n", c->only_a, c->only_a == 1 ? "" : "s", c->only_b);
	const int splits = splits_differ(&a->about, &b->about);

	if (*a->about.weights_hash && strcmp(a->about.weights_hash, b->about.weights_hash) == 0)
		printf("careful: A and B are of the same weights (%s)\n", a->about.weights_hash);
	if (splits)
		printf("careful: %s: A from %s, policy %s; B from %s, policy %s\n",
		       splits > 0 ? "A and B come from different splits" : "whether A and B come from the same split is not known", named(a->about.split), named(a->about.policy),
		       named(b->about.split), named(b->about.policy));
	if (is_own_split(&a->about, "val") || is_own_split(&b->about, "val"))
		printf("validation split: weights are chosen on these images, so the numbers may flatter a model a little\n");
	const int leaky_a = a->about.leaky && a->about.leaked <= 0, leaky_b = b->about.leaky && b->about.leaked <= 0;

	if (a->about.leaked > 0 || b->about.leaked > 0)
		printf("LEAK: %s was trained on patients of this split: the comparison says nothing about new patients\n",
		       either(a->about.leaked > 0, b->about.leaked > 0));
	if (leaky_a || leaky_b)
		printf("LEAK: %s was trained on splits that share patients (--allow-leak)\n", either(leaky_a, leaky_b));
	if (a->about.leaked < 0 || b->about.leaked < 0)
		printf("leak not checked: nobody has compared these patients with all those that %s was trained on\n", either(a->about.leaked < 0, b->about.leaked < 0));
	if (!a->has_patients && !b->has_patients)
		printf("careful: no patients are named; every image counts as one, so the intervals may be too narrow\n");
}

/* "; 9 of 14 findings differ after Holm's correction" */
static void print_findings(const struct comparison *c)
{
	int significant = 0;

	for (int f = 0; f < FINDINGS; f++)
		significant += c->finding[f].p_holm <= 0.05;
	if (!c->tested)
		printf("; no finding could be tested\n");
	else if (comparison_can_show(c))
		printf("; %d of %d findings differ after Holm's correction\n", significant, c->tested);
	else
		printf("; which findings differ, so few resamples cannot show\n");
}

static void print_verdict(const struct comparison *c)
{
	const struct interval *d = &c->mean.difference;

	if (isnan(d->value)) {
		printf("no finding has both positives and negatives: nothing to compare\n");
		return;
	}
	if (isnan(d->low))
		printf("too little to tell which mean AUROC is higher");
	else if (d->low > 0 || d->high < 0)
		printf("%s has the higher mean AUROC, by %.4f (95 %% interval %.4f to %.4f)", d->value > 0 ? "B" : "A", fabs(d->value), fmin(fabs(d->low), fabs(d->high)),
		       fmax(fabs(d->low), fabs(d->high)));
	else
		printf("no difference in mean AUROC can be shown: the 95 %% interval of B - A is %+.4f to %+.4f", d->low, d->high);
	print_findings(c);
}

static void print_few(const struct comparison *c)
{
	int few = 0, without = 0;

	for (int f = 0; f < FINDINGS; f++) {
		const struct paired *p = &c->finding[f];

		few += !isnan(p->difference.value) && is_few(p);
		without += !isnan(p->difference.value) && isnan(p->p);
	}
	if (few)
		printf("few: fewer than %d patients with the finding, or without it, show hardly any difference\n", FEW_POSITIVES);
	if (without)
		printf("n/a (too few): fewer than %d patients with the finding or without it, or nothing that sets the models apart\n", LEAST_POSITIVES);
	if (!comparison_can_show(c))
		printf("<=: no p of so few resamples is below %.3f, nor Holm's of %d findings below %.3f: --resamples=%d or more\n", c->p_floor, c->tested,
		       fmin(1, c->tested * c->p_floor), 40 * c->tested - 1);
}

static void print_table(const struct comparison *c, const struct predictions *a, const struct predictions *b, char *const *path, int resamples)
{
	char mean[64];

	printf("A %s\nB %s\n%zu image%s", path[0], path[1], c->n, c->n == 1 ? "" : "s");
	if (c->named)
		printf(" of %zu patient%s", c->patients, c->patients == 1 ? "" : "s");
	printf(" in both\n");
	print_warnings(a, b, c);
	printf("\n%-20s %7s %7s %7s  %8s  %-18s  %7s  %7s  %7s\n", "finding", "n+", "A", "B", "B - A", "95 % interval", "p", "p Holm", "DeLong");
	for (int f = 0; f < FINDINGS; f++)
		print_row(finding_names[f], &c->finding[f], 0);
	snprintf(mean, sizeof mean, "mean of %d of %d", c->counted, FINDINGS);
	print_row(mean, &c->mean, 1);
	printf("\nIntervals and p from resampled patients; DeLong's p takes all images for independent.\n");
	if (c->left_out)
		printf("Of the mean: without %d of %d resamples, which lack a finding.\n", c->left_out, resamples);
	print_few(c);
	print_verdict(c);
}

static void print_json(const struct comparison *c, const struct predictions *a, const struct predictions *b, char *const *path, const struct compare_conf *conf,
		       struct error *e)
{
	cJSON *o = cJSON_CreateObject();

	cJSON_AddStringToObject(o, "version", HVD_VERSION);
	cJSON_AddStringToObject(o, "a", path[0]);
	cJSON_AddStringToObject(o, "b", path[1]);
	json_leak(o, "leak_a", a->about.leaked > 0 || a->about.leaky, a->about.leaked >= 0);
	json_leak(o, "leak_b", b->about.leaked > 0 || b->about.leaky, b->about.leaked >= 0);
	cJSON_AddBoolToObject(o, "leak_checked_a", a->about.leaked >= 0);
	cJSON_AddBoolToObject(o, "leak_checked_b", b->about.leaked >= 0);
	json_number(o, "leaked_patients_a", a->about.leaked < 0 ? NAN : (double)a->about.leaked);
	json_number(o, "leaked_patients_b", b->about.leaked < 0 ? NAN : (double)b->about.leaked);
	json_number(o, "resamples", conf->resamples);
	json_whole(o, "seed", conf->seed);
	comparison_json(c, o);
	json_print(o, 1, e);
}

static int run(int argc, char **argv)
{
	struct compare_conf conf = { 0 };
	struct error e = { 0 };
	struct predictions a = { 0 }, b = { 0 };
	struct comparison c;
	int rc = options_read(&command_compare, argc, argv, &conf, NULL);

	if (rc >= 0)
		return rc;
	if (threads_check(0, &e) == 0 && predictions_read(&a, argv[1], &e) == 0 && predictions_read(&b, argv[2], &e) == 0 &&
	    compare_predictions(&c, &a, &b, argv[1], argv[2], conf.resamples, conf.seed, &e) == 0) {
		if (conf.json)
			print_json(&c, &a, &b, argv + 1, &conf, &e);
		else
			print_table(&c, &a, &b, argv + 1, conf.resamples);
	}
	predictions_free(&a);
	predictions_free(&b);
	return e.code ? report_error(&command_compare, &e) : EXIT_DONE;
}

const struct command command_compare = {
	.name = "compare",
	.operands = "A B",
	.min_operands = 2,
	.max_operands = 2,
	.summary = "compare two models on the same images, with intervals and p-values",
	.description = "A and B are files that chexnet eval --predictions wrote for the same images. Prints, for each finding and for the mean, both AUROCs and their "
		       "difference with a 95 % interval and a p-value from resampled patients, Holm's correction for the number of findings, and DeLong's paired test. Resamples that lack a finding "
		       "altogether are no part of the mean's interval and p; where a tenth or less is left, or fewer than 40, there is neither. Differences are spread by Student's "
		       "quantile for the patients with a finding or without it, whichever are fewer, which matters where they are few; with fewer than 5 there is neither interval nor p. <= marks a p-value that so many resamples cannot go below.",
	.options = options,
	.run = run,
};

/* SPDX-License-Identifier: Apache-2.0
 * chexnet synth: X-rays that anybody may have, with labels that can be learnt and a ceiling that is known. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "commands/commands.h"
#include "commands/stop.h"
#include "learn/few.h"
#include "prepare/synth_tree.h"
#include "prepare/thumbnail.h"
#include "threads.h"

struct conf {
	uint64_t seed, images;
	int size, leaky, overwrite, threads;
	double contrast, prevalence_scale, prevalence_floor, label_noise;
	const char *out, *check;
};

static const struct option options[] = {
	OPTION_GROUP("What to do"),
	OPTION(STRING, struct conf, out, "out", "DIR", NULL, "write a directory in NIH's layout; it appears when it is complete"),
	OPTION(FLAG, struct conf, overwrite, "overwrite", NULL, NULL, "replace DIR where this command made it and nothing else is in it"),
	OPTION(STRING, struct conf, check, "check", "PREPARED", NULL,
	       "fit a logistic regression on 8 x 8 thumbnails of a prepared set (\"builtin\": of the built-in one): an honest task leaves it near 0.5"),
	OPTION_GROUP("The images"),
	OPTION(U64, struct conf, images, "images", "N", "12000", "how many", .min = 1, .max = 1e8),
	OPTION(INT, struct conf, size, "size", "PIXELS", "256", "side of the squares", .min = 16, .max = 2048),
	OPTION(U64, struct conf, seed, "seed", "N", "1", "the same seed gives the same bytes"),
	OPTION(REAL, struct conf, contrast, "contrast", "C", "1", "strength of the signs; 0: labels that no image shows, for a null control",
	       .min = 0, .max = 3),
	OPTION_GROUP("The labels"),
	OPTION(REAL, struct conf, prevalence_scale, "prevalence-scale", "X", "1", "times NIH's prevalences", .min = 0, .max = 1000),
	OPTION(REAL, struct conf, prevalence_floor, "prevalence-floor", "P", "0", "least prevalence of a finding", .min = 0, .max = 0.5),
	OPTION(REAL, struct conf, label_noise, "label-noise", "P", "0.05", "share of the positives that show no sign; as many negatives show one",
	       .min = 0, .max = 0.5),
	OPTION(FLAG, struct conf, leaky, "leaky", NULL, NULL, "divide images, not patients: a leak for leak checks to find"),
	OPTION_GROUP("How"),
	OPTION(INT, struct conf, threads, "threads", "N", "0", "threads that draw; 0: as many as there are CPUs", .min = 0, .max = 1024),
	OPTIONS_END
};

static void print_tree(const struct conf *conf, const struct synth_report *r)
{
	const size_t *images = r->images, *patients = r->patients;

	printf("%s: %zu synthetic X-ray%s of %d x %d, contrast %g\n", conf->out, images[0] + images[1], images[0] + images[1] == 1 ? "" : "s", conf->size, conf->size,
	       conf->contrast);
	printf("  train_val %zu image%s, %zu patient%s; test %zu image%s, %zu patient%s\n", images[0], images[0] == 1 ? "" : "s", patients[0], patients[0] == 1 ? "" : "s",
	       images[1], images[1] == 1 ? "" : "s", patients[1], patients[1] == 1 ? "" : "s");
	printf("  %-20s %10s %10s  oracle AUROC on the test list\n", "positives:", "of all", "test list");
	for (int f = 0; f < FINDINGS; f++) {
		printf("  %-20s %10zu %10zu  ", finding_names[f], r->positives[f], r->test_positives[f]);
		if (isnan(r->oracle[f]))
			printf("n/a\n");
		else if (isnan(r->se[f]))
			printf("%.3f (%s)\n", r->oracle[f], r->test_positives[f] < LEAST_POSITIVES || (r->oracle[f] > 0 && r->oracle[f] < 1) ? "too few for a standard error" :
			       "all told apart: no standard error");
		else if (r->se[f] < 0.0005)
			printf("%.3f (standard error < 0.001)\n", r->oracle[f]);
		else
			printf("%.3f (standard error %.3f)\n", r->oracle[f], r->se[f]);
	}
	if (isnan(r->oracle_mean))
		printf("  mean oracle AUROC n/a: the test list has no finding with and without\n");
	else
		printf("  mean oracle AUROC %.3f\n", r->oracle_mean);
	if (r->leaked)
		printf("  %zu patient%s on both lists, as asked: training will refuse this\n", r->leaked, r->leaked == 1 ? " is" : "s are");
}

static int write_tree(const struct conf *conf, struct error *e)
{
	struct synth_report report;
	struct synth_conf c = {
		.seed = conf->seed, .images = conf->images, .size = conf->size, .contrast = conf->contrast, .leaky = conf->leaky,
		.prevalence_scale = conf->prevalence_scale, .prevalence_floor = conf->prevalence_floor, .label_noise = conf->label_noise,
	};

	stop_at_signals();
	if (synth_tree(&c, conf->out, conf->overwrite, conf->threads, &stop_asked, "chexnet synth", &report, e))
		return -e->code;
	print_tree(conf, &report);
	return 0;
}

/* Judges on the test split, or on validation images where there is no test split. */
static int check_thumbnails(const char *check, struct error *e)
{
	const char *directory = strcmp(check, "builtin") == 0 ? NULL : check;
	struct dataset *train = NULL, *test = NULL;
	struct thumbnail_fit fit;
	const char *split = dataset_has(directory, "test", e) ? "test" : "val";
	int rc = e->code ? -e->code : dataset_open(&train, directory, "train", e);

	if (!rc && dataset_count(train) == 0)
		rc = fail(e, EXIT_DATA, "%s: its train split is empty: nothing to fit", check);
	if (!rc)
		rc = dataset_open(&test, directory, split, e);
	if (!rc)
		rc = thumbnail_fit(train, test, &fit, e);
	if (!rc) {
		const double *oracle = dataset_oracle(test);
		printf("logistic regression on %d x %d thumbnails: %zu training, %zu %s image%s\n", THUMBNAIL_SIDE, THUMBNAIL_SIDE,
		       dataset_count(train), dataset_count(test), split, dataset_count(test) == 1 ? "" : "s");
		printf("  %-20s thumbnail%s\n", "AUROC", oracle ? "    oracle" : "");
		for (int f = 0; f < FINDINGS; f++) {
			printf("  %-20s", finding_names[f]);
			isnan(fit.auroc[f]) ? printf("%10s", "n/a") : printf("%10.3f", fit.auroc[f]);
			if (oracle)
				isnan(oracle[f]) ? printf("%10s", "n/a") : printf("%10.3f", oracle[f]);
			printf("\n");
		}
		if (fit.counted)
			printf("mean thumbnail AUROC %.3f (of %d findings)\n", fit.mean, fit.counted);
		else
			printf("mean thumbnail AUROC n/a: the %s split has no finding with and without\n", split);
	}
	dataset_close(train);
	dataset_close(test);
	return rc;
}

static int run(int argc, char **argv)
{
	struct conf conf = { 0 };
	struct error e = { 0 };
	int n, rc = options_read(&command_synth, argc, argv, &conf, &n);

	if (rc >= 0)
		return rc;
	if (!conf.out && !conf.check)
		fail(&e, EXIT_USAGE, "nothing to do: --out=DIR writes images, --check=PREPARED judges a task");
	else if (threads_check(conf.threads, &e) == 0 && conf.out && write_tree(&conf, &e) == 0 && conf.check)
		check_thumbnails(conf.check, &e);
	else if (!e.code && !conf.out)
		check_thumbnails(conf.check, &e);
	if (!e.code)
		return EXIT_DONE;
	rc = report_error(&command_synth, &e);
	stop_as_asked();
	return rc;
}

const struct command command_synth = {
	.name = "synth",
	.summary = "make synthetic chest X-rays with learnable labels and a known best AUROC",
	.description =
		"The images are no radiographs: each finding is a local texture of mean zero at a random place in drawn lungs. "
		"oracle.json holds the AUROC that nobody who sees the images alone can be expected to pass. "
		"With --contrast=0 the labels cannot be seen and every honest AUROC is 0.5 but for chance.",
	.options = options,
	.run = run,
};

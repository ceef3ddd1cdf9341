/* SPDX-License-Identifier: Apache-2.0
 * chexnet lr-test: is the learning rate to grow with the global batch? Two trainings that differ in nothing else say so. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "commands/commands.h"
#include "commands/knobs.h"
#include "commands/train.h"
#include "files/file.h"
#include "learn/compare.h"

static const char *const rule_words[] = { "none", "sqrt", "linear", NULL };

/* What both trainings share cannot be said as for one. */
static const struct option instead[] = {
	OPTION(INT, struct train_conf, batch, "batch", "N", "16", "images in a micro-batch, the group of batch normalisation", .min = 1, .max = 4096),
	OPTION(CHOICE, struct train_conf, scaling, "scaling", "RULE", "sqrt", "how the rate grows in the second training; none is what the first one does", .choices = rule_words),
	OPTION(INT, struct train_conf, base_batch, "base-batch", "N", "256", "global batch that the rate was chosen for; that of the trainings has to be above it",
	       .min = 1, .max = 1 << 20),
	OPTION(STRING, struct train_conf, output, "output", "DIR", NULL, "needed: the trainings write to DIR/none and DIR/RULE"),
	OPTION(STRING, struct train_conf, resume, "resume", "FILE|auto", "auto", "auto: a test that was stopped goes on where it was; FILE: both go on from this checkpoint, or where they were"),
	OPTION(INT, struct train_conf, resamples, "resamples", "N", RESAMPLES_DEFAULT,
	       "bootstrap resamples of patients behind each interval, 100 or more; 0: 100 for the comparison, none for each training's table",
	       .min = 100, .max = 100000, .or_0 = 1),
	OPTION_DROPPED("log-json"),
	OPTIONS_END
};

static const char *advice(const struct command *command, const char *name, size_t length, char *text, size_t size)
{
	if (length == 8 && strncmp(name, "log-json", 8) == 0)
		return "each training writes its own, OUTPUT/none/log.jsonl and OUTPUT/RULE/log.jsonl";
	return knob_advice(command, name, length, text, size);
}

struct lr_test {
	struct train_conf conf; /* as typed; scaling is what is tested against none */
	struct world world;
	char arm[2][FILE_PATH]; /* directories: without scaling, with it */
	int made;               /* OUTPUT was not there before */
};

/* Scaling that changes nothing cannot be tested. */
static int check(const struct lr_test *l, struct error *e)
{
	const struct train_conf *conf = &l->conf;
	int global = schedule_global_batch(conf->batch, conf->accumulate, l->world.at->size, e);

	if (global < 0)
		return global;
	if (!conf->output)
		return fail(e, EXIT_USAGE, "--output=DIR is needed: both models go into it");
	if (conf->scaling == SCALING_NONE)
		return fail(e, EXIT_USAGE, "--scaling=none is one side of the test already: name sqrt or linear as the other");
	if (dataset_has(conf->data, "test", e) == 0)
		return fail(e, EXIT_DATA, "%s: no image is in its test split, on which both trainings are compared", conf->data);
	if (e->code)
		return -e->code;
	if (global <= conf->base_batch)
		return fail(e, EXIT_USAGE, "the global batch of %d is not above --base-batch=%d, so the rate would be the same: give the batch that the rate was "
			    "chosen for as --base-batch", global, conf->base_batch);
	return 0;
}

static int make_directories(struct lr_test *l, struct error *e)
{
	if (path_join(l->arm[0], e, "%s/none", l->conf.output) < 0 || path_join(l->arm[1], e, "%s/%s", l->conf.output, rule_words[l->conf.scaling]) < 0)
		return -e->code;
	if (!world_speaks(&l->world))
		return 0;
	l->made = access(l->conf.output, F_OK) != 0;
	return directory_ensure(l->conf.output, e);
}

static void print_verdict(const struct lr_test *l, const struct comparison *c)
{
	const struct interval *d = &c->mean.difference;
	const char *rule = rule_words[l->conf.scaling];
	char p[16];

	if (!c->counted) {
		printf("\nno winner: no finding has both positives and negatives among the %zu test image%s\n", c->n, c->n == 1 ? "" : "s");
		return;
	}
	if (isnan(d->low)) {
		printf("\nno winner, and no interval: the test split's %zu patient%s too little to tell the trainings apart\n", c->patients, c->patients == 1 ? " is" : "s are");
		return;
	}
	printf("\nlearning-rate test on %zu images of %zu patients: mean AUROC %.4f without scaling, %.4f with %s scaling; difference %+.4f, 95 %% interval %+.4f "
	       "to %+.4f, p %s\n", c->n, c->patients, c->mean.a, c->mean.b, rule, d->value, d->low, d->high, p_text(c->mean.p, c->mean.p_bound, p));
	if (d->low > 0)
		printf("%s scaling won\n", rule);
	else if (d->high < 0)
		printf("training without scaling won\n");
	else
		printf("no winner: the interval holds zero\n");
	printf("one seed each: the interval is about patients, not about another training of the same kind\n");
	if (d->low > 0 || d->high < 0)
		printf("the test split has chosen the winner, and its AUROC there flatters it a little from now on\n");
}

static int judge(struct lr_test *l, struct error *e)
{
	struct predictions p[2] = { 0 };
	struct comparison c;
	char path[2][FILE_PATH];

	for (int i = 0; i < 2; i++)
		if (path_join(path[i], e, "%s/test.csv", l->arm[i]) < 0 || predictions_read(&p[i], path[i], e) < 0)
			break;
	if (!e->code && compare_predictions(&c, &p[0], &p[1], path[0], path[1], l->conf.resamples ? l->conf.resamples : 100, l->conf.seed, e) == 0)
		print_verdict(l, &c);
	predictions_free(&p[0]);
	predictions_free(&p[1]);
	return e->code ? -e->code : 0;
}

/* On rank 0: whether a training that was to go on from --resume=FILE did, before the test was stopped. */
static int has_begun(const struct lr_test *l, const char *arm)
{
	char latest[FILE_PATH];
	struct error told = { 0 }; /* by the training */

	return world_speaks(&l->world) && l->conf.resume && strcmp(l->conf.resume, "auto") != 0 && checkpoint_latest(latest, sizeof latest, arm, &told) > 0;
}

static int lr_test(struct lr_test *l, struct error *e)
{
	const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

	if (check(l, e) == 0)
		make_directories(l, e);
	if (world_agree(&l->world, e) < 0)
		return e->code;
	for (int i = 0; i < 2; i++) {
		struct train_conf conf = l->conf;

		conf.output = l->arm[i];
		conf.goes_on = 1;
		conf.scaling = i ? l->conf.scaling : SCALING_NONE;
		if (world_speaks(&l->world))
			printf("%s-- training %d of 2: learning rate %s\n", i ? "\n" : "", i + 1, i ? rule_words[conf.scaling] : "not scaled");
		if (has_begun(l, l->arm[i])) {
			printf("%s has checkpoints: it goes on from the last, not once more from %s\n", l->arm[i], conf.resume);
			conf.resume = "auto";
		}
		int rc = train_run(&l->world, &conf);

		if (rc != EXIT_DONE)
			return rc;
	}
	if (out >= 0)
		dup2(out, STDOUT_FILENO); /* trainings do without it where nobody reads it (log.c), and the verdict is nowhere else: that it was not told is no success */
	if (world_speaks(&l->world))
		judge(l, e);
	return world_agree(&l->world, e) < 0 ? e->code : EXIT_DONE;
}

static int run(int argc, char **argv)
{
	struct lr_test l = { 0 };
	struct error e = { 0 };
	char command[2000];
	int rc = train_read_options(&command_lr_test, argc, argv, &l.conf, command, sizeof command, &e);

	if (rc != 0)
		return rc < 0 ? world_refuse("lr-test", model_on_cpu(l.conf.engine.engine), &e) : EXIT_DONE;
	train_catch_signals();
	if (world_open(&l.world, "lr-test", model_on_cpu(l.conf.engine.engine), &e) < 0)
		return world_end(&l.world, &e);
	rc = lr_test(&l, &e);
	if (l.made)
		rmdir(l.conf.output); /* where both were refused it is empty */
	world_close(&l.world);
	return rc;
}

const struct command command_lr_test = {
	.name = "lr-test",
	.summary = "train with and without learning-rate scaling and say which won",
	.description = "Trains twice with the same seed, data and options: without learning-rate scaling into OUTPUT/none, and with --scaling=RULE into OUTPUT/RULE. Then "
		       "it compares both on the test split, patient by patient, and says which won, with the interval of the difference. Batch x accumulate x ranks has to be above --base-batch: up to it "
		       "scaling changes nothing. Options are those of train but for --log-json.",
	.options = train_options,
	.instead = instead,
	.advice = advice,
	.run = run,
};

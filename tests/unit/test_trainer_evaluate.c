/* SPDX-License-Identifier: Apache-2.0
 * The table of an evaluation as people read it: what stands above it, in its rows and below it. */
#include "tests/unit/test.h"

#include <math.h>

#include "data/source.h"
#include "learn/evaluate.h"

static const struct interval none = { NAN, NAN, NAN, NAN, METHOD_NONE };

/* 300 images of as many patients, a tenth of whom have each finding. */
static struct evaluation example(void)
{
	struct evaluation ev = { .n = 300, .loss = 0.25, .table = { .classes = FINDINGS, .counted = FINDINGS, .patients = 300, .mean = { .value = 0.8, .low = 0.78, .high = 0.82, .se = 0.01 } } };

	for (int f = 0; f < FINDINGS; f++) {
		ev.table.class[f] = (struct interval){ .value = 0.75, .low = 0.7, .high = 0.8, .se = 0.025 };
		ev.table.positives[f] = ev.table.positive_patients[f] = 30;
		ev.table.negatives[f] = ev.table.negative_patients[f] = 270;
	}
	return ev;
}

static struct dataset data = { .split = "test", .policy = "official", .source = "ChestX-ray14, labels of 2020" };

static struct evaluation_conf usual(void)
{
	return (struct evaluation_conf){ .dataset = &data, .resamples = 1000, .trained_on = "ChestX-ray14, labels of 2017" };
}

static char text[8192];

static void print(const struct evaluation *ev, const struct evaluation_conf *conf)
{
	FILE *f = fmemopen(text, sizeof text, "w");

	assert_non_null(f);
	evaluation_print(ev, conf, f);
	fclose(f);
}

/* What is printed between the first line and the table, and below it. */
static void says(const struct evaluation *ev, const struct evaluation_conf *conf, const char *above, const char *below)
{
	print(ev, conf);
	char *table = strstr(text, "finding              "), *first = strchr(text + 1, '\n') + 1, *mean = strstr(text, "mean of ");

	assert_true(table && mean);
	*table = '\0';
	if (strcmp(first, above) != 0)
		fail_msg("above the table \"%s\", not \"%s\"", first, above);
	if (strcmp(strchr(mean, '\n') + 1, below) != 0)
		fail_msg("below it \"%s\", not \"%s\"", strchr(mean, '\n') + 1, below);
}

static void has_row(const struct evaluation *ev, int resamples, const char *row)
{
	struct evaluation_conf conf = usual();

	conf.resamples = resamples;
	print(ev, &conf);
	if (!strstr(text, row))
		fail_msg("no \"%s\" in %s", row, text);
}

static void a_sound_evaluation_is_a_table_and_nothing_else(void **state)
{
	struct evaluation ev = example();
	struct evaluation_conf conf = usual();

	(void)state;
	says(&ev, &conf, "", "");
	ev.has_oracle = 1;
	says(&ev, &conf, "oracle: the AUROC that no model passes on such synthetic images but by chance\n", "");
	ev.has_oracle = 0;
	print(&ev, &conf);
	assert_non_null(strstr(text, "AUROC on the test split (policy official): 300 images of 300 patients, loss 0.2500\n"));
	assert_non_null(strstr(text, "finding                   n+  AUROC  95 % interval \n"));
	assert_non_null(strstr(text, "\nHernia                    30 0.7500  0.700 to 0.800\n"));
	assert_non_null(strstr(text, "\nmean of 14 of 14             0.8000  0.780 to 0.820\n"));
	conf.crops = CROPS_TEN;
	ev.n = ev.table.patients = 1;
	print(&ev, &conf);
	assert_non_null(strstr(text, " 1 image of 1 patient, loss 0.2500, ten crops\n"));
}

static void what_makes_the_numbers_worth_less_is_said_above_them(void **state)
{
	struct evaluation ev = example();
	struct evaluation_conf conf = usual();

	(void)state;
	conf.leaked = -1;
	says(&ev, &conf, "leak not checked: patients of this split are not compared with all those that the weights were trained on\n", "");
	conf.leaked = 1;
	conf.leaky = 1;
	says(&ev, &conf, "LEAK: patients of this split were trained on: these numbers say nothing about new patients\n", "");
	conf.leaked = 0;
	says(&ev, &conf, "LEAK: these weights were trained on splits that share patients (--allow-leak), but on no patient of this split\n", "");
	conf.leaked = -1;
	says(&ev, &conf, "leak not checked: patients of this split are not compared with all those that the weights were trained on\n"
	     "LEAK: these weights were trained on splits that share patients (--allow-leak)\n", "");
	conf = usual();
	conf.trained_on = "synthetic";
	says(&ev, &conf, "other images than in training: the weights were trained on \"synthetic\", these are \"ChestX-ray14, labels of 2020\"\n", "");
	strcpy(data.split, "val"); /* which is none of the training's */
	says(&ev, &conf, "other images than in training: the weights were trained on \"synthetic\", these are \"ChestX-ray14, labels of 2020\"\n", "");
	conf = usual();
	strcpy(data.split, "val");
	says(&ev, &conf, "validation split: weights are chosen on these images, so the numbers may flatter the model a little\n", "");
	strcpy(data.split, "train");
	says(&ev, &conf, "training images: the numbers say how well the model remembers, not how well it reads\n", "");
	strcpy(data.split, "test");
	ev.table.patients = 200;
	says(&ev, &conf, "", "");
	ev.table.patients = 199;
	says(&ev, &conf, "few patients: read the intervals, not the values\n", "");
	conf.resamples = 0; /* there are none to be read */
	says(&ev, &conf, "", "");
}

static void what_the_means_interval_leaves_out_is_said_below_it(void **state)
{
	struct evaluation ev = example();
	const struct evaluation_conf conf = usual();

	(void)state;
	ev.table.left_out = 20;
	says(&ev, &conf, "", "the mean's interval leaves out 20 of 1000 resamples, which lack a finding\n");
	ev.table.left_out = 980;
	ev.table.mean.low = ev.table.mean.high = ev.table.mean.se = NAN;
	says(&ev, &conf, "", "no interval of the mean: 980 of 1000 resamples lack a finding, and too few are left\n");
	has_row(&ev, 1000, "\nmean of 14 of 14             0.8000                \n");
	ev.table.mostly_few = 1;
	says(&ev, &conf, "", "no interval of the mean: most of its findings are too few for one\n");
}

static void a_row_says_why_it_has_no_interval(void **state)
{
	struct evaluation ev = example();
	struct auroc_table *t = &ev.table;

	(void)state;
	t->positives[0] = 12;
	t->positive_patients[0] = 4;
	t->class[0].low = t->class[0].high = NAN;
	t->negatives[1] = t->negative_patients[1] = 4;
	t->class[1].low = t->class[1].high = NAN;
	t->positives[2] = t->positive_patients[2] = 0;
	t->class[2] = none;
	t->positives[3] = t->positive_patients[3] = t->negatives[3] = t->negative_patients[3] = 0;
	t->class[3] = none;
	t->positives[4] = 2;
	t->positive_patients[4] = 1;
	t->positives[5] = 40;
	t->positives[6] = t->positive_patients[6] = FEW_POSITIVES;
	t->negatives[7] = t->negative_patients[7] = FEW_POSITIVES;
	has_row(&ev, 1000, "\nAtelectasis               12 0.7500  n/a (too few)   few positives: of 4 patients\n");
	has_row(&ev, 1000, "\nCardiomegaly              30 0.7500  n/a (too few)   few negatives\n");
	has_row(&ev, 1000, "\nEffusion                   0   n/a\n");
	has_row(&ev, 1000, "\nInfiltration             n/a   n/a  no label is known\n");
	has_row(&ev, 1000, "\nMass                       2 0.7500  0.700 to 0.800  few positives: of 1 patient\n");
	has_row(&ev, 1000, "\nNodule                    40 0.7500  0.700 to 0.800  of 30 patients\n");
	has_row(&ev, 1000, "\nPneumonia                 10 0.7500  0.700 to 0.800\n");
	has_row(&ev, 1000, "\nPneumothorax              30 0.7500  0.700 to 0.800\n");
	/* without resamples nothing is too few for an interval, which nobody asked for */
	for (int f = 0; f < FINDINGS; f++)
		t->class[f].low = t->class[f].high = NAN;
	has_row(&ev, 0, "\nAtelectasis               12 0.7500                  of 4 patients\n");
	has_row(&ev, 0, "\nCardiomegaly              30 0.7500                \n");
	has_row(&ev, 0, "\nfinding                   n+  AUROC                \n");
}

static void what_the_weights_have_not_learnt_is_no_result(void **state)
{
	struct evaluation ev = example();
	struct evaluation_conf conf = usual();
	cJSON *object = cJSON_CreateObject();

	(void)state;
	conf.untrained = 1u << 13;
	ev.table.positives[13] = ev.table.positive_patients[13] = ev.table.negatives[13] = 0; /* its labels are left out */
	ev.table.class[13] = none;
	print(&ev, &conf);
	assert_non_null(strstr(text, "\nHernia                     -   n/a  not learnt\n"));
	evaluation_json(&ev, &conf, object);
	const cJSON *findings = cJSON_GetObjectItem(object, "findings"), *row = cJSON_GetObjectItem(findings, "Hernia");
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(row, "positives")) && cJSON_IsNull(cJSON_GetObjectItem(row, "negatives")) && cJSON_IsNull(cJSON_GetObjectItem(row, "auroc")));
	assert_true(cJSON_IsNumber(cJSON_GetObjectItem(cJSON_GetObjectItem(findings, "Mass"), "positives")));
	cJSON_Delete(object);
	/* and where that is all of them, there is no loss either */
	ev.loss = NAN;
	print(&ev, &conf);
	assert_non_null(strstr(text, " patients, loss n/a\n"));
}

static void the_oracle_stands_beside_what_was_judged(void **state)
{
	struct evaluation ev = example();

	(void)state;
	ev.has_oracle = 1;
	ev.oracle_mean = 0.9;
	for (int f = 0; f < FINDINGS; f++)
		ev.oracle[f] = f == 1 ? NAN : 0.95;
	ev.table.class[2] = none;
	has_row(&ev, 1000, "  95 % interval   oracle\n");
	has_row(&ev, 1000, "\nAtelectasis               30 0.7500  0.700 to 0.800  0.9500\n");
	has_row(&ev, 1000, "\nCardiomegaly              30 0.7500  0.700 to 0.800\n");
	has_row(&ev, 1000, "\nEffusion                  30   n/a\n");
	has_row(&ev, 1000, "\nmean of 14 of 14             0.8000  0.780 to 0.820  0.9000\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sound_evaluation_is_a_table_and_nothing_else),
		cmocka_unit_test(what_makes_the_numbers_worth_less_is_said_above_them),
		cmocka_unit_test(what_the_means_interval_leaves_out_is_said_below_it),
		cmocka_unit_test(a_row_says_why_it_has_no_interval),
		cmocka_unit_test(what_the_weights_have_not_learnt_is_no_result),
		cmocka_unit_test(the_oracle_stands_beside_what_was_judged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * chexnet audit: what is wrong with a data set. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "commands/commands.h"
#include "json.h"
#include "prepare/audit.h"
#include "threads.h"

struct conf {
	const char *table, *train_val_list, *test_list;
	int pixels, json, threads;
};

static const struct option options[] = {
	OPTION_GROUP("What to compare with"),
	OPTION(STRING, struct conf, table, "table", "FILE", NULL, "NIH's label table: finds labels in another order"),
	OPTION(STRING, struct conf, train_val_list, "train-val-list", "FILE", NULL, "NIH's list: with --test-list and --table, finds images that are missing"),
	OPTION(STRING, struct conf, test_list, "test-list", "FILE", NULL, "NIH's list"),
	OPTION_GROUP("How"),
	OPTION(FLAG, struct conf, pixels, "pixels", NULL, "yes", "decode every image: duplicates, odd and broken ones"),
	OPTION(FLAG, struct conf, json, "json", NULL, NULL, "print one JSON object a path"),
	OPTION(INT, struct conf, threads, "threads", "N", "0", "threads that decode; 0: as many as there are CPUs", .min = 0, .max = 1024),
	OPTIONS_END
};

static void print_text(const char *path, const struct origin *o, const struct audit *a)
{
	printf("%s: %s, split %s: %zu image%s, %zu patient%s\n", path, o->name, o->policy, o->count, o->count == 1 ? "" : "s", a->patients, a->patients == 1 ? "" : "s");
	for (int s = 0; s < SPLITS && strcmp(o->policy, "none"); s++)
		printf("  %-5s %7zu image%-2s %6zu patient%s\n", split_names[s], a->images[s], a->images[s] == 1 ? "," : "s,", a->patients_of[s], a->patients_of[s] == 1 ? "" : "s");
	for (int problem = 1; problem >= 0; problem--)
		for (int i = 0; i < a->n_items; i++)
			if (a->items[i].problem == problem)
				printf("  %s (%s): %s\n", problem ? "PROBLEM" : "note", audit_kind_names[a->items[i].kind], a->items[i].text);
	printf("  %d problem%s\n", a->problems, a->problems == 1 ? "" : "s");
}

static void add_counts(cJSON *object, const char *name, const size_t counts[FINDINGS])
{
	cJSON *list = cJSON_AddObjectToObject(object, name);

	for (int f = 0; f < FINDINGS; f++)
		cJSON_AddNumberToObject(list, finding_names[f], (double)counts[f]);
}

/* The AUROC of each column alone; null where it was not compared. */
static void add_shortcuts(cJSON *object, const struct shortcuts *s)
{
	cJSON *all = cJSON_AddObjectToObject(object, "auroc_of_column_alone");

	for (int column = 0; column < SHORTCUTS; column++) {
		cJSON *list = cJSON_AddObjectToObject(all, shortcut_names[column]);
		for (int f = 0; f < FINDINGS; f++) {
			double auroc = s->of[column][f].auroc;
			cJSON_AddItemToObject(list, finding_names[f], isnan(auroc) ? cJSON_CreateNull() : cJSON_CreateNumber(auroc));
		}
	}
}

static void print_json(const char *path, const struct origin *o, const struct audit *a, struct error *e)
{
	cJSON *object = cJSON_CreateObject();

	cJSON_AddStringToObject(object, "path", path);
	cJSON_AddStringToObject(object, "source", o->name);
	cJSON_AddStringToObject(object, "split_policy", o->policy);
	cJSON_AddNumberToObject(object, "patients", (double)a->patients);
	cJSON *splits = cJSON_AddObjectToObject(object, "splits");
	for (int s = 0; s < SPLITS; s++) {
		cJSON *split = cJSON_AddObjectToObject(splits, split_names[s]);
		cJSON_AddNumberToObject(split, "images", (double)a->images[s]);
		cJSON_AddNumberToObject(split, "patients", (double)a->patients_of[s]);
		add_counts(split, "positives", a->positives[s]);
		add_counts(split, "negatives", a->negatives[s]);
		add_counts(split, "positive_patients", a->positive_patients[s]);
		add_counts(split, "negative_patients", a->negative_patients[s]);
	}
	add_shortcuts(object, &a->shortcuts);
	cJSON_AddNumberToObject(object, "problems", a->problems);
	cJSON *items = cJSON_AddArrayToObject(object, "items");
	for (int i = 0; i < a->n_items; i++) {
		cJSON *item = cJSON_CreateObject();
		cJSON_AddStringToObject(item, "kind", audit_kind_names[a->items[i].kind]);
		cJSON_AddBoolToObject(item, "problem", a->items[i].problem);
		cJSON_AddNumberToObject(item, "count", (double)a->items[i].count);
		cJSON_AddStringToObject(item, "text", a->items[i].text);
		cJSON_AddItemToArray(items, item);
	}
	json_print(object, 0, e);
}

/* On stderr in both cases, so that a program that reads the objects has the line in its log too. */
static int tell_unreadable(const char *path, int json, const struct error *e)
{
	struct error why = { 0 };

	if (json) {
		cJSON *object = cJSON_CreateObject();

		cJSON_AddStringToObject(object, "path", path);
		cJSON_AddStringToObject(object, "error", e->text);
		json_print(object, 0, &why);
	}
	report_error(&command_audit, e);
	return why.code ? report_error(&command_audit, &why) : e->code;
}

static int open_path(struct origin *o, const char *path, const struct audit_conf *c, struct error *e)
{
	struct stat st;

	if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
		return origin_table(o, path, c->table, c->train_val_list, c->test_list, e);
	return audit_open(o, path, e);
}

/* EXIT_DATA where the set has a problem or cannot be read. */
static int audit_path(const char *path, const struct audit_conf *c, int json)
{
	static struct audit a;
	struct origin o;
	struct error e = { 0 };

	if (open_path(&o, path, c, &e) == 0) {
		if (audit_run(&a, &o, c, &e) == 0)
			json ? print_json(path, &o, &a, &e) : print_text(path, &o, &a);
		origin_close(&o);
	}
	if (e.code)
		return tell_unreadable(path, json, &e);
	return a.problems ? EXIT_DATA : EXIT_DONE;
}

/* Tables that cannot be read are wrong for every PATH, and said once. */
static int check_tables(const struct conf *conf, struct error *e)
{
	struct nih n;

	if (!conf->train_val_list != !conf->test_list || (conf->test_list && !conf->table))
		return fail(e, EXIT_USAGE, "--train-val-list and --test-list go together, and with --table");
	if (!conf->table)
		return 0;
	if (nih_open_tables(&n, conf->table, conf->train_val_list, conf->test_list, e))
		return -e->code;
	nih_close(&n);
	return 0;
}

static int run(int argc, char **argv)
{
	struct conf conf = { 0 };
	struct error e = { 0 };
	int n, worst = EXIT_DONE, rc = options_read(&command_audit, argc, argv, &conf, &n);

	if (rc >= 0)
		return rc;
	if (threads_check(conf.threads, &e) < 0 || check_tables(&conf, &e) < 0)
		return report_error(&command_audit, &e);
	struct audit_conf c = { conf.table, conf.train_val_list, conf.test_list, conf.pixels, conf.threads, "chexnet audit" };
	for (int i = 1; i <= n; i++) {
		rc = audit_path(argv[i], &c, conf.json);
		worst = rc > worst ? rc : worst;
	}
	return worst;
}

const struct command command_audit = {
	.name = "audit",
	.operands = "PATH…",
	.min_operands = 1,
	.max_operands = 64,
	.summary = "tell what is wrong with a data set",
	.description =
		"Each PATH is a prepared data set, a directory as NIH publishes it, TFRecords of Dell's trainer, or a label table alone. Looks for patients in two "
		"splits, labels in another order than the table's, duplicates by name and by pixels, images that are missing, broken (the first 1000 are named) or odd, "
		"findings too rare to be judged, and those that the view (AP or PA), age, sex or follow-up number alone would tell. A PATH that cannot be read is named and the others are audited all the same. Ends with 65 when there is a problem.",
	.options = options,
	.run = run,
};

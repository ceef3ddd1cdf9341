/* SPDX-License-Identifier: Apache-2.0
 * chexnet prepare: an NIH directory becomes TFRecords of one size. */
#include <stdio.h>
#include <string.h>

#include "commands/commands.h"
#include "commands/stop.h"
#include "prepare/prepare.h"
#include "threads.h"

struct conf {
	int size, encoding, shards, overwrite, order, threads;
	uint64_t seed;
	const char *split, *table;
};

static const struct option options[] = {
	OPTION_GROUP("What is written"),
	OPTION(INT, struct conf, size, "size", "PIXELS", "256", "side of the stored squares", .min = 16, .max = 2048),
	OPTION(CHOICE, struct conf, encoding, "format", "FORMAT", "png",
	       "how images are stored: png (exact), jpeg (smaller, quality 95), packed (pixels, fastest to read)", .choices = encoding_names),
	OPTION(INT, struct conf, shards, "shards", "N", "0", "files a split; 0: 400 images a file", .min = 0, .max = 99999),
	OPTION(FLAG, struct conf, overwrite, "overwrite", NULL, NULL, "replace OUT where an earlier preparation made it and nothing else is in it"),
	OPTION_GROUP("Who is in which split"),
	OPTION(STRING, struct conf, split, "split", "POLICY", "official",
	       "official: NIH's lists, a tenth of the training patients for validation; chexnet: 70/10/20 % of the patients; "
	       "file:PATH: rows of image,split"),
	OPTION(U64, struct conf, seed, "seed", "N", "1", "chooses the validation patients and the order of records"),
	OPTION_GROUP("What labels stand for in TFRecords that do not name them"),
	OPTION(CHOICE, struct conf, order, "label-order", "ORDER", "infer",
	       "dell: that of Dell's trainer (ai-radiologist); chexnet: this program's; infer: by comparison with --table", .choices = label_order_names),
	OPTION(STRING, struct conf, table, "table", "FILE", NULL, "NIH's label table, Data_Entry_2017_v2020.csv"),
	OPTION_GROUP("How"),
	OPTION(INT, struct conf, threads, "threads", "N", "0", "threads that decode; 0: as many as there are CPUs", .min = 0, .max = 1024),
	OPTIONS_END
};

static void print_report(const struct prepare_conf *conf, const struct origin *o, const struct prepare_report *r)
{
	const struct manifest *m = &r->manifest;

	printf("%s: %s, split %s, %d x %d %s, %.1f MB\n", conf->out, m->source, m->policy, m->size, m->size, encoding_names[m->encoding],
	       (double)r->bytes / 1e6);
	for (int s = 0; s < SPLITS; s++)
		printf("  %-5s %7zu image%-2s %6zu patient%-2s %d file%s\n", split_names[s], m->split[s].images, m->split[s].images == 1 ? "," : "s,",
		       m->split[s].patients, m->split[s].patients == 1 ? "," : "s,", m->split[s].shards, m->split[s].shards == 1 ? "" : "s");
	if (m->split[SPLIT_TRAIN].images == 0)
		printf("  no image is for training: chexnet eval takes this set, chexnet train refuses it\n");
	printf("  %-20s %9s %9s %9s   %% of the known labels\n", "", split_names[0], split_names[1], split_names[2]);
	for (int f = 0; f < FINDINGS; f++) {
		printf("  %-20s", finding_names[f]);
		for (int s = 0; s < SPLITS; s++)
			if (r->known[s][f])
				printf(" %9.2f", 100.0 * (double)r->positives[s][f] / (double)r->known[s][f]);
			else
				printf(" %9s", "-");
		printf("\n");
	}
	if (*o->twin)
		printf("  two images of a split are called %s, so names keep the folders that tell images apart\n", o->twin);
	fflush(stdout);
	if (o->extra)
		fprintf(stderr, "chexnet prepare: warning: %zu image file%s no row in the table and %s left out\n", o->extra, o->extra == 1 ? " has" : "s have",
			o->extra == 1 ? "is" : "are");
	if (o->unlisted)
		fprintf(stderr, "chexnet prepare: warning: %zu image%s in no list and %s left out\n", o->unlisted, o->unlisted == 1 ? " is" : "s are",
			o->unlisted == 1 ? "is" : "are");
	if (r->stretched.count)
		fprintf(stderr, "chexnet prepare: warning: %zu image%s far from square, and stretched into one: %s\n", r->stretched.count,
			r->stretched.count == 1 ? " is" : "s are", r->stretched.text);
	if (r->enlarged.count)
		fprintf(stderr, "chexnet prepare: warning: %zu image%s fewer than %d pixels a side and %s enlarged: what was finer is lost: %s\n", r->enlarged.count,
			r->enlarged.count == 1 ? " has" : "s have", conf->size, r->enlarged.count == 1 ? "is" : "are", r->enlarged.text);
	if (r->leaked)
		fprintf(stderr, "chexnet prepare: warning: %zu patient%s in more than one split (%u is one): training will refuse this\n",
			r->leaked, r->leaked == 1 ? " is" : "s are", r->leak_example);
}

static int open_nih(struct origin *o, const struct conf *conf, const char *directory, struct error *e)
{
	if (conf->table || conf->order != LABELS_INFER)
		return fail(e, EXIT_USAGE, "--%s is for tfrecord: NIH's directory names its labels itself", conf->table ? "table" : "label-order");
	if (strcmp(conf->split, "file:") == 0)
		return fail(e, EXIT_USAGE, "--split=file: names no file");
	if (strncmp(conf->split, "file:", 5) == 0)
		return origin_nih_file(o, directory, conf->split + 5, e);
	for (enum split_policy p = SPLIT_OFFICIAL; p < SPLIT_FILE; p++)
		if (strcmp(conf->split, split_policy_names[p]) == 0)
			return origin_nih(o, directory, p, conf->seed, e);
	return fail(e, EXIT_USAGE, "--split=%s: there are official, chexnet and file:PATH", conf->split);
}

static int open_source(struct origin *o, const struct conf *conf, const char *kind, const char *directory, struct error *e)
{
	if (strcmp(kind, "nih") == 0)
		return open_nih(o, conf, directory, e);
	return origin_tfrecord(o, directory, (enum label_order)conf->order, conf->table, &stop_asked, e);
}

static int check_words(const struct conf *conf, const char *kind, struct error *e)
{
	int tfrecord = strcmp(kind, "tfrecord") == 0;

	if (!tfrecord && strcmp(kind, "nih") != 0)
		return fail(e, EXIT_USAGE, "%s: no such source; there are nih and tfrecord", kind);
	if (tfrecord && strcmp(conf->split, "official") != 0)
		return fail(e, EXIT_USAGE, "--split=%s is for nih: TFRecords keep the splits of their files", conf->split);
	return 0;
}

/* What is wrong with OUT is told before the source is read, all of which a set of TFRecords is. */
static int prepare_source(const struct conf *conf, const char *kind, const struct prepare_conf *p, struct error *e)
{
	struct origin origin;
	struct prepare_report report;
	struct staging staging;
	int rc = prepare_claim(p, &staging, e);

	if (!rc && (rc = open_source(&origin, conf, kind, p->source, e)) == 0) {
		rc = prepare_claimed(p, &staging, &origin, &report, e);
		if (!rc)
			print_report(p, &origin, &report);
		origin_close(&origin);
	}
	staging_discard(&staging);
	return rc;
}

static int run(int argc, char **argv)
{
	struct conf conf = { 0 };
	struct error e = { 0 };
	int n, rc = options_read(&command_prepare, argc, argv, &conf, &n);

	if (rc >= 0)
		return rc;
	struct prepare_conf p = { .out = argv[3], .source = argv[2], .size = conf.size, .encoding = (enum encoding)conf.encoding, .shards = conf.shards,
				  .seed = conf.seed, .threads = conf.threads, .overwrite = conf.overwrite, .stop = &stop_asked, .tell = "chexnet prepare" };
	stop_at_signals();
	if (check_words(&conf, argv[1], &e) == 0 && threads_check(conf.threads, &e) == 0 && prepare_source(&conf, argv[1], &p, &e) == 0)
		return EXIT_DONE;
	rc = report_error(&command_prepare, &e);
	stop_as_asked();
	return rc;
}

const struct command command_prepare = {
	.name = "prepare",
	.operands = "nih|tfrecord DIR OUT",
	.min_operands = 3,
	.max_operands = 3,
	.summary = "turn chest X-rays as NIH publishes them, or TFRecords, into files for training",
	.description =
		"nih: DIR holds Data_Entry_2017*.csv, train_val_list.txt, test_list.txt and the images in images/ or images_001/ to images_012/. "
		"tfrecord: DIR holds train-*-of-*, val-*-of-* and test-*-of-* files as Dell's trainer or TensorFlow writes them, with "
		"image/encoded, image/label (14 of 0 or 1), image/filename (UTF-8) and patient/id (one int64 from 0 to 4294967295, the same in all images of a patient). "
		"Where names are NIH's (00000001_000.png) they tell the patient, and patient/id may be absent but not contradict them. A label with a 0 in label/known (14) is not known: neither learnt nor judged. Files keep their splits. An image goes by its file name, or where two of a split share one, by its path below the folders that all are in. "
		"OUT gets manifest.json and files with the images in a seeded random order; it appears when it is complete and not before; a signal that stops the command leaves nothing behind. Where the disk has no room for all of it, a line says so when the first images are written; a quota is not looked at. "
		"Images are reduced by area averaging. --split official and chexnet never put a patient in two splits; of a file's division that does, prepare warns and training refuses it.",
	.options = options,
	.run = run,
};

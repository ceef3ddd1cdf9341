/* SPDX-License-Identifier: Apache-2.0
 * chexnet data: the input pipeline explained, and measured. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "commands/commands.h"
#include "commands/data_race.h"
#include "commands/stop.h"
#include "data/manifest.h"
#include "json.h"
#include "prepare/audit.h"
#include "prepare/pipeline.h"
#include "threads.h"

struct conf {
	int threads, size, json, batch;
	int old, new, ours;
	struct option_ints ranks;
	double seconds;
	uint64_t seed;
	const char *svg;
};

static const struct option options[] = {
	OPTION(INT, struct conf, threads, "threads", "N", "1", "bench: threads that decode", .min = 1, .max = 256),
	OPTION(REAL, struct conf, seconds, "seconds", "S", "2", "bench: how long", .min = 0.05, .max = 3600),
	OPTION(INT, struct conf, size, "size", "PIXELS", "256", "bench of a directory that is not prepared: side of the squares", .min = 16, .max = 2048),
	OPTION(FLAG, struct conf, json, "json", NULL, NULL, "bench: print one JSON object"),
	OPTION(INT, struct conf, batch, "batch", "N", "64", "explain: batch in which images of the same patient are counted; bench: of a rank", .min = 2, .max = 4096),
	OPTION(U64, struct conf, seed, "seed", "N", "1", "seed of the order"),
	OPTION_GROUP("bench of pipelines against each other (chexnet bench data: all three)"),
	OPTION(FLAG, struct conf, old, "old", NULL, NULL, "Dell's old approach, eight steps: every rank decodes all images"),
	OPTION(FLAG, struct conf, new, "new", NULL, NULL, "its new approach, ten steps: files are dealt out to the ranks"),
	OPTION(FLAG, struct conf, ours, "ours", NULL, NULL, "the pipeline that trains here"),
	OPTION(INTS, struct conf, ranks, "ranks", "LIST", "1,2,4", "processes that share the images, each with --threads of its own", .min = 1, .max = 64),
	OPTION(STRING, struct conf, svg, "svg", "FILE", NULL, "draw the rates"),
	OPTIONS_END
};

static void print_steps(enum sequence_kind kind, const char *heading)
{
	int n;
	const struct sequence_step *steps = sequence_steps(kind, &n);

	printf("%s\n", heading);
	for (int i = 0; i < n; i++)
		printf("  %2d %-14s %s\n", i + 1, steps[i].name, steps[i].what);
}

static int explain(const struct conf *conf, const char *path, struct error *e)
{
	struct origin o;
	struct shuffle_quality q;

	print_steps(SEQUENCE_OLD, "Dell's old approach, eight steps");
	print_steps(SEQUENCE_NEW, "its new approach, ten steps");
	print_steps(SEQUENCE_OURS, "here");
	printf("chexnet bench data runs them against each other\n");
	if (!path)
		return 0;
	if (audit_open(&o, path, e))
		return -e->code;
	size_t n = 0;
	for (size_t i = 0; i < o.count; i++)
		if (o.split[i] == SPLIT_TRAIN)
			o.samples[n++] = o.samples[i];
	int rc = shuffle_measure(&q, o.samples, n, conf->batch, conf->seed, e);
	if (!rc)
		printf("\npairs of images of the same patient in a batch of %d, %zu training images:\n"
		       "  by chance                                         %8.2f\n"
		       "  here                                              %8.2f\n"
		       "  old: files of 256 by name, buffer of 500          %8.2f\n"
		       "  new: ten such files in turn, buffer of 500        %8.2f\n",
		       conf->batch, n, q.chance, q.keyed, q.old, q.new);
	origin_close(&o);
	return rc;
}

static int measure(const struct conf *conf, const char *path, struct rate *r, char what[160], struct error *e)
{
	char manifest[FILE_PATH];
	struct stat st;
	struct dataset *d;
	struct origin o;
	int rc;

	if (path_join(manifest, e, "%s/manifest.json", path))
		return -e->code;
	if (stat(manifest, &st) == 0) {
		if (dataset_open(&d, path, dataset_has(path, "train", e) ? "train" : "test", e))
			return -e->code;
		snprintf(what, 160, "%d x %d, %.120s", dataset_image_size(d), dataset_image_size(d), dataset_describe(d));
		rc = rate_of_loader(r, d, conf->threads, conf->seconds, e);
		dataset_close(d);
		return rc;
	}
	if (audit_open(&o, path, e))
		return -e->code;
	snprintf(what, 160, "%s, decoded and reduced to %d x %d", o.name, conf->size, conf->size);
	rc = rate_of_decoding(r, &o, conf->size, conf->threads, conf->seconds, e);
	origin_close(&o);
	return rc;
}

static int bench(const struct conf *conf, const char *path, struct error *e)
{
	struct rate r;
	char what[160];

	if (measure(conf, path, &r, what, e))
		return -e->code;
	double rate = (double)r.images / r.seconds, core = (double)r.images / r.cpu_seconds;
	if (!conf->json) {
		printf("%s: %s: %zu image%s in %.2f s with %d thread%s: %.0f images/s, %.0f a CPU second\n", path, what, r.images, r.images == 1 ? "" : "s", r.seconds,
		       conf->threads, conf->threads == 1 ? "" : "s", rate, core);
		return 0;
	}
	cJSON *o = cJSON_CreateObject();
	cJSON_AddStringToObject(o, "path", path);
	cJSON_AddStringToObject(o, "what", what);
	cJSON_AddNumberToObject(o, "threads", conf->threads);
	cJSON_AddNumberToObject(o, "images", (double)r.images);
	cJSON_AddNumberToObject(o, "seconds", r.seconds);
	cJSON_AddNumberToObject(o, "images_per_s", rate);
	cJSON_AddNumberToObject(o, "images_per_cpu_s", core);
	return json_print(o, 0, e);
}

static int race(const struct conf *conf, const char *path, struct error *e)
{
	struct race_conf r = {
		.directory = path, .run = { conf->old, conf->new, conf->ours }, .ranks = conf->ranks, .threads = conf->threads, .batch = conf->batch,
		.seconds = conf->seconds, .seed = conf->seed, .svg = conf->svg, .json = conf->json,
	};

	if (output_replaces(conf->svg, "<svg", "SVG picture", e) || (conf->svg && output_check(conf->svg, e)))
		return -e->code;
	return data_race(&r, e);
}

static int run_word(const struct conf *conf, const char *word, const char *path, struct error *e)
{
	if (strcmp(word, "explain") == 0 && (conf->json || conf->svg || conf->old || conf->new || conf->ours))
		return fail(e, EXIT_USAGE, "--json, --svg, --old, --new and --ours are for bench: explain prints text, of all three");
	if (strcmp(word, "explain") == 0)
		return explain(conf, path, e);
	if (strcmp(word, "bench") != 0)
		return fail(e, EXIT_USAGE, "%s: neither explain nor bench", word);
	if (conf->old || conf->new || conf->ours)
		return race(conf, path, e);
	if (conf->svg)
		return fail(e, EXIT_USAGE, "--svg draws what --old, --new and --ours measure");
	return path ? bench(conf, path, e) : fail(e, EXIT_USAGE, "bench takes a directory");
}

static int end(int rc, const struct error *e)
{
	if (rc == 0)
		return EXIT_DONE;
	rc = report_error(&command_data, e);
	stop_as_asked();
	return rc;
}

static int run(int argc, char **argv)
{
	struct conf conf = { 0 };
	struct error e = { 0 };
	int n, rc = options_read(&command_data, argc, argv, &conf, &n);

	if (rc >= 0)
		return rc;
	return end(threads_check(0, &e) < 0 ? -e.code : run_word(&conf, argv[1], n > 1 ? argv[2] : NULL, &e), &e);
}

int bench_data(int argc, char **argv)
{
	struct conf conf = { 0 };
	struct error e = { 0 };
	int n, rc;

	argv[0] = "data";
	argv[1] = "bench";
	if ((rc = options_read(&command_data, argc, argv, &conf, &n)) >= 0)
		return rc;
	if (!conf.old && !conf.new && !conf.ours)
		conf.old = conf.new = conf.ours = 1;
	return end(threads_check(0, &e) < 0 ? -e.code : race(&conf, n > 1 ? argv[2] : NULL, &e), &e);
}

const struct command command_data = {
	.name = "data",
	.operands = "explain|bench [DIR]",
	.min_operands = 1,
	.max_operands = 2,
	.summary = "explain how images reach the network, or measure how fast",
	.description =
		"explain prints the steps of the two pipelines that Dell published for CheXNet, its old and its new approach, and of this program's; with DIR it counts how often a batch holds "
		"several images of one patient. bench reads DIR, a prepared data set or a directory that prepare takes, for some seconds. "
		"With --old, --new or --ours it runs those pipelines over several numbers of ranks, on DIR, prepared as TFRecords, or on synthetic "
		"X-rays made for the occasion, in chexnet-race-… of TMPDIR, which goes with the last of its processes. --old and --new are this program's own versions of Dell's steps over its own readers and decoders.",
	.options = options,
	.run = run,
};

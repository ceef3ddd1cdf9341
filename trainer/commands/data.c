/* SPDX-License-Identifier: Apache-2.0
 * chexnet data: the input pipeline explained, and measured. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "commands/commands.h"
#include "data/audit.h"
#include "data/manifest.h"
#include "data/pipeline.h"

struct conf {
	int threads, size, json, batch;
	double seconds;
	uint64_t seed;
};

static const struct option options[] = {
	OPTION(INT, struct conf, threads, "threads", "N", "1", "bench: threads that decode", .min = 1, .max = 256),
	OPTION(REAL, struct conf, seconds, "seconds", "S", "2", "bench: how long", .min = 0.05, .max = 3600),
	OPTION(INT, struct conf, size, "size", "PIXELS", "256", "bench of a directory that is not prepared: side of the squares", .min = 16, .max = 2048),
	OPTION(FLAG, struct conf, json, "json", NULL, NULL, "bench: print one JSON object"),
	OPTION(INT, struct conf, batch, "batch", "N", "64", "explain: batch in which images of the same patient are counted", .min = 2, .max = 4096),
	OPTION(U64, struct conf, seed, "seed", "N", "1", "explain: seed of the order"),
	OPTIONS_END
};

/* Stages in the order in which an image passes them: a loop in the training process as first trainers have it, the usual
 * tf.data pipeline, this program. */
static const struct {
	const char *stage, *loop, *graph, *here;
} stages[] = {
	{ "list", "list of file names and labels", "glob of TFRecord files", "manifest.json: files, counts, findings, source" },
	{ "share", "list cut into one piece a rank; the rest dropped", "files dealt out to ranks: unequal steps", "positions dealt out: rank, micro-batch and row are arithmetic" },
	{ "order", "list shuffled once an epoch", "files shuffled, 10 read in turn, buffer of 500", "keyed permutation of all images; no state" },
	{ "fetch", "open and read one PNG", "read records in sequence", "mapped files, any record at once" },
	{ "check", "none", "CRC; aborts without a file name", "CRC of every record, named to file, record, byte" },
	{ "decode", "in the training process, one image at a time", "decode_image in map(), N threads", "libdeflate or libjpeg-turbo, N threads, no queue" },
	{ "augment", "flip on the host", "flip in map(), random state lost at a restart", "window and flip keyed by (seed, epoch, image), cut on the device" },
	{ "normalise", "float32 x 3 channels on the host", "float32 x 3 channels on the host", "uint8 x 1 channel to the device, normalised there" },
	{ "batch", "copy", "batch() copy", "decoded in place: the ticket is slot and row" },
	{ "hand over", "when the step asks", "prefetch()", "ring of slots; the next steps are ready while one computes" },
	{ "resume", "from the epoch's start", "from the epoch's start", "at the exact position, on any number of ranks" },
};

static int explain(const struct conf *conf, const char *path, struct error *e)
{
	struct origin o;
	struct shuffle_quality q;

	printf("%-10s %-50s %-50s %s\n", "stage", "a plain loop over image files", "tf.data over TFRecords", "here");
	for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++)
		printf("%-10s %-50s %-50s %s\n", stages[i].stage, stages[i].loop, stages[i].graph, stages[i].here);
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
		       "  files of 256 in the order of names, buffer of 500 %8.2f\n",
		       conf->batch, n, q.chance, q.keyed, q.buffered);
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
		if (dataset_open(&d, path, dataset_has(path, "train") ? "train" : "test", e))
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
		printf("%s: %s: %zu images in %.2f s with %d thread%s: %.0f images/s, %.0f a CPU second\n", path, what, r.images, r.seconds,
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
	char *text = cJSON_PrintUnformatted(o);
	puts(text ? text : "null");
	cJSON_free(text);
	cJSON_Delete(o);
	return 0;
}

static int run(int argc, char **argv)
{
	struct conf conf = { 0 };
	struct error e = { 0 };
	int n, rc = options_read(&command_data, argc, argv, &conf, &n);

	if (rc >= 0)
		return rc;
	if (strcmp(argv[1], "explain") == 0)
		rc = explain(&conf, n > 1 ? argv[2] : NULL, &e);
	else if (strcmp(argv[1], "bench") == 0)
		rc = n > 1 ? bench(&conf, argv[2], &e) : fail(&e, EXIT_USAGE, "bench takes a directory");
	else
		rc = fail(&e, EXIT_USAGE, "%s: neither explain nor bench", argv[1]);
	return rc ? report_error(&command_data, &e) : EXIT_DONE;
}

const struct command command_data = {
	.name = "data",
	.operands = "explain|bench [DIR]",
	.min_operands = 1,
	.max_operands = 2,
	.summary = "explain how images reach the network, or measure how fast",
	.description =
		"explain compares the stages an image passes in a loop over files, in tf.data and here; with DIR it counts how often a batch holds "
		"several images of one patient. bench reads DIR, a prepared data set or a directory that prepare takes, for some seconds.",
	.options = options,
	.run = run,
};

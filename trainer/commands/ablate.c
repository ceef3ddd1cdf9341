/* SPDX-License-Identifier: Apache-2.0 */
#include "commands/ablate.h"

#include <stdio.h>
#include <stdlib.h>

#include "clock.h"
#include "commands/bench_run.h"
#include "commands/knobs.h"
#include "data/loader.h"
#include "learn/log.h"
#include "learn/resample.h"

enum { MERGED = 4, FETCH_STEPS = 30, DEPTH = 4, MAX_ROUNDS = 99 };

enum feed { FEED_AHEAD, FEED_IN_STEP, FEED_NOTHING };

/* One of the two ways to run that a knob compares. */
struct side {
	struct model_conf conf;
	int micros, fetch_every;
	enum feed feed;

	struct model model;
	struct loader *loader;
	struct dataset_scratch *scratch;
	uint8_t *pixels;  /* [batch][size][size] where no loader feeds */
	uint32_t *labels;
	uint64_t position;
	uint64_t steps;
};

struct ablation_run {
	struct world *world;
	const struct ablate_conf *conf;
	struct dataset *data;
};

/* ---- the two sides of a knob ----------------------------------------------------------------------------- */

static void choose_sides(struct side side[2], enum ablation what, const struct ablate_conf *conf)
{
	for (int i = 0; i < 2; i++)
		side[i] = (struct side){ .conf = conf->model, .micros = 1, .fetch_every = 1, .feed = FEED_NOTHING };
	switch (what) {
	case ABLATE_NOTHING:
	case ABLATE_GPU:
		break;
	case ABLATE_THREADS:
		side[0].conf.threads = 1;
		break;
	case ABLATE_PREFETCH:
		side[0].feed = FEED_IN_STEP;
		side[1].feed = FEED_AHEAD;
		break;
	case ABLATE_DATA:
		side[0].feed = FEED_AHEAD;
		break;
	case ABLATE_MERGE:
		side[1].micros = MERGED;
		break;
	case ABLATE_BF16:
		side[0].conf.precision = PRECISION_FP32;
		side[1].conf.precision = PRECISION_BF16;
		break;
	case ABLATE_FETCH:
		side[1].fetch_every = FETCH_STEPS;
		break;
	case ABLATE_BUCKETS:
		side[0].conf.bucket_bytes = (size_t)1 << 30;
		side[1].conf.bucket_bytes = 0;
		break;
	case ABLATE_BATCH:
		side[0].conf.batch = conf->model.batch / 4 > 0 ? conf->model.batch / 4 : 1;
		break;
	}
}

static void close_side(struct side *s)
{
	loader_close(s->loader);
	dataset_scratch_free(s->scratch);
	model_close(&s->model);
	free(s->pixels);
	free(s->labels);
}

static int open_side(struct side *s, const struct ablation_run *run, struct error *e)
{
	size_t pixels = (size_t)s->conf.batch * (size_t)s->conf.source_size * (size_t)s->conf.source_size;
	struct model_values v;

	if (model_open(&s->model, run->world, &s->conf, e) < 0)
		return -e->code;
	if (model_values_alloc(&v, &s->model.plan, 0, e) == 0) {
		net_init(&s->model.plan, run->conf->seed, NULL, v.params);
		for (size_t i = 0; i < s->model.plan.n_bn_channels; i++)
			v.variance[i] = 1;
		model_put(&s->model, &v, e);
		model_values_free(&v);
	}
	s->pixels = malloc(pixels);
	s->labels = calloc((size_t)s->conf.batch, sizeof *s->labels);
	s->scratch = dataset_scratch(run->data);
	if (!s->pixels || !s->labels || !s->scratch)
		fail(e, EXIT_INTERNAL, "no memory");
	for (size_t i = 0; s->pixels && i < pixels; i++)
		s->pixels[i] = (uint8_t)((i * 2654435761u) >> 13);
	struct loader_conf lc = {
		.dataset = run->data, .seed = run->conf->seed, .batch = s->conf.batch, .micros = s->micros, .rank = run->world->at->rank,
		.ranks = run->world->at->size, .threads = model_decode_threads(&s->model), .depth = DEPTH,
	};

	if (!e->code && s->feed == FEED_AHEAD)
		loader_open(&s->loader, &lc, e);
	return world_agree(run->world, e);
}

/* ---- measuring ------------------------------------------------------------------------------------------- */

static int read_in_step(struct side *s, const struct ablation_run *run, struct error *e)
{
	size_t image = (size_t)s->conf.source_size * (size_t)s->conf.source_size;

	for (int i = 0; i < s->conf.batch; i++) {
		size_t sample = (s->position++ * (size_t)run->world->at->size + (size_t)run->world->at->rank) % dataset_count(run->data);

		if (dataset_read(run->data, sample, s->scratch, s->pixels + (size_t)i * image, e) < 0)
			return -e->code;
		s->labels[i] = dataset_samples(run->data)[sample].labels;
	}
	return 0;
}

static int one_micro(struct side *s, const struct ablation_run *run, int micro, struct error *e)
{
	struct loader_batch b = { .batch = { .count = s->conf.batch, .pixels = s->pixels, .labels = s->labels } };
	double waited;
	uint64_t token;

	if (s->feed == FEED_IN_STEP && read_in_step(s, run, e) < 0)
		return -e->code;
	if (s->feed == FEED_AHEAD && loader_next(s->loader, &b, &waited, e) != 1)
		return e->code ? -e->code : fail(e, EXIT_INTERNAL, "the stream of images ended");
	if (model_train(&s->model, &b.batch, micro, s->micros, 1e-4, &token, e) < 0)
		return -e->code;
	if (engine_done(s->model.engine, token, 1) < 0)
		return model_fail(&s->model, e);
	if (s->feed == FEED_AHEAD)
		loader_release(s->loader, b.slot);
	return 0;
}

/* Seconds an image, of the slowest rank. */
static int measure(struct side *s, const struct ablation_run *run, double *seconds, struct error *e)
{
	double begin = now(), loss;

	for (int i = 0; i < run->conf->steps; i++)
		for (int micro = 0; micro < MERGED; micro++) { /* as many images on both sides */
			if (one_micro(s, run, micro % s->micros, e) < 0)
				return -e->code;
			if (micro % s->micros == s->micros - 1 && ++s->steps % (uint64_t)s->fetch_every == 0 && engine_loss(s->model.engine, &loss) < 0)
				return model_fail(&s->model, e);
		}
	*seconds = (now() - begin) / (run->conf->steps * MERGED * s->conf.batch);
	if (hvd_allreduce(run->world->hvd, seconds, seconds, 1, HVD_F64, HVD_MAX) < 0)
		return world_fail(run->world, e);
	return 0;
}

/* Median, least and largest of the rounds' ratios: how many times faster the second side is. */
struct gain {
	double median, least, most;
};

static int compare(struct side side[2], const struct ablation_run *run, struct gain *g, struct error *e)
{
	double ratio[MAX_ROUNDS], seconds[2];
	int n = run->conf->rounds;

	for (int round = -1; round < n; round++) { /* the first warms up */
		for (int i = 0; i < 2; i++)
			if (measure(&side[i], run, &seconds[i], e) < 0)
				return -e->code;
		if (round >= 0)
			ratio[round] = seconds[0] / seconds[1];
	}
	sort_ascending(ratio, (size_t)n);
	*g = (struct gain){ quantile(ratio, (size_t)n, 0.5), ratio[0], ratio[n - 1] };
	return 0;
}

static int measure_knob(const struct ablation_run *run, enum ablation what, struct gain *g, struct error *e)
{
	struct side side[2];

	choose_sides(side, what, run->conf);
	if (open_side(&side[0], run, e) == 0 && open_side(&side[1], run, e) == 0)
		compare(side, run, g, e);
	close_side(&side[0]);
	close_side(&side[1]);
	return e->code ? -e->code : 0;
}

/* ---- telling --------------------------------------------------------------------------------------------- */

static void print_row(const struct knob *k, const char *gain)
{
	printf("%-18s %-36s %-22s %-22s %s\n", k->guide, k->theirs, *k->ours ? k->ours : "-", gain, k->why);
	fflush(stdout);
}

static int tell_knob(const struct ablation_run *run, const struct knob *k, struct error *e)
{
	char text[64] = "-";
	struct gain g;

	if (k->ablation == ABLATE_GPU)
		snprintf(text, sizeof text, "needs a GPU");
	else if (k->ablation != ABLATE_NOTHING) {
		if (measure_knob(run, k->ablation, &g, e) < 0)
			return -e->code;
		snprintf(text, sizeof text, "%.2fx (%.2f to %.2f)", g.median, g.least, g.most);
	}
	if (world_speaks(run->world))
		print_row(k, text);
	return 0;
}

int ablate(struct world *w, const struct ablate_conf *conf, struct error *e)
{
	struct ablation_run run = { .world = w, .conf = conf };
	struct ablate_conf own = *conf;

	if (dataset_open(&run.data, conf->data, "train", e) == 0) {
		own.model.source_size = dataset_image_size(run.data);
		if (own.model.network.image_size > own.model.source_size)
			own.model.network.image_size = own.model.source_size;
		run.conf = &own;
	}
	if (world_agree(w, e) == 0 && world_speaks(w)) {
		printf("%s, %d pixels, batch %d, %d rank%s, %d thread%s; %s; gain: median (least to most) of %d interleaved round%s, times faster\n",
		       own.model.network.model, own.model.network.image_size, own.model.batch, w->at->size, w->at->size == 1 ? "" : "s", own.model.threads,
		       own.model.threads == 1 ? "" : "s", dataset_describe(run.data), conf->rounds, conf->rounds == 1 ? "" : "s");
		print_row(&(struct knob){ .guide = "guide", .theirs = "their name", .ours = "ours", .why = "" }, "gain");
	}
	for (const struct knob *k = knobs; k->theirs && !e->code; k++)
		tell_knob(&run, k, e);
	dataset_close(run.data);
	return e->code ? -e->code : 0;
}

/* SPDX-License-Identifier: Apache-2.0
 * Ranks that are not in the sub-world of a turn wait asleep in a broadcast of the whole world, whose rank 0 is always among those that
 * compute: now and then it says that the turn goes on, so that nobody passes libhvd's deadline, and at last that it is over. */
#include "commands/bench_scaling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "commands/bench_run.h"
#include "commands/network_options.h"
#include "json.h"
#include "learn/resample.h"

enum input { INPUT_SYNTHETIC, INPUT_REAL, INPUTS };
enum { DEPTH = 4, SIGNS = 4 }; /* slots of the loader's ring, as in training; signs of life in a deadline */

struct result {
	double *seconds;       /* [rounds][steps], of the slowest rank */
	double *round;         /* [rounds] of its steps together: what a step that waits for images saved before, the next ones lack */
	double input, exposed; /* seconds of all of them */
};

struct row {
	int ranks, nodes;
	struct result of[INPUTS];
};

struct scaling {
	struct world *world;
	const struct scaling_conf *conf;
	struct dataset *data; /* NULL: none */
	int round, n_rows;
	struct row *rows;     /* [n_rows] */
	char engine[256];
	size_t memory;        /* of the engine, bytes */
	size_t parameters;
};

/* ---- a turn, and those who wait for its end ---------------------------------------------------------- */

struct turn {
	struct world *all, part; /* part.at NULL: this rank waits */
	int steps, every;        /* since the last sign of life; until the next */
	double begin;            /* now() at the last sign */
	int over;                /* rank 0 said so */
};

/* Rank 0 says whether the turn goes on; the others hear it. */
static int tell_others(struct turn *t, int goes_on, struct error *e)
{
	int32_t word = goes_on;

	if (t->part.at && t->part.at->size == t->all->at->size)
		return 0; /* nobody waits */
	if (hvd_broadcast(t->all->hvd, &word, 1, HVD_I32, 0) < 0)
		return world_fail(t->all, e);
	t->over = !word;
	return 0;
}

static int sign_of_life(struct turn *t, struct error *e)
{
	if (tell_others(t, 1, e) < 0)
		return -e->code;
	return t->over ? fail(e, EXIT_INTERNAL, "rank 0 gave up") : 0;
}

/* After every step of those who compute; all of them come to the same number of steps until the next sign. */
static int between_steps(void *context, struct error *e)
{
	struct turn *t = context;
	double slowest = (now() - t->begin) / ++t->steps;

	if (t->steps < t->every)
		return 0;
	if (hvd_allreduce(t->part.hvd, &slowest, &slowest, 1, HVD_F64, HVD_MAX) < 0)
		return world_fail(&t->part, e);
	double fit = t->all->deadline / SIGNS / (slowest + 1e-9);

	t->every = fit < 1 ? 1 : fit > 1e6 ? 1000000 : (int)fit;
	t->steps = 0;
	if (sign_of_life(t, e) < 0)
		return -e->code;
	t->begin = now();
	return 0;
}

/* A rank that failed in its turn waits here for the others' end. */
static void end_turn(struct turn *t, struct error *e)
{
	struct error mine = { 0 };

	if (world_speaks(t->all))
		tell_others(t, 0, &mine);
	else if (!t->part.at || t->part.at->size < t->all->at->size)
		while (!t->over && tell_others(t, 0, &mine) == 0)
			;
	if (mine.code && !e->code)
		*e = mine;
	world_first_close(t->all, &t->part);
}

/* ---- measuring --------------------------------------------------------------------------------------- */

static int measure(struct scaling *s, struct turn *t, struct bench_run *run, struct loader *feed, struct result *to, struct error *e)
{
	if (sign_of_life(t, e) < 0)
		return -e->code;
	t->steps = 0;
	t->every = 1;
	t->begin = now();
	if (bench_run_measure(run, feed, e) < 0 || bench_run_gather(run, e) < 0)
		return -e->code;
	memcpy(to->seconds + s->round * run->steps, run->seconds, (size_t)run->steps * sizeof *run->seconds);
	to->round[s->round] = run->total;
	to->input += run->input;
	to->exposed += run->exposed;
	return 0;
}

static int measure_real(struct scaling *s, struct turn *t, struct bench_run *run, struct result *to, struct error *e)
{
	struct loader *feed = NULL;
	struct loader_conf conf = {
		.dataset = s->data, .seed = s->conf->seed, .batch = run->model_conf.batch, .micros = 1, .rank = t->part.at->rank, .ranks = t->part.at->size,
		.image_size = run->model_conf.network.image_size, .threads = model_decode_threads(&run->model), .depth = DEPTH,
	};
	uint64_t *kept = run->kept;

	run->kept = NULL; /* real images are fed */
	loader_open(&feed, &conf, e);
	if (world_agree(&t->part, e) == 0)
		measure(s, t, run, feed, to, e);
	loader_close(feed);
	run->kept = kept;
	return e->code ? -e->code : 0;
}

static int compute(struct scaling *s, struct turn *t, struct row *row, struct error *e)
{
	const struct scaling_conf *conf = s->conf;
	struct bench_run run = {
		.world = &t->part, .model_conf = conf->model, .steps = conf->steps, .warmup = conf->warmup, .forward = conf->forward, .resident = conf->resident,
		.seed = conf->seed, .between = between_steps, .context = t,
	};

	row->nodes = t->part.at->nodes;
	if (bench_run_open(&run, e) == 0 && measure(s, t, &run, NULL, &row->of[INPUT_SYNTHETIC], e) == 0) {
		if (s->data)
			measure_real(s, t, &run, &row->of[INPUT_REAL], e);
		snprintf(s->engine, sizeof s->engine, "%s", engine_describe(run.model.engine));
		s->memory = engine_memory(run.model.engine);
		s->parameters = run.model.plan.n_weights;
	}
	bench_run_close(&run);
	return e->code ? -e->code : 0;
}

static int take_turn(struct scaling *s, struct row *row, struct error *e)
{
	struct turn t = { .all = s->world };

	if (world_first(s->world, row->ranks, &t.part, e) < 0)
		return -e->code;
	if (t.part.at)
		compute(s, &t, row, e);
	end_turn(&t, e);
	return world_agree(s->world, e);
}

/* ---- telling ----------------------------------------------------------------------------------------- */

static const char *const input_names[INPUTS] = { "synthetic", "real" };

static double median(const struct scaling *s, const struct row *row, enum input i)
{
	return quantile(row->of[i].seconds, (size_t)(s->conf->rounds * s->conf->steps), 0.5);
}

/* Images a second in the median round. */
static double rate(const struct scaling *s, const struct row *row, enum input i)
{
	return (double)s->conf->model.batch * row->ranks * s->conf->steps / quantile(row->of[i].round, (size_t)s->conf->rounds, 0.5);
}

/* Of the rate that so many times the first row's would be. */
static double efficiency(const struct scaling *s, const struct row *row, enum input i)
{
	return rate(s, row, i) / (row->ranks * rate(s, &s->rows[0], i));
}

static cJSON *result_json(const struct scaling *s, const struct row *row, enum input i)
{
	const int n = s->conf->rounds * s->conf->steps;
	cJSON *o = cJSON_CreateObject();

	json_number(o, "images_per_s", rate(s, row, i));
	json_number(o, "efficiency", efficiency(s, row, i));
	bench_step_json(o, row->of[i].seconds, n);
	json_number(o, "exposed_ms", 1e3 * row->of[i].exposed / n);
	if (i == INPUT_REAL)
		json_number(o, "input_ms", 1e3 * row->of[i].input / n);
	return o;
}

static void print_json(const struct scaling *s, struct error *e)
{
	const struct model_conf *m = &s->conf->model;
	cJSON *o = cJSON_CreateObject(), *rows;

	cJSON_AddStringToObject(o, "mode", s->conf->forward ? "forward" : "train");
	cJSON_AddStringToObject(o, "model", m->network.model);
	json_number(o, "parameters", (double)s->parameters);
	cJSON_AddStringToObject(o, "engine", s->engine);
	cJSON_AddStringToObject(o, "precision", precision_choices[m->precision]);
	json_number(o, "batch", m->batch);
	json_number(o, "image_size", m->network.image_size);
	json_number(o, "threads", m->threads);
	json_number(o, "memory_mib", (double)s->memory / 1048576);
	cJSON_AddBoolToObject(o, "resident", s->conf->resident);
	json_number(o, "steps", s->conf->steps);
	json_number(o, "rounds", s->conf->rounds);
	json_number(o, "ranks", s->world->at->size);
	cJSON_AddStringToObject(o, "waiting_ranks", "asleep");
	if (s->data)
		cJSON_AddStringToObject(o, "data", dataset_describe(s->data));
	else
		cJSON_AddNullToObject(o, "data");
	rows = cJSON_AddArrayToObject(o, "scaling");
	for (const struct row *r = s->rows; r < s->rows + s->n_rows; r++) {
		cJSON *row = cJSON_CreateObject();

		json_number(row, "ranks", r->ranks);
		json_number(row, "nodes", r->nodes);
		for (enum input i = 0; i < INPUTS; i++)
			cJSON_AddItemToObject(row, input_names[i], i == INPUT_REAL && !s->data ? cJSON_CreateNull() : result_json(s, r, i));
		cJSON_AddItemToArray(rows, row);
	}
	json_print(o, 0, e);
}

static void print_table(const struct scaling *s)
{
	const struct model_conf *m = &s->conf->model;
	const int n = s->conf->rounds * s->conf->steps;

	printf("%s, %s; %d pixels, batch %d a rank, %s; images/s of the median of %d round%s of %d step%s, ms of the median step\n", m->network.model, s->engine,
	       m->network.image_size, m->batch, s->conf->forward ? "forward" : "training", s->conf->rounds, s->conf->rounds == 1 ? "" : "s", s->conf->steps,
	       s->conf->steps == 1 ? "" : "s");
	if (s->n_rows > 1)
		printf("The ranks that a row leaves out sleep: few ranks have the clock, the caches, memory and links of a node for themselves, so an\n"
		       "efficiency below 100 %% is what ranks take from each other there, and not communication alone.\n");
	printf("Random pixels in %s memory%s%s.\n\n", s->conf->resident ? "the GPU's" : "host", s->data ? "; real: " : "; no --data, so no real images",
	       s->data ? dataset_describe(s->data) : "");
	printf("%5s %5s %12s %10s %10s %11s%s\n", "ranks", "nodes", "images/s", "efficiency", "step ms", "exposed ms",
	       s->data ? " | real images/s efficiency    step ms   input ms" : "");
	for (const struct row *r = s->rows; r < s->rows + s->n_rows; r++) {
		printf("%5d %5d %12.1f %8.1f %% %10.2f %11.2f", r->ranks, r->nodes, rate(s, r, INPUT_SYNTHETIC), 100 * efficiency(s, r, INPUT_SYNTHETIC),
		       1e3 * median(s, r, INPUT_SYNTHETIC), 1e3 * r->of[INPUT_SYNTHETIC].exposed / n);
		if (s->data)
			printf(" | %13.1f %8.1f %% %10.2f %10.2f", rate(s, r, INPUT_REAL), 100 * efficiency(s, r, INPUT_REAL), 1e3 * median(s, r, INPUT_REAL),
			       1e3 * r->of[INPUT_REAL].input / n);
		putchar('\n');
	}
}

static void tell(const struct scaling *s, struct error *e)
{
	const char *fallback = model_fallback(s->world, s->conf->model.engine);

	for (const struct row *r = s->rows; r < s->rows + s->n_rows; r++)
		for (enum input i = 0; i < (s->data ? INPUTS : INPUT_REAL); i++) {
			sort_ascending(r->of[i].seconds, (size_t)(s->conf->rounds * s->conf->steps));
			sort_ascending(r->of[i].round, (size_t)s->conf->rounds);
		}
	if (fallback)
		fprintf(stderr, "chexnet bench: %s\n", fallback);
	s->conf->json ? print_json(s, e) : print_table(s);
}

/* ---- all of it --------------------------------------------------------------------------------------- */

/* 1, 2, 4 … and `ranks`. */
static int make_rows(struct scaling *s, struct error *e)
{
	const int ranks = s->world->at->size;
	const size_t seconds = (size_t)s->conf->rounds * (size_t)s->conf->steps;

	s->rows = calloc(33, sizeof *s->rows);
	if (!s->rows)
		return fail(e, EXIT_INTERNAL, "no memory");
	for (long n = 1; n < 2L * ranks; n *= 2) {
		struct row *row = &s->rows[s->n_rows++];

		row->ranks = n < ranks ? (int)n : ranks;
		for (int i = 0; i < INPUTS; i++)
			if (!(row->of[i].seconds = calloc(seconds, sizeof(double))) || !(row->of[i].round = calloc((size_t)s->conf->rounds, sizeof(double))))
				return fail(e, EXIT_INTERNAL, "no memory");
	}
	return 0;
}

static int open_data(struct scaling *s, struct scaling_conf *conf, struct error *e)
{
	if (!conf->data)
		return 0;
	if (conf->model.loss != LOSS_BCE || conf->model.network.classes != FINDINGS)
		return fail(e, EXIT_USAGE, "the images of --data have %d findings: not with --softmax or other --classes", FINDINGS);
	if (dataset_open(&s->data, conf->data, "train", e) < 0)
		return -e->code;
	conf->model.source_size = dataset_image_size(s->data);
	if (conf->model.network.image_size > conf->model.source_size)
		return fail(e, EXIT_USAGE, "--image-size=%d: the images of --data have %d pixels a side", conf->model.network.image_size, conf->model.source_size);
	return 0;
}

int bench_scaling(struct world *w, const struct scaling_conf *conf, struct error *e)
{
	struct scaling_conf own = *conf;
	struct scaling s = { .world = w, .conf = &own };

	if (open_data(&s, &own, e) == 0)
		make_rows(&s, e);
	if (world_agree(w, e) == 0)
		for (s.round = 0; s.round < conf->rounds && !e->code; s.round++)
			for (int i = 0; i < s.n_rows && !e->code; i++)
				take_turn(&s, &s.rows[i], e);
	if (!e->code && world_speaks(w))
		tell(&s, e);
	for (int i = 0; i < s.n_rows; i++)
		for (int k = 0; k < INPUTS; k++) {
			free(s.rows[i].of[k].seconds);
			free(s.rows[i].of[k].round);
		}
	free(s.rows);
	dataset_close(s.data);
	return e->code ? -e->code : 0;
}

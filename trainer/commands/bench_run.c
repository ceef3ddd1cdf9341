/* SPDX-License-Identifier: Apache-2.0 */
#include "commands/bench_run.h"

#include <math.h>
#include <stdlib.h>

#include "clock.h"
#include "data/random.h"
#include "learn/resample.h"

static int make_resident(struct bench_run *r, struct error *e)
{
	const size_t batch = (size_t)r->model_conf.batch;

	r->kept = calloc(batch, sizeof *r->kept);
	if (!r->kept)
		return fail(e, EXIT_INTERNAL, "no memory");
	for (size_t i = 0; i < batch; i++)
		r->kept[i] = i;
	return engine_keep(r->model.engine, batch, 0, r->pixels, batch) < 0 ? model_fail(&r->model, e) : 0;
}

static void make_images(struct bench_run *r)
{
	const struct model_conf *conf = &r->model_conf;
	const size_t pixels = (size_t)conf->batch * (size_t)conf->source_size * (size_t)conf->source_size;
	const uint32_t classes = (uint32_t)conf->network.classes;
	struct stream random = stream_open(r->seed, (uint64_t)r->world->at->rank);

	for (size_t i = 0; i < pixels; i++)
		r->pixels[i] = (uint8_t)stream_bits(&random);
	for (int i = 0; i < conf->batch; i++)
		r->labels[i] = conf->loss == LOSS_SOFTMAX ? stream_bits(&random) % classes : stream_bits(&random) & stream_bits(&random);
}

static int make_weights(struct bench_run *r, struct error *e)
{
	struct model_values v;

	if (model_values_alloc(&v, &r->model.plan, 0, e) < 0)
		return -e->code;
	net_init(&r->model.plan, r->seed, NULL, v.params);
	for (size_t i = 0; i < r->model.plan.n_bn_channels; i++)
		v.variance[i] = 1;
	model_put(&r->model, &v, e);
	model_values_free(&v);
	return e->code ? -e->code : 0;
}

int bench_run_open(struct bench_run *r, struct error *e)
{
	const struct model_conf *conf = &r->model_conf;
	const size_t batch = (size_t)conf->batch, side = (size_t)conf->source_size;

	if (model_open(&r->model, r->world, conf, e) < 0)
		return -e->code;
	r->pixels = malloc(batch * side * side);
	r->labels = malloc(batch * sizeof *r->labels);
	r->logits = malloc(batch * (size_t)conf->network.classes * sizeof *r->logits);
	r->seconds = calloc((size_t)r->steps, sizeof *r->seconds);
	if (!r->pixels || !r->labels || !r->logits || !r->seconds)
		fail(e, EXIT_INTERNAL, "no memory");
	else if (make_weights(r, e) == 0) {
		make_images(r);
		if (r->resident)
			make_resident(r, e);
	}
	return world_agree(r->world, e);
}

/* A step that was begun. slot: of the loader, -1: none. */
struct begun {
	uint64_t token;
	int slot;
};

static int begin_step(struct bench_run *r, struct loader *feed, struct begun *step, double *waited, struct error *e)
{
	struct loader_batch b = { .slot = -1 };

	*waited = 0;
	b.batch = (struct engine_batch){ .count = r->model_conf.batch, .pixels = r->pixels, .labels = r->labels, .kept = r->kept };
	if (feed && loader_next(feed, &b, waited, e) != 1)
		return e->code ? -e->code : fail(e, EXIT_INTERNAL, "the stream of images ended");
	step->slot = b.slot;
	if (!r->forward)
		return model_train(&r->model, &b.batch, 0, 1, 1e-4, &step->token, e);
	return engine_forward(r->model.engine, &b.batch, r->logits, NULL, &step->token) < 0 ? model_fail(&r->model, e) : 0;
}

static int end_step(struct bench_run *r, struct loader *feed, const struct begun *step, struct error *e)
{
	if (engine_done(r->model.engine, step->token, 1) < 0)
		return model_fail(&r->model, e);
	if (feed)
		loader_release(feed, step->slot);
	if (r->ended_first <= 0)
		r->ended_first = now();
	return r->between ? r->between(r->context, e) : 0;
}

/* A GPU is given its next step before it is through with the one before, as in training. */
int bench_run_measure(struct bench_run *r, struct loader *feed, struct error *e)
{
	const int behind = r->model.kind == ENGINE_CUDA;
	struct begun step[2];
	double ended = now(), waited;

	r->total = r->input = r->exposed = 0;
	for (int i = -r->warmup; i < r->steps + behind; i++) {
		int through = i - behind;

		if (i == 0 && r->gpu)
			gpu_meter_start(r->gpu);
		if (i < r->steps) {
			if (begin_step(r, feed, &step[i & 1], &waited, e) < 0)
				return -e->code;
			if (i >= 0) {
				r->exposed += r->model.exposed;
				r->input += waited;
			}
		}
		if (through < -r->warmup)
			continue; /* what the first step took to begin is its own */
		if (end_step(r, feed, &step[through & 1], e) < 0)
			return -e->code;
		if (through >= 0)
			r->total += r->seconds[through] = now() - ended;
		ended = now();
	}
	if (!r->forward && engine_loss(r->model.engine, &r->loss) < 0)
		return model_fail(&r->model, e);
	return r->forward || isfinite(r->loss) ? 0 : fail(e, EXIT_INTERNAL, "the loss is not a number");
}

int bench_run_gather(struct bench_run *r, struct error *e)
{
	double sums[3] = { r->total, r->input, r->exposed };

	if (hvd_allreduce(r->world->hvd, r->seconds, r->seconds, (size_t)r->steps, HVD_F64, HVD_MAX) < 0 ||
	    hvd_allreduce(r->world->hvd, sums, sums, 3, HVD_F64, HVD_MAX) < 0)
		return world_fail(r->world, e);
	r->total = sums[0];
	r->input = sums[1];
	r->exposed = sums[2];
	sort_ascending(r->seconds, (size_t)r->steps);
	return 0;
}

void bench_run_close(struct bench_run *r)
{
	model_close(&r->model);
	free(r->pixels);
	free(r->labels);
	free(r->kept);
	free(r->logits);
	free(r->seconds);
	r->pixels = NULL;
	r->labels = NULL;
	r->kept = NULL;
	r->logits = NULL;
	r->seconds = NULL;
}

void bench_step_json(cJSON *o, const double *sorted, int n)
{
	cJSON *ms = cJSON_AddObjectToObject(o, "step_ms");

	json_number(ms, "median", 1e3 * quantile(sorted, (size_t)n, 0.5));
	json_number(ms, "min", 1e3 * sorted[0]);
	json_number(ms, "p10", 1e3 * quantile(sorted, (size_t)n, 0.1));
	json_number(ms, "p90", 1e3 * quantile(sorted, (size_t)n, 0.9));
	json_number(ms, "max", 1e3 * sorted[n - 1]);
}

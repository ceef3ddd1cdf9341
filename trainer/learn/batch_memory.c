/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/batch_memory.h"

#include <string.h>

#include "memory_available.h"

static int measure_one(struct batch_memory *m, int batch, double *bytes, struct error *e)
{
	struct engine *engine;

	m->conf.batch = batch;
	if (engine_open(&engine, m->kind, &m->conf, e) < 0)
		return -e->code;
	*bytes = (double)engine_memory(engine);
	engine_close(engine);
	return 0;
}

/* Without cuDNN's workspace, which takes seconds to ask for. */
static int plan_maps(struct batch_memory *m, int batch, double *bytes, struct error *e)
{
	struct engine_room room;

	m->conf.batch = batch;
	if (engine_plan(&m->conf, m->gpu, 0, &room, e) < 0)
		return -e->code;
	*bytes = (double)room.total + m->resident;
	m->free = room.free;
	return 0;
}

/* Far apart on a GPU, so that rounding does not show in the slope. */
static int describe(struct batch_memory *m, struct error *e)
{
	const int gpu = m->kind == ENGINE_CUDA, few = gpu ? 64 : 1, many = gpu ? 128 : 2;
	int (*ask)(struct batch_memory *, int, double *, struct error *) = gpu ? plan_maps : measure_one;
	double a, b;

	if (ask(m, few, &a, e) < 0 || ask(m, many, &b, e) < 0)
		return -e->code;
	m->image = (b - a) / (many - few);
	m->fixed = a - few * m->image;
	return 0;
}

int batch_memory_open(struct batch_memory *m, const struct net_conf *net, enum engine_kind kind, const struct model_conf *conf, const char *gpu, int slots,
		      size_t resident, struct error *e)
{
	*m = (struct batch_memory){ .kind = kind, .gpu = gpu };
	if (net_plan_make(&m->plan, net, e) < 0 || engine_layout_make(&m->layout, &m->plan, e) < 0)
		return -e->code;
	m->conf = (struct engine_conf){
		.plan = &m->plan, .layout = &m->layout, .precision = conf->precision, .loss = conf->loss, .optimizer = conf->optimizer, .beta1 = conf->beta1,
		.beta2 = 0.999, .epsilon = 1e-8, .channels = 1, .source_size = conf->source_size, .threads = conf->threads,
	};
	if (kind == ENGINE_CUDA)
		m->resident = (double)resident * conf->source_size * conf->source_size;
	if (describe(m, e) < 0)
		return -e->code;
	if (kind != ENGINE_CUDA) {
		m->fixed += (3.0 * (double)m->plan.n_weights + 2.0 * (double)m->plan.n_bn_channels) * sizeof(float);
		m->image += (double)slots * conf->source_size * conf->source_size;
	}
	return 0;
}

void batch_memory_close(struct batch_memory *m)
{
	engine_layout_free(&m->layout);
	net_plan_free(&m->plan);
}

int batch_memory_bytes(struct batch_memory *m, int batch, double *bytes, struct engine_room *room, struct error *e)
{
	struct engine_room planned = { 0 };

	*bytes = m->fixed + batch * m->image;
	if (m->kind == ENGINE_CUDA) {
		m->conf.batch = batch;
		if (engine_plan(&m->conf, m->gpu, 1, &planned, e) < 0)
			return -e->code;
		*bytes = (double)planned.total + m->resident;
	}
	if (room)
		*room = planned;
	return 0;
}

/* By the maps alone. */
static int bisect(struct batch_memory *m, double bytes, int most, int *batch, struct error *e)
{
	int fits = 0, beyond = most + 1;

	while (beyond - fits > 1) {
		int middle = fits + (beyond - fits) / 2;
		double needed = m->fixed + middle * m->image;

		if (m->kind == ENGINE_CUDA && plan_maps(m, middle, &needed, e) < 0)
			return -e->code;
		if (needed <= bytes)
			fits = middle;
		else
			beyond = middle;
	}
	*batch = fits;
	return 0;
}

/* cuDNN's workspace grows with the batch in steps, and takes a second to ask for: from what would fit without it downwards in growing
 * strides, then between the last two. */
int batch_memory_largest(struct batch_memory *m, double bytes, int most, int *batch, struct error *e)
{
	int beyond, fits = 0, stride = 1;
	double needed;

	if (bisect(m, bytes, most, &fits, e) < 0)
		return -e->code;
	for (beyond = fits + 1; fits > 0; stride *= 2) {
		if (batch_memory_bytes(m, fits, &needed, NULL, e) < 0)
			return -e->code;
		if (needed <= bytes)
			break;
		beyond = fits;
		fits = fits > stride ? fits - stride : 0;
	}
	while (beyond - fits > 1) {
		int middle = fits + (beyond - fits) / 2;

		if (batch_memory_bytes(m, middle, &needed, NULL, e) < 0)
			return -e->code;
		*(needed <= bytes ? &fits : &beyond) = middle;
	}
	*batch = fits;
	return 0;
}

int batch_memory_auto(int largest)
{
	int batch = 1;

	while (2 * batch <= largest && 2 * batch <= BATCH_AUTO_MOST)
		batch *= 2;
	return batch;
}

double batch_memory_host(const struct world *w, size_t promised)
{
	const struct place *own = &w->places[w->at->rank];
	int sharing = 0;

	for (int r = 0; r < w->at->size; r++)
		sharing += strcmp(w->places[r].host, own->host) == 0;
	return (double)memory_available(promised, sharing) * (100 - BATCH_SPARE_PERCENT) / 100;
}

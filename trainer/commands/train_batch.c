/* SPDX-License-Identifier: Apache-2.0
 * Does the micro-batch fit in memory? Asked before the first step, not answered by the kernel's out-of-memory killer in it. */
#include "commands/train.h"

#include <string.h>

#include "data/memory.h"
#include "learn/batch_memory.h"
#include "learn/gpu_meter.h"

/* What others on this machine may still ask for. AUTO_MOST: larger batches gain no speed and cost accuracy. */
enum { SPARE_PERCENT = 10, AUTO_MOST = 256 };

/* Bytes for this rank's engine: its share of the node's memory, or what is free on its GPU. 0: nobody says. */
static double budget(const struct train *t, enum engine_kind kind)
{
	const struct place *places = t->world->places, *own = &places[t->world->at->rank];
	double bytes = 0;
	int sharing = 0;

	if (kind == ENGINE_CUDA) {
		struct gpu_meter *m = gpu_meter_open(own->gpu);
		struct gpu_reading r;

		if (m && gpu_meter_read(m, &r) == 0)
			bytes = r.memory_total - r.memory_used;
		gpu_meter_close(m);
		return bytes * (100 - SPARE_PERCENT) / 100;
	}
	for (int r = 0; r < t->world->at->size; r++)
		sharing += strcmp(places[r].host, own->host) == 0;
	return (double)memory_available() * (100 - SPARE_PERCENT) / 100 / sharing;
}

static int largest(const struct train *t, const struct batch_memory *m, double bytes)
{
	int batch = 1;

	while (batch < AUTO_MOST && 2 * (size_t)batch <= dataset_count(t->train) && (bytes <= 0 || m->fixed + 2.0 * batch * m->image <= bytes))
		batch *= 2;
	return batch;
}

static int measure(struct train *t, enum engine_kind kind, struct batch_memory *m, struct error *e)
{
	struct net_conf net = network_conf(&t->network);
	struct model_conf conf = {
		.precision = (enum precision)t->conf->engine.precision, .optimizer = (enum optimizer)t->conf->optimizer, .beta1 = t->conf->momentum,
		.source_size = dataset_image_size(t->train), .threads = threads_from_options(&t->conf->engine, t->world),
	};

	return batch_memory_measure(m, &net, kind, &conf, TRAIN_SLOTS, e);
}

int train_settle_batch(struct train *t, int resumed_batch, struct error *e)
{
	struct batch_memory m = { 0 };
	enum engine_kind kind;
	int batch = t->conf->batch ? t->conf->batch : resumed_batch;
	double bytes = 0;

	if (model_choose_engine(t->world, (enum engine_choice)t->conf->engine.engine, &kind, e) == 0 && measure(t, kind, &m, e) == 0)
		bytes = budget(t, kind);
	if (world_agree(t->world, e) < 0)
		return -e->code;
	int32_t own = batch ? batch : largest(t, &m, bytes), all;

	if (hvd_allreduce(t->world->hvd, &own, &all, 1, HVD_I32, HVD_MIN) < 0) /* the smallest machine decides */
		return world_fail(t->world, e);
	t->settled.batch = all;
	if (!batch)
		log_say(&t->log, "--batch=auto: %d images (%.0f MiB and %.2f MiB an image; %.0f MiB for this rank)", all, m.fixed / 1048576, m.image / 1048576,
			bytes / 1048576);
	if (bytes > 0 && m.fixed + all * m.image > bytes)
		fail(e, EXIT_USAGE, "--batch=%d needs %.0f MiB and there are %.0f MiB for this rank: %d fit; --accumulate=%d makes the same step of smaller batches",
		     all, (m.fixed + all * m.image) / 1048576, bytes / 1048576, largest(t, &m, bytes), (all + largest(t, &m, bytes) - 1) / largest(t, &m, bytes));
	return world_agree(t->world, e);
}

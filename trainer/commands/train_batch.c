/* SPDX-License-Identifier: Apache-2.0
 * Does the micro-batch fit in memory? Asked before the first step, not answered by the kernel's out-of-memory killer in it. */
#include "commands/train.h"

#include <stdio.h>
#include <string.h>

#include "learn/batch_memory.h"

/* Bytes for this rank's engine: its share of the node's memory, or what is free on its GPU. 0: nobody says. */
static double budget(const struct train *t, enum engine_kind kind, const struct batch_memory *m)
{
	const struct dataset *const sets[] = { t->train, t->val, t->test };
	size_t kept = 0; /* and not decoded yet */

	if (kind == ENGINE_CUDA)
		return m->free * (100 - BATCH_SPARE_PERCENT) / 100;
	for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
		kept += sets[i] ? dataset_kept_bytes(sets[i]) : 0;
	return batch_memory_host(t->world, kept);
}

static int open_memory(struct train *t, enum engine_kind kind, struct batch_memory *m, struct error *e)
{
	struct net_conf net = network_conf(&t->network);
	struct model_conf conf = {
		.precision = (enum precision)t->conf->engine.precision, .optimizer = (enum optimizer)t->conf->optimizer, .beta1 = t->conf->momentum,
		.source_size = dataset_image_size(t->train), .threads = threads_from_options(&t->conf->engine, t->world),
	};

	return batch_memory_open(m, &net, kind, &conf, NULL, TRAIN_SLOTS, t->conf->resident ? dataset_count(t->train) : 0, e);
}

/* The largest power of two that fits, and is not more than the images there are; 0: not even one fits. bytes <= 0: nobody says what fits. */
static int find_auto(struct train *t, struct batch_memory *m, double bytes, struct error *e)
{
	size_t images = dataset_count(t->train);
	int most = images < BATCH_AUTO_MOST ? (int)images : BATCH_AUTO_MOST, fits = most;

	if (bytes > 0)
		batch_memory_largest(m, bytes, most, &fits, e);
	return fits ? batch_memory_auto(fits) : 0;
}

static int refuse(struct train *t, struct batch_memory *m, int batch, double needed, double bytes, struct error *e)
{
	const double mib = 1048576;
	const int fits = find_auto(t, m, bytes, e);
	char resident[160] = "";

	if (m->resident > 0)
		snprintf(resident, sizeof resident, ", %.0f MiB of them for the %zu images of --resident,", m->resident / mib, dataset_count(t->train));
	if (!fits)
		return fail(e, EXIT_USAGE, "--batch=%d needs %.0f MiB%s and there are %.0f MiB for this rank: not even one image fits%s", batch, needed / mib, resident,
			    bytes / mib, m->resident > 0 ? "; without --resident images are fed from host memory" : "");
	return fail(e, EXIT_USAGE, "--batch=%d needs %.0f MiB%s and there are %.0f MiB for this rank: %d fit; --accumulate=%d makes the same step of smaller batches",
		    batch, needed / mib, resident, bytes / mib, fits, (batch + fits - 1) / fits);
}

int train_settle_batch(struct train *t, int resumed_batch, struct error *e)
{
	struct batch_memory m = { 0 };
	enum engine_kind kind;
	int batch = t->conf->batch ? t->conf->batch : resumed_batch;
	double bytes = 0, needed = 0;
	int32_t own = batch, all = 1;

	if (model_choose_engine(t->world, (enum engine_choice)t->conf->engine.engine, &kind, e) == 0 && open_memory(t, kind, &m, e) == 0) {
		bytes = budget(t, kind, &m);
		own = batch ? batch : find_auto(t, &m, bytes, e);
		if (!own && !e->code) /* refused below, with the numbers */
			own = 1;
	}
	if (world_agree(t->world, e) < 0)
		goto done;
	if (hvd_allreduce(t->world->hvd, &own, &all, 1, HVD_I32, HVD_MIN) < 0) { /* the smallest machine decides */
		world_fail(t->world, e);
		goto done;
	}
	t->settled.batch = all;
	if (!batch)
		log_say(&t->log, "--batch=auto: %d images (%.0f MiB and %.2f MiB an image; %.0f MiB for this rank)", all, m.fixed / 1048576, m.image / 1048576,
			bytes / 1048576);
	if (!(bytes > 0))
		log_say(&t->log, "nobody says how much memory this rank has, so that a batch of %d is not checked against it", all);
	if (batch_memory_bytes(&m, all, &needed, NULL, e) == 0 && bytes > 0 && needed > bytes)
		refuse(t, &m, all, needed, bytes, e);
	world_agree(t->world, e);
done:
	batch_memory_close(&m);
	return e->code ? -e->code : 0;
}

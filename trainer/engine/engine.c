/* SPDX-License-Identifier: Apache-2.0
 * Chooses the implementation and checks what callers hand over. */
#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"

const double image_mean[3] = { 0.485, 0.456, 0.406 };
const double image_std[3] = { 0.229, 0.224, 0.225 };

static int check_conf(const struct engine_conf *conf, struct error *e)
{
	if (conf->batch < 1)
		return fail(e, EXIT_USAGE, "batch of %d images: use 1 or more", conf->batch);
	if (conf->channels != 1 && conf->channels != 3)
		return fail(e, EXIT_USAGE, "images with %d channels: use 1 (gray) or 3 (RGB)", conf->channels);
	if (conf->source_size > INT16_MAX || (int64_t)conf->source_size * conf->source_size * conf->channels > INT32_MAX)
		return fail(e, EXIT_USAGE, "images of %d pixels a side: use at most %d gray or 26754 RGB ones, whose places are 16 bits and whose bytes are 31", conf->source_size, INT16_MAX);
	if (conf->source_size < conf->plan->image_size)
		return fail(e, EXIT_USAGE, "images of %d pixels cannot fill the network's window of %d", conf->source_size, conf->plan->image_size);
	if (conf->loss == LOSS_BCE && conf->plan->classes > 32)
		return fail(e, EXIT_USAGE, "%d classes with binary cross entropy, whose labels are 32 bits: use 32 or fewer, or softmax", conf->plan->classes);
	if (conf->threads < 0)
		return fail(e, EXIT_USAGE, "%d threads: use 1 or more, or 0 for the cores this process may use", conf->threads);
	if (conf->scale_patience && conf->precision != PRECISION_FP16)
		return fail(e, EXIT_USAGE, "a dynamic loss scale is for --precision=fp16: elsewhere gradients have the range of fp32 and need none");
	return 0;
}

int engine_open(struct engine **engine, enum engine_kind kind, const struct engine_conf *conf, struct error *e)
{
	*engine = NULL;
	if (check_conf(conf, e))
		return -e->code;
	switch (kind) {
	case ENGINE_REFERENCE:
		return engine_reference_open(engine, conf, e);
	case ENGINE_CPU:
		return engine_cpu_open(engine, conf, e);
	case ENGINE_CUDA:
		return engine_cuda_open(engine, conf, e);
	}
	return fail(e, EXIT_USAGE, "unknown engine %d", (int)kind);
}

int engine_plan(const struct engine_conf *conf, const char *gpu, int ask_cudnn, struct engine_room *room, struct error *e)
{
	*room = (struct engine_room){ 0 };
	return check_conf(conf, e) ? -e->code : engine_cuda_plan(conf, gpu, ask_cudnn, room, e);
}

void engine_close(struct engine *engine)
{
	if (engine)
		engine->ops->close(engine);
}

void *engine_alloc(struct engine *engine, size_t count, size_t size)
{
	size_t bytes = (count * size + 63) / 64 * 64;
	void *p = aligned_alloc(64, bytes ? bytes : 64);
	if (!p) {
		fail(engine->error, EXIT_INTERNAL, "no memory for the engine: %zu MB more after %zu MB; use a smaller batch", bytes >> 20, engine->memory >> 20);
		return NULL;
	}
	memset(p, 0, bytes);
	engine->memory += bytes;
	return p;
}

static int check_range(struct engine *engine, enum engine_what what, size_t offset, size_t count)
{
	const struct net_plan *plan = engine->conf.plan;
	size_t size = what == ENGINE_RUNNING_MEAN || what == ENGINE_RUNNING_VAR ? plan->n_bn_channels : plan->n_weights;
	if (offset > size || count > size - offset)
		return fail(engine->error, EXIT_INTERNAL, "%zu values at %zu of an array of %zu", count, offset, size);
	return 0;
}

int engine_put(struct engine *engine, enum engine_what what, size_t offset, const float *values, size_t count)
{
	int rc = check_range(engine, what, offset, count);
	return rc ? rc : engine->ops->put(engine, what, offset, values, count);
}

int engine_get(struct engine *engine, enum engine_what what, size_t offset, float *values, size_t count)
{
	int rc = check_range(engine, what, offset, count);
	return rc ? rc : engine->ops->get(engine, what, offset, values, count);
}

int engine_set_step(struct engine *engine, uint64_t step)
{
	return engine->ops->set_step(engine, step);
}

int engine_get_scale(struct engine *engine, struct engine_scale *scale)
{
	*scale = (struct engine_scale){ .scale = 1, .skipped = engine->skipped };
	return engine->ops->get_scale ? engine->ops->get_scale(engine, scale) : 0;
}

int engine_set_scale(struct engine *engine, const struct engine_scale *scale)
{
	engine->skipped = scale->skipped;
	return engine->ops->set_scale ? engine->ops->set_scale(engine, scale) : 0;
}

static int check_batch(struct engine *engine, const struct engine_batch *batch, int training)
{
	const struct engine_conf *conf = &engine->conf;
	if (batch->count < 1 || batch->count > conf->batch || (training && batch->count != conf->batch))
		return fail(engine->error, EXIT_INTERNAL, "%d images for an engine opened with batches of %d", batch->count, conf->batch);
	if (training && !batch->labels)
		return fail(engine->error, EXIT_INTERNAL, "a training batch without labels");
	for (int i = 0; i < batch->count && batch->kept; i++)
		if (batch->kept[i] >= engine->kept)
			return fail(engine->error, EXIT_INTERNAL, "image %llu of %zu that the engine keeps", (unsigned long long)batch->kept[i], engine->kept);
	int room = conf->source_size - conf->plan->image_size;
	for (int i = 0; i < batch->count && batch->augment; i++)
		if (batch->augment[i].x < 0 || batch->augment[i].x > room || batch->augment[i].y < 0 || batch->augment[i].y > room)
			return fail(engine->error, EXIT_INTERNAL, "image %d: window at %d, %d leaves the image of %d pixels", i,
			            batch->augment[i].x, batch->augment[i].y, conf->source_size);
	for (int i = 0; i < batch->count && training && conf->loss == LOSS_SOFTMAX; i++)
		if (batch->labels[i] >= (uint32_t)conf->plan->classes)
			return fail(engine->error, EXIT_DATA, "image %d: class %u of %d", i, batch->labels[i], conf->plan->classes);
	return 0;
}

int engine_train(struct engine *engine, const struct engine_batch *batch, int micro, int micros, double lr, uint64_t *token)
{
	if (micro < 0 || micro >= micros)
		return fail(engine->error, EXIT_INTERNAL, "micro-batch %d of %d", micro, micros);
	int rc = check_batch(engine, batch, 1);
	return rc ? rc : engine->ops->train(engine, batch, micro, micros, lr, token);
}

int engine_backward(struct engine *engine, const struct engine_batch *batch)
{
	int rc = check_batch(engine, batch, 1);
	return rc ? rc : engine->ops->backward(engine, batch);
}

int engine_forward(struct engine *engine, const struct engine_batch *batch, float *logits, float *features, uint64_t *token)
{
	int rc = check_batch(engine, batch, 0);
	return rc ? rc : engine->ops->forward(engine, batch, logits, features, token);
}

int engine_keep(struct engine *engine, size_t total, size_t first, const uint8_t *pixels, size_t count)
{
	if (!engine->ops->keep)
		return fail(engine->error, EXIT_USAGE, "%s: images are in memory already, there is no device to keep them on", engine->description);
	if (first > total || count > total - first)
		return fail(engine->error, EXIT_INTERNAL, "%zu images at %zu of %zu", count, first, total);
	engine->kept = 0;
	int rc = engine->ops->keep(engine, total, first, pixels, count);
	engine->kept = rc ? 0 : total;
	return rc;
}

int engine_made(struct engine *engine, uint64_t *steps)
{
	*steps = 0;
	return engine->ops->made ? engine->ops->made(engine, steps) : 1;
}

int engine_done(struct engine *engine, uint64_t token, int wait)
{
	return engine->ops->done(engine, token, wait);
}

int engine_loss(struct engine *engine, double *loss)
{
	return engine->ops->loss(engine, loss);
}

int engine_tap(struct engine *engine, int index, int gradient, float *values)
{
	if (index < 0 || index > engine->conf.plan->n_layers)
		return fail(engine->error, EXIT_USAGE, "activation %d of %d", index, engine->conf.plan->n_layers + 1);
	return engine->ops->tap(engine, index, gradient, values);
}

size_t engine_memory(const struct engine *engine)
{
	return engine->memory;
}

const char *engine_describe(const struct engine *engine)
{
	return engine->description;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct network network_of(const struct net_conf *conf)
{
	struct network n = {
		.image_size = conf->image_size, .classes = conf->classes, .growth = conf->growth,
		.init_channels = conf->init_channels, .n_blocks = conf->n_blocks,
	};

	snprintf(n.model, sizeof n.model, "%s", conf->model);
	memcpy(n.block, conf->block, sizeof n.block);
	return n;
}

struct net_conf network_conf(const struct network *n)
{
	struct net_conf conf = {
		.model = n->model, .image_size = n->image_size, .classes = n->classes, .growth = n->growth,
		.init_channels = n->init_channels, .n_blocks = n->n_blocks,
	};

	memcpy(conf.block, n->block, sizeof conf.block);
	return conf;
}

/* ---- which engine ------------------------------------------------------------------------------------ */

int model_choose_engine(const struct world *w, enum engine_choice choice, enum engine_kind *kind, struct error *e)
{
	int with = -1, without = -1;

	for (int r = w->at->size - 1; r >= 0; r--)
		*(w->places[r].driver ? &with : &without) = r;
	switch (choice) {
	case CHOOSE_CPU:
		*kind = ENGINE_CPU;
		return 0;
	case CHOOSE_REFERENCE:
		*kind = ENGINE_REFERENCE;
		return 0;
	case CHOOSE_CUDA:
		if (without >= 0)
			return fail(e, EXIT_INTERNAL, "--engine=cuda: rank %d on %s sees no GPU that a CUDA driver answers for (GPU %s)", without,
				    w->places[without].host, *w->places[without].gpu ? w->places[without].gpu : "none");
		*kind = ENGINE_CUDA;
		return 0;
	case CHOOSE_AUTO:
		break;
	}
	if (with >= 0 && without >= 0)
		return fail(e, EXIT_INTERNAL, "--engine=auto: rank %d on %s has a GPU (%s), rank %d on %s has none: give every task one, or --engine=cpu",
			    with, w->places[with].host, w->places[with].gpu, without, w->places[without].host);
	*kind = with >= 0 ? ENGINE_CUDA : ENGINE_CPU;
	return 0;
}

const char *model_fallback(const struct world *w, enum engine_choice choice)
{
	const char *wish = getenv("HVD_BACKEND");
	int gpus = 0, drivers = 0, wished = wish && *wish && strcmp(wish, "auto") != 0;

	for (int r = 0; r < w->at->size; r++) {
		drivers += w->places[r].driver;
		gpus += *w->places[r].gpu != '\0';
	}
	if (drivers && (choice == CHOOSE_AUTO || choice == CHOOSE_CUDA))
		return w->at->size > 1 && !wished && strcmp(w->at->backend, "nccl") != 0
			       ? "NCCL is not used: what the GPUs have to add up goes through host memory, which is slow; HVD_BACKEND=nccl says what is missing"
			       : NULL;
	if (choice != CHOOSE_AUTO)
		return NULL;
	return gpus ? "no CUDA driver answers on any rank, GPUs or not: the CPU computes" : "no GPU here: the CPU computes";
}

/* ---- gradients and signals --------------------------------------------------------------------------- */

static int on_ready(void *context, int group)
{
	struct model *m = context;

	/* The statistics go last, and the engine writes its own part of them before it says so. */
	if (m->layout.groups[group].param < 0 && !m->apart)
		memcpy(m->signals, m->own, sizeof m->own);
	return hvd_plan_ready(m->buckets, group);
}

static int on_finish(void *context)
{
	struct model *m = context;
	int rc = hvd_plan_finish(m->buckets);

	if (rc < 0)
		return rc;
	m->exposed = hvd_plan_exposed(m->buckets);
	for (int s = 0; s < SIGNALS && !m->apart; s++)
		m->heard[s] = m->signals[s] * (float)m->world->at->size;
	return 0;
}

static int open_buckets(struct model *m, size_t bucket_bytes, struct error *e)
{
	struct hvd_tensor *tensors = calloc((size_t)m->layout.n_groups, sizeof *tensors);
	const struct engine_group *last = &m->layout.groups[m->layout.n_groups - 1];
	int rc = 0;

	if (!tensors)
		return fail(e, EXIT_INTERNAL, "no memory for %d gradients", m->layout.n_groups);
	for (int g = 0; g < m->layout.n_groups; g++)
		tensors[g] = (struct hvd_tensor){ m->layout.groups[g].name, m->layout.groups[g].count };
	int opened = hvd_plan_open(m->world->hvd, &m->buckets, tensors, m->layout.n_groups, bucket_bytes);

	if (opened == HVD_EMISMATCH) /* most often of the file that HVD_PLAN names */
		rc = fail(e, EXIT_DATA, "%s", hvd_error(m->world->hvd));
	else if (opened < 0)
		rc = world_fail(m->world, e);
	else
		m->signals = hvd_plan_slab(m->buckets) + last->offset + 2 * m->plan.n_bn_channels + 1;
	free(tensors);
	return rc;
}

/* ---- opening ----------------------------------------------------------------------------------------- */

/* The gradients of a GPU that is alone stay there. */
static int open_engine(struct model *m, const struct model_conf *conf, struct error *e)
{
	const struct hvd_world *at = m->world->at;
	int gpu = m->kind == ENGINE_CUDA, reduces = m->buckets && !(gpu && at->size == 1);

	m->apart = gpu && (at->size == 1 || strcmp(at->backend, "nccl") == 0);
	struct engine_conf engine = {
		.plan = &m->plan,
		.layout = &m->layout,
		.precision = conf->precision,
		.optimizer = conf->optimizer,
		.loss = conf->loss,
		.beta1 = conf->beta1,
		.beta2 = 0.999,
		.epsilon = 1e-8,
		.weight_decay = conf->weight_decay,
		.batch = conf->batch,
		.channels = 1,
		.source_size = conf->source_size,
		.threads = conf->threads,
		.pos_weight = conf->pos_weight,
		.loss_scale = conf->loss_scale,
		.scale_patience = conf->scale_patience,
		.slab = m->buckets ? hvd_plan_slab(m->buckets) : NULL, /* of a lone GPU too, which else would have a second one */
		.ready = reduces ? on_ready : NULL,
		.finish = reduces ? on_finish : NULL,
		.stream = m->kind == ENGINE_CUDA ? hvd_stream(m->world->hvd) : NULL,
		.stop = hvd_stop_word(m->world->hvd),
		.context = m,
	};

	if (engine_open(&m->engine, m->kind, &engine, &m->engine_error) < 0)
		return model_fail(m, e);
	return 0;
}

int model_open(struct model *m, struct world *w, const struct model_conf *conf, struct error *e)
{
	struct net_conf net = network_conf(&conf->network);

	*m = (struct model){ .world = w, .batch = conf->batch };
	if (model_choose_engine(w, conf->engine, &m->kind, e) == 0 && net_plan_make(&m->plan, &net, e) == 0)
		engine_layout_make(&m->layout, &m->plan, e);
	if (world_agree(w, e) < 0)
		goto failed;
	if (conf->train && open_buckets(m, conf->bucket_bytes, e) < 0)
		goto failed;
	open_engine(m, conf, e);
	if (world_agree(w, e) < 0)
		goto failed;
	return 0;
failed:
	model_close(m);
	return -e->code;
}

void model_close(struct model *m)
{
	engine_close(m->engine);
	hvd_plan_close(m->buckets);
	engine_layout_free(&m->layout);
	net_plan_free(&m->plan);
	m->engine = NULL;
	m->buckets = NULL;
}

int model_fail(const struct model *m, struct error *e)
{
	const struct error *why = &m->engine_error;

	return fail(e, why->code ? (enum exit_code)why->code : EXIT_INTERNAL, "%s", why->code ? why->text : "the engine failed without a reason");
}

/* A thread decodes some 4,000 PNGs of 256 × 256 a second: sixteen are ahead of any GPU, and each is woken in every step. */
enum { MOST_DECODE_THREADS = 16 };

int model_decode_threads(const struct model *m)
{
	const int threads = m->world->places[m->world->at->rank].threads;

	if (m->kind != ENGINE_CUDA)
		return 1 + threads / 8;
	return threads < MOST_DECODE_THREADS ? threads : MOST_DECODE_THREADS;
}

int model_train(struct model *m, const struct engine_batch *batch, int micro, int micros, double lr, uint64_t *token, struct error *e)
{
	m->engine_error.code = 0;
	int rc = engine_train(m->engine, batch, micro, micros, lr, token);

	/* In host memory, so that nobody waits for a GPU, and outside of its graph. */
	if (rc == 0 && m->apart && micro == micros - 1) {
		rc = hvd_allreduce(m->world->hvd, m->own, m->heard, SIGNALS, HVD_F32, HVD_SUM);
		m->exposed = hvd_plan_exposed(m->buckets); /* a graph does not ask on_finish() */
	}
	if (rc == 0)
		return 0;
	/* The line of a loss that is recovered from stays libhvd's last, and is none of the engine's. */
	return *hvd_error(m->world->hvd) && (hvd_lost(m->world->hvd) >= 0 || !m->engine_error.code) ? world_fail(m->world, e) : model_fail(m, e);
}

/* ---- values ------------------------------------------------------------------------------------------ */

static int transfer(struct model *m, const struct model_values *v, int (*move)(struct model *, enum engine_what, float *, size_t), struct error *e)
{
	size_t n = m->plan.n_weights, channels = m->plan.n_bn_channels;

	if (move(m, ENGINE_PARAMS, v->params, n) < 0 || move(m, ENGINE_RUNNING_MEAN, v->mean, channels) < 0 ||
	    move(m, ENGINE_RUNNING_VAR, v->variance, channels) < 0)
		return model_fail(m, e);
	if (v->moment1 && (move(m, ENGINE_MOMENT1, v->moment1, n) < 0 || move(m, ENGINE_MOMENT2, v->moment2, n) < 0))
		return model_fail(m, e);
	return 0;
}

static int put(struct model *m, enum engine_what what, float *values, size_t n)
{
	return engine_put(m->engine, what, 0, values, n);
}

static int get(struct model *m, enum engine_what what, float *values, size_t n)
{
	return engine_get(m->engine, what, 0, values, n);
}

int model_put(struct model *m, const struct model_values *v, struct error *e)
{
	return transfer(m, v, put, e);
}

int model_get(struct model *m, struct model_values *v, struct error *e)
{
	return transfer(m, v, get, e);
}

int model_put_steps(struct model *m, const struct checkpoint_notes *at, struct error *e)
{
	struct engine_scale scale = { at->loss_scale, at->scale_good, at->skipped };

	m->step_base = at->step;
	if (engine_set_step(m->engine, at->step - at->skipped) < 0 || engine_set_scale(m->engine, &scale) < 0)
		return model_fail(m, e);
	return 0;
}

int model_get_steps(struct model *m, struct checkpoint_notes *at, struct error *e)
{
	struct engine_scale scale;

	if (engine_get_scale(m->engine, &scale) < 0)
		return model_fail(m, e);
	at->loss_scale = scale.scale;
	at->scale_good = scale.good;
	at->skipped = scale.skipped;
	return 0;
}

int model_settle(struct model *m, uint64_t *step, struct error *e)
{
	uint64_t made;
	int rc = engine_made(m->engine, &made);

	if (rc == 0) {
		*step = m->step_base + made;
		rc = engine_set_step(m->engine, made);
		m->step_base = *step;
	}
	return rc < 0 ? model_fail(m, e) : 0;
}

int model_share(const struct model *m, int root, struct model_values *v, struct error *e)
{
	const struct {
		float *values;
		size_t n;
	} part[] = {
		{ v->params, m->plan.n_weights }, { v->mean, m->plan.n_bn_channels }, { v->variance, m->plan.n_bn_channels },
		{ v->moment1, m->plan.n_weights }, { v->moment2, m->plan.n_weights },
	};
	uint64_t hash = 0;

	for (size_t i = 0; i < sizeof part / sizeof part[0]; i++) {
		if (!part[i].values)
			continue;
		if (hvd_broadcast(m->world->hvd, part[i].values, part[i].n, HVD_F32, root) < 0)
			return world_fail(m->world, e);
		hash = world_hash(hash, part[i].values, part[i].n * sizeof(float));
	}
	return world_same(m->world, hash, "the model", "an error in the network or in memory", e);
}

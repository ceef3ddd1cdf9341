/* SPDX-License-Identifier: Apache-2.0
 * The CPU engine behind the waist: opening, a step, evaluation, access to its arrays. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu.h"

static void close_engine(struct engine *engine)
{
	cpu_team_close(cpu_engine(engine)->team);
	cpu_free_all(cpu_engine(engine));
	free(engine);
}

/* Arrays in table order: the running statistics; in padded order: the others. */
static float *array_of(struct cpu_engine *e, enum engine_what what, int *padded)
{
	*padded = what != ENGINE_RUNNING_MEAN && what != ENGINE_RUNNING_VAR;
	switch (what) {
	case ENGINE_PARAMS:
		return e->params;
	case ENGINE_GRADS:
		return e->slab;
	case ENGINE_MOMENT1:
		return e->moment1;
	case ENGINE_MOMENT2:
		return e->moment2;
	case ENGINE_RUNNING_MEAN:
		return e->running_mean;
	case ENGINE_RUNNING_VAR:
		return e->running_var;
	}
	return NULL;
}

static int put(struct engine *engine, enum engine_what what, size_t offset, const float *values, size_t count)
{
	struct cpu_engine *e = cpu_engine(engine);
	int padded;
	float *array = array_of(e, what, &padded);
	if (padded)
		engine_layout_put(engine->conf.layout, engine->conf.plan, array, offset, values, count);
	else
		memcpy(array + offset, values, count * sizeof *values);
	e->weights_packed = e->weights_packed && what != ENGINE_PARAMS;
	return 0;
}

static int get(struct engine *engine, enum engine_what what, size_t offset, float *values, size_t count)
{
	int padded;
	const float *array = array_of(cpu_engine(engine), what, &padded);
	if (padded)
		engine_layout_get(engine->conf.layout, engine->conf.plan, array, offset, values, count);
	else
		memcpy(values, array + offset, count * sizeof *values);
	return 0;
}

static int set_step(struct engine *engine, uint64_t step)
{
	cpu_engine(engine)->step = step;
	return 0;
}

/* What lies between stem and head. */
static const struct {
	int (*open)(struct cpu_engine *e);
	void (*pack)(struct cpu_engine *e);
	void (*forward)(struct cpu_engine *e);
	int (*backward)(struct cpu_engine *e);
} body[] = {
	[NET_DENSENET] = { cpu_dense_open, cpu_dense_pack, cpu_dense_forward, cpu_dense_backward },
	[NET_RESNET] = { cpu_residual_open, cpu_residual_pack, cpu_residual_forward, cpu_residual_backward },
};

static void run_forward(struct cpu_engine *e, const struct engine_batch *batch, int training, float *features)
{
	e->batch = batch;
	e->count = batch->count;
	e->training = training;
	if (!e->weights_packed) {
		cpu_stem_pack(e);
		body[e->base.conf.plan->family].pack(e);
		e->weights_packed = 1;
	}
	cpu_stem_forward(e);
	body[e->base.conf.plan->family].forward(e);
	cpu_head_forward(e, features);
}

static int run_backward(struct cpu_engine *e, int micro, int micros, int announce)
{
	e->micro = micro;
	e->micros = micros;
	e->announce = announce;
	e->next_group = 0;
	memset(e->finished, 0, (size_t)e->base.conf.layout->n_groups);
	int rc = cpu_head_backward(e);
	rc = rc ? rc : body[e->base.conf.plan->family].backward(e);
	rc = rc ? rc : cpu_stem_backward(e);
	return rc ? rc : cpu_statistics_group(e);
}

static int train(struct engine *engine, const struct engine_batch *batch, int micro, int micros, double lr, uint64_t *token)
{
	struct cpu_engine *e = cpu_engine(engine);
	const struct engine_conf *conf = &engine->conf;
	int last = micro == micros - 1;
	*token = 0;
	run_forward(e, batch, 1, NULL);
	int rc = run_backward(e, micro, micros, last && conf->ready);
	if (rc || !last)
		return rc;
	if (conf->finish && (rc = conf->finish(conf->context)))
		return rc;
	cpu_update(e, lr);
	return 0;
}

static int backward(struct engine *engine, const struct engine_batch *batch)
{
	struct cpu_engine *e = cpu_engine(engine);
	run_forward(e, batch, 1, NULL);
	return run_backward(e, 0, 1, 0);
}

static int forward(struct engine *engine, const struct engine_batch *batch, float *logits, float *features, uint64_t *token)
{
	struct cpu_engine *e = cpu_engine(engine);
	*token = 0;
	run_forward(e, batch, 0, features);
	memcpy(logits, e->head.logits, (size_t)batch->count * (size_t)engine->conf.plan->classes * sizeof *logits);
	return 0;
}

static int done(struct engine *engine, uint64_t token, int wait)
{
	(void)engine;
	(void)token;
	(void)wait;
	return 1;
}

static int loss(struct engine *engine, double *value)
{
	*value = cpu_engine(engine)->loss;
	return 0;
}

static int tap(struct engine *engine, int index, int gradient, float *values)
{
	struct cpu_engine *e = cpu_engine(engine);
	const struct net_plan *plan = engine->conf.plan;
	const struct tap *t = &e->taps[index];
	if (index == plan->n_layers && !gradient) {
		memcpy(values, e->head.logits, (size_t)engine->conf.batch * (size_t)plan->classes * sizeof *values);
		return 0;
	}
	if (gradient || !t->acts.data)
		return fail(engine->error, EXIT_USAGE, "the CPU engine does not keep %s%s", gradient ? "the gradient of " : "",
		            index ? plan->layers[index - 1].name : "the normalised input");
	const struct net_layer *l = &plan->layers[index - 1];
	int pixels = l->h_out * l->h_out;
	for (int n = 0; n < engine->conf.batch; n++)
		for (int p = 0; p < pixels; p++)
			for (int c = 0; c < l->c_out; c++) {
				float x;
				struct acts at = acts_slice(e, t->acts, c);
				e->kernels->at[e->storage].load(1, acts_at(e, at, (size_t)n * (size_t)pixels + (size_t)p), &x);
				if (t->bn) {
					x = x * t->bn->v.scale[c] + t->bn->v.shift[c];
					x = x > 0 ? x : 0;
				}
				values[((size_t)n * (size_t)l->c_out + (size_t)c) * (size_t)pixels + (size_t)p] = x;
			}
	return 0;
}

static const struct engine_ops ops = { close_engine, put, get, set_step, train, backward, forward, done, loss, tap, NULL, NULL, NULL, NULL };

/* What depends on the sizes that the parts asked for. */
static int allocate_shared(struct cpu_engine *e)
{
	if (!(e->sums = cpu_alloc(e, (size_t)MAX_PARTS * 3 * (size_t)e->max_channels, sizeof(float))) ||
	    !(e->coefficients = cpu_alloc(e, 3 * (size_t)e->max_channels, sizeof(float))) ||
	    !(e->weight_sums[0] = cpu_alloc(e, e->weight_sums_count, sizeof(float))) || !(e->weight_sums[1] = cpu_alloc(e, e->weight_sums_count, sizeof(float))) ||
	    !(e->scratch = cpu_alloc(e, (size_t)e->threads, sizeof *e->scratch)))
		return -e->base.error->code;
	for (int i = 0; i < e->threads; i++)
		if (!(e->scratch[i] = cpu_alloc(e, e->scratch_count, sizeof(float))))
			return -e->base.error->code;
	return 0;
}

int cpu_arrays_open(struct cpu_engine *e)
{
	const struct engine_conf *conf = &e->base.conf;
	size_t slab = conf->layout->slab_count, channels = conf->plan->n_bn_channels;
	if (cpu_team_open(&e->team, e->threads, e->base.error))
		return -e->base.error->code;
	float **in_padded_order[] = { &e->params, &e->moment1, &e->moment2 }, **by_channel[] = { &e->running_mean, &e->running_var };
	for (size_t i = 0; i < sizeof in_padded_order / sizeof in_padded_order[0]; i++)
		if (!(*in_padded_order[i] = cpu_alloc(e, slab, sizeof(float))))
			return -e->base.error->code;
	for (size_t i = 0; i < sizeof by_channel / sizeof by_channel[0]; i++)
		if (!(*by_channel[i] = cpu_alloc(e, channels, sizeof(float))))
			return -e->base.error->code;
	e->slab = conf->slab ? conf->slab : cpu_alloc(e, slab, sizeof(float));
	e->finished = e->slab ? cpu_alloc(e, (size_t)conf->layout->n_groups, 1) : NULL;
	for (size_t c = 0; c < channels; c++)
		e->running_var[c] = 1;
	return e->finished ? 0 : -e->base.error->code;
}

static int allocate(struct cpu_engine *e)
{
	int rc = cpu_arrays_open(e);
	if (rc)
		return rc;
	e->taps = cpu_alloc(e, (size_t)e->base.conf.plan->n_layers + 1, sizeof *e->taps);
	e->bns = e->taps ? cpu_alloc(e, (size_t)e->base.conf.plan->n_bns, sizeof *e->bns) : NULL;
	return e->bns && !body[e->base.conf.plan->family].open(e) && !allocate_shared(e) ? 0 : -e->base.error->code;
}

int engine_cpu_open(struct engine **engine, const struct engine_conf *conf, struct error *e)
{
	if (conf->precision != PRECISION_FP32 && conf->precision != PRECISION_BF16)
		return fail(e, EXIT_USAGE, "the CPU engine computes in fp32 or bf16 only");
	if (conf->variant == VARIANT_BASELINE && !cpu_baseline_open)
		return fail(e, EXIT_USAGE, "this program was built without the baseline, which takes oneDNN from 2.4 to 3");
	if (conf->variant == VARIANT_BASELINE)
		return cpu_baseline_open(engine, conf, &ops, e);
	struct cpu_engine *c = calloc(1, sizeof *c);
	if (!c)
		return fail(e, EXIT_INTERNAL, "no memory for the CPU engine");
	c->base = (struct engine){ .ops = &ops, .conf = *conf, .error = e };
	c->kernels = conf->variant == VARIANT_PORTABLE ? &cpu_kernels_portable : cpu_kernels_best();
	const char *why = NULL;
	if (conf->precision == PRECISION_BF16 && conf->variant != VARIANT_PORTABLE)
		c->amx = conf->variant == VARIANT_AMX ? &cpu_amx_emulated : cpu_amx_best(&why);
	c->storage = conf->precision == PRECISION_BF16 ? STORE_BF16 : STORE_FP32;
	c->threads = conf->threads ? conf->threads : omp_get_num_procs();
	c->most_parts = MAX_PARTS;
	int rc = allocate(c);
	if (rc) {
		close_engine(&c->base);
		return rc;
	}
	snprintf(c->base.description, sizeof c->base.description, "cpu: fused kernels in %s%s%s, %s, %d thread%s%s%s", c->kernels->name, c->amx ? " and " : "",
	         c->amx ? c->amx->name : "", c->storage == STORE_BF16 ? "bf16 activations" : "fp32", c->threads, c->threads == 1 ? "" : "s",
	         why ? "; AMX is left alone: " : "", why ? why : "");
	*engine = &c->base;
	return 0;
}

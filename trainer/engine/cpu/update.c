/* SPDX-License-Identifier: Apache-2.0
 * From the slab to new parameters and running statistics. */
#include <math.h>

#include "engine/cpu/cpu.h"

/* The slab's batch statistics: means, then E[x²], then the loss. */
static float *slab_statistics(const struct cpu_engine *e)
{
	return e->slab + e->base.conf.layout->groups[e->base.conf.plan->n_params].offset;
}

int cpu_statistics_group(struct cpu_engine *e)
{
	float *loss = slab_statistics(e) + 2 * e->base.conf.plan->n_bn_channels;
	for (int i = 0; i < e->base.conf.plan->n_bns; i++)
		cpu_statistics_to_slab(e, e->bns[i]);
	*loss = (e->micro ? *loss : 0) + (float)(e->loss / e->micros);
	return cpu_group_written(e, e->base.conf.plan->n_params);
}

static void update_running(struct cpu_engine *e, const struct bn *bn)
{
	const struct net_plan *plan = e->base.conf.plan;
	size_t at = plan->bns[bn->index].offset;
	const float *means = slab_statistics(e) + at, *squares = means + plan->n_bn_channels;
	double n = (double)e->count * bn->pixels;
	for (int c = 0; c < bn->channels; c++) {
		double mean = means[c], var = squares[c] - mean * mean;
		double unbiased = n > 1 ? var * n / (n - 1) : var;
		float *running_mean = &e->running_mean[at + (size_t)c], *running_var = &e->running_var[at + (size_t)c];
		*running_mean = (float)(0.9 * *running_mean + 0.1 * mean);
		*running_var = (float)(0.9 * *running_var + 0.1 * (unbiased <= 0 ? 0 : unbiased));
	}
}

struct optimisation {
	const struct cpu_engine *e;
	struct adam_step step;
	float lr;
};

static void optimise_group(void *context, int i, int worker)
{
	const struct optimisation *j = context;
	const struct cpu_engine *e = j->e;
	const struct engine_conf *conf = &e->base.conf;
	const struct engine_group *g = &conf->layout->groups[i];
	struct adam_step step = j->step;
	uint64_t t = profile_start(e->profile);
	step.decay = engine_decays(&conf->plan->params[g->param]) ? (float)conf->weight_decay : 0;
	float *w = e->params + g->offset, *m = e->moment1 + g->offset;
	if (conf->optimizer == OPTIMIZER_SGD)
		e->kernels->sgd(g->count, e->slab + g->offset, w, m, j->lr, step.beta1, step.decay);
	else
		e->kernels->adam(g->count, e->slab + g->offset, w, m, e->moment2 + g->offset, &step);
	profile_add(e->profile, worker, WORK_OTHER, t);
}

void cpu_optimise(struct cpu_engine *e, double lr)
{
	const struct engine_conf *conf = &e->base.conf;
	double t = (double)++e->step;
	struct optimisation job = { .e = e, .lr = (float)lr };
	job.step = (struct adam_step){ .beta1 = (float)conf->beta1, .beta2 = (float)conf->beta2, .epsilon = (float)conf->epsilon,
	                               .rate = (float)(lr / (1 - pow(conf->beta1, t))), .correction = (float)(1 / sqrt(1 - pow(conf->beta2, t))) };
	cpu_team_run(e->team, conf->plan->n_params, optimise_group, &job);
	e->weights_packed = 0;
}

void cpu_update(struct cpu_engine *e, double lr)
{
	for (int i = 0; i < e->base.conf.plan->n_bns; i++)
		update_running(e, e->bns[i]);
	e->loss = slab_statistics(e)[2 * e->base.conf.plan->n_bn_channels];
	cpu_optimise(e, lr);
}

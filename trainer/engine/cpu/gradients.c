/* SPDX-License-Identifier: Apache-2.0
 * Gradients into the slab, and which of its groups are ready. */
#include "engine/cpu/cpu.h"

int cpu_group_written(struct cpu_engine *e, int group)
{
	const struct engine_conf *conf = &e->base.conf;
	e->finished[group] = 1;
	int rc = 0;
	while (e->announce && !rc && e->next_group < conf->layout->n_groups && e->finished[e->next_group])
		rc = conf->ready(conf->context, e->next_group++);
	return rc;
}

int cpu_gradient_written(struct cpu_engine *e, int param)
{
	return cpu_group_written(e, e->base.conf.plan->n_params - 1 - param);
}

int cpu_gradient(struct cpu_engine *e, int param, const float *values, float scale)
{
	float *to = e->slab + param_offset(e, param);
	size_t count = e->base.conf.plan->params[param].count;
	for (size_t i = 0; i < count; i++)
		to[i] = (e->micro ? to[i] : 0) + values[i] * scale;
	return cpu_gradient_written(e, param);
}

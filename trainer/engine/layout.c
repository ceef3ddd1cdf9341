/* SPDX-License-Identifier: Apache-2.0
 * The order in which gradients become ready, padded to whole vectors. */
#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"

enum { PAD = 16 };

static size_t padded(size_t count)
{
	return (count + PAD - 1) / PAD * PAD;
}

int engine_layout_make(struct engine_layout *layout, const struct net_plan *plan, struct error *e)
{
	*layout = (struct engine_layout){ .n_groups = plan->n_params + 1 };
	layout->groups = calloc((size_t)layout->n_groups, sizeof *layout->groups);
	if (!layout->groups)
		return fail(e, EXIT_INTERNAL, "no memory for the gradient layout");
	for (int g = 0; g < layout->n_groups; g++) {
		int param = plan->n_params - 1 - g;
		struct engine_group *group = &layout->groups[g];
		group->param = param;
		group->name = param < 0 ? "statistics" : plan->params[param].name;
		group->offset = layout->slab_count;
		group->count = padded(param < 0 ? 2 * plan->n_bn_channels + PAD : plan->params[param].count);
		layout->slab_count += group->count;
	}
	return 0;
}

void engine_layout_free(struct engine_layout *layout)
{
	free(layout->groups);
	*layout = (struct engine_layout){ 0 };
}

/* A part of [offset, offset + count) that lies in one parameter. */
struct stretch {
	size_t padded, table, count; /* offsets from the arrays' starts, floats */
};

static int next_stretch(const struct engine_layout *layout, const struct net_plan *plan, size_t offset, size_t count, int *param, struct stretch *s)
{
	for (; *param < plan->n_params; ++*param) {
		const struct net_param *p = &plan->params[*param];
		size_t from = offset > p->offset ? offset : p->offset;
		size_t to = offset + count < p->offset + p->count ? offset + count : p->offset + p->count;
		if (from >= to)
			continue;
		const struct engine_group *g = &layout->groups[plan->n_params - 1 - *param];
		*s = (struct stretch){ g->offset + from - p->offset, from - offset, to - from };
		++*param;
		return 1;
	}
	return 0;
}

void engine_layout_put(const struct engine_layout *layout, const struct net_plan *plan, float *padded_array, size_t offset, const float *table, size_t count)
{
	struct stretch s;
	for (int param = 0; next_stretch(layout, plan, offset, count, &param, &s);)
		memcpy(padded_array + s.padded, table + s.table, s.count * sizeof *table);
}

void engine_layout_get(const struct engine_layout *layout, const struct net_plan *plan, const float *padded_array, size_t offset, float *table, size_t count)
{
	struct stretch s;
	for (int param = 0; next_stretch(layout, plan, offset, count, &param, &s);)
		memcpy(table + s.table, padded_array + s.padded, s.count * sizeof *table);
}

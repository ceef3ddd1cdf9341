/* SPDX-License-Identifier: Apache-2.0
 * A convolution: what it needs, and its weights in the order in which they are read. */
#include "engine/cpu/cpu.h"

int cpu_conv_open(struct cpu_engine *e, struct conv *c, const struct net_layer *l, int needs_data_gradient)
{
	*c = (struct conv){ .name = l->name, .param = l->weight, .c_in = l->c_in, .c_out = l->c_out, .k = l->k, .stride = l->stride, .h_in = l->h_in, .h_out = l->h_out };
	c->tiles = e->amx && needs_data_gradient; /* not the stem */
	c->forward = cpu_alloc(e, cpu_panels_count(c, c->c_in, c->c_out, c->k * c->k), sizeof(float));
	if (needs_data_gradient && c->forward)
		c->backward = cpu_alloc(e, cpu_panels_count(c, c->c_out, c->c_in, c->k * c->k), sizeof(float));
	cpu_weights_split(e, c);
	return c->forward && (c->backward || !needs_data_gradient) ? 0 : -e->base.error->code;
}

void cpu_conv_pack(const struct cpu_engine *e, const struct conv *c)
{
	static const int all[MAX_TAPS] = { 0, 1, 2, 3, 4, 5, 6, 7, 8 };
	const float *w = e->params + param_offset(e, c->param);
	int taps = c->k * c->k, by_output = c->c_in * taps;
	cpu_pack_panels(e, c, c->forward, w, c->c_in, c->c_out, taps, all, taps, by_output);
	if (c->backward && c->k == 3)
		cpu_conv3_pack_backward(e, c, w);
	else if (c->backward)
		cpu_pack_panels(e, c, c->backward, w, c->c_out, c->c_in, taps, all, by_output, taps);
}

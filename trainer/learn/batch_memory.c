/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/batch_memory.h"

static int measure_one(double *bytes, const struct net_plan *plan, const struct engine_layout *layout, enum engine_kind kind,
		       const struct model_conf *conf, int batch, struct error *e)
{
	struct engine_conf ec = {
		.plan = plan, .layout = layout, .precision = conf->precision, .optimizer = conf->optimizer, .beta1 = conf->beta1, .beta2 = 0.999,
		.epsilon = 1e-8, .batch = batch, .channels = 1, .source_size = conf->source_size, .threads = conf->threads,
	};
	struct engine *engine;

	if (engine_open(&engine, kind, &ec, e) < 0)
		return -e->code;
	*bytes = (double)engine_memory(engine);
	engine_close(engine);
	return 0;
}

int batch_memory_measure(struct batch_memory *m, const struct net_conf *net, enum engine_kind kind, const struct model_conf *conf, int slots,
			 struct error *e)
{
	struct net_plan plan = { 0 };
	struct engine_layout layout = { 0 };
	double one = 0, two = 0;

	if (net_plan_make(&plan, net, e) == 0 && engine_layout_make(&layout, &plan, e) == 0 &&
	    measure_one(&one, &plan, &layout, kind, conf, 1, e) == 0)
		measure_one(&two, &plan, &layout, kind, conf, 2, e);
	*m = (struct batch_memory){ .fixed = 2 * one - two, .image = two - one };
	if (kind != ENGINE_CUDA) {
		m->fixed += (3.0 * (double)plan.n_weights + 2.0 * (double)plan.n_bn_channels) * sizeof(float);
		m->image += (double)slots * conf->source_size * conf->source_size;
	}
	engine_layout_free(&layout);
	net_plan_free(&plan);
	return e->code ? -e->code : 0;
}

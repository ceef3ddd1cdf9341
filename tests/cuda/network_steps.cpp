/* SPDX-License-Identifier: Apache-2.0
 * What the CUDA engine makes of steps: loss scales, all-reduces of buckets within a graph, and steps that nobody waits for. */
#include "network_test.h"

namespace {

void restore(problem &p, engine *g, std::vector<float> all, uint64_t steps, const engine_scale &scale)
{
	size_t at = 0;
	for (engine_what what : { ENGINE_PARAMS, ENGINE_MOMENT1, ENGINE_MOMENT2, ENGINE_RUNNING_MEAN, ENGINE_RUNNING_VAR }) {
		const size_t count = what == ENGINE_RUNNING_MEAN || what == ENGINE_RUNNING_VAR ? p.plan.n_bn_channels : p.plan.n_weights;
		if (engine_put(g, what, 0, all.data() + at, count))
			wrong("%s", p.e.text);
		at += count;
	}
	if (engine_set_step(g, steps) || engine_set_scale(g, &scale))
		wrong("%s", p.e.text);
}

engine_scale scale_of(problem &p, engine *g)
{
	engine_scale scale = {};
	if (engine_get_scale(g, &scale))
		wrong("%s", p.e.text);
	return scale;
}

engine *open_scaled(problem &p, double scale, int patience)
{
	p.conf.loss_scale = scale;
	p.conf.scale_patience = patience;
	return p.open(0, PRECISION_FP16);
}

/* Steps that overflow leave no trace but a smaller scale; the first that does not is the first step. */
void overflow_is_skipped()
{
	problem p(densenet(8, { 2, 2 }), 3, PRECISION_FP16);
	engine *dynamic = open_scaled(p, 0x1p28, 100);
	if (failures)
		return;
	const std::vector<float> start = everything(p, dynamic);
	engine_scale scale = {};
	int skipped = 0;
	for (; skipped < 40 && !failures; skipped++) {
		train_steps(p, dynamic, 1, 2);
		scale = scale_of(p, dynamic);
		if (scale.skipped == (uint64_t)skipped)
			break;
		if (!same(everything(p, dynamic), start))
			wrong("the step with scale %g was skipped and left a trace", 2 * scale.scale);
		if (scale.scale != std::ldexp(1.0, 28 - skipped - 1))
			wrong("scale %g after %d skipped steps", scale.scale, skipped + 1);
	}
	if (!failures && (skipped < 2 || skipped == 40))
		wrong("%d steps overflowed", skipped);
	engine *fixed = open_scaled(p, scale.scale, 0);
	train_steps(p, fixed, 1, 2);
	if (!failures && !same(everything(p, fixed), everything(p, dynamic)))
		wrong("after %d skipped steps the first step is another one", skipped);
	engine_close(dynamic);
	engine_close(fixed);
	if (!failures)
		note = std::to_string(skipped) + " steps skipped";
}

/* The scale grows after its patience, on the exact step also over a checkpoint, and changes no bit of the update. */
void scale_over_a_checkpoint()
{
	problem p(densenet(8, { 2, 1 }), 2, PRECISION_FP16);
	engine *fixed = open_scaled(p, 256, 0), *whole = open_scaled(p, 256, 100), *growing = open_scaled(p, 256, 3), *first = open_scaled(p, 256, 3), *second = open_scaled(p, 16, 3), *resumed = open_scaled(p, 256, 0);
	train_steps(p, fixed, 2);
	restore(p, resumed, everything(p, fixed), 2, scale_of(p, fixed));
	train_steps(p, fixed, 1);
	train_steps(p, resumed, 1);
	if (!failures && !same(everything(p, fixed), everything(p, resumed)))
		wrong("with a fixed scale 2 steps, a checkpoint and a step are not 3 steps");
	train_steps(p, whole, 3);
	if (!failures && !same(everything(p, fixed), everything(p, whole)))
		wrong("a scale that may change and does not makes other bits than a fixed one");
	train_steps(p, growing, 5);
	train_steps(p, first, 2);
	if (failures)
		return;
	restore(p, second, everything(p, first), 2, scale_of(p, first));
	train_steps(p, second, 3);
	const engine_scale a = scale_of(p, growing), b = scale_of(p, second);
	if (a.scale != 512 || a.good != 2 || a.skipped)
		wrong("after 5 steps the scale is %g, %u steps old", a.scale, (unsigned)a.good);
	if (a.scale != b.scale || a.good != b.good || a.skipped != b.skipped || !same(everything(p, growing), everything(p, second)))
		wrong("2 steps, a checkpoint and 3 steps are not 5 steps: scale %g and %g", b.scale, a.scale);
	for (engine *g : { fixed, whole, growing, first, second, resumed })
		engine_close(g);
	for (int patience : { 0, 100 }) {
		engine *g = open_scaled(p, 0, patience);
		if (const double scale = scale_of(p, g).scale; scale != (patience ? 65536 : 1024))
			wrong("no scale is asked for, patience %d: %g", patience, scale);
		engine_close(g);
	}
}

#ifndef ON_DEVICE
/* The mean over two ranks when the other one's gradients overflowed: one value of the slab is not finite. */
struct other_rank {
	float *slab;
	size_t at;
	float value;
	int groups;
};

int group_ready(void *context, int group)
{
	static_cast<other_rank *>(context)->groups += group >= 0;
	return 0;
}

int mean_over_ranks(void *context)
{
	const other_rank *r = static_cast<other_rank *>(context);
	if (r->value)
		shim_enqueue([r] { r->slab[r->at] = r->value; });
	return 0;
}

/* Two ranks with the same batch but for the other's gradients, which are twice ours: the all-reduce of each bucket is enqueued as soon
 * as its last group is announced. */
struct two_ranks {
	const engine_layout *layout;
	float *slab;
	size_t from;    /* announced up to here */
	int calls;      /* of the host's functions */
	uint32_t stop;
	bool lost;      /* the stop word is set in the midst of a step */
};

int bucket_ready(void *context, int group)
{
	two_ranks *r = static_cast<two_ranks *>(context);
	const engine_group &g = r->layout->groups[group];
	const size_t end = g.offset + g.count, from = r->from;
	r->calls++;
	if (g.param < 0 || end - from < 1000) /* the statistics and the loss are the same on both */
		return 0;
	r->from = end;
	shim_enqueue([=] {
		for (size_t i = from; i < end; i++)
			r->slab[i] = (r->slab[i] + 2 * r->slab[i]) / 2;
	});
	return 0;
}

int buckets_through(void *context)
{
	two_ranks *r = static_cast<two_ranks *>(context);
	const size_t from = r->from, end = r->layout->groups[r->layout->n_groups - 2].offset + r->layout->groups[r->layout->n_groups - 2].count;
	r->from = 0;
	r->calls++;
	shim_enqueue([=] {
		r->stop |= r->lost;
		for (size_t i = from; i < end; i++)
			r->slab[i] = (r->slab[i] + 2 * r->slab[i]) / 2;
	});
	return 0;
}

/* `eager`: graphs are dropped before every step. */
std::vector<float> trained_with_buckets(problem &p, two_ranks *r, int steps, int micros, bool eager)
{
	std::vector<float> memory(p.layout.slab_count + 16);
	*r = { &p.layout, (float *)(((uintptr_t)memory.data() + 63) / 64 * 64), 0, 0, 0, false };
	p.conf.slab = r->slab;
	p.conf.ready = bucket_ready;
	p.conf.finish = buckets_through;
	p.conf.context = r;
	p.conf.stop = &r->stop;
	engine *g = p.open(0, p.conf.precision);
	for (int i = 0; i < steps && !failures; i++) {
		if (eager)
			engine_set_step(g, (uint64_t)i);
		train_steps(p, g, 1, micros);
	}
	const std::vector<float> all = everything(p, g);
	uint64_t made, after, none;
	engine_made(g, &made);
	r->lost = true;
	train_steps(p, g, 2, micros);
	engine_made(g, &after);
	if (!same(everything(p, g), all))
		wrong("a step after the stop word changed something (%s)", eager ? "eager" : "graph");
	engine_set_step(g, 0);
	engine_made(g, &none);
	if (made != (eager ? 1u : (uint64_t)steps) || after != made || none)
		wrong("%d, %d and %d steps were made (%s)", (int)made, (int)after, (int)none, eager ? "eager" : "graph");
	engine_close(g);
	p.conf.slab = nullptr;
	p.conf.ready = nullptr;
	p.conf.finish = nullptr;
	p.conf.stop = nullptr;
	return all;
}

/* What the graph replays must be what eager steps do, all-reduces in their places, and the host is asked for it once. */
void buckets_in_the_graph()
{
	for (int micros : { 1, 2, 3 }) { /* three: one that is neither the first nor the last */
		problem p(densenet(8, { 2, 1 }), 2, PRECISION_FP32);
		two_ranks graph, eager;
		const int before = shim_replays;
		const std::vector<float> a = trained_with_buckets(p, &graph, 6, micros, false);
		const int replayed = shim_replays - before;
		const std::vector<float> b = trained_with_buckets(p, &eager, 6, micros, true);
		const int groups = p.layout.n_groups + 1; /* and the end */
		if (failures)
			return;
		if (replayed != 5 * micros || shim_replays - before - replayed) /* the last step finds the stop word set, and nothing is launched */
			wrong("%d of 8 steps of %d micro-batches were replayed, %d eager ones", replayed, micros, shim_replays - before - replayed);
		if (graph.calls != 3 * groups || eager.calls != 8 * groups)
			wrong("%d and %d calls for %d groups", graph.calls, eager.calls, groups);
		if (!same(a, b))
			wrong("%d micro-batches: replayed steps are not what eager ones are", micros);
	}
}

#endif

/* What a step reads belongs to the caller again when engine_train() returns, and what it wrote is there when engine_done() says so: steps and
 * evaluations that nobody waits for are those that are waited for, whichever way the images come. */
enum way { WAITED, IN_FLIGHT, KEPT };

std::vector<float> trained_in_flight(problem &p, enum way way)
{
	const size_t n = (size_t)p.conf.batch, image = 36 * 36, classes = (size_t)p.plan.classes;
	const std::vector<uint8_t> all = p.pixels;
	std::vector<uint8_t> mine(all.size());
	std::vector<uint64_t> numbers(n), tokens;
	std::vector<uint32_t> labels(n);
	std::vector<std::vector<float>> logits(3, std::vector<float>(n * classes, -1));
	engine *g = p.open(0, p.conf.precision);
	engine_batch batch = p.batch;
	batch.pixels = mine.data();
	batch.labels = labels.data();
	if (way == KEPT && engine_keep(g, 2 * n, n, all.data(), n))
		wrong("%s", p.e.text);
	for (uint64_t step = 0; step < 8 && !failures; step++) {
		for (size_t i = 0; i < n; i++) {
			const size_t from = (i + step) % n;
			numbers[i] = n + from;
			labels[i] = p.labels[from];
			memcpy(mine.data() + i * image, all.data() + from * image, image);
		}
		batch.kept = way == KEPT ? numbers.data() : nullptr;
		uint64_t token;
		if (step < 5 ? engine_train(g, &batch, 0, 1, 1e-3, &token) : engine_forward(g, &batch, logits[step - 5].data(), nullptr, &token))
			wrong("%s", p.e.text);
		tokens.push_back(token);
		if (way == WAITED && engine_done(g, token, 1) != 1)
			wrong("%s", p.e.text);
		if (way == IN_FLIGHT && engine_done(g, token, 0) < 0)
			wrong("%s", p.e.text);
		std::fill(mine.begin(), mine.end(), (uint8_t)random_bits());
		std::fill(labels.begin(), labels.end(), 0u);
		std::fill(numbers.begin(), numbers.end(), 0u);
	}
	for (uint64_t token : tokens)
		if (engine_done(g, token, 1) != 1)
			wrong("%s", p.e.text);
	std::vector<float> result = everything(p, g);
	for (const std::vector<float> &v : logits)
		result.insert(result.end(), v.begin(), v.end());
	engine_close(g);
	return result;
}

/* Logits are those of their batch as soon as engine_done() says so, whether or not something else made the program wait for the device
 * (features do). */
void logits_are_there()
{
	problem p(densenet(8, { 2, 1 }), 3, PRECISION_FP32);
	const size_t classes = 3 * (size_t)p.plan.classes;
	const net_layer &pool = p.plan.layers[p.plan.n_layers - 2];
	std::vector<uint8_t> other(p.pixels.rbegin(), p.pixels.rend());
	std::vector<float> want[2], got(classes), features(3 * (size_t)(pool.c_in * pool.h_in * pool.h_in));
	engine *g = p.open(0, PRECISION_FP32);
	uint64_t token;
	for (int i = 0; i < 8 && !failures; i++) {
		engine_batch batch = p.batch;
		const bool first = i < 2;
		const int which = first ? i : i / 2 % 2; /* not what its slot held before: slots take turns */
		batch.pixels = which ? other.data() : p.pixels.data();
		if (first)
			want[i].resize(classes);
		std::fill(got.begin(), got.end(), -1.0f);
		if (engine_forward(g, &batch, first ? want[i].data() : got.data(), first ? features.data() : nullptr, &token) || engine_done(g, token, 1) != 1)
			wrong("%s", p.e.text);
		if (!first && !same(got, want[which]))
			wrong("evaluation %d: the logits are not those of its batch", i);
	}
	if (same(want[0], want[1]))
		wrong("two batches have the same logits");
	engine_close(g);
}

void steps_in_flight()
{
	logits_are_there();
	problem p(densenet(8, { 2, 1 }), 3, PRECISION_FP32);
	const std::vector<float> waited = trained_in_flight(p, WAITED);
	if (!failures && !same(trained_in_flight(p, IN_FLIGHT), waited))
		wrong("steps in flight are not those that are waited for");
	if (!failures && !same(trained_in_flight(p, KEPT), waited))
		wrong("images that stay on the device are not those that are fed");
	engine *g = p.open(0, PRECISION_FP32);
	const uint64_t beyond[] = { 0, 1, 3 };
	engine_batch batch = p.batch;
	uint64_t token;
	batch.kept = beyond;
	const bool refused = engine_keep(g, 3, 1, p.pixels.data(), 3) == -EXIT_INTERNAL;
	p.e = {};
	if (!refused || engine_keep(g, 3, 0, p.pixels.data(), 3) || engine_train(g, &batch, 0, 1, 1e-3, &token) != -EXIT_INTERNAL ||
	    !strstr(p.e.text, "image 3 of 3"))
		wrong("an image that is not kept was taken: %s", p.e.text);
	engine_close(g);
}

#ifndef ON_DEVICE
void ranks_skip_together()
{
	problem p(densenet(8, { 2, 1 }), 2, PRECISION_FP16);
	std::vector<float> memory(p.layout.slab_count + 16);
	other_rank r = { (float *)(((uintptr_t)memory.data() + 63) / 64 * 64), 0, 0, 0 };
	p.conf.slab = r.slab;
	p.conf.ready = group_ready;
	p.conf.finish = mean_over_ranks;
	p.conf.context = &r;
	engine *g = open_scaled(p, 256, 100);
	train_steps(p, g, 1);
	if (failures)
		return;
	const std::vector<float> before = everything(p, g);
	const size_t last = p.layout.groups[p.plan.n_params].offset - 1;
	for (size_t at : { (size_t)0, last / 2, last }) {
		r.at = at;
		r.value = at ? (float)NAN : -INFINITY;
		train_steps(p, g, 1);
		if (!same(everything(p, g), before))
			wrong("value %zu of the mean is not finite, and the step was made", at);
		if (at == last) /* padding is nobody's gradient: it must not stay behind */
			r.slab[last] = 0;
	}
	r.value = 0;
	if (scale_of(p, g).skipped != 3 || scale_of(p, g).scale != 32)
		wrong("%u steps skipped, scale %g", (unsigned)scale_of(p, g).skipped, scale_of(p, g).scale);
	train_steps(p, g, 1);
	if (same(everything(p, g), before) || scale_of(p, g).good != 1)
		wrong("after the overflow no step is made");
	engine_close(g);
}

#endif

#ifndef ON_DEVICE
/* All that a training asks of an engine, until something fails. */
int all_calls(problem &p, engine *g)
{
	const size_t n = p.plan.n_weights;
	std::vector<float> values(n), logits((size_t)p.conf.batch * (size_t)p.plan.classes), features(1 << 16);
	engine_scale scale;
	uint64_t token, made;
	double loss;
	int rc = engine_put(g, ENGINE_PARAMS, 0, p.start.data(), n);
	rc = rc ? rc : engine_set_step(g, 1);
	rc = rc ? rc : engine_keep(g, 1, 0, p.pixels.data(), 1);
	for (int step = 0; step < 4 && rc >= 0; step++) /* two eager ones, a captured one, and one that is replayed */
		if (!(rc = engine_train(g, &p.batch, 0, 1, 1e-3, &token)))
			rc = engine_done(g, token, 1);
	rc = rc < 0 ? rc : engine_loss(g, &loss);
	rc = rc ? rc : engine_get_scale(g, &scale);
	rc = rc ? rc : engine_set_scale(g, &scale);
	rc = rc ? rc : engine_made(g, &made);
	rc = rc ? rc : engine_get(g, ENGINE_PARAMS, 0, values.data(), n);
	rc = rc ? rc : engine_get(g, ENGINE_RUNNING_MEAN, 0, values.data(), p.plan.n_bn_channels);
	rc = rc ? rc : engine_put(g, ENGINE_RUNNING_MEAN, 0, values.data(), p.plan.n_bn_channels);
	rc = rc ? rc : engine_backward(g, &p.batch);
	rc = rc ? rc : engine_forward(g, &p.batch, logits.data(), features.data(), &token);
	while (!rc)
		rc = engine_done(g, token, 0);
	return rc < 0 ? rc : 0;
}

/* Whichever call to the device fails, of those that opening and using an engine make, somebody is told, with what was being done; and what was opened is given back. */
void failures_are_told_of(const net_conf &net, enum precision precision, long every)
{
	problem p(net, 1, precision);
	p.conf.precision = precision;
	p.conf.scale_patience = precision == PRECISION_FP16 ? 10 : 0;
	for (long n = (long)(random_bits() % (uint64_t)every);; n += every) {
		engine *g = nullptr;
		p.e = {};
		shim_calls_left = n;
		int rc = chexnet_cuda_open(&g, &p.conf, &p.e);
		const bool opened = !rc;
		if (opened == !g)
			wrong("call %ld fails: %d and an engine, or 0 and none", n, rc);
		rc = rc ? rc : all_calls(p, g);
		const bool over = shim_calls_left >= 0;
		shim_calls_left = -1;
		if (g)
			engine_close(g);
		if (!over == !rc || (rc && !strstr(p.e.text, ": refused") && !strstr(p.e.text, "(no memory)") && !strstr(p.e.text, ": no memory")))
			wrong("%s, precision %d: call %ld fails%s: %d, %s", net.model, (int)precision, n, opened ? "" : " on opening", rc, p.e.text);
		if (over || failures)
			break;
	}
}

void failures_are_told()
{
	const long every = 29;
	failures_are_told_of(small_net("densenet", 16, 8, 8, { 1 }), PRECISION_FP32, every);
	failures_are_told_of(small_net("densenet", 16, 8, 8, { 2 }), PRECISION_FP16, every);
	failures_are_told_of(resnet({ 1, 1 }), PRECISION_BF16, every);
}
#endif

void dynamic_scale()
{
	overflow_is_skipped();
	if (!failures)
		scale_over_a_checkpoint();
#ifndef ON_DEVICE
	if (!failures)
		ranks_skip_together();
#endif
}

} // namespace

#ifndef ON_DEVICE
std::vector<float> trained_with(problem &p, const char *bits)
{
	two_ranks ranks;
	setenv("CHEXNET_FUSED", bits, 1);
	const std::vector<float> all = trained_with_buckets(p, &ranks, 3, 2, false);
	unsetenv("CHEXNET_FUSED");
	return all;
}
#endif

void add_step_tests(std::vector<network_test> &tests)
{
	const network_test added[] = {
		{ "scale", "a dynamic loss scale skips what overflows, on all ranks, and goes on from a checkpoint", dynamic_scale },
#ifndef ON_DEVICE
		{ "failures", "whichever call to the device fails, somebody is told of what", failures_are_told },
		{ "graph", "a graph holds the all-reduces of its buckets, and heeds the stop word", buckets_in_the_graph },
#endif
		{ "flight", "steps in flight, and images kept on the device, give what waiting and feeding gives", steps_in_flight },
	};
	tests.insert(tests.end(), std::begin(added), std::end(added));
}

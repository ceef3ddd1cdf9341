/* SPDX-License-Identifier: Apache-2.0
 * What an open CUDA engine does: steps, which are enqueued twice and then replayed as captured graphs, the update, and values put and got.
 * engine_cuda.cpp opens it. */
#ifndef CUDA_RUNNING_H
#define CUDA_RUNNING_H

#include <cmath>
#include <memory>
#include <vector>

#include "staging.h"
#include "step.h"

enum { MAX_GRAPHS = 4, EAGER_STEPS = 2 };

/* Micro-batches that differ in what is enqueued have graphs of their own. */
struct captured {
	int first, last, micros;
	device_graph graph;
};

template <class T> struct cuda_engine {
	engine base;
	step<T> s;
	void *device_memory;
	std::unique_ptr<convolver<T>> conv;
	staging io;
	std::vector<float> host;    /* [slab_count] for put, get and a slab that kernels cannot reach */
	update_step now;            /* of the step in hand */
	uint64_t optimiser_step, token;
	long steps;                 /* micro-batches trained, for the eager ones before capture */
	bool graphs_wanted;
	captured graphs[MAX_GRAPHS];
	int n_graphs;
	int host_slab;              /* conf.slab is host memory */
	const volatile int *stop;   /* NULL: none */
};

template <class T> cuda_engine<T> *self(engine *e)
{
	return reinterpret_cast<cuda_engine<T> *>(e); /* base comes first */
}

/* ", 812 MiB are free"; empty: not known. */
struct room_text {
	char text[32];

	room_text() : text()
	{
		if (device_room() > 0)
			snprintf(text, sizeof text, ", %.0f MiB are free", device_room() / 1048576);
	}
};

template <class T> int device_failed(cuda_engine<T> *e, int code, const char *what)
{
	if (code == DEVICE_NO_MEMORY)
		return fail(e->base.error, EXIT_INTERNAL, "%s: %s: %s%s: a smaller --batch needs less%s", e->base.description, what, device_error(code),
			    room_text().text, e->io.kept_images ? ", and so does a training without --resident" : "");
	return code ? fail(e->base.error, EXIT_INTERNAL, "%s: %s: %s", e->base.description, what, device_error(code)) : 0;
}

/* Also where another world begins: its all-reduces are others. The communicator of the last one must still be there: NCCL's part of a graph is
 * given back to it, once the graph is through and gone. */
template <class T> void drop_graphs(cuda_engine<T> *e)
{
	if (e->n_graphs)
		device_wait(e->s.stream);
	for (int i = 0; i < e->n_graphs; i++)
		device_graph_free(e->graphs[i].graph);
	e->n_graphs = 0;
	e->steps = 0;
}

template <class T> void close_engine(engine *base)
{
	cuda_engine<T> *e = self<T>(base);
	drop_graphs(e);
	if (e->s.stream)
		device_wait(e->s.stream); /* copies from and to the slots */
	e->io.close();
	if (e->device_memory)
		device_free(e->device_memory);
	e->s.conv = nullptr;
	e->conv.reset(); /* before its stream */
	if (e->s.stream && !base->conf.stream)
		device_stream_free(e->s.stream);
	delete e;
}

/* ---- the update ---- */

template <class T> bool dynamic_scale(const cuda_engine<T> *e)
{
	return e->base.conf.scale_patience > 0;
}

/* Whether this step is made: no rank is lost, no gradient overflowed. */
template <class T> int enqueue_decision(cuda_engine<T> *e)
{
	const engine_conf *conf = &e->base.conf;
	const memory<T> &m = e->s.m;
	const size_t gradients = conf->layout->groups[conf->plan->n_params].offset;
	const int code = dynamic_scale(e) ? find_overflow_launch({ m.slab, gradients, m.loss_scale }, e->s.sms, e->s.stream) : 0;
	const settle_step p = { m.gate, e->stop, dynamic_scale(e) ? m.loss_scale : nullptr, m.step, conf->beta1, conf->beta2 };
	return code ? code : launch(settle_step_kernel, 1, SETTLE_THREADS, 0, e->s.stream, p);
}

template <class T> update update_of(cuda_engine<T> *e, int copy_only)
{
	const engine_conf *conf = &e->base.conf;
	const memory<T> &m = e->s.m;
	return { m.weights, m.moment1, m.moment2, m.slab, m.groups, m.block_group, m.block_first, m.step, copy_only ? nullptr : m.gate, m.copy,
		 (float)conf->beta1, (float)conf->beta2, (float)conf->epsilon, (float)conf->weight_decay, conf->optimizer == OPTIMIZER_SGD, copy_only };
}

template <class T> int enqueue_update(cuda_engine<T> *e, int copy_only)
{
	const engine_conf *conf = &e->base.conf;
	int code = copy_only ? 0 : enqueue_decision(e);
	code = code ? code : launch(update_kernel<T>, (unsigned)update_blocks(conf->plan), UPDATE_THREADS, 0, e->s.stream, update_of(e, copy_only));
	if (e->s.net.gray && !code)
		code = fold_weight_launch<T>({ e->s.m.weights + e->s.net.stem.weight, e->s.m.copy + e->s.net.stem.copy, gray_fold_make(), e->s.net.stem.c_out }, e->s.stream);
	if (copy_only || code)
		return code;
	const float *statistics = e->s.statistics_slab();
	const bn_running r = { statistics, statistics + conf->plan->n_bn_channels, e->s.m.unbias, e->s.m.running_mean, e->s.m.running_variance, e->s.m.gate,
		               (int)conf->plan->n_bn_channels };
	return per_channel_launch(bn_running_kernel, r, e->s.stream);
}

/* With a dynamic loss scale the device counts the steps and overwrites the corrections. */
template <class T> void next_step(cuda_engine<T> *e, double rate)
{
	const engine_conf *conf = &e->base.conf;
	const double t = (double)++e->optimiser_step;
	e->now = { (float)rate, (float)(1 - std::pow(conf->beta1, t)), (float)(1 - std::pow(conf->beta2, t)) };
}

/* ---- put, get ---- */

template <class T> float *array_of(cuda_engine<T> *e, engine_what what)
{
	switch (what) {
	case ENGINE_PARAMS:
		return e->s.m.weights;
	case ENGINE_GRADS:
		return e->s.m.slab;
	case ENGINE_MOMENT1:
		return e->s.m.moment1;
	case ENGINE_MOMENT2:
		return e->s.m.moment2;
	case ENGINE_RUNNING_MEAN:
		return e->s.m.running_mean;
	case ENGINE_RUNNING_VAR:
		return e->s.m.running_variance;
	}
	return nullptr;
}

inline bool padded_order(engine_what what)
{
	return what != ENGINE_RUNNING_MEAN && what != ENGINE_RUNNING_VAR;
}

template <class T> int download_padded(cuda_engine<T> *e, const float *array)
{
	int code = device_download(e->host.data(), array, e->host.size() * sizeof(float), e->s.stream);
	return device_failed(e, code ? code : device_wait(e->s.stream), "copying from the device");
}

template <class T> int put_values(engine *base, engine_what what, size_t offset, const float *values, size_t count)
{
	cuda_engine<T> *e = self<T>(base);
	const engine_conf *conf = &base->conf;
	float *array = array_of(e, what);
	int code;
	if (padded_order(what)) {
		int rc = download_padded(e, array);
		if (rc)
			return rc;
		engine_layout_put(conf->layout, conf->plan, e->host.data(), offset, values, count);
		code = device_upload(array, e->host.data(), e->host.size() * sizeof(float), e->s.stream);
		if (what == ENGINE_PARAMS && !code)
			code = enqueue_update(e, 1);
	} else {
		code = device_upload(array + offset, values, count * sizeof(float), e->s.stream);
	}
	return device_failed(e, code ? code : device_wait(e->s.stream), "copying to the device");
}

template <class T> int get_values(engine *base, engine_what what, size_t offset, float *values, size_t count)
{
	cuda_engine<T> *e = self<T>(base);
	const float *array = array_of(e, what);
	if (!padded_order(what)) {
		int code = device_download(values, array + offset, count * sizeof(float), e->s.stream);
		return device_failed(e, code ? code : device_wait(e->s.stream), "copying from the device");
	}
	int rc = download_padded(e, array);
	if (!rc)
		engine_layout_get(base->conf.layout, base->conf.plan, e->host.data(), offset, values, count);
	return rc;
}

/* The loss scale's state starts anew, so that it can be opened, resumed and recovered in one way. */
template <class T> int start_loss_scale(cuda_engine<T> *e, double scale, uint64_t good, uint64_t skipped)
{
	const engine_conf *conf = &e->base.conf;
	if (!e->s.m.loss_scale)
		return 0;
	if (scale <= 0)
		scale = conf->loss_scale > 0 ? conf->loss_scale : conf->scale_patience ? 65536 : 1024;
	const loss_scale state = { (float)scale, 1 / (float)scale, (uint32_t)good, 0, (uint32_t)conf->scale_patience, e->optimiser_step, skipped };
	int code = device_upload(e->s.m.loss_scale, &state, sizeof state, e->s.stream);
	return device_failed(e, code ? code : device_wait(e->s.stream), "setting the loss scale");
}

template <class T> int read_loss_scale(cuda_engine<T> *e, loss_scale *state)
{
	int code = device_download(state, e->s.m.loss_scale, sizeof *state, e->s.stream);
	return device_failed(e, code ? code : device_wait(e->s.stream), "reading the loss scale");
}

template <class T> int get_loss_scale(engine *base, engine_scale *scale)
{
	cuda_engine<T> *e = self<T>(base);
	loss_scale state;
	if (!e->s.m.loss_scale)
		return 0;
	int rc = read_loss_scale(e, &state);
	if (!rc)
		*scale = { state.scale, state.good, state.skipped };
	return rc;
}

template <class T> int set_loss_scale(engine *base, const engine_scale *scale)
{
	return start_loss_scale(self<T>(base), scale->scale, scale->good, scale->skipped);
}

template <class T> int set_optimiser_step(engine *base, uint64_t step)
{
	cuda_engine<T> *e = self<T>(base);
	loss_scale state;
	const step_gate open = {};
	e->optimiser_step = step;
	drop_graphs(e);
	int code = device_upload(e->s.m.gate, &open, sizeof open, e->s.stream);
	if (code || !dynamic_scale(e))
		return device_failed(e, code ? code : device_wait(e->s.stream), "setting the step");
	int rc = read_loss_scale(e, &state);
	return rc ? rc : start_loss_scale(e, state.scale, state.good, state.skipped);
}

/* ---- steps ---- */

template <class T> int feed(cuda_engine<T> *e, const engine_batch *batch)
{
	const memory<T> &m = e->s.m;
	const uint64_t token = e->token + 1;
	int code = e->io.take(token);
	code = code ? code : e->io.send(token, batch, e->now, m.pixels[token % STAGING_SLOTS], m.words, e->s.stream);
	return device_failed(e, code, "copying a batch to the device");
}

/* The end of what feed() began, also after a failure: the slot is not used again before the stream has come so far. */
template <class T> int fed(cuda_engine<T> *e, int rc, uint64_t *token, const float *logits, float *wanted, size_t count)
{
	*token = ++e->token;
	const int code = e->io.sent(*token, rc ? nullptr : logits, rc ? nullptr : wanted, count, e->s.stream);
	return rc ? rc : device_failed(e, code, "marking the end of a batch");
}

template <class T> int keep(engine *base, size_t total, size_t first, const uint8_t *pixels, size_t count)
{
	cuda_engine<T> *e = self<T>(base);
	int code = device_wait(e->s.stream);
	code = code ? code : e->io.keep(total, first, pixels, count, e->s.stream);
	if (code == DEVICE_NO_MEMORY)
		return fail(e->base.error, EXIT_INTERNAL, "%s: no %zu MiB to keep %zu images on the device (%s)%s: a smaller --batch leaves more, and "
			    "without --resident they are fed from host memory", e->base.description, total * e->io.image_bytes() >> 20, total, device_error(code), room_text().text);
	return device_failed(e, code, "keeping images on the device");
}

template <class T> int count_made(engine *base, uint64_t *steps)
{
	cuda_engine<T> *e = self<T>(base);
	step_gate gate;
	int code = device_download(&gate, e->s.m.gate, sizeof gate, e->s.stream);
	code = code ? code : device_wait(e->s.stream);
	*steps = code ? 0 : gate.passed;
	return device_failed(e, code, "asking for the steps");
}

/* Everything of a micro-batch that is the same each time: what a graph holds. */
template <class T> int enqueue(cuda_engine<T> *e, int announce, int update_after)
{
	const engine_conf *conf = &e->base.conf;
	int group = 0, rc = 0;
	e->s.rc = 0;
	e->s.forward_all();
	e->s.backward_all([&](int param) {
		while (announce && !rc && !e->s.rc && group <= conf->plan->n_params - 1 - param)
			rc = conf->ready(conf->context, group++);
	});
	if (!rc && !e->s.rc && announce)
		rc = conf->finish(conf->context);
	if (!rc && !e->s.rc && update_after)
		e->s.run(enqueue_update(e, 0));
	return rc ? rc : device_failed(e, e->s.rc, "a training step");
}

/* The CPU back end of a world reduces in host memory: gradients go there and back. */
template <class T> int reduce_on_host(cuda_engine<T> *e)
{
	const engine_conf *conf = &e->base.conf;
	const size_t bytes = conf->layout->slab_count * sizeof(float);
	int code = device_download(conf->slab, e->s.m.slab, bytes, e->s.stream);
	int rc = device_failed(e, code ? code : device_wait(e->s.stream), "copying gradients from the device");
	for (int group = 0; group < conf->layout->n_groups && !rc; group++)
		rc = conf->ready(conf->context, group);
	if (!rc)
		rc = conf->finish(conf->context);
	return rc ? rc : device_failed(e, device_upload(e->s.m.slab, conf->slab, bytes, e->s.stream), "copying gradients to the device");
}

template <class T> captured *find_graph(cuda_engine<T> *e, int first, int last, int micros)
{
	for (int i = 0; i < e->n_graphs; i++)
		if (e->graphs[i].first == first && e->graphs[i].last == last && e->graphs[i].micros == micros)
			return &e->graphs[i];
	return nullptr;
}

/* After a few eager steps a step is captured, with the all-reduces of its buckets: the world announces them on streams that join this one. */
template <class T> int enqueue_or_replay(cuda_engine<T> *e, int announce, int micro, int micros)
{
	const int first = micro == 0, last = micro == micros - 1;
	captured *known = find_graph(e, first, last, micros);
	if (!known && e->steps >= (long)EAGER_STEPS * micros && e->graphs_wanted && e->n_graphs < MAX_GRAPHS) {
		int code = device_capture_begin(e->s.stream);
		if (code)
			return device_failed(e, code, "capturing a step");
		int rc = enqueue(e, announce, last);
		known = &e->graphs[e->n_graphs];
		*known = { first, last, micros, {} };
		code = device_capture_end(e->s.stream, &known->graph);
		if (rc && known->graph)
			device_graph_free(known->graph);
		if (rc || code)
			return rc ? rc : device_failed(e, code, "capturing a step");
		e->n_graphs++;
	}
	if (!known)
		return enqueue(e, announce, last);
	/* After a loss NCCL ends what hangs on the device, and then no more: all-reduces that are launched later would wait for ever. The gate is closed anyway. */
	if (e->stop && *e->stop)
		return 0;
	return device_failed(e, device_graph_launch(known->graph, e->s.stream), "replaying a step");
}

template <class T> int train(engine *base, const engine_batch *batch, int micro, int micros, double lr, uint64_t *token)
{
	cuda_engine<T> *e = self<T>(base);
	const int last = micro == micros - 1, world = base->conf.ready != nullptr;
	e->s.training = 1;
	e->s.micro = micro;
	e->s.micros = micros;
	if (last)
		next_step(e, lr);
	int rc = feed(e, batch);
	if (rc)
		return rc;
	if (world && e->host_slab) {
		rc = enqueue(e, 0, 0);
		if (!rc && last)
			rc = reduce_on_host(e);
		if (!rc && last)
			rc = device_failed(e, enqueue_update(e, 0), "the update");
	} else {
		rc = enqueue_or_replay(e, world && last, micro, micros);
	}
	e->steps++;
	return fed(e, rc, token, nullptr, nullptr, 0);
}

template <class T> int backward(engine *base, const engine_batch *batch)
{
	cuda_engine<T> *e = self<T>(base);
	e->s.training = 1;
	e->s.micro = 0;
	e->s.micros = 1;
	uint64_t token;
	int rc = feed(e, batch);
	if (!rc)
		rc = fed(e, enqueue(e, 0, 0), &token, nullptr, nullptr, 0);
	return rc ? rc : device_failed(e, device_wait(e->s.stream), "forward and backward");
}

/* What the head reads, activated, to [count][channels][side][side]. */
template <class T> int last_features(cuda_engine<T> *e, int count, float *features)
{
	const network &net = e->s.net;
	const auto in = e->s.head_input();
	const size_t channels = (size_t)net.features, map = (size_t)(net.last_side * net.last_side);
	std::vector<T> x((size_t)count * map * channels);
	std::vector<float> scale(channels, 1), bias(channels, 0);
	int code = device_download(x.data(), in.x, x.size() * sizeof(T), e->s.stream);
	if (in.scale) {
		code = code ? code : device_download(scale.data(), in.scale, channels * sizeof(float), e->s.stream);
		code = code ? code : device_download(bias.data(), in.bias, channels * sizeof(float), e->s.stream);
	}
	code = code ? code : device_wait(e->s.stream);
	for (size_t i = 0; i < (size_t)count && !code; i++)
		for (size_t c = 0; c < channels; c++)
			for (size_t p = 0; p < map; p++)
				features[(i * channels + c) * map + p] = fmaxf(0, fmaf(to_float(x[(i * map + p) * channels + c]), scale[c], bias[c]));
	return device_failed(e, code, "copying features from the device");
}

template <class T> int forward(engine *base, const engine_batch *batch, float *logits, float *features, uint64_t *token)
{
	cuda_engine<T> *e = self<T>(base);
	e->s.training = 0;
	e->s.micro = 0;
	e->s.micros = 1;
	int rc = feed(e, batch);
	if (rc)
		return rc;
	e->s.rc = 0;
	e->s.forward_all();
	rc = fed(e, device_failed(e, e->s.rc, "evaluation"), token, e->s.m.logits, logits, (size_t)batch->count * (size_t)base->conf.plan->classes);
	return rc || !features ? rc : last_features(e, batch->count, features);
}

template <class T> int done(engine *base, uint64_t token, int wait)
{
	cuda_engine<T> *e = self<T>(base);
	const int state = e->io.done(token, wait);
	return state < 0 ? device_failed(e, -state, "a step") : state;
}

template <class T> int last_loss(engine *base, double *loss)
{
	cuda_engine<T> *e = self<T>(base);
	float value = 0;
	int code = device_download(&value, e->s.loss(), sizeof value, e->s.stream);
	code = code ? code : device_wait(e->s.stream);
	*loss = value;
	return device_failed(e, code, "reading the loss");
}

template <class T> int tap(engine *base, int index, int gradient, float *)
{
	return fail(base->error, EXIT_USAGE, "the CUDA engine keeps no %s %d apart from its neighbours", gradient ? "gradient" : "activation", index);
}

template <class T> const engine_ops ops = {
	close_engine<T>, put_values<T>, get_values<T>, set_optimiser_step<T>, train<T>, backward<T>, forward<T>, done<T>, last_loss<T>, tap<T>, get_loss_scale<T>, set_loss_scale<T>, keep<T>, count_made<T>,
};

#endif

/* SPDX-License-Identifier: Apache-2.0
 * The CUDA engine behind the waist: opened on one arena and one stream, or only planned. Built as libchexnet_cuda.so. */
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "cuda_engine.h"
#include "devices.h"
#include "running.h"
#ifdef HAVE_CUDNN
#include "cudnn_convolver.h"
#endif

namespace {

/* ---- memory ---- */

template <class T> size_t partial_floats(const step<T> &s)
{
	size_t most = 0;
	auto one = [&](const conv_place &c, size_t parts, size_t before = 0) {
		const size_t count = before + parts * (size_t)c.c_out * (size_t)(c.kernel * c.kernel) * (size_t)c.c_padded;
		most = count > most ? count : most;
	};
	each_convolution(s.net, [&](const conv_place &c, int, int, int, bool) { one(c, (size_t)s.weight_parts(c)); });
	if (s.net.stem.fused & FUSED_BACKWARD)
		one(s.net.stem, (size_t)s.stem_parts());
	for (int i = 0; i < s.net.blocks; i++)
		for (int l = 0; l < s.net.block[i].layers; l++) {
			const dense_layer &layer = s.net.block[i].layer[l];
			if (layer.conv1.fused & FUSED_BACKWARD)
				one(layer.conv1, (size_t)s.backward_splits(s.net.block[i], layer.c_in), s.left_weight(s.net.block[i], layer));
			if (layer.conv2.fused & FUSED_BACKWARD)
				one(layer.conv2, (size_t)s.weight_blocks_3x3(s.net.block[i]));
		}
	return most;
}

void fill_update_tables(const network &net, const engine_conf *conf, std::vector<weight_group> *groups, std::vector<uint32_t> *block_group, std::vector<uint32_t> *block_first)
{
	const net_plan *plan = conf->plan;
	groups->resize((size_t)plan->n_params);
	for (int g = 0; g < plan->n_params; g++) {
		const engine_group &group = conf->layout->groups[g];
		const net_param &p = plan->params[group.param];
		(*groups)[(size_t)g] = { (uint32_t)group.offset, (uint32_t)p.count, NO_COPY, 0, 0, 0, (uint16_t)engine_decays(&p) };
		for (uint32_t first = 0; first < p.count; first += UPDATE_BLOCK) {
			block_group->push_back((uint32_t)g);
			block_first->push_back(first);
		}
	}
	each_convolution(net, [&](const conv_place &c, int, int, int, bool) {
		if (net.gray && c.param == net.stem.param)
			return; /* fold_weight_kernel makes that copy */
		weight_group &g = (*groups)[(size_t)(plan->n_params - 1 - c.param)];
		g.copy = (uint32_t)c.copy;
		g.c_in = (uint16_t)c.c_in;
		g.c_padded = (uint16_t)c.c_padded;
		g.taps = (uint16_t)(c.kernel * c.kernel);
	});
}

/* n / (n - 1) of every normalised channel, n being the pixels of a micro-batch. */
std::vector<float> unbias_factors(const network &net, const engine_conf *conf)
{
	std::vector<float> v(conf->plan->n_bn_channels, 1);
	each_normalisation(net, [&](const bn_place &bn, int side) {
		const double n = (double)conf->batch * side * side;
		for (int c = 0; c < bn.channels; c++)
			v[bn.statistics + (size_t)c] = (float)(n > 1 ? n / (n - 1) : 1);
	});
	return v;
}

template <class V> int upload(V *to, const std::vector<V> &values, device_stream stream)
{
	return device_upload(to, values.data(), values.size() * sizeof(V), stream);
}

/* A slab of the NCCL back end is the one that kernels write; the arena needs no other. NULL: none. */
float *outside_slab(const engine_conf *conf)
{
	return conf->slab && device_reaches(conf->slab) ? conf->slab : nullptr;
}

template <class T> int allocate(cuda_engine<T> *e, size_t workspace)
{
	const engine_conf *conf = &e->base.conf;
	float *outside = outside_slab(conf);
	arena room = {};
	e->s.m.lay_out(&room, &e->s.net, conf, partial_floats(e->s), workspace, outside);
	int code = device_alloc(&e->device_memory, room.bytes);
	if (code)
		return fail(e->base.error, EXIT_INTERNAL, "%s: no %zu MiB for a batch of %d images (%s)%s: a smaller --batch needs less", e->base.description, room.bytes >> 20, conf->batch,
			    device_error(code), room_text().text);
	e->base.memory = room.bytes;
	room = {};
	room.base = (char *)e->device_memory;
	e->s.m.lay_out(&room, &e->s.net, conf, partial_floats(e->s), workspace, outside);
	code = device_fill(e->device_memory, 0, room.bytes, e->s.stream);
	e->stop = outside ? (const volatile int *)conf->stop : nullptr;
	e->host_slab = conf->slab && !outside;

	std::vector<weight_group> groups;
	std::vector<uint32_t> block_group, block_first;
	fill_update_tables(e->s.net, conf, &groups, &block_group, &block_first);
	std::vector<float> ones(conf->plan->n_bn_channels, 1), unbias = unbias_factors(e->s.net, conf), pos_weight((size_t)conf->plan->classes, 1);
	if (conf->pos_weight)
		pos_weight.assign(conf->pos_weight, conf->pos_weight + conf->plan->classes);
	memory<T> &m = e->s.m;
	code = code ? code : upload(m.groups, groups, e->s.stream);
	code = code ? code : upload(m.block_group, block_group, e->s.stream);
	code = code ? code : upload(m.block_first, block_first, e->s.stream);
	code = code ? code : upload(m.unbias, unbias, e->s.stream);
	code = code ? code : upload(m.running_variance, ones, e->s.stream);
	code = code ? code : upload(m.pos_weight, pos_weight, e->s.stream);
	code = code ? code : device_wait(e->s.stream);
	return device_failed(e, code, "setting up its memory");
}

/* ---- opening ---- */

/* CHEXNET_WGMMA: 0 or 1; -1: nothing is said, so where it can run. */
int wgmma_wanted()
{
	const char *wanted = getenv("CHEXNET_WGMMA");
	return wanted ? atoi(wanted) != 0 : -1;
}

enum { CHOOSE_FORWARD_1X1 = 1, CHOOSE_BACKWARD_1X1 = 2, CHOOSE_FORWARD_3X3 = 4, CHOOSE_BACKWARD_3X3 = 8, CHOOSE_WEIGHT = 16, CHOOSE_STEM = 32, CHOOSE_MERGE = 64, CHOOSE_BESIDE = 128, CHOOSE_EVEN = 256, CHOOSE_JOINED = 512,
       CHOOSE_USUAL = CHOOSE_BESIDE - 1 /* the others have not been timed on a GPU */ };

/* The fused kernels that fit into a block's shared memory and are made for this layer, as CHOOSE_… bits. */
template <class tiles> int fitting(const network &net, const dense_block &b, const dense_layer &l, size_t shared)
{
	const bool taps = net.growth <= TAP_GROWTH && b.side < tiles::SIDES_BELOW;
	return (tiles::forward_1x1::shared_bytes(l.c_in) <= shared ? CHOOSE_FORWARD_1X1 : 0) | (tiles::backward_1x1::shared_bytes() <= shared ? CHOOSE_BACKWARD_1X1 : 0) |
	       (taps && tiles::forward_3x3::shared_bytes() <= shared ? CHOOSE_FORWARD_3X3 : 0) |
	       (taps && tiles::data_3x3::shared_bytes() <= shared && tiles::weight_3x3::shared_bytes() <= shared ? CHOOSE_BACKWARD_3X3 : 0);
}

/* Fused kernels need as much shared memory as they ask for (an H100 and an A100 have it, an RTX 5090 has not), a bottleneck of at most 128 channels, and
 * for the 3×3 a growth of at most 32 and maps of less than a tile's pixels a side (128; 64). */
template <class T> void choose_fused(step<T> *s, int capability, int bits, int first, int last, bool warpgroups)
{
	int number = 0;
	if (s->net.bottleneck > TAP_CHANNELS)
		return;
	s->small = s->shared < large_tiles::forward_3x3::shared_bytes();
	s->wgmma = !s->small && capability == 90 && warpgroups && wgmma_wanted();
	for (int i = 0; i < s->net.blocks; i++) {
		dense_block &b = s->net.block[i];
		if (i && bits & CHOOSE_FORWARD_1X1 && number >= first && number <= last && s->with_tiles(b, [&](auto tiles) { return decltype(tiles)::forward_1x1::shared_bytes(b.transition.c_in); }) <= s->shared)
			b.transition.fused |= FUSED_FORWARD;
		for (int k = 0; k < b.layers; k++, number++) {
			dense_layer &l = b.layer[k];
			const int all = s->with_tiles(b, [&](auto tiles) { return fitting<decltype(tiles)>(s->net, b, l, s->shared); });
			const int taken = number < first || number > last ? 0 : all & bits;
			l.conv1.fused = (taken & CHOOSE_FORWARD_1X1 ? FUSED_FORWARD : 0) | (taken & CHOOSE_BACKWARD_1X1 ? FUSED_BACKWARD : 0);
			l.conv2.fused = (taken & CHOOSE_FORWARD_3X3 ? FUSED_FORWARD : 0) | (taken & CHOOSE_BACKWARD_3X3 ? FUSED_BACKWARD : 0);
		}
	}
}

/* Weights' gradients of 1×1 and 3×3 convolutions that are not fused: a DenseNet's transitions, most of a ResNet. Those of its last 3×3 are large enough to fill
 * a GPU without parts. */
template <class T> void choose_weight(step<T> *s)
{
	if (weight_tiles::shared_bytes() > s->shared)
		return;
	each_convolution(s->net, [s](conv_place &c, int, int, int, bool) {
		const bool taken = c.kernel == 1 || (c.kernel == 3 && conv_weight_gains(c.c_out, 9 * c.c_padded, s->sms));
		if (taken && c.pad == c.kernel / 2 && !(c.fused & FUSED_BACKWARD))
			c.fused |= OWN_WEIGHT;
	});
}

/* Kernels of our own beside the simplest need 16-bit maps and tensor cores as of sm_80.
 * CHEXNET_FUSED=BITS or BITS:FIRST-LAST chooses fewer: CHOOSE_… bits, and the dense layers, counted from 0, that have the fused ones.
 * warpgroups: what runs has those that are written for sm_90's tensor cores, 1.16 times as fast on an H200 at batch 256; CHEXNET_WGMMA=0 takes the others. */
template <class T> void choose_own(step<T> *s, int capability, size_t shared, bool warpgroups)
{
	const char *chosen = getenv("CHEXNET_FUSED");
	int bits = CHOOSE_USUAL, first = 0, last = INT_MAX;
	if (chosen)
		sscanf(chosen, "%d:%d-%d", &bits, &first, &last);
	if (sizeof(T) != 2 || capability < 80)
		return;
	s->shared = shared;
	s->in_place = bits & CHOOSE_MERGE;
	s->beside = s->in_place && bits & CHOOSE_BESIDE;
	s->even = bits & CHOOSE_EVEN;
	s->joined = bits & CHOOSE_JOINED;
	choose_fused(s, capability, bits, first, last, warpgroups);
	if (bits & CHOOSE_WEIGHT)
		choose_weight(s);
	if (bits & CHOOSE_STEM && s->net.gray && gray_fits(s->net.stem.h_in, s->net.stem.c_out, shared))
		s->net.stem.fused = FUSED_FORWARD | FUSED_BACKWARD;
}

int supports(const engine_conf *conf, const char *device, int capability, error *err)
{
	if (conf->precision == PRECISION_BF16 && capability < 80)
		return fail(err, EXIT_USAGE, "%s has no bf16: use --precision fp16 or fp32", device);
	return 0;
}

template <class T> int open_engine(engine **out, const engine_conf *conf, error *err)
{
	cuda_engine<T> *e = new (std::nothrow) cuda_engine<T>();
	if (!e)
		return fail(err, EXIT_INTERNAL, "no memory for the CUDA engine");
	e->base.ops = &ops<T>;
	e->base.conf = *conf;
	e->base.error = err;
	e->s.conf = &e->base.conf;
	e->s.sms = device_sms();
	if (conf->stream)
		e->s.stream = (device_stream)conf->stream;
	e->host.resize(conf->layout->slab_count);
	const char *graphs = getenv("CHEXNET_GRAPHS"); /* 0: every step is enqueued anew, to find what goes wrong in one */
	const char *sync = getenv("HVD_SYNC");         /* 1: libhvd waits for every collective, which no captured one can be waited for */
	e->graphs_wanted = (!graphs || atoi(graphs)) && !(sync && atoi(sync));

	char device[96] = "";
	int capability = 0, code = device_describe(device, sizeof device, &capability);
	snprintf(e->base.description, sizeof e->base.description, "cuda: %s", code ? "no GPU" : device);
	int rc = device_failed(e, code, "looking at the device");
	if (!rc)
		rc = supports(conf, device, capability, err);
	const bool warpgroups = !rc && device_has_warpgroups();
	if (!rc) /* that was the first of this build's code on this device */
		rc = device_failed(e, device_wait(nullptr), "looking at the device");
	if (!rc && wgmma_wanted() == 1 && !warpgroups)
		rc = fail(err, EXIT_USAGE, "CHEXNET_WGMMA=1: what runs on %s is not compiled for sm_90a (see CUDA_ARCHS and CUDA_FORCE_PTX_JIT)", device);
	if (!rc)
		rc = network_make(&e->s.net, conf, err);
	if (!rc)
		rc = conf->stream ? 0 : device_failed(e, device_stream_make(&e->s.stream), "making a stream");
	const char *early = getenv("CHEXNET_EARLY"); /* 0: no early launches (device.h), which only code that waits for them has; code for older GPUs does not, on no GPU */
	launch_early = warpgroups && (!early || atoi(early));
	size_t workspace = 0;
	if (!rc) {
		choose_own<T>(&e->s, capability, device_shared(), warpgroups);
#ifdef HAVE_CUDNN
		rc = cudnn_convolver_make(&e->conv, e->s, nullptr, &workspace, err);
#else
		e->conv.reset(new (std::nothrow) plain_convolver<T>(e->s));
#endif
		e->s.conv = e->conv.get();
	}
	if (!rc)
		rc = allocate(e, workspace);
	code = rc ? 0 : e->io.open(&e->base.conf);
	if (code == DEVICE_NO_MEMORY) /* the host's: what is free on the device says nothing */
		rc = fail(err, EXIT_INTERNAL, "%s: no %zu MiB of host memory for batches on their way to the device (%s): a smaller --batch needs less", e->base.description, e->io.host_bytes() >> 20, device_error(code));
	else if (code)
		rc = device_failed(e, code, "making room for batches");
	if (!rc)
		rc = start_loss_scale(e, 0, 0, 0);
#ifdef HAVE_CUDNN
	if (!rc) {
		auto *conv = static_cast<cudnn_convolver<T> *>(e->s.conv);
		conv->workspace = e->s.m.workspace;
		const size_t said = strlen(e->base.description);
		conv->describe(e->base.description + said, sizeof e->base.description - said);
	}
#endif
	if (rc) {
		close_engine<T>(&e->base);
		return rc;
	}
	*out = &e->base;
	return 0;
}

/* ---- planning without opening ---- */

template <class T> size_t ask_workspace(const step<T> &s, const gpu_sheet *sheet, engine_room *room)
{
	size_t workspace = 0;
#ifdef HAVE_CUDNN
	std::unique_ptr<convolver<T>> conv;
	error why = {};
	char json[2048];
	if (sheet)
		gpu_sheet_json(sheet, json, sizeof json);
	if (cudnn_convolver_make(&conv, s, sheet ? json : nullptr, &workspace, &why))
		snprintf(room->note, sizeof room->note, "cuDNN's workspace is not counted: %.200s", why.text);
#else
	(void)s, (void)sheet;
	snprintf(room->note, sizeof room->note, "built without cuDNN: no workspace");
#endif
	return workspace;
}

/* sheet: of a GPU that is not here; NULL: the one that is. */
template <class T> int plan_engine(const engine_conf *conf, const gpu_sheet *sheet, int ask_cudnn, engine_room *room, error *err)
{
	std::unique_ptr<step<T>> s(new (std::nothrow) step<T>());
	int capability = sheet ? sheet->capability : 0, code = 0;
	if (!s)
		return fail(err, EXIT_INTERNAL, "no memory for a plan");
	s->conf = conf;
	s->sms = sheet ? sheet->sms : device_sms();
	if (sheet)
		snprintf(room->gpu, sizeof room->gpu, "%s, %d SMs", sheet->full_name, sheet->sms);
	else
		code = device_describe(room->gpu, sizeof room->gpu, &capability);
	if (code)
		return fail(err, EXIT_USAGE, "no GPU here (%s): say for which one, --gpu=h200 or its memory in GiB", device_error(code));
	room->memory = sheet ? sheet->memory : device_memory();
	room->free = sheet ? 0 : device_room();
	int rc = supports(conf, room->gpu, capability, err);
	if (!rc)
		rc = network_make(&s->net, conf, err);
	if (rc)
		return rc;
	choose_own<T>(s.get(), capability, sheet ? (size_t)sheet->shared : device_shared(), true);
	arena a = {};
	s->m.lay_out(&a, &s->net, conf, partial_floats(*s), ask_cudnn ? ask_workspace(*s, sheet, room) : 0, outside_slab(conf));
	room->parameters = a.of_part[ARENA_PARAMETERS];
	room->optimiser = a.of_part[ARENA_OPTIMISER];
	room->maps = a.of_part[ARENA_MAPS];
	room->workspace = a.of_part[ARENA_WORKSPACE];
	room->total = a.bytes;
	return 0;
}

} // namespace

extern "C" int chexnet_cuda_plan(const engine_conf *conf, const char *gpu, int ask_cudnn, engine_room *room, error *e)
{
	gpu_sheet found, *sheet = nullptr;
	if (gpu && gpu_sheet_find(&found, gpu, e))
		return -e->code;
	if (gpu)
		sheet = &found;
	switch (conf->precision) {
	case PRECISION_BF16:
		return plan_engine<bf16>(conf, sheet, ask_cudnn, room, e);
	case PRECISION_FP16:
		return plan_engine<fp16>(conf, sheet, ask_cudnn, room, e);
	case PRECISION_FP32:
	case PRECISION_TF32:
		return plan_engine<float>(conf, sheet, ask_cudnn, room, e);
	case PRECISION_FP64:
		break;
	}
	return fail(e, EXIT_USAGE, "the CUDA engine has no fp64");
}

extern "C" int chexnet_cuda_open(engine **engine, const engine_conf *conf, error *e)
{
	*engine = nullptr;
	switch (conf->precision) {
	case PRECISION_BF16:
		return open_engine<bf16>(engine, conf, e);
	case PRECISION_FP16:
		return open_engine<fp16>(engine, conf, e);
	case PRECISION_FP32:
	case PRECISION_TF32:
		return open_engine<float>(engine, conf, e);
	case PRECISION_FP64:
		break;
	}
	return fail(e, EXIT_USAGE, "the CUDA engine has no fp64: use --engine reference");
}

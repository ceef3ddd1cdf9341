/* SPDX-License-Identifier: Apache-2.0
 * What the CUDA engine has room for, and what it refuses. */
#include "network_test.h"

#ifndef ON_DEVICE
#include <memory>

#include "network.h"
#include "number.h"
#include "staging.h"
#include "step.h"
#endif

namespace {

#ifndef ON_DEVICE
/* A data set on the device is larger than 4 GiB: places in it are counted in 64 bits. Nothing is read there. */
void places_beyond_four_gigabytes()
{
	problem p(densenet(8, { 1 }), 3, PRECISION_FP32);
	staging io;
	std::vector<uint64_t> numbers = { 1, 3000000, 5000000 };
	engine_batch batch = p.batch;
	batch.kept = numbers.data();
	if (io.open(&p.conf))
		wrong("no slots");
	std::vector<char> words(io.at.bytes);
	io.kept = (uint8_t *)4096;
	io.kept_images = 6000000;
	if (io.take(1) || io.send(1, &batch, {}, nullptr, words.data(), nullptr))
		wrong("a batch was not sent");
	const image_window *window = (const image_window *)(words.data() + io.at.window);
	for (size_t i = 0; i < numbers.size(); i++)
		if ((size_t)window[i].pixels != 4096 + numbers[i] * 36 * 36)
			wrong("image %zu is looked for at %zu, not %zu", (size_t)numbers[i], (size_t)window[i].pixels, 4096 + (size_t)numbers[i] * 36 * 36);
	io.kept = nullptr;
	io.close();
}

/* A GPU has more multiprocessors than the shim: however many, partial sums stay in their room, and are all of it. */
void partial_sums_have_room()
{
	const long pixels = 300001;
	const int channels = 8;
	std::vector<float> x((size_t)pixels * channels, 0.5f);
	for (int sms : { 132, 148, 1000 }) {
		std::unique_ptr<step<float>> s(new step<float>());
		const size_t room = (size_t)SUM_BLOCKS * 2 * channels;
		std::vector<float> sums(2 * room, -1);
		s->sms = sms;
		s->m.sums = sums.data();
		const int blocks = s->pass(channel_sums<float>{ x.data(), channels }, pixels, channels);
		double total = 0;
		for (int b = 0; b < blocks; b++)
			total += sums[(size_t)b * 2 * channels];
		if (blocks < 8 * 100 || blocks > SUM_BLOCKS || total != 0.5 * (double)pixels)
			wrong("%d multiprocessors: %d blocks, a channel's sum %g of %g", sms, blocks, total, 0.5 * (double)pixels);
		for (size_t i = room; i < 2 * room; i++)
			if (sums[i] != -1)
				wrong("%d multiprocessors: a partial sum beyond the room for %d", sms, (int)SUM_BLOCKS);
	}
}

/* As many tiles for the block that has most of them, and no block less would do. */
void blocks_of_as_many_tiles()
{
	for (int tiles = 1; tiles < 1000 && !failures; tiles++)
		for (int blocks = 1; blocks <= tiles && blocks <= 132; blocks++) {
			const int even = even_blocks(64L * tiles - 63, 64, blocks), most = (tiles + blocks - 1) / blocks;
			if (even > blocks || (tiles + even - 1) / even != most || (even > 1 && (tiles + even - 2) / (even - 1) <= most))
				wrong("%d blocks for %d tiles, where %d would have %d at most", even, tiles, blocks, most);
		}
}

void large_devices()
{
	places_beyond_four_gigabytes();
	partial_sums_have_room();
	blocks_of_as_many_tiles();
}

#endif

#ifdef ON_DEVICE
const bool MEMORY_IS_KNOWN = true;
#else
const bool MEMORY_IS_KNOWN = false;
#endif

void refusals()
{
	problem odd(densenet(4, { 1 }), 1, PRECISION_FP32);
	engine *g = nullptr;
	odd.conf.precision = PRECISION_FP32;
	if (chexnet_cuda_open(&g, &odd.conf, &odd.e) != -EXIT_USAGE || !strstr(odd.e.text, "multiples of 8"))
		wrong("growth 4: %s", odd.e.text);
	problem uneven(small_net("densenet", 36, 8, 8, { 1, 1 }), 1, PRECISION_FP32);
	uneven.conf.source_size = 36;
	if (chexnet_cuda_open(&g, &uneven.conf, &uneven.e) != -EXIT_USAGE || !strstr(uneven.e.text, "even size"))
		wrong("maps of 9 x 9 before a transition: %s", uneven.e.text);
	problem wide(small_net("densenet", 32, 256, 1024, { 5 }), 1, PRECISION_BF16);
	if (chexnet_cuda_open(&g, &wide.conf, &wide.e) != -EXIT_USAGE || !strstr(wide.e.text, "at most 2048"))
		wrong("2,304 channels: %s", wide.e.text);
	problem deep(resnet({ 33, 32 }), 1, PRECISION_FP32);
	if (chexnet_cuda_open(&g, &deep.conf, &deep.e) != -EXIT_USAGE || !strstr(deep.e.text, "at most 64 blocks, and this resnet has 65"))
		wrong("65 residual blocks: %s", deep.e.text);
	problem p(densenet(8, { 1 }), 1, PRECISION_FP64);
	if (chexnet_cuda_open(&g, &p.conf, &p.e) != -EXIT_USAGE)
		wrong("fp64 was not refused");
	problem bf16(densenet(8, { 1 }), 1, PRECISION_BF16);
	bf16.conf.scale_patience = 10;
	for (engine_kind kind : { ENGINE_REFERENCE, ENGINE_CPU, ENGINE_CUDA })
		if (engine_open(&g, kind, &bf16.conf, &bf16.e) != -EXIT_USAGE || !strstr(bf16.e.text, "dynamic loss scale"))
			wrong("a dynamic loss scale for bf16: %s", bf16.e.text);
	problem wide_images(densenet(8, { 1 }), 1, PRECISION_FP32, LOSS_BCE, 3);
	wide_images.conf.source_size = 26755; /* 3 · 26755² is 2³¹ + … */
	for (engine_kind kind : { ENGINE_REFERENCE, ENGINE_CPU, ENGINE_CUDA })
		if (engine_open(&g, kind, &wide_images.conf, &wide_images.e) != -EXIT_USAGE || !strstr(wide_images.e.text, "images of 26755 pixels a side"))
			wrong("RGB images of more than 2 GiB: %s", wide_images.e.text);
	problem many(densenet(8, { 1 }), 1, PRECISION_FP32);
	g = many.open(0, PRECISION_FP32);
	if (engine_keep(g, (size_t)1 << 46, 0, nullptr, 0) != -EXIT_INTERNAL || !strstr(many.e.text, "MiB to keep 70368744177664 images on the device") ||
	    !strstr(many.e.text, MEMORY_IS_KNOWN ? " MiB are free" : "): a smaller --batch") || !strstr(many.e.text, "without --resident"))
		wrong("more images than any memory keeps: %s", many.e.text);
	many.e = {};
	double loss;
	train_steps(many, g, 2);
	if (engine_loss(g, &loss)) /* the refusal is not its */
		wrong("after a refusal: %s", many.e.text);
	engine_close(g);
	problem large(densenet(8, { 1 }), 1, PRECISION_FP32);
	large.conf.batch = 1 << 30;
	if (chexnet_cuda_open(&g, &large.conf, &large.e) != -EXIT_INTERNAL || !strstr(large.e.text, "for a batch of 1073741824 images") || !strstr(large.e.text, "smaller --batch"))
		wrong("a batch that is larger than any memory: %s", large.e.text);
	if (!strstr(large.e.text, " are free") == MEMORY_IS_KNOWN)
		wrong("what is free where that is %sknown: %s", MEMORY_IS_KNOWN ? "" : "not ", large.e.text);
#ifndef ON_DEVICE
	problem fed(densenet(8, { 1 }), 1024, PRECISION_FP32);
	shim_pinned_most = 1 << 20;
	if (chexnet_cuda_open(&g, &fed.conf, &fed.e) != -EXIT_INTERNAL || !strstr(fed.e.text, "no 2 MiB of host memory for batches") || strstr(fed.e.text, "are free"))
		wrong("no host memory for batches: %s", fed.e.text);
	shim_pinned_most = SIZE_MAX;
	large.e = {};
	setenv("SHIM_MEMORY", "52428800", 1);
	if (chexnet_cuda_open(&g, &large.conf, &large.e) != -EXIT_INTERNAL || !strstr(large.e.text, "), 50 MiB are free: a smaller --batch needs less"))
		wrong("what is free where that is known: %s", large.e.text);
	unsetenv("SHIM_MEMORY");
#endif
}

#ifndef ON_DEVICE
/* At 224²: what the arena holds, without allocating it. */
void memory_plan_of(const char *model, double most)
{
	net_plan plan = {};
	engine_layout layout = {};
	error e = {};
	net_conf conf = {};
	conf.model = model;
	conf.image_size = 224;
	conf.classes = 14;
	if (net_plan_make(&plan, &conf, &e) || engine_layout_make(&layout, &plan, &e)) {
		wrong("%s", e.text);
		return;
	}
	size_t bytes[2];
	const int batch[2] = { 64, 512 };
	for (int i = 0; i < 2; i++) {
		engine_conf c = {};
		c.plan = &plan;
		c.layout = &layout;
		c.batch = batch[i];
		c.channels = 1;
		c.source_size = 224;
		network *net = new network;
		if (network_make(net, &c, &e))
			wrong("%s", e.text);
		arena room = {};
		memory<bf16> m;
		m.lay_out(&room, net, &c, 0, 0, nullptr);
		bytes[i] = room.bytes;
		if (i == 0 && (net->first_side != 56 || net->last_side != 7 || net->features != (net->family == NET_RESNET ? 2048 : 1024)))
			wrong("the walk over %s went astray", model);
		delete net;
	}
	const double slope = (double)(bytes[1] - bytes[0]) / (512 - 64) / 1e6, fixed = (double)bytes[0] / 1e6 - 64 * slope;
	char text[128];
	snprintf(text, sizeof text, "%s, bf16, 224: %.2f MB an image and %.0f MB fixed", model, slope, fixed);
	if (slope > most)
		wrong("%s", text);
	if (!failures)
		note += (note.empty() ? "" : "; ") + std::string(text);
	net_plan_free(&plan);
	engine_layout_free(&layout);
}

#endif

/* What is planned is what is allocated, and its parts are all of it. */
void plan_is_what_opens()
{
	const precision precisions[] = { PRECISION_FP32, PRECISION_BF16, PRECISION_FP16 };
	size_t last = 0;
	const net_conf nets[] = { densenet(8, { 2, 3 }), resnet({ 2, 1 }) };
	for (const net_conf &net : nets)
		for (enum precision precision : precisions)
			for (int batch : { 1, 2, 5, 16 }) {
				problem p(net, batch, precision);
				engine_room room = {};
				engine *g = p.open(0, precision);
				if (chexnet_cuda_plan(&p.conf, nullptr, 1, &room, &p.e))
					wrong("%s", p.e.text);
				if (failures)
					return;
				if (room.total != engine_memory(g))
					wrong("%s, batch %d: %zu bytes are planned and %zu are allocated", net.model, batch, room.total, engine_memory(g));
				if (room.parameters + room.optimiser + room.maps + room.workspace != room.total || room.optimiser < 2 * sizeof(float) * p.plan.n_weights || room.maps <= (batch > 1 ? last : 0))
					wrong("%s, batch %d: parameters %zu, optimiser %zu, maps %zu, workspace %zu of %zu", net.model, batch, room.parameters, room.optimiser, room.maps,
					      room.workspace, room.total);
				last = room.maps;
				engine_close(g);
			}
}

void memory_plan()
{
	plan_is_what_opens();
#ifndef ON_DEVICE
	memory_plan_of("densenet121", 18);
	memory_plan_of("resnet50", 41);
#endif
}

} // namespace

void add_room_tests(std::vector<network_test> &tests)
{
	const network_test added[] = {
		{ "refusals", "what the engine cannot compute it refuses", refusals },
		{ "plan", "what an engine will allocate is known beforehand, also for densenet121 and resnet50", memory_plan },
#ifndef ON_DEVICE
		{ "large", "data sets beyond 4 GiB and GPUs of many multiprocessors have their room", large_devices },
#endif
	};
	tests.insert(tests.end(), std::begin(added), std::end(added));
}

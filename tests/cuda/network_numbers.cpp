/* SPDX-License-Identifier: Apache-2.0
 * What the CUDA engine computes: gradients, training, maps and evaluation in each precision, whichever kernels are chosen. */
#include "network_test.h"

namespace {

/* Of a parameter's gradient. norm0 is followed by more normalisations, so its gamma's gradient is almost nothing but cancellation: it counts as a tenth of an average one at least. */
double parameter_error(const net_param &param, const std::vector<float> &got, const std::vector<float> &want)
{
	double all = 0;
	for (float g : want)
		all += (double)g * g;
	return relative(got, want, param.offset, param.count, 0.1 * std::sqrt(all * (double)param.count / (double)want.size()));
}

void fp32_gradients_of(const net_conf &net, enum loss_kind loss, int channels = 1)
{
	problem p(net, 3, PRECISION_FP32, loss, channels);
	engine *reference = p.open(1, PRECISION_FP64), *cuda = p.open(0, PRECISION_FP32);
	run_backward(p, reference);
	run_backward(p, cuda);
	if (failures)
		return;
	const std::vector<float> want = p.get(reference, ENGINE_GRADS), got = p.get(cuda, ENGINE_GRADS);
	double worst = 0;
	for (int i = 0; i < p.plan.n_params; i++) {
		const net_param &param = p.plan.params[i];
		const double error = parameter_error(param, got, want);
		worst = error > worst ? error : worst;
		if (!(error < 1e-4))
			wrong("gradient of %s: relative error %.3g", param.name, error);
	}
	if (strstr(engine_describe(cuda), "slow kernels"))
		note += (note.empty() ? "" : "; ") + std::string(engine_describe(cuda));
	double a = 0, b = 0;
	engine_loss(reference, &a);
	engine_loss(cuda, &b);
	if (!(std::fabs(a - b) < 1e-5))
		wrong("loss %.8f, not %.8f", b, a);
	if (!failures) {
		char text[96];
		snprintf(text, sizeof text, "%s%s: worst relative error of a parameter's gradient %.2e", note.empty() ? "" : "; ", net.model, worst);
		note += text;
	}
	engine_close(reference);
	engine_close(cuda);
}

void fp32_gradients()
{
	fp32_gradients_of(densenet(8, { 2, 3 }), LOSS_BCE);
	fp32_gradients_of(resnet({ 2, 1, 2 }), LOSS_BCE);
	fp32_gradients_of(densenet(8, { 2 }), LOSS_BCE, 3);
	fp32_gradients_of(resnet({ 1, 2 }), LOSS_SOFTMAX);
}

/* Two optimiser steps of two micro-batches each: accumulation, update, running statistics, evaluation. */
void fp32_training_of(const net_conf &net)
{
	problem p(net, 3, PRECISION_FP32);
	engine *reference = p.open(1, PRECISION_FP64), *cuda = p.open(0, PRECISION_FP32);
	if (failures)
		return;
	engine *both[] = { reference, cuda };
	for (engine *g : both) {
		uint64_t token;
		for (int i = 0; i < 4; i++) {
			p.batch.augment = i % 2 ? p.windows.data() : nullptr;
			p.batch.known = i % 2 ? p.known.data() : nullptr;
			if (engine_train(g, &p.batch, i % 2, 2, 1e-3, &token) || engine_done(g, token, 1) != 1)
				wrong("%s", p.e.text);
		}
	}
	compare("moment 1 after 2 steps", p.get(cuda, ENGINE_MOMENT1), p.get(reference, ENGINE_MOMENT1), 1e-3);
	compare("running mean", p.get(cuda, ENGINE_RUNNING_MEAN), p.get(reference, ENGINE_RUNNING_MEAN), 1e-4);
	compare("running variance", p.get(cuda, ENGINE_RUNNING_VAR), p.get(reference, ENGINE_RUNNING_VAR), 1e-4);
	/* Adam's first steps have the size of the rate whatever the gradient: a gradient near zero may go either way */
	compare("parameters after 2 steps", p.get(cuda, ENGINE_PARAMS), p.get(reference, ENGINE_PARAMS), 1e-3);

	std::vector<float> parameters = p.get(reference, ENGINE_PARAMS);
	engine_put(cuda, ENGINE_PARAMS, 0, parameters.data(), parameters.size());
	const net_layer &pool = p.plan.layers[p.plan.n_layers - 2];
	const size_t classes = (size_t)p.plan.classes, features = 2 * (size_t)(pool.c_in * pool.h_in * pool.h_in);
	std::vector<float> want(2 * classes), got(2 * classes), want_features(features), got_features(features);
	uint64_t token;
	p.batch.count = 2; /* fewer than the engine's batch */
	if (engine_forward(reference, &p.batch, want.data(), want_features.data(), &token) || engine_done(reference, token, 1) != 1 ||
	    engine_forward(cuda, &p.batch, got.data(), got_features.data(), &token) || engine_done(cuda, token, 1) != 1)
		wrong("%s", p.e.text);
	compare("logits in evaluation", got, want, 1e-4);
	compare("features in evaluation", got_features, want_features, 1e-4);
	engine_close(reference);
	engine_close(cuda);
}

void fp32_training()
{
	fp32_training_of(densenet(8, { 2, 2, 1 }));
	fp32_training_of(resnet({ 2, 1 }));
}

/* Evidence for each class in each cell of the last map: sum over channels of weight · feature (learn/cam.h). */
struct maps {
	std::vector<float> evidence, logits; /* [images][classes][cells], [images][classes] */
	double mean_error;                   /* largest |mean of a map + bias - logit|: the pool and the map read the same features */
};

maps maps_of(problem &p, engine *g, int count)
{
	const net_layer &pool = p.plan.layers[p.plan.n_layers - 2], &classifier = p.plan.layers[p.plan.n_layers - 1];
	const size_t cells = (size_t)(pool.h_in * pool.h_in), channels = (size_t)pool.c_in, classes = (size_t)p.plan.classes, n = (size_t)count;
	const std::vector<float> all = p.get(g, ENGINE_PARAMS);
	const float *weight = all.data() + p.plan.params[classifier.weight].offset, *bias = all.data() + p.plan.params[classifier.weight + 1].offset;
	std::vector<float> features(n * channels * cells);
	maps m = { std::vector<float>(n * classes * cells), std::vector<float>(n * classes), 0 };
	uint64_t token;
	p.batch.count = count;
	if (engine_forward(g, &p.batch, m.logits.data(), features.data(), &token) || engine_done(g, token, 1) != 1)
		wrong("%s", p.e.text);
	p.batch.count = p.conf.batch;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < classes; k++) {
			double mean = 0;
			for (size_t cell = 0; cell < cells; cell++) {
				double sum = 0;
				for (size_t c = 0; c < channels; c++)
					sum += (double)weight[k * channels + c] * features[(i * channels + c) * cells + cell];
				m.evidence[(i * classes + k) * cells + cell] = (float)sum;
				mean += sum / (double)cells;
			}
			m.mean_error = std::fmax(m.mean_error, std::fabs(mean + bias[k] - m.logits[i * classes + k]));
		}
	return m;
}

/* After two steps, so that weights and running statistics are nobody's first ones; of full and short batches. */
void activation_maps_of(const net_conf &net, enum precision precision, double tolerance)
{
	problem p(net, 3, precision);
	engine *reference = p.open(1, PRECISION_FP64), *cuda = p.open(0, precision);
	uint64_t token;
	for (int i = 0; i < 2 && !failures; i++)
		if (engine_train(reference, &p.batch, 0, 1, 1e-2, &token))
			wrong("%s", p.e.text);
	for (engine_what what : { ENGINE_PARAMS, ENGINE_RUNNING_MEAN, ENGINE_RUNNING_VAR })
		if (const std::vector<float> v = p.get(reference, what); engine_put(cuda, what, 0, v.data(), v.size()))
			wrong("%s", p.e.text);
	for (int count : { 3, 1 }) {
		const maps want = maps_of(p, reference, count), got = maps_of(p, cuda, count);
		char what[96];
		snprintf(what, sizeof what, "activation maps of %d images (%s, precision %d)", count, net.model, (int)precision);
		compare(what, got.evidence, want.evidence, tolerance);
		if (!(got.mean_error < 1e-4))
			wrong("%s: the mean of a map and the bias miss the logit by %.3g", what, got.mean_error);
	}
	engine_close(reference);
	engine_close(cuda);
}

void activation_maps()
{
	const net_conf nets[] = { densenet(8, { 2, 2 }), resnet({ 1, 2 }) };
	for (const net_conf &net : nets) {
		activation_maps_of(net, PRECISION_FP32, 1e-4);
		activation_maps_of(net, PRECISION_FP16, 1e-2);
		activation_maps_of(net, PRECISION_BF16, 8e-2);
	}
}

double geometric_mean_error(problem &p, const std::vector<float> &got, const std::vector<float> &want)
{
	double sum = 0;
	int count = 0;
	for (int i = 0; i < p.plan.n_params; i++) {
		const double error = relative(got, want, p.plan.params[i].offset, p.plan.params[i].count);
		sum += std::log(error > 1e-12 ? error : 1e-12);
		count++;
	}
	return std::exp(sum / count);
}

/* Fused kernels must be as near to fp64 as the separate ones, within what rounding's luck allows. */
void fused_against_separate()
{
	const int blocks = 2, layers = 5;
	problem p(densenet(8, { 2, 3 }), MANY_TILES, PRECISION_BF16);
	engine *reference = p.open(1, PRECISION_FP64);
	run_backward(p, reference);
	const std::vector<float> want = p.get(reference, ENGINE_GRADS);
	/* each kernel alone, all of them, all of them in some layers, and all of them as an A100 has room for them */
	static const struct {
		const char *what, *chosen;
		size_t shared;
		const char *wgmma = nullptr;
	} choices[] = { { "separate", "0", 227 }, { "fused 1×1 forward", "1", 227 }, { "1×1 backward", "2", 227 }, { "3×3 forward", "4", 227 }, { "3×3 backward", "8", 227 },
		        { "weight", "16", 227 }, { "stem", "32", 227 }, { "all but merges", "63", 227 }, { "all", "127", 227 }, { "all without wgmma", "127", 227, "0" },
		        { "in layers 1 to 3", "95:1-3", 227 }, { "1×1 forward, merges", "65", 227 }, { "small tiles", "127", 163 }, { "all and what has not been timed", "1023", 227 } };
	std::vector<float> without;
	double separate = 0;
	int launches = 0, before = 0;
	std::string text = "geometric mean of the gradients' relative errors";
	for (const auto &c : choices) {
		if (failures)
			break;
		setenv("CHEXNET_FUSED", c.chosen, 1);
		if (c.wgmma)
			setenv("CHEXNET_WGMMA", c.wgmma, 1);
#ifndef ON_DEVICE
		shim_shared = c.shared * 1024;
		shim_launches = shim_late = 0;
#endif
		engine *cuda = p.open(0, PRECISION_BF16);
		run_backward(p, cuda);
		const std::vector<float> got = p.get(cuda, ENGINE_GRADS);
		const double error = failures ? 0 : geometric_mean_error(p, got, want);
		engine_close(cuda);
		if (c.wgmma)
			unsetenv("CHEXNET_WGMMA");
		if (&c == choices)
			without = got;
		else if (same(got, without))
			wrong("%s: every bit as without: no such kernel ran", c.what);
		char part[96];
		snprintf(part, sizeof part, "%s %s %.5f", &c == choices ? ":" : ",", c.what, error);
		text += part;
		separate = &c == choices ? error : separate;
		if (!(error < 0.3 && error < 1.3 * separate))
			wrong("%s", text.c_str());
		for (int i = 0; i < p.plan.n_params && !failures; i++) { /* one that is wrong is few of a mean's many */
			const net_param &param = p.plan.params[i];
			const double one = parameter_error(param, got, want), alone = parameter_error(param, without, want);
			if (!(one < alone + 0.15))
				wrong("%s: gradient of %s: relative error %.3f, without %.3f", c.what, param.name, one, alone);
		}
#ifndef ON_DEVICE
		launches = &c == choices ? shim_launches : launches;
		if (shim_late != 1) /* what reads weights early is there when all before the step is done */
			wrong("%s: %d kernels wait until all before them are done: a step's first one does", c.what, shim_late);
		const int most = strcmp(c.chosen, "16") ? launches - 1 : launches; /* that one stands in the place of another */
		if (&c != choices && shim_launches > most)
			wrong("%s: %d launches, %d without", c.what, shim_launches, launches);
		/* a pass over x and one over y less in each layer, in transitions the latter; a merge less behind each convolution, but for what no fused kernel reads: the last map of a block */
		if (!strcmp(c.what, "fused 1×1 forward") && shim_launches != launches - 2 * layers - (blocks - 1))
			wrong("%s: %d launches, %d without", c.what, shim_launches, launches);
		if (!strcmp(c.what, "all") && shim_launches != before - 3 * layers + blocks)
			wrong("%s: %d launches, %d with merges launched", c.what, shim_launches, before);
		before = shim_launches;
		shim_shared = 227 * 1024;
#endif
	}
	(void)launches, (void)before, (void)blocks, (void)layers;
	unsetenv("CHEXNET_FUSED");
	engine_close(reference);
	if (!failures)
		note = text;
}

/* Gradients with the choice `bits`; *launched: kernels of that (none on a GPU). */
std::vector<float> gradients_with(problem &p, const char *bits, int *launched)
{
	setenv("CHEXNET_FUSED", bits, 1);
	engine *cuda = p.open(0, p.conf.precision);
	unsetenv("CHEXNET_FUSED");
	*launched = 0;
#ifndef ON_DEVICE
	shim_launches = 0;
#endif
	run_backward(p, cuda);
#ifndef ON_DEVICE
	*launched = shim_launches;
#endif
	const std::vector<float> all = p.get(cuda, ENGINE_GRADS);
	engine_close(cuda);
	return all;
}

#ifndef ON_DEVICE
/* Maps that are too large for the fused 3×3 before others that are not: what those leave is not for the next 1×1. */
void only_1x1_is_fused()
{
	const int size = 256;
	problem p(small_net("densenet", size, 8, 16, { 2, 1 }), 1, PRECISION_FP16);
	p.conf.source_size = size;
	p.pixels.resize((size_t)(size * size));
	for (uint8_t &pixel : p.pixels)
		pixel = (uint8_t)random_bits();
	p.batch.pixels = p.pixels.data();
	p.batch.augment = nullptr;
	shim_shared = 163 * 1024;
	int launched;
	const std::vector<float> without = gradients_with(p, "0", &launched), got = gradients_with(p, "127", &launched);
	shim_shared = 227 * 1024;
	for (int i = 0; i < p.plan.n_params; i++)
		if (const double error = parameter_error(p.plan.params[i], got, without); !(error < 0.05))
			wrong("maps of %d²: gradient of %s: relative difference %.3f", size / 4, p.plan.params[i].name, error);
}
#endif

/* What a layer leaves is merged by blocks beside those of the next kernel: a launch less for each layer but the last of a block, and every bit as before. */
void merged_beside_of(enum precision precision, int images, const char *wgmma, size_t shared, const char *before, const char *beside)
{
	const int layers = 5, blocks = 2;
	problem p(densenet(8, { 4, 1 }), images, precision);
	if (wgmma)
		setenv("CHEXNET_WGMMA", wgmma, 1);
#ifndef ON_DEVICE
	shim_shared = shared * 1024;
#endif
	int launched[2] = {};
	if (!same(gradients_with(p, before, &launched[0]), gradients_with(p, beside, &launched[1])))
		wrong("%d images, wgmma %s, %zu KiB: CHEXNET_FUSED=%s has other bits than %s", images, wgmma ? wgmma : "as usual", shared, beside, before);
#ifndef ON_DEVICE
	if (launched[0] - launched[1] != layers - blocks)
		wrong("%d images, wgmma %s, %zu KiB: %d launches with CHEXNET_FUSED=%s, %d with %s", images, wgmma ? wgmma : "as usual", shared, launched[1], beside, launched[0], before);
#endif
	unsetenv("CHEXNET_WGMMA");
#ifndef ON_DEVICE
	shim_shared = 227 * 1024;
#else
	(void)shared, (void)layers, (void)blocks;
#endif
}

void merged_beside()
{
	merged_beside_of(PRECISION_BF16, 2, nullptr, 227, "127", "255");
	merged_beside_of(PRECISION_FP16, MANY_TILES, nullptr, 227, "383", "511");
	merged_beside_of(PRECISION_BF16, MANY_TILES, "0", 227, "127", "255");
	merged_beside_of(PRECISION_BF16, 2, nullptr, 227, "895", "1023");
#ifndef ON_DEVICE
	merged_beside_of(PRECISION_BF16, MANY_TILES, nullptr, 163, "127", "255");
	only_1x1_is_fused();
	problem p(densenet(8, { 4, 1 }), 2, PRECISION_BF16);
	if (!failures && !same(trained_with(p, "127"), trained_with(p, "255")))
		wrong("with buckets CHEXNET_FUSED=255 trains other weights than 127");
#endif
}

/* A weight's gradient is nobody else's input: by the kernel of 1×1 and 3×3 convolutions and without it all gradients are the same, but for the order of its own
 * sums, which some weight of each of these sides shows. */
void weights_in_parts_of(const net_conf &net, int images, double tolerance, std::vector<int> sides)
{
	problem p(net, images, PRECISION_FP16);
	std::vector<float> gradients[2];
	for (int own = 0; own < 2; own++) {
		setenv("CHEXNET_FUSED", own ? "16" : "0", 1);
		engine *cuda = p.open(0, PRECISION_FP16);
		unsetenv("CHEXNET_FUSED");
		run_backward(p, cuda);
		gradients[own] = p.get(cuda, ENGINE_GRADS);
		engine_close(cuda);
	}
	double worst = 0;
	bool differs[4] = {}; /* by the side of its kernel */
	for (int i = 0; i < p.plan.n_params && !failures; i++) {
		const net_param &param = p.plan.params[i];
		const double error = relative(gradients[1], gradients[0], param.offset, param.count);
		worst = error > worst ? error : worst;
		if (!(error <= tolerance))
			wrong("%s: gradient of %s: relative difference %.3g", net.model, param.name, error);
		if (param.ndim == 4 && param.shape[2] <= 3)
			differs[param.shape[2]] |= error > 0;
	}
	for (int side : sides)
		if (!differs[side] && !failures)
			wrong("%s: every bit of %d×%d as without: no such kernel ran", net.model, side, side);
	char text[96];
	snprintf(text, sizeof text, "%s%s: largest relative difference %.2e", note.empty() ? "" : "; ", net.model, worst);
	if (!failures)
		note += text;
}

void weights_in_parts()
{
#ifdef ON_DEVICE
	const double tolerance = 1e-3; /* cuDNN may give a gradient in 16 bits only */
#else
	const double tolerance = 1e-5;
	shim_sms = 6; /* twice as many as any 3×3 has tiles: the kernel takes all of them, and elsewhere a ResNet's first at least */
#endif
	weights_in_parts_of(densenet(8, { 2, 2, 1 }), MANY_TILES, tolerance, { 1 });
	weights_in_parts_of(resnet({ 1, 2, 1 }), 3, tolerance, { 1, 3 });
#ifndef ON_DEVICE
	shim_sms = 3;
#endif
}

/* A weight that is not a number must show in the loss, and not be taken for a ReLU's zero on the way. */
void nan_of(const net_conf &net, enum precision precision, const char *fused)
{
	problem p(net, 2, precision);
	double loss = 0;
	p.start[p.plan.params[0].offset] = NAN; /* of the stem */
	setenv("CHEXNET_FUSED", fused, 1);
	engine *cuda = p.open(0, precision);
	unsetenv("CHEXNET_FUSED");
	run_backward(p, cuda);
	if (failures)
		return;
	engine_loss(cuda, &loss);
	engine_close(cuda);
	if (loss == loss)
		wrong("%s, precision %d, fused %s: the loss is %g", net.model, (int)precision, fused, loss);
}

void nan_shows()
{
	nan_of(densenet(8, { 2, 1 }), PRECISION_FP32, "0");
	nan_of(densenet(8, { 2, 1 }), PRECISION_BF16, "0");
	nan_of(densenet(8, { 2, 1 }), PRECISION_BF16, "127");
	nan_of(resnet({ 1, 1 }), PRECISION_BF16, "0");
	nan_of(resnet({ 1, 1 }), PRECISION_BF16, "16");
}

/* fp16 has three bits more than bf16; without the loss scale small gradients would be lost in it. */
void fp16_scaled_of(const net_conf &net)
{
	problem p(net, 3, PRECISION_FP16);
	engine *reference = p.open(1, PRECISION_FP64);
	run_backward(p, reference);
	const std::vector<float> want = p.get(reference, ENGINE_GRADS);
	double error[2];
	for (int i = 0; i < 2 && !failures; i++) {
		engine *cuda = p.open(0, i ? PRECISION_FP16 : PRECISION_BF16);
		run_backward(p, cuda);
		const std::vector<float> got = p.get(cuda, ENGINE_GRADS);
		error[i] = failures ? 0 : geometric_mean_error(p, got, want);
		engine_close(cuda);
		/* the loss scale must be taken off each of them */
		for (int k = 0; i && k < p.plan.n_params && !failures; k++) {
			const net_param &param = p.plan.params[k];
			const double one = parameter_error(param, got, want);
			if (!(one < 1))
				wrong("%s, fp16: gradient of %s: relative error %.3g", net.model, param.name, one);
		}
	}
	engine_close(reference);
	if (failures)
		return;
	char text[128];
	snprintf(text, sizeof text, "%s: geometric mean of the gradients' relative errors: bf16 %.4f, fp16 %.4f", net.model, error[0], error[1]);
	note += (note.empty() ? "" : "; ") + std::string(text);
	if (!(error[1] < error[0] / 3) || !(error[0] < 0.3))
		wrong("%s", text);
}

void fp16_scaled()
{
	fp16_scaled_of(densenet(8, { 2, 2 }));
	fp16_scaled_of(resnet({ 1, 2 }));
}

/* Random order of blocks and lanes: the sums must not notice. */
void same_bits_of(const net_conf &net, int images)
{
	problem p(net, images, PRECISION_BF16);
	std::vector<float> first;
	for (int run = 0; run < 2; run++) {
		engine *cuda = p.open(0, PRECISION_BF16);
		uint64_t token;
		for (int i = 0; i < 2; i++)
			if (engine_train(cuda, &p.batch, 0, 1, 1e-3, &token))
				wrong("%s", p.e.text);
		const std::vector<float> parameters = p.get(cuda, ENGINE_PARAMS);
		if (run && memcmp(first.data(), parameters.data(), parameters.size() * sizeof(float)))
			wrong("two runs differ");
		first = parameters;
		engine_close(cuda);
	}
}

void same_bits()
{
	same_bits_of(densenet(8, { 2, 2 }), MANY_TILES);
	same_bits_of(resnet({ 1, 1 }), 3);
}

} // namespace

void add_number_tests(std::vector<network_test> &tests)
{
	const network_test added[] = {
		{ "gradients", "fp32 gradients of every parameter equal the reference's", fp32_gradients },
		{ "training", "accumulation, Adam, running statistics and evaluation follow the reference", fp32_training },
		{ "maps", "class activation maps are the reference's, and their means the logits", activation_maps },
		{ "fused", "fused bf16 kernels lose no more than the separate ones", fused_against_separate },
		{ "beside", "merges beside the next kernel leave every bit as it is", merged_beside },
		{ "weight", "weight gradients of 1×1 and 3×3 convolutions in parts are what they are without, but for their last bits", weights_in_parts },
		{ "nan", "a weight that is not a number shows in the loss", nan_shows },
		{ "fp16", "fp16 with a loss scale follows the reference", fp16_scaled },
		{ "bits", "two runs give the same bits", same_bits },
	};
	tests.insert(tests.end(), std::begin(added), std::end(added));
}

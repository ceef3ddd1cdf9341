/* SPDX-License-Identifier: Apache-2.0
 * The fused 1×1 convolution of a dense layer, forward and backward, in numbered variants. */
#include "cases.h"
#include "conv1x1_backward_wgmma.h"
#include "merges.h"
#include "reduce.h"
#include "weight_gradient.h"

#include <type_traits>

namespace {

struct shape {
	long pixels;
	int c_in, pitch, c_out;
};

/* Tiny and odd ones; every tail: rows, channels, output channels, more tiles than blocks and fewer. */
#ifdef __SANITIZE_ADDRESS__ /* a switch of lanes costs system calls there */
const shape small_shapes[] = { { 1, 8, 8, 8 }, { 70, 40, 48, 16 } };
#else
const shape small_shapes[] = { { 1, 8, 8, 8 }, { 49, 32, 64, 128 }, { 130, 72, 80, 16 }, { 300, 136, 160, 128 }, { 257, 200, 200, 64 } };
#endif
/* A transition's: what it reads is normalised already, more output channels than one block has, into a slice. */
const shape wide_shapes[] = { { 70, 40, 48, 136 }, { 257, 136, 136, 264 } };
[[maybe_unused]] const shape busy = { 130, 224, 224, 128 }; /* repeated, each time on other rows of a tile */
const shape widest = { 33, 1096, 1104, 8 }; /* channels beyond those that merging threads ask for ahead */
/* DenseNet-121's, a few images: block 1 first and last layer, block 2, block 4. */
[[maybe_unused]] const shape real_shapes[] = { { 3 * 3136, 64, 256, 128 }, { 2 * 3136, 224, 256, 128 }, { 5 * 784, 320, 512, 128 }, { 16 * 49, 992, 1024, 128 } };

/* A layer's inputs, on both sides, and what both passes should give. */
template <class T> struct layer {
	shape s;
	std::vector<T> x, weight, dz, y, g;
	std::vector<float> scale, bias, gamma, mean, rstd, a, b, c;

	explicit layer(const shape &of) : s(of)
	{
		const size_t pixels = (size_t)s.pixels, in = (size_t)s.c_in, out = (size_t)s.c_out;
		x = random_numbers<T>(pixels * (size_t)s.pitch, 0.2, 1);
		g = random_numbers<T>(pixels * (size_t)s.pitch, 0, 1);
		for (size_t m = 0; m < pixels; m++) /* channels beyond the slice belong to later layers: never to be read */
			for (size_t column = in; column < (size_t)s.pitch; column++)
				x[m * (size_t)s.pitch + column] = g[m * (size_t)s.pitch + column] = from_float<T>(NAN);
		weight = random_numbers<T>(out * in, 0, 1 / std::sqrt((double)in));
		dz = random_numbers<T>(pixels * out, 0, 1);
		y = random_numbers<T>(pixels * out, 0.1, 1);
		scale = random_numbers<float>(in, 1, 0.3);
		bias = random_numbers<float>(in, 0, 0.5);
		gamma = random_numbers<float>(in, 1, 0.3);
		mean = random_numbers<float>(in, 0.2, 0.1);
		rstd = random_numbers<float>(in, 1, 0.1);
		a = random_numbers<float>(out, 1, 0.2);
		b = random_numbers<float>(out, 0, 0.1);
		c = random_numbers<float>(out, 0, 0.1);
	}
	float activation(long m, int column) const
	{
		float z = fmaf(to_float(x[(size_t)m * (size_t)s.pitch + (size_t)column]), scale[(size_t)column], bias[(size_t)column]);
		return to_float(from_float<T>(z > 0 ? z : 0));
	}
	std::vector<float> activations() const
	{
		std::vector<float> v((size_t)s.pixels * (size_t)s.c_in);
		for (long m = 0; m < s.pixels; m++)
			for (int column = 0; column < s.c_in; column++)
				v[(size_t)m * (size_t)s.c_in + (size_t)column] = activation(m, column);
		return v;
	}
	std::vector<float> dy() const
	{
		std::vector<float> v(dz.size());
		for (size_t i = 0; i < v.size(); i++) {
			size_t k = i % (size_t)s.c_out;
			v[i] = to_float(from_float<T>(fmaf(a[k], to_float(dz[i]), fmaf(b[k], to_float(y[i]), c[k]))));
		}
		return v;
	}
};

/* fp32 accumulation in any order: a few roundings of the sum of absolute terms. */
const double ACCUMULATION = 4e-6;

/* parts: of the statistics of its last 32 channels, which the kernel merges; 0: they are merged. times: that its pixels are repeated. */
template <class T, class S> void check_forward_shape(const shape &s, unsigned blocks, int parts, long times = 1)
{
	layer<T> l(s);
	const long pixels = s.pixels * times;
	const bool transition = s.c_out > 128;
	const int width = S::width(s.c_out), y_pitch = s.c_out + (transition ? 8 : 0);
	if (transition) {
		l.scale.assign(l.scale.size(), 1);
		l.bias.assign(l.bias.size(), 0);
	}
	device_array<T> x(repeated(l.x, times)), weight(l.weight), y((size_t)pixels * (size_t)y_pitch);
	device_array<float> scale(l.scale), bias(l.bias);
	const unsigned tiles = (unsigned)((pixels + S::ROWS - 1) / S::ROWS);
	blocks = blocks < tiles ? blocks : tiles;
	device_array<float> partial((size_t)blocks * 2 * (size_t)width), totals(2 * (size_t)width);
	conv1x1_forward<T> p = { x, weight, transition ? nullptr : (float *)scale, transition ? nullptr : (float *)bias, y, partial, pixels, s.pitch, s.c_in, s.c_out };
	p.y_pitch = y_pitch;
	const unmerged_statistics unmerged(s.c_in, s.c_in < 32 ? s.c_in : 32, 32, parts);
	if (parts)
		p.merge = unmerged.arguments();
	check_device((conv1x1_forward_launch<T, S>(p, blocks, nullptr)), "conv1x1_forward");
	if (parts)
		unmerged.expect(&l.scale, &l.bias);
	check_device(reduce_partials_launch({ partial, totals, 2 * (size_t)width, 2 * (size_t)width, (int)blocks, 1, 0 }, nullptr), "reduce_partials");

	const size_t in = (size_t)s.c_in, out = (size_t)s.c_out;
	const std::vector<float> activations = l.activations(), weights = transposed(l.weight, out, in), got_totals = totals.download();
	const std::vector<T> got = y.download();
	sums sum(out), square(out);
	for (size_t m = 0; m < (size_t)s.pixels; m++) {
		sums want(out);
		for (size_t c = 0; c < in; c++)
			want.add(activations[m * in + c], &weights[c * out]);
		for (size_t n = 0; n < out; n++) {
			const double value = to_float(got[m * (size_t)y_pitch + n]);
			expect_near(value, want.value[n], 1.001 * half_ulp<T>(want.value[n]) + ACCUMULATION * want.terms[n], "y[%zu][%zu] of %ld×%d×%d", m, n, s.pixels, s.c_in, s.c_out);
			sum.value[n] += (double)times * value;
			sum.terms[n] += (double)times * std::fabs(value);
			square.value[n] += (double)times * value * value;
		}
	}
	expect_repeated(got, (size_t)y_pitch, out, (size_t)s.pixels, "y");
	for (size_t n = 0; n < out; n++) {
		expect_near(got_totals[n], sum.value[n], ACCUMULATION * sum.terms[n] + 1e-30, "sum[%zu] of %ld pixels", n, s.pixels);
		expect_near(got_totals[n + (size_t)width], square.value[n], ACCUMULATION * square.value[n] + 1e-30, "square[%zu] of %ld pixels", n, s.pixels);
	}
	for (size_t m = 0; m < (size_t)pixels; m++)
		for (size_t n = out; n < (size_t)y_pitch; n++)
			if (to_float(got[m * (size_t)y_pitch + n]) == to_float(got[m * (size_t)y_pitch + n]))
				give_up("y[%zu][%zu] belongs to a layer and was written", m, n);
}

/* parts: of the sums behind the convolution, which the kernel merges; 0: they are merged. times: as above. beside: blocks behind the kernel's own merge a weight's gradient of as many parts. */
template <class T, class S> void check_backward_shape(const shape &s, int splits, int parts, long times = 1, bool beside = false)
{
	layer<T> l(s);
	const long pixels = s.pixels * times;
	const size_t in = (size_t)s.c_in, out = (size_t)s.c_out, pitch = (size_t)s.pitch;
	device_array<T> dz(repeated(l.dz, times)), y(repeated(l.y, times)), x(repeated(l.x, times)), g(repeated(l.g, times)), weight(l.weight);
	device_array<float> a(l.a), b(l.b), c(l.c), scale(l.scale), bias(l.bias), gamma(l.gamma), mean(l.mean), rstd(l.rstd);
	const int tiles = (int)((pixels + S::ROWS - 1) / S::ROWS);
	splits = splits < tiles ? splits : tiles;
	device_array<float> partial_sums((size_t)splits * 2 * in), partial_weight((size_t)splits * out * in), totals(2 * in), dweight(out * in);
	conv1x1_backward<T> p = { dz, y, a, b, c, x, g, weight, scale, bias, gamma, mean, rstd, partial_sums, partial_weight,
		                  pixels, s.pitch, s.c_in, s.c_out, splits };
	const unmerged_gradients unmerged(s.c_out, parts);
	const unmerged_layer left(8, 8, 5, parts);
	if (parts) {
		p.merge = unmerged.arguments();
		unmerged.coefficients(&l.a, &l.b, &l.c);
	}
	check_device((beside ? conv1x1_backward_launch<T, S>(conv1x1_merging<T>{ p, layer_sums_of(left.of_weight(), {}, {}) }, nullptr) : conv1x1_backward_launch<T, S>(p, nullptr)), "conv1x1_backward");
	if (parts)
		unmerged.expect();
	if (beside)
		left.expect_weight();
	check_device(reduce_partials_launch({ partial_sums, totals, 2 * in, 2 * in, splits, 1, 0 }, nullptr), "reduce_partials");
	check_device(reduce_partials_launch({ partial_weight, dweight, out * in, out * in, splits, 1, 0 }, nullptr), "reduce_partials");

	const std::vector<float> dy = l.dy(), activations = l.activations(), got_totals = totals.download(), got_weight = dweight.download();
	const std::vector<T> got = g.download();
	if (S::DATA) {
		const std::vector<float> weights(transposed(l.weight, 1, out * in));
		sums dbeta(in), dgamma(in);
		for (size_t m = 0; m < (size_t)s.pixels; m++) {
			sums row(in);
			for (size_t k = 0; k < out; k++)
				row.add(dy[m * out + k], &weights[k * in]);
			for (size_t column = 0; column < in; column++) {
				double d = row.value[column], terms = row.terms[column];
				const float input = to_float(l.x[m * pitch + column]);
				if (!(fmaf(input, l.scale[column], l.bias[column]) > 0))
					d = terms = 0;
				const double want = to_float(l.g[m * pitch + column]) + (double)l.gamma[column] * d;
				expect_near(to_float(got[m * pitch + column]), want, 1.001 * half_ulp<T>(want) + ACCUMULATION * (1 + std::fabs(l.gamma[column])) * (terms + 1),
				            "g[%zu][%zu] of %ld×%d×%d", m, column, s.pixels, s.c_in, s.c_out);
				const double normal = ((double)input - l.mean[column]) * l.rstd[column];
				dbeta.value[column] += (double)times * d;
				dbeta.terms[column] += (double)times * terms;
				dgamma.value[column] += (double)times * d * normal;
				dgamma.terms[column] += (double)times * terms * (std::fabs(normal) + 1);
			}
		}
		expect_repeated(got, pitch, in, (size_t)s.pixels, "g");
		for (size_t column = 0; column < in; column++) {
			expect_near(got_totals[column], dbeta.value[column], ACCUMULATION * dbeta.terms[column] + 1e-30, "dbeta[%zu] of %ld pixels", column, s.pixels);
			expect_near(got_totals[in + column], dgamma.value[column], ACCUMULATION * dgamma.terms[column] + 1e-30, "dgamma[%zu] of %ld pixels", column, s.pixels);
		}
		for (size_t m = 0; m < (size_t)pixels; m++)
			for (size_t column = in; column < pitch; column++)
				if (to_float(got[m * pitch + column]) == to_float(got[m * pitch + column]))
					give_up("g[%zu][%zu] belongs to a later layer and was written", m, column);
	}
	if (S::WEIGHT)
		for (size_t k = 0; k < out; k++) {
			sums want(in);
			for (size_t m = 0; m < (size_t)s.pixels; m++)
				want.add((double)times * dy[m * out + k], &activations[m * in]);
			for (size_t column = 0; column < in; column++)
				expect_near(got_weight[k * in + column], want.value[column], ACCUMULATION * want.terms[column] + 1e-30, "dW[%zu][%zu] of %ld×%d×%d", k, column, s.pixels, s.c_in, s.c_out);
		}
}

template <class T, class S> void check_forward(const kernel_case &)
{
	for (const shape &s : small_shapes) {
		check_forward_shape<T, S>(s, 1, 0);
		check_forward_shape<T, S>(s, 2, 0);
		check_forward_shape<T, S>(s, 2, 5);
		check_forward_shape<T, S>(s, 3, 201);
	}
	for (const shape &s : wide_shapes)
		check_forward_shape<T, S>(s, 2, 0);
	if (S::shared_bytes(widest.c_in) < 227 * 1024)
		check_forward_shape<T, S>(widest, 1, 3);
#ifdef __CUDACC__
	for (const shape &s : real_shapes)
		if (S::shared_bytes(s.c_in) < 227 * 1024)
			for (int parts : { 0, device_sms() })
				check_forward_shape<T, S>(s, (unsigned)device_sms(), parts);
	check_forward_shape<T, S>(busy, (unsigned)device_sms(), 0, busy_times(busy.pixels));
#endif
}

template <class T, class S> void check_backward(const kernel_case &)
{
	for (const shape &s : small_shapes) {
		check_backward_shape<T, S>(s, 1, 0);
		check_backward_shape<T, S>(s, 3, 0);
		for (bool beside : { false, true }) {
			check_backward_shape<T, S>(s, 2, 5, 1, beside);
			check_backward_shape<T, S>(s, 3, 201, 1, beside);
		}
	}
#ifdef __CUDACC__
	for (const shape &s : real_shapes)
		for (int parts : { 0, device_sms() })
			check_backward_shape<T, S>(s, device_sms(), parts);
	check_backward_shape<T, S>(busy, device_sms() / 2, 0, busy_times(busy.pixels));
#endif
}

#ifdef __CUDACC__

/* Block 1's first and last layer, the middle of block 2: batch 256. */
const shape timed_shapes[] = { { 256L * 3136, 64, 256, 128 }, { 256L * 3136, 224, 256, 128 }, { 256L * 784, 320, 512, 128 } };
const char *const timed_names[] = { "b1l1", "b1l6", "b2l7" };

template <class T, class S> void time_forward(const kernel_case &k)
{
	const shape &s = timed_shapes[k.number];
	const double bytes = 2.0 * (double)s.pixels * (s.c_in + s.c_out);
	if (S::shared_bytes(s.c_in) > 227 * 1024)
		give_up("%zu bytes of shared memory: more than a block has", S::shared_bytes(s.c_in));
	device_array<T> weight(128 * (size_t)s.c_in);
	fill_random<T>(weight, 128 * (size_t)s.c_in, 0.1);
	device_array<float> scale(random_numbers<float>((size_t)s.c_in, 1, 0.3)), bias(random_numbers<float>((size_t)s.c_in, 0, 0.5));
	const unsigned blocks = S::BLOCKS_PER_SM * (unsigned)device_sms();
	device_array<float> partial((size_t)blocks * 256);
	timed_maps<T> maps;
	std::vector<conv1x1_forward<T>> p;
	for (int set = 0; set < sets_beyond_cache(bytes); set++)
		p.push_back({ maps.add((size_t)s.pixels * (size_t)s.pitch, true), weight, scale, bias, maps.add((size_t)s.pixels * 128, false), partial, s.pixels, s.pitch, s.c_in, s.c_out });
	const double us = median_us((int)p.size(), [&](int set, device_stream stream) { check_device((conv1x1_forward_launch<T, S>(p[(size_t)set], blocks, stream)), "conv1x1_forward"); });
	report_rate(us, bytes);
}

template <class T, class S> void time_backward(const kernel_case &k)
{
	const shape &s = timed_shapes[k.number];
	const size_t in = (size_t)s.c_in, pixels = (size_t)s.pixels, wide = pixels * (size_t)s.pitch;
	const double bytes = 2.0 * (double)pixels * (2 * s.c_out + s.c_in + (S::DATA ? 2 * s.c_in : 0));
	device_array<T> weight(128 * in);
	fill_random<T>(weight, 128 * in, 0.1);
	device_array<float> a(random_numbers<float>(128, 1, 0.1)), b(random_numbers<float>(128, 0, 0.1)), c(random_numbers<float>(128, 0, 0.1));
	device_array<float> scale(random_numbers<float>(in, 1, 0.3)), bias(random_numbers<float>(in, 0, 0.5)), gamma(random_numbers<float>(in, 0.01, 0.01)),
		mean(random_numbers<float>(in, 0, 0.1)), rstd(random_numbers<float>(in, 1, 0.1));
	const int column_tiles = (s.c_in + 127) / 128;
	const int splits = S::BLOCKS_PER_SM * device_sms() / column_tiles;
	device_array<float> partial_sums((size_t)splits * 2 * in), partial_weight((size_t)splits * 128 * in), dweight(128 * in);
	timed_maps<T> maps;
	std::vector<conv1x1_backward<T>> p;
	for (int set = 0; set < sets_beyond_cache(bytes); set++)
		p.push_back({ maps.add(pixels * 128, true), maps.add(pixels * 128, true), a, b, c, maps.add(wide, true), maps.add(wide, true), weight, scale, bias, gamma, mean, rstd,
			      partial_sums, partial_weight, s.pixels, s.pitch, s.c_in, s.c_out, splits });
	const double us = median_us((int)p.size(), [&](int set, device_stream stream) {
		check_device((conv1x1_backward_launch<T, S>(p[(size_t)set], stream)), "conv1x1_backward");
		if (S::WEIGHT)
			check_device(weight_gradient_launch({ partial_weight, dweight, nullptr, 1, 128, s.c_in, s.c_in, 1, splits, 0 }, stream), "weight_gradient");
	});
	report("splits", splits);
	report_rate(us, bytes);
}

#endif

template <class T, class S> void add_forward(std::vector<kernel_case> &cases, const char *variant)
{
	const std::string name = std::string("conv1x1_forward:") + variant + ":" + type_name<T>();
	const bool wgmma = S::WGMMA;
	cases.push_back({ name, check_forward<T, S>, nullptr, 0, wgmma });
#ifdef __CUDACC__
	for (int i = 0; i < 3 && std::is_same<T, bf16>::value; i++) /* fp16 has as many instructions */
		cases.push_back({ name + ":" + timed_names[i], nullptr, time_forward<T, S>, i, wgmma });
#endif
}

template <class T, class S> void add_backward(std::vector<kernel_case> &cases, const char *variant)
{
	const std::string name = std::string("conv1x1_backward:") + variant + ":" + type_name<T>();
	const bool wgmma = S::WGMMA;
	cases.push_back({ name, check_backward<T, S>, nullptr, 0, wgmma });
#ifdef __CUDACC__
	for (int i = 0; i < 3 && std::is_same<T, bf16>::value; i++)
		cases.push_back({ name + ":" + timed_names[i], nullptr, time_backward<T, S>, i, wgmma });
#endif
}

} // namespace

void add_conv1x1_cases(std::vector<kernel_case> &cases)
{
	/* backward first: its rate decides about the whole design */
	add_backward<bf16, conv1x1_backward_shape<64, 2, 16, true, true>>(cases, "1");   /* everything joined, 16 warps */
	add_backward<bf16, conv1x1_backward_shape<64, 2, 8, true, true>>(cases, "2");    /* 8 warps, more registers each */
	add_backward<bf16, conv1x1_backward_shape<32, 3, 8, true, true>>(cases, "3");    /* smaller tiles, three in flight; fits an A100 */
	add_backward<bf16, conv1x1_backward_shape<64, 2, 8, true, false>>(cases, "4");   /* data only … */
	add_backward<bf16, conv1x1_backward_shape<64, 2, 8, false, true>>(cases, "5");   /* … and weight only: two passes */
	add_backward<bf16, conv1x1_backward_shape<32, 2, 8, true, false, 2>>(cases, "6"); /* data only, two blocks a multiprocessor */
	add_backward<bf16, conv1x1_backward_shape<64, 2, 8, true, true, 1, 32>>(cases, "7"); /* 8 warps, 32 pixels each: the fewest reads of shared memory */
	add_backward<bf16, conv1x1_backward_wgmma_shape<3>>(cases, "9"); /* tensor cores that read shared memory by themselves; needs sm_90a. 8 also read the activation there */
	add_forward<bf16, conv1x1_forward_shape<128, 3, false>>(cases, "1");             /* weights streamed */
	add_forward<bf16, conv1x1_forward_shape<128, 3, true>>(cases, "2");              /* weights resident */
	add_forward<bf16, conv1x1_forward_shape<64, 3, false, 2>>(cases, "3");           /* smaller tiles, two blocks a multiprocessor */
	add_forward<bf16, conv1x1_forward_shape<128, 4, false, 1, true>>(cases, "4");    /* wgmma, weights streamed */
	add_forward<bf16, conv1x1_forward_shape<128, 4, true, 1, true>>(cases, "5");     /* wgmma, weights resident */
	add_forward<bf16, conv1x1_forward_shape<64, 5, false, 1, false, 64>>(cases, "6"); /* smaller tiles, for maps that make few */
	add_forward<bf16, conv1x1_forward_shape<64, 4, false, 1, true>>(cases, "7");      /* wgmma, each warpgroup half of the channels */
	add_forward<bf16, conv1x1_forward_shape<128, 5, false, 1, true>>(cases, "8");     /* 4 with a stage more */
	add_forward<bf16, conv1x1_forward_shape<64, 4, true, 1, true>>(cases, "9");       /* wgmma, weights resident, each warpgroup with its own tiles */
	add_backward<fp16, conv1x1_backward_shape<64, 2, 16, true, true>>(cases, "1");
	add_backward<fp16, conv1x1_backward_wgmma_shape<3>>(cases, "9");
	add_forward<fp16, conv1x1_forward_shape<128, 3, false>>(cases, "1");
	add_forward<fp16, conv1x1_forward_shape<64, 4, true, 1, true>>(cases, "9");
}

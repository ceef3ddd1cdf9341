/* SPDX-License-Identifier: Apache-2.0
 * The fused 3×3 convolution of a dense layer, forward and backward, in numbered variants. */
#include "cases.h"
#include "conv3x3_forward_wgmma.h"
#include "conv3x3_joined_wgmma.h"
#include "merges.h"
#include "reduce.h"
#include "weight_gradient.h"

#include <memory>
#include <type_traits>

namespace {

struct shape {
	long images;
	int side, c_in, c_out, pitch;

	long pixels() const
	{
		return images * side * side;
	}
	shape repeated(long times) const
	{
		return { images * times, side, c_in, c_out, pitch };
	}
};

/* Tiny and odd ones: maps of one pixel, images smaller than a tile and larger, every tail, more tiles than blocks and fewer. */
#ifdef __SANITIZE_ADDRESS__ /* a switch of lanes costs system calls there */
const shape small_shapes[] = { { 3, 1, 8, 8, 8 }, { 2, 7, 40, 16, 24 } };
#else
/* 40 and 65: margins of more than one tile, of 64 and of 128 pixels; 62: of a whole one of 128 on a line with zeros */
const shape small_shapes[] = { { 3, 1, 8, 8, 8 }, { 1, 2, 24, 16, 16 }, { 3, 7, 128, 32, 64 }, { 1, 31, 72, 8, 40 }, { 2, 14, 64, 24, 32 }, { 1, 40, 16, 8, 8 }, { 1, 62, 8, 8, 8 }, { 1, 65, 8, 8, 16 } };
#endif
/* DenseNet-121's, a few images. */
[[maybe_unused]] const shape real_shapes[] = { { 3, 56, 128, 32, 256 }, { 5, 28, 128, 32, 512 }, { 9, 14, 128, 32, 1024 }, { 17, 7, 128, 32, 1024 } };
[[maybe_unused]] const shape busy = { 3, 14, 128, 32, 40 }; /* repeated, each time on other rows of a tile */

/* A layer's inputs, on both sides. */
template <class T> struct layer {
	shape s;
	size_t pixels, in, out, pitch;
	std::vector<T> y, g, x, weight;
	std::vector<float> scale, bias, mean, rstd, a, b, c;

	explicit layer(const shape &of) : s(of), pixels((size_t)of.pixels()), in((size_t)of.c_in), out((size_t)of.c_out), pitch((size_t)of.pitch)
	{
		y = random_numbers<T>(pixels * in, 0.1, 1);
		g = random_numbers<T>(pixels * pitch, 0, 1);
		x = random_numbers<T>(pixels * pitch, 0.2, 1);
		for (size_t i = 0; i < pixels * pitch; i++) /* channels beyond the slice belong to later layers: never to be read */
			if (i % pitch >= out)
				x[i] = g[i] = from_float<T>(NAN);
		weight = random_numbers<T>(out * TAPS * in, 0, 1 / std::sqrt(9.0 * s.c_in));
		scale = random_numbers<float>(in, 1, 0.3);
		bias = random_numbers<float>(in, 0, 0.5);
		mean = random_numbers<float>(in, 0.2, 0.1);
		rstd = random_numbers<float>(in, 1, 0.1);
		a = random_numbers<float>(out, 1, 0.2);
		b = random_numbers<float>(out, 0, 0.1);
		c = random_numbers<float>(out, 0, 0.1);
	}
	/* [pixels][in] */
	std::vector<float> activations() const
	{
		std::vector<float> z(y.size());
		for (size_t i = 0; i < z.size(); i++) {
			const float v = fmaf(to_float(y[i]), scale[i % in], bias[i % in]);
			z[i] = to_float(from_float<T>(v > 0 ? v : 0));
		}
		return z;
	}
	/* [pixels][out] */
	std::vector<float> dy() const
	{
		std::vector<float> v(pixels * out);
		for (size_t p = 0; p < pixels; p++)
			for (size_t n = 0; n < out; n++)
				v[p * out + n] = to_float(from_float<T>(fmaf(a[n], to_float(g[p * pitch + n]), fmaf(b[n], to_float(x[p * pitch + n]), c[n]))));
		return v;
	}
	/* The pixel that tap t of pixel p reads (forward), or that reads p with tap t (backward: sign -1); -1: none. */
	long neighbour(size_t p, int tap, int sign) const
	{
		const long side = s.side, row = (long)p / side % side + sign * (tap / 3 - 1), column = (long)p % side + sign * (tap % 3 - 1);
		return row < 0 || row >= side || column < 0 || column >= side ? -1 : (long)p / (side * side) * side * side + row * side + column;
	}
};

/* fp32 accumulation in any order: a few roundings of the sum of absolute terms. */
const double ACCUMULATION = 4e-6;

/* parts: of the statistics of what it reads, which the kernel merges; 0: they are merged. times: that its images are repeated. */
template <class T, class S> void check_forward_shape_of(const shape &s, int most, int parts, long times)
{
	layer<T> l(s);
	device_array<T> x(repeated(l.y, times)), weight(l.weight), y(repeated(l.g, times));
	device_array<float> scale(l.scale), bias(l.bias);
	const long pixels = s.repeated(times).pixels();
	const int blocks = line_blocks(pixels, S::ROWS, most);
	device_array<float> partial((size_t)blocks * 64), totals(64);
	conv3x3_forward<T> p = { x, weight, scale, bias, y, partial, pixels, s.side, s.pitch, s.c_in, s.c_out };
	const unmerged_statistics unmerged(s.c_in, s.c_in, TAP_CHANNELS, parts);
	if (parts)
		p.merge = unmerged.arguments();
	check_device((conv3x3_forward_launch<T, S>(p, (unsigned)blocks, nullptr)), "conv3x3_forward");
	if (parts)
		unmerged.expect(&l.scale, &l.bias);
	check_device(reduce_partials_launch({ partial, totals, 64, 64, blocks, 1, 0 }, nullptr), "reduce_partials");

	const std::vector<float> z = l.activations(), weights = transposed(l.weight, l.out, TAPS * l.in), got_totals = totals.download();
	const std::vector<T> got = y.download();
	sums sum(l.out), square(l.out);
	for (size_t m = 0; m < l.pixels; m++) {
		sums want(l.out);
		for (int tap = 0; tap < TAPS; tap++) {
			const long q = l.neighbour(m, tap, 1);
			for (size_t c = 0; q >= 0 && c < l.in; c++)
				want.add(z[(size_t)q * l.in + c], &weights[((size_t)tap * l.in + c) * l.out]);
		}
		for (size_t n = 0; n < l.out; n++) {
			const double value = to_float(got[m * l.pitch + n]);
			expect_near(value, want.value[n], 1.001 * half_ulp<T>(want.value[n]) + ACCUMULATION * want.terms[n], "y[%zu][%zu] of %ld×%d²×%d", m, n, s.images, s.side, s.c_in);
			sum.value[n] += (double)times * value;
			sum.terms[n] += (double)times * std::fabs(value);
			square.value[n] += (double)times * value * value;
		}
	}
	expect_repeated(got, l.pitch, l.out, l.pixels, "y");
	for (size_t n = 0; n < l.out; n++) {
		expect_near(got_totals[n], sum.value[n], ACCUMULATION * sum.terms[n] + 1e-30, "sum[%zu] of %ld×%d²", n, s.images, s.side);
		expect_near(got_totals[n + 32], square.value[n], ACCUMULATION * square.value[n] + 1e-30, "square[%zu] of %ld×%d²", n, s.images, s.side);
	}
	for (size_t i = 0; i < got.size(); i++)
		if (i % l.pitch >= l.out && to_float(got[i]) == to_float(got[i]))
			give_up("y[%zu][%zu] belongs to a later layer and was written", i / l.pitch, i % l.pitch);
}

template <class T, class S> void check_forward_shape(const shape &s, int most, long times)
{
	for (int parts : { 0, 5, most == 1 ? 201 : most })
		if (!parts || times == 1)
			check_forward_shape_of<T, S>(s, most, parts, times);
}

/* A layer on the device, its images repeated so many times, with room for the results. */
template <class T> struct backward_run {
	const shape s;
	const double times;
	device_array<T> g, x, y, weight, dz;
	device_array<float> a, b, c, scale, bias, mean, rstd, partial_sums, partial_weight;

	backward_run(const layer<T> &l, int blocks, long n) : s(l.s.repeated(n)), times((double)n), g(repeated(l.g, n)), x(repeated(l.x, n)), y(repeated(l.y, n)), weight(l.weight),
		dz((size_t)s.pixels() * l.in), a(l.a), b(l.b), c(l.c), scale(l.scale), bias(l.bias), mean(l.mean), rstd(l.rstd), partial_sums((size_t)blocks * 2 * l.in),
		partial_weight((size_t)blocks * l.out * TAPS * l.in)
	{
	}
	conv3x3_backward<T> arguments() const
	{
		return { g, x, a, b, c, y, weight, scale, bias, mean, rstd, dz, partial_sums, partial_weight, s.pixels(), s.side, s.pitch, s.c_in, s.c_out };
	}
};

template <class T> void expect_data(const layer<T> &l, const backward_run<T> &run, int parts)
{
	const shape &s = l.s;
	device_array<float> totals(2 * l.in);
	check_device(reduce_partials_launch({ run.partial_sums, totals, 2 * l.in, 2 * l.in, parts, 1, 0 }, nullptr), "reduce_partials");

	const std::vector<float> dy = l.dy(), weights = transposed(l.weight, 1, l.weight.size()), got_totals = totals.download();
	const std::vector<T> got = run.dz.download();
	sums dbeta(l.in), dgamma(l.in);
	for (size_t m = 0; m < l.pixels; m++) {
		sums want(l.in);
		for (int tap = 0; tap < TAPS; tap++) {
			const long q = l.neighbour(m, tap, -1);
			for (size_t n = 0; q >= 0 && n < l.out; n++)
				want.add(dy[(size_t)q * l.out + n], &weights[(n * TAPS + (size_t)tap) * l.in]);
		}
		for (size_t c = 0; c < l.in; c++) {
			double d = want.value[c], terms = want.terms[c];
			const float input = to_float(l.y[m * l.in + c]);
			if (!(fmaf(input, l.scale[c], l.bias[c]) > 0))
				d = terms = 0;
			expect_near(to_float(got[m * l.in + c]), d, 1.001 * half_ulp<T>(d) + ACCUMULATION * terms, "dz[%zu][%zu] of %ld×%d²×%d", m, c, s.images, s.side, s.c_out);
			const double normal = ((double)input - l.mean[c]) * l.rstd[c];
			dbeta.value[c] += run.times * d;
			dbeta.terms[c] += run.times * terms;
			dgamma.value[c] += run.times * d * normal;
			dgamma.terms[c] += run.times * terms * (std::fabs(normal) + 1);
		}
	}
	expect_repeated(got, l.in, l.in, l.pixels, "dz");
	for (size_t c = 0; c < l.in; c++) {
		expect_near(got_totals[c], dbeta.value[c], ACCUMULATION * dbeta.terms[c] + 1e-30, "dbeta[%zu] of %ld×%d²", c, s.images, s.side);
		expect_near(got_totals[l.in + c], dgamma.value[c], ACCUMULATION * dgamma.terms[c] + 1e-30, "dgamma[%zu] of %ld×%d²", c, s.images, s.side);
	}
}

template <class T> void expect_weight(const layer<T> &l, const backward_run<T> &run, int parts)
{
	const shape &s = l.s;
	const size_t count = l.out * TAPS * l.in;
	device_array<float> dweight(count);
	check_device(reduce_partials_launch({ run.partial_weight, dweight, count, count, parts, 1, 0 }, nullptr), "reduce_partials");

	const std::vector<float> dy = l.dy(), z = l.activations(), got = dweight.download();
	for (size_t n = 0; n < l.out; n++)
		for (int tap = 0; tap < TAPS; tap++) {
			sums want(l.in);
			for (size_t m = 0; m < l.pixels; m++) {
				const long q = l.neighbour(m, tap, -1);
				if (q >= 0)
					want.add(run.times * dy[(size_t)q * l.out + n], &z[m * l.in]);
			}
			for (size_t c = 0; c < l.in; c++)
				expect_near(got[(n * TAPS + (size_t)tap) * l.in + c], want.value[c], ACCUMULATION * want.terms[c] + 1e-30, "dW[%zu][%d][%zu] of %ld×%d²", n, tap, c, s.images, s.side);
		}
}

/* check(layer, run's arguments made what the kernel gets): where a, b and c are there, and where the kernel makes them and merges beside itself what a 1×1 has left. */
template <class T, class F> void with_merges(const shape &s, int most, long times, F check)
{
	layer<T> l(s);
	check(l, [](const conv3x3_backward<T> &p) { return p; });
	if (times > 1)
		return;
	const unmerged_layer left(40 + s.c_out, s.c_out, 5, most == 1 ? 201 : 5);
	left.coefficients(&l.a, &l.b, &l.c);
	check(l, [&](conv3x3_backward<T> p) {
		p.a = p.b = p.c = nullptr;
		return conv3x3_merging<T>{ p, left.bn(), layer_sums_of(left.of_weight(), {}, left.bn()) };
	});
	left.expect();
}

template <class T, class S> void check_data_shape(const shape &s, int most, long times)
{
	with_merges<T>(s, most, times, [&](const layer<T> &l, auto given) {
		const int blocks = line_blocks(s.repeated(times).pixels(), S::ROWS, most);
		const backward_run<T> run(l, blocks, times);
		check_device((conv3x3_data_launch<T, S>(given(run.arguments()), (unsigned)blocks, nullptr)), "conv3x3_data");
		expect_data(l, run, blocks);
	});
}

template <class T, class S> void check_weight_shape(const shape &s, int most, long times)
{
	with_merges<T>(s, most, times, [&](const layer<T> &l, auto given) {
		const int blocks = line_blocks(s.repeated(times).pixels(), S::ROWS, most);
		const backward_run<T> run(l, blocks, times);
		check_device((conv3x3_weight_launch<T, S>(given(run.arguments()), (unsigned)blocks, nullptr)), "conv3x3_weight");
		expect_weight(l, run, blocks);
	});
}

template <class T, class data, class weight> void check_both_shape(const shape &s, int most, long times)
{
	with_merges<T>(s, most, times, [&](const layer<T> &l, auto given) {
		const long pixels = s.repeated(times).pixels();
		const int blocks = line_blocks(pixels, data::ROWS, most), parts = line_blocks(pixels, weight::ROWS, most);
		const backward_run<T> run(l, blocks > parts ? blocks : parts, times);
		check_device((conv3x3_both_launch<T, data, weight>(given(run.arguments()), (unsigned)blocks, (unsigned)parts, nullptr)), "conv3x3_both");
		expect_data(l, run, blocks);
		expect_weight(l, run, parts);
	});
}

template <class T, class S> void check_joined_shape(const shape &s, int most, long times)
{
	with_merges<T>(s, most, times, [&](const layer<T> &l, auto given) {
		const int parts = conv3x3_joined_parts(s.repeated(times).pixels(), s.side, s.c_in, most * S::halves(s.c_in));
		const backward_run<T> run(l, parts, times);
		check_device((conv3x3_joined_launch<T, S>(given(run.arguments()), parts, nullptr)), "conv3x3_joined");
		expect_data(l, run, parts);
		expect_weight(l, run, parts);
	});
}

/* check(shape, most blocks, times that its images are repeated) on every shape that a tile of `rows` serves. */
template <class F> void each_shape(int sides_below, F check)
{
	for (const shape &s : small_shapes)
		for (int most : { 1, 3 })
			if (s.side < sides_below)
				check(s, most, 1);
#ifdef __CUDACC__
	for (const shape &s : real_shapes)
		if (s.side < sides_below)
			check(s, device_sms(), 1);
	check(busy, device_sms(), busy_times(busy.pixels()));
#endif
}

template <class T, class S> void check_forward(const kernel_case &)
{
	each_shape(S::SIDES_BELOW, check_forward_shape<T, S>);
}

template <class T, class S> void check_data(const kernel_case &)
{
	each_shape(S::SIDES_BELOW, check_data_shape<T, S>);
}

template <class T, class S> void check_weight(const kernel_case &)
{
	each_shape(S::SIDES_BELOW, check_weight_shape<T, S>);
}

template <class T, class data, class weight> void check_both(const kernel_case &)
{
	each_shape((int)data::SIDES_BELOW < (int)weight::SIDES_BELOW ? (int)data::SIDES_BELOW : (int)weight::SIDES_BELOW, check_both_shape<T, data, weight>);
}

template <class T, class S> void check_joined(const kernel_case &)
{
	each_shape(S::SIDES_BELOW, check_joined_shape<T, S>);
}

#ifdef __CUDACC__

/* A layer of blocks 1 to 3, batch 256. */
const shape timed_shapes[] = { { 256, 56, 128, 32, 256 }, { 256, 28, 128, 32, 512 }, { 256, 14, 128, 32, 1024 } };

/* The least that must move, with the slice's share of each pixel. */
template <class T, class S> void time_forward(const kernel_case &k)
{
	const shape &s = timed_shapes[k.number];
	const layer<T> l({ 4, s.side, s.c_in, s.c_out, s.pitch });
	const size_t pixels = (size_t)s.pixels();
	const double bytes = 2.0 * (double)pixels * (s.c_in + s.c_out);
	device_array<T> weight(l.weight);
	device_array<float> scale(l.scale), bias(l.bias);
	const int blocks = line_blocks(s.pixels(), S::ROWS, device_sms());
	device_array<float> partial((size_t)blocks * 64);
	std::vector<std::unique_ptr<device_array<T>>> maps;
	std::vector<conv3x3_forward<T>> p;
	for (int set = 0; set < sets_beyond_cache(bytes); set++) {
		maps.emplace_back(new device_array<T>(pixels * l.in));
		maps.emplace_back(new device_array<T>(pixels * l.pitch));
		T *x = *maps.end()[-2], *y = *maps.end()[-1];
		for (size_t at = 0; at < pixels * l.in; at += l.y.size())
			check_device(device_upload(x + at, l.y.data(), l.y.size() * sizeof(T), nullptr), "upload");
		p.push_back({ x, weight, scale, bias, y, partial, s.pixels(), s.side, s.pitch, s.c_in, s.c_out });
	}
	const double us = median_us((int)p.size(), [&](int set, device_stream stream) { check_device((conv3x3_forward_launch<T, S>(p[(size_t)set], (unsigned)blocks, stream)), "conv3x3_forward"); });
	report("tflop_per_s", 2.0 * 9 * 128 * 32 * (double)pixels / us * 1e-6);
	report_rate(us, bytes);
}

/* A layer with maps of its own for every set; weights, coefficients and partial sums are the same for all, as they are for every layer of a step. */
template <class T> struct timed_backward {
	struct maps {
		device_array<T> g, x, y, dz;
	};
	const shape &s;
	layer<T> l;
	size_t pixels;
	device_array<T> weight;
	device_array<float> a, b, c, scale, bias, mean, rstd, partial_sums, partial_weight, dweight;
	int blocks;
	std::vector<std::unique_ptr<maps>> sets;

	timed_backward(const shape &of, int rows, double bytes) : s(of), l({ 4, s.side, s.c_in, s.c_out, s.pitch }), pixels((size_t)s.pixels()), weight(l.weight), a(l.a), b(l.b), c(l.c),
		scale(l.scale), bias(l.bias), mean(l.mean), rstd(l.rstd), partial_sums((size_t)device_sms() * 2 * l.in), partial_weight((size_t)device_sms() * l.out * TAPS * l.in),
		dweight(l.out * TAPS * l.in), blocks(line_blocks(s.pixels(), rows, device_sms()))
	{
		for (int i = 0; i < sets_beyond_cache(bytes); i++) {
			sets.emplace_back(new maps{ device_array<T>(pixels * l.pitch), device_array<T>(pixels * l.pitch), device_array<T>(pixels * l.in), device_array<T>(pixels * l.in) });
			fill(sets.back()->g, l.g, pixels * l.pitch);
			fill(sets.back()->x, l.x, pixels * l.pitch);
			fill(sets.back()->y, l.y, pixels * l.in);
		}
	}
	/* A few images, repeated. */
	static void fill(T *to, const std::vector<T> &from, size_t count)
	{
		for (size_t at = 0; at < count; at += from.size())
			check_device(device_upload(to + at, from.data(), from.size() * sizeof(T), nullptr), "upload");
	}
	conv3x3_backward<T> arguments(int set) const
	{
		const maps &m = *sets[(size_t)set];
		return { m.g, m.x, a, b, c, m.y, weight, scale, bias, mean, rstd, m.dz, partial_sums, partial_weight, s.pixels(), s.side, s.pitch, s.c_in, s.c_out };
	}
};

template <class T, class S> void time_data(const kernel_case &k)
{
	const shape &s = timed_shapes[k.number];
	const double pixels = (double)s.pixels(), bytes = 2 * pixels * (2 * s.c_in + 2 * s.c_out);
	const timed_backward<T> run(s, S::ROWS, bytes);
	const double us = median_us((int)run.sets.size(), [&](int set, device_stream stream) {
		check_device((conv3x3_data_launch<T, S>(run.arguments(set), (unsigned)run.blocks, stream)), "conv3x3_data");
	});
	report("tflop_per_s", 2.0 * 9 * 128 * 32 * pixels / us * 1e-6);
	report_rate(us, bytes);
}

template <class T, class S> void time_weight(const kernel_case &k)
{
	const shape &s = timed_shapes[k.number];
	const double pixels = (double)s.pixels(), bytes = 2 * pixels * (s.c_in + 2 * s.c_out);
	const timed_backward<T> run(s, S::ROWS, bytes);
	const double us = median_us((int)run.sets.size(), [&](int set, device_stream stream) {
		check_device((conv3x3_weight_launch<T, S>(run.arguments(set), (unsigned)run.blocks, stream)), "conv3x3_weight");
		check_device(weight_gradient_launch({ run.partial_weight, run.dweight, nullptr, 1, s.c_out, s.c_in, s.c_in, TAPS, run.blocks, 0 }, stream), "weight_gradient");
	});
	report("tflop_per_s", 2.0 * 9 * 128 * 32 * pixels / us * 1e-6);
	report_rate(us, bytes);
}

template <class T, class S> void time_joined(const kernel_case &k)
{
	const shape &s = timed_shapes[k.number];
	const double pixels = (double)s.pixels(), bytes = 2 * pixels * (2 * s.c_in + 2 * s.c_out);
	const timed_backward<T> run(s, S::ROWS, bytes);
	const int parts = conv3x3_joined_parts(s.pixels(), s.side, s.c_in, device_sms());
	const double us = median_us((int)run.sets.size(), [&](int set, device_stream stream) {
		check_device((conv3x3_joined_launch<T, S>(run.arguments(set), parts, stream)), "conv3x3_joined");
		check_device(weight_gradient_launch({ run.partial_weight, run.dweight, nullptr, 1, s.c_out, s.c_in, s.c_in, TAPS, parts, 0 }, stream), "weight_gradient");
	});
	report("tflop_per_s", 2 * 2.0 * 9 * 128 * 32 * pixels / us * 1e-6);
	report_rate(us, bytes);
}

#define TIMED(function) function
#else
#define TIMED(function) nullptr
#endif

/* fp16 is timed by bf16: the instructions are as many. */
void add(std::vector<kernel_case> &cases, const std::string &name, void (*check)(const kernel_case &), void (*time)(const kernel_case &), bool wgmma)
{
	static const char *const names[] = { "b1", "b2", "b3" };
	cases.push_back({ name, check, nullptr, 0, wgmma });
	for (int i = 0; time && i < 3; i++)
		cases.push_back({ name + ":" + names[i], nullptr, time, i, wgmma });
}

template <class T, class S> void add_forward(std::vector<kernel_case> &cases, const char *variant)
{
	add(cases, std::string("conv3x3_forward:") + variant + ":" + type_name<T>(), check_forward<T, S>, std::is_same<T, bf16>::value ? TIMED((time_forward<T, S>)) : nullptr, S::WGMMA);
}

template <class T, class S> void add_data(std::vector<kernel_case> &cases, const char *variant)
{
	add(cases, std::string("conv3x3_data:") + variant + ":" + type_name<T>(), check_data<T, S>, std::is_same<T, bf16>::value ? TIMED((time_data<T, S>)) : nullptr, S::WGMMA);
}

template <class T, class S> void add_weight(std::vector<kernel_case> &cases, const char *variant)
{
	add(cases, std::string("conv3x3_weight:") + variant + ":" + type_name<T>(), check_weight<T, S>, std::is_same<T, bf16>::value ? TIMED((time_weight<T, S>)) : nullptr, S::WGMMA);
}

template <class T, class S> void add_joined(std::vector<kernel_case> &cases, const char *variant)
{
	add(cases, std::string("conv3x3_joined:") + variant + ":" + type_name<T>(), check_joined<T, S>, std::is_same<T, bf16>::value ? TIMED((time_joined<T, S>)) : nullptr, S::WGMMA);
}

} // namespace

void add_conv3x3_cases(std::vector<kernel_case> &cases)
{
	add_forward<bf16, conv3x3_forward_shape<128, 32, 2>>(cases, "1"); /* 8 warps of 32 pixels, two shares of the channels */
	add_forward<bf16, conv3x3_forward_shape<128, 64, 2>>(cases, "2"); /* 4 warps of 64: fewer bytes of shared memory a product */
	add_forward<bf16, conv3x3_forward_shape<64, 32, 4>>(cases, "3");  /* half the ring; fits an A100 */
	add_forward<bf16, conv3x3_forward_wgmma_shape>(cases, "4");       /* wgmma; three taps share what they read */
	add_data<bf16, conv3x3_data_shape<128, 32, 64>>(cases, "1");      /* 8 warps of 32 pixels × 64 channels */
	add_data<bf16, conv3x3_data_shape<128, 64, 32>>(cases, "2");      /* 8 warps of 64 × 32 */
	add_data<bf16, conv3x3_data_shape<64, 32, 32>>(cases, "3");       /* half the tile; fits an A100 */
	add_weight<bf16, conv3x3_weight_shape<128>>(cases, "1");
	add_weight<bf16, conv3x3_weight_shape<64>>(cases, "2");           /* half the tile: two blocks' worth of shared memory is left to the cache */
	add_weight<bf16, conv3x3_weight_shape<128, 3>>(cases, "3");       /* three blocks share the taps: for maps that make few tiles */
	add_joined<bf16, conv3x3_joined_wgmma_shape>(cases, "1");         /* wgmma; dz and dW in one pass */
	add(cases, "conv3x3_both:1:bf16", check_both<bf16, conv3x3_data_shape<64, 32, 32>, conv3x3_weight_shape<128, 3>>, nullptr, false); /* as few_tiles has them */
	add_forward<fp16, conv3x3_forward_shape<128, 32, 2>>(cases, "1");
	add_forward<fp16, conv3x3_forward_wgmma_shape>(cases, "4");
	add_data<fp16, conv3x3_data_shape<128, 32, 64>>(cases, "1");
	add_weight<fp16, conv3x3_weight_shape<128>>(cases, "1");
	add_joined<fp16, conv3x3_joined_wgmma_shape>(cases, "1");
}

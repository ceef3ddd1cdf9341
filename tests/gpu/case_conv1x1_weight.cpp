/* SPDX-License-Identifier: Apache-2.0
 * The weight's gradient of 1×1 convolutions, in numbered variants. */
#include "cases.h"
#include "conv1x1_weight.h"
#include "reduce.h"
#include "weight_gradient.h"

#include <type_traits>

namespace {

struct shape {
	const char *name;
	long images;
	int side, step, c_in, x_pitch, c_out, g_pitch;
	int left_over; /* columns of the input that the last step does not reach, 0 … step - 1 */

	long pixels() const
	{
		return images * side * side;
	}
	int in_side() const
	{
		return (side - 1) * step + 1 + left_over;
	}
	long in_pixels() const
	{
		return images * in_side() * in_side();
	}
};

/* Tiny and odd ones; every tail: pixels, input channels, output channels, both with and without others beside them; steps over even and odd maps. */
#ifdef __SANITIZE_ADDRESS__ /* a switch of lanes costs system calls there */
const shape small_shapes[] = { { "", 1, 1, 1, 8, 8, 8, 8, 0 }, { "", 2, 6, 2, 40, 48, 24, 40, 0 } };
#else
const shape small_shapes[] = { { "", 1, 1, 1, 8, 8, 8, 8, 0 },        { "", 1, 1, 2, 16, 24, 8, 16, 1 },     { "", 3, 7, 1, 72, 80, 136, 136, 0 },   { "", 1, 16, 1, 264, 264, 64, 72, 0 },
	                       { "", 2, 9, 2, 64, 64, 128, 128, 0 },  { "", 3, 6, 2, 136, 160, 72, 80, 1 },  { "", 1, 20, 3, 24, 24, 40, 64, 1 },    { "", 1, 18, 1, 128, 256, 256, 512, 0 } };
#endif
/* At batch 256 or, to be checked, a few images: DenseNet-121's transitions; ResNet-50's first and widest convolutions, with and without a step. */
[[maybe_unused]] const shape real_shapes[] = {
	{ "t1", 256, 28, 1, 256, 256, 128, 512, 0 },   { "t2", 256, 14, 1, 512, 512, 256, 1024, 0 },  { "t3", 256, 7, 1, 1024, 1024, 512, 1024, 0 },
	{ "64-64", 256, 56, 1, 64, 64, 64, 64, 0 },    { "64-256", 256, 56, 1, 64, 64, 256, 256, 0 },  { "256-64", 256, 56, 1, 256, 256, 64, 64, 0 },
	{ "256-512-2", 256, 28, 2, 256, 256, 512, 512, 1 }, { "256-1024", 256, 14, 1, 256, 256, 1024, 1024, 0 }, { "1024-2048-2", 256, 7, 2, 1024, 1024, 2048, 2048, 1 },
};

/* fp32 accumulation in any order: a few roundings of the sum of absolute terms. */
const double ACCUMULATION = 4e-6;

/* Random numbers in the first `channels` of each pixel; what lies behind them belongs to others, and no sum may have any of it. */
template <class T> std::vector<T> random_map(long pixels, int channels, int pitch)
{
	std::vector<T> v = random_numbers<T>((size_t)pixels * (size_t)pitch, 0.1, 1);
	for (size_t i = 0; i < v.size(); i++)
		if ((int)(i % (size_t)pitch) >= channels)
			v[i] = from_float<T>(NAN);
	return v;
}

template <class T, class S> void check_shape(const shape &s, int parts)
{
	const size_t in = (size_t)s.c_in, out = (size_t)s.c_out, side = (size_t)s.side, in_side = (size_t)s.in_side();
	const std::vector<T> g = random_map<T>(s.pixels(), s.c_out, s.g_pitch);
	std::vector<T> x = random_map<T>(s.in_pixels(), s.c_in, s.x_pitch);
	const device_array<T> on_g(g);
	std::vector<size_t> under((size_t)s.pixels()); /* q(p) */
	std::vector<bool> used((size_t)s.in_pixels());
	for (size_t p = 0; p < under.size(); p++) {
		under[p] = (p / side / side * in_side + p / side % side * (size_t)s.step) * in_side + p % side * (size_t)s.step;
		used[under[p]] = true;
	}
	for (size_t i = 0; i < x.size(); i++) /* nor what lies between the steps */
		if (!used[i / (size_t)s.x_pitch])
			x[i] = from_float<T>(NAN);
	const device_array<T> on_x(x);
	device_array<float> partial((size_t)parts * out * in), dweight(out * in);
	const conv1x1_weight<T> p = { on_g, on_x, partial, s.pixels(), s.side, s.in_side(), s.step, s.g_pitch, s.x_pitch, s.c_out, s.c_in, parts };
	check_device((conv1x1_weight_launch<T, S>(p, nullptr)), "conv1x1_weight");
	check_device(reduce_partials_launch({ partial, dweight, out * in, out * in, parts, 1, 0 }, nullptr), "reduce_partials");

	const std::vector<float> got = dweight.download();
	std::vector<float> row(in);
	std::vector<sums> want(out, sums(in));
	for (size_t q = 0; q < under.size(); q++) {
		for (size_t c = 0; c < in; c++)
			row[c] = to_float(x[under[q] * (size_t)s.x_pitch + c]);
		for (size_t n = 0; n < out; n++)
			want[n].add(to_float(g[q * (size_t)s.g_pitch + n]), row.data());
	}
	for (size_t n = 0; n < out; n++)
		for (size_t c = 0; c < in; c++)
			expect_near(got[n * in + c], want[n].value[c], ACCUMULATION * want[n].terms[c] + 1e-30, "dW[%zu][%zu] of %ld×%d², %d to %d channels, step %d, %d parts", n, c, s.images, s.side,
			            s.c_in, s.c_out, s.step, parts);
}

template <class T, class S> void check(const kernel_case &)
{
	for (const shape &s : small_shapes) {
		check_shape<T, S>(s, 1);
		check_shape<T, S>(s, 3); /* more than there are pixels for, of some */
	}
#ifdef __CUDACC__
	for (shape s : real_shapes) {
		s.images = s.side > 28 ? 1 : s.side > 7 ? 3 : 9;
		check_shape<T, S>(s, conv1x1_weight_parts<S>(s.pixels(), s.c_out, s.c_in, device_sms()));
	}
#endif
}

/* Of the channels that there are, on GPUs of few and many multiprocessors: blocks fill them and no more, and every part has pixels. */
void check_parts(const kernel_case &)
{
	for (int sms : { 1, 3, 82, 108, 132, 148 })
		for (size_t shared : { 99 * 1024, 163 * 1024, 227 * 1024 })
			for (int c_out = 8; c_out <= 2048; c_out += c_out < 256 ? 8 : 128)
				for (int c_in = 8; c_in <= 2048; c_in += c_in < 256 ? 8 : 128)
					for (long pixels : { 1L, 64L, 65L, 49L * 256, 802816L }) {
						int tiles = 0, stretches = 0;
						size_t bytes = 0;
						const int parts = with_weight_tiles(c_out, c_in, shared, [&](auto cut) {
							typedef decltype(cut) S;
							tiles = S::tiles(c_out, c_in);
							stretches = S::stretches(pixels);
							bytes = S::shared_bytes();
							return conv1x1_weight_parts<S>(pixels, c_out, c_in, sms);
						});
						const bool full = parts == stretches || (parts + 1) * tiles > sms;
						if (bytes > shared || parts < 1 || parts > stretches || (parts > 1 && parts * tiles > sms) || !full)
							give_up("%d to %d channels, %ld pixels, %d multiprocessors of %zu bytes: %d parts of %d tiles with %zu bytes", c_in, c_out, pixels, sms, shared,
							        parts, tiles, bytes);
					}
}

#ifdef __CUDACC__

template <class T, class S> void time_weight(const kernel_case &k)
{
	const shape &s = real_shapes[k.number];
	const double bytes = 2.0 * (double)s.pixels() * (s.c_in + s.c_out);
	const size_t in = (size_t)s.c_in, out = (size_t)s.c_out, g_count = (size_t)s.pixels() * (size_t)s.g_pitch, x_count = (size_t)s.in_pixels() * (size_t)s.x_pitch;
	const int parts = conv1x1_weight_parts<S>(s.pixels(), s.c_out, s.c_in, device_sms());
	device_array<float> partial((size_t)parts * out * in), dweight(out * in);
	timed_maps<T> maps;
	std::vector<conv1x1_weight<T>> p;
	for (int set = 0; set < sets_beyond_cache(bytes); set++)
		p.push_back({ maps.add(g_count, true), maps.add(x_count, true), partial, s.pixels(), s.side, s.in_side(), s.step, s.g_pitch, s.x_pitch, s.c_out, s.c_in, parts });
	const double us = median_us((int)p.size(), [&](int set, device_stream stream) {
		check_device((conv1x1_weight_launch<T, S>(p[(size_t)set], stream)), "conv1x1_weight");
		check_device(weight_gradient_launch({ partial, dweight, nullptr, 1, s.c_out, s.c_in, s.c_in, 1, parts, 0 }, stream), "weight_gradient");
	});
	report("parts", parts);
	report("tflop_per_s", 2.0 * (double)s.pixels() * s.c_in * s.c_out / us * 1e-6);
	report_rate(us, bytes);
}

/* An H100 has the variant for this shape, or would have it with less shared memory. */
template <class S> bool suits(const shape &s)
{
	const auto same = [](auto cut) { return std::is_same<decltype(cut), S>::value; };
	return with_weight_tiles(s.c_out, s.c_in, 227 * 1024, same) || with_weight_tiles(s.c_out, s.c_in, S::shared_bytes(), same);
}

#endif

template <class T, class S> void add(std::vector<kernel_case> &cases, const char *variant)
{
	const std::string name = std::string("conv1x1_weight:") + variant + ":" + type_name<T>();
	cases.push_back({ name, check<T, S>, nullptr, 0 });
#ifdef __CUDACC__
	int number = 0;
	for (const shape &s : real_shapes) {
		if (std::is_same<T, bf16>::value && suits<S>(s)) /* fp16 has as many instructions */
			cases.push_back({ name + ":" + s.name, nullptr, time_weight<T, S>, number });
		number++;
	}
#endif
}

} // namespace

void add_conv1x1_weight_cases(std::vector<kernel_case> &cases)
{
	add<bf16, weight_tiles>(cases, "1");
	add<bf16, wide_weight_tiles>(cases, "2");   /* a quarter less to read for a product; needs the shared memory of an A100 */
	add<bf16, narrow_weight_tiles>(cases, "3"); /* for few input channels … */
	add<bf16, low_weight_tiles>(cases, "4");    /* … for few output channels … */
	add<bf16, small_weight_tiles>(cases, "5");  /* … and for few of both */
	add<fp16, weight_tiles>(cases, "1");
	add<fp16, wide_weight_tiles>(cases, "2");
	cases.push_back({ "conv1x1_weight:parts", check_parts, nullptr, 0 });
}

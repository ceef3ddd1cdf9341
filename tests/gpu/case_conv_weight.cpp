/* SPDX-License-Identifier: Apache-2.0
 * The weight's gradient of 1×1, 3×3 and 5×5 convolutions, in numbered variants. */
#include "cases.h"
#include "conv_weight.h"
#include "reduce.h"
#include "weight_gradient.h"

#include <type_traits>

namespace {

struct shape {
	const char *name;
	long images;
	int side, kernel, step, c_in, x_pitch, c_out, g_pitch;
	int left_over; /* columns of the input that the last step does not reach, 0 … step - 1 */

	long pixels() const
	{
		return images * side * side;
	}
	int in_side() const
	{
		return (side - 1) * step + 1 + left_over; /* with kernel / 2 as padding */
	}
	int columns() const
	{
		return kernel * kernel * c_in;
	}
	long in_pixels() const
	{
		return images * in_side() * in_side();
	}
};

/* Tiny and odd ones; every tail: pixels, input channels, output channels, both with and without others beside them; steps over even and odd maps; taps that
 * begin in the middle of a tile, more of them in a tile than one, and maps that most of them lie outside of. */
#ifdef __SANITIZE_ADDRESS__ /* a switch of lanes costs system calls there */
const shape small_shapes[] = { { "", 1, 1, 1, 1, 8, 8, 8, 8, 0 }, { "", 2, 6, 1, 2, 40, 48, 24, 40, 0 }, { "", 2, 5, 3, 2, 24, 32, 24, 40, 1 } };
#else
const shape small_shapes[] = {
	{ "", 1, 1, 1, 1, 8, 8, 8, 8, 0 },        { "", 1, 1, 1, 2, 16, 24, 8, 16, 1 },     { "", 3, 7, 1, 1, 72, 80, 136, 136, 0 },  { "", 1, 16, 1, 1, 264, 264, 64, 72, 0 },
	{ "", 2, 9, 1, 2, 64, 64, 128, 128, 0 },  { "", 3, 6, 1, 2, 136, 160, 72, 80, 1 },  { "", 1, 20, 1, 3, 24, 24, 40, 64, 1 },   { "", 1, 18, 1, 1, 128, 256, 256, 512, 0 },
	{ "", 3, 1, 3, 1, 8, 8, 16, 24, 0 },      { "", 2, 1, 3, 2, 24, 40, 8, 8, 1 },      { "", 1, 2, 3, 1, 16, 16, 72, 72, 0 },    { "", 3, 7, 3, 1, 40, 48, 136, 160, 0 },
	{ "", 1, 13, 3, 1, 64, 64, 64, 64, 0 },   { "", 2, 9, 3, 2, 24, 24, 40, 64, 0 },    { "", 1, 8, 3, 2, 72, 80, 24, 32, 1 },    { "", 1, 5, 3, 3, 8, 16, 8, 8, 2 },
	{ "", 2, 3, 5, 1, 16, 24, 24, 24, 0 },    { "", 1, 67, 3, 1, 8, 8, 8, 8, 0 },
};
#endif
/* At batch 256 or, to be checked, a few images: DenseNet-121's transitions; ResNet-50's first and widest 1×1 convolutions, with and without a step; its 3×3. */
[[maybe_unused]] const shape real_shapes[] = {
	{ "t1", 256, 28, 1, 1, 256, 256, 128, 512, 0 },          { "t2", 256, 14, 1, 1, 512, 512, 256, 1024, 0 },
	{ "t3", 256, 7, 1, 1, 1024, 1024, 512, 1024, 0 },        { "64-64", 256, 56, 1, 1, 64, 64, 64, 64, 0 },
	{ "64-256", 256, 56, 1, 1, 64, 64, 256, 256, 0 },        { "256-64", 256, 56, 1, 1, 256, 256, 64, 64, 0 },
	{ "256-512-2", 256, 28, 1, 2, 256, 256, 512, 512, 1 },   { "256-1024", 256, 14, 1, 1, 256, 256, 1024, 1024, 0 },
	{ "1024-2048-2", 256, 7, 1, 2, 1024, 1024, 2048, 2048, 1 },
	{ "3x3-64", 256, 56, 3, 1, 64, 64, 64, 64, 0 },          { "3x3-128", 256, 28, 3, 1, 128, 128, 128, 128, 0 },
	{ "3x3-128-2", 256, 28, 3, 2, 128, 128, 128, 128, 1 },   { "3x3-256", 256, 14, 3, 1, 256, 256, 256, 256, 0 },
	{ "3x3-512", 256, 7, 3, 1, 512, 512, 512, 512, 0 },
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

/* q(p, t) for every tap of every output pixel; -1: outside the map. */
std::vector<long> pixels_under_taps(const shape &s)
{
	const int pad = s.kernel / 2;
	std::vector<long> under;
	for (long image = 0; image < s.images; image++)
		for (int line = 0; line < s.side; line++)
			for (int column = 0; column < s.side; column++)
				for (int ky = 0; ky < s.kernel; ky++)
					for (int kx = 0; kx < s.kernel; kx++) {
						const int y = line * s.step + ky - pad, x = column * s.step + kx - pad;
						const bool outside = y < 0 || x < 0 || y >= s.in_side() || x >= s.in_side();
						under.push_back(outside ? -1 : (image * s.in_side() + y) * s.in_side() + x);
					}
	return under;
}

template <class T, class S> void check_shape(const shape &s, int parts)
{
	const size_t in = (size_t)s.c_in, out = (size_t)s.c_out, taps = (size_t)(s.kernel * s.kernel), columns = (size_t)s.columns();
	const std::vector<T> g = random_map<T>(s.pixels(), s.c_out, s.g_pitch);
	std::vector<T> x = random_map<T>(s.in_pixels(), s.c_in, s.x_pitch);
	const device_array<T> on_g(g);
	const std::vector<long> under = pixels_under_taps(s);
	std::vector<bool> used((size_t)s.in_pixels());
	for (long q : under)
		if (q >= 0)
			used[(size_t)q] = true;
	for (size_t i = 0; i < x.size(); i++) /* nor what lies between the steps */
		if (!used[i / (size_t)s.x_pitch])
			x[i] = from_float<T>(NAN);
	const device_array<T> on_x(x);
	device_array<float> partial((size_t)parts * out * columns), dweight(out * columns);
	const conv_weight<T> p = { on_g, on_x, partial, s.pixels(), s.side, s.in_side(), s.kernel, s.step, s.g_pitch, s.x_pitch, s.c_out, s.c_in, parts };
	check_device((conv_weight_launch<T, S>(p, nullptr)), "conv_weight");
	check_device(reduce_partials_launch({ partial, dweight, out * columns, out * columns, parts, 1, 0 }, nullptr), "reduce_partials");

	const std::vector<float> got = dweight.download();
	std::vector<float> row(columns);
	std::vector<sums> want(out, sums(columns));
	for (size_t q = 0; q < (size_t)s.pixels(); q++) {
		for (size_t i = 0; i < columns; i++) {
			const long at = under[q * taps + i / in];
			row[i] = at < 0 ? 0 : to_float(x[(size_t)at * (size_t)s.x_pitch + i % in]);
		}
		for (size_t n = 0; n < out; n++)
			want[n].add(to_float(g[q * (size_t)s.g_pitch + n]), row.data());
	}
	for (size_t n = 0; n < out; n++)
		for (size_t i = 0; i < columns; i++)
			expect_near(got[n * columns + i], want[n].value[i], ACCUMULATION * want[n].terms[i] + 1e-30, "dW[%zu][tap %zu][%zu] of %ld×%d², %d to %d channels, %d×%d, step %d, %d parts", n, i / in,
			            i % in, s.images, s.side, s.c_in, s.c_out, s.kernel, s.kernel, s.step, parts);
}

template <class T, class S> void check(const kernel_case &)
{
	for (const shape &s : small_shapes) {
		check_shape<T, S>(s, 1);
		check_shape<T, S>(s, 3); /* more than there are pixels for, of some */
	}
#ifdef __CUDACC__
	for (shape s : real_shapes) {
		s.images = s.kernel > 1 ? (s.side > 7 ? 1 : 3) : s.side > 28 ? 1 : s.side > 7 ? 3 : 9;
		check_shape<T, S>(s, conv_weight_parts<S>(s.pixels(), s.c_out, s.columns(), device_sms()));
	}
#endif
}

/* Of the channels that there are, up to a ResNet's 9 × 512 columns, on GPUs of few and many multiprocessors: blocks fill them and no more, and every part has
 * pixels. */
void check_parts(const kernel_case &)
{
	for (int sms : { 1, 3, 82, 108, 132, 148 })
		for (size_t shared : { 99 * 1024, 163 * 1024, 227 * 1024 })
			for (int c_out = 8; c_out <= 2048; c_out += c_out < 256 ? 8 : 128)
				for (int columns = 8; columns <= 4608; columns += columns < 256 ? 8 : 128)
					for (long pixels : { 1L, 64L, 65L, 49L * 256, 802816L }) {
						int tiles = 0, stretches = 0;
						size_t bytes = 0;
						const int parts = with_weight_tiles(c_out, columns, shared, [&](auto cut) {
							typedef decltype(cut) S;
							tiles = S::tiles(c_out, columns);
							stretches = S::stretches(pixels);
							bytes = S::shared_bytes();
							return conv_weight_parts<S>(pixels, c_out, columns, sms);
						});
						const bool full = parts == stretches || (parts + 1) * tiles > sms;
						if (bytes > shared || parts < 1 || parts > stretches || (parts > 1 && parts * tiles > sms) || !full)
							give_up("%d columns to %d channels, %ld pixels, %d multiprocessors of %zu bytes: %d parts of %d tiles with %zu bytes", columns, c_out, pixels, sms, shared,
							        parts, tiles, bytes);
					}
}

#ifdef __CUDACC__

template <class T, class S> void time_weight(const kernel_case &k)
{
	const shape &s = real_shapes[k.number];
	const double bytes = 2.0 * ((double)(s.kernel > 1 ? s.in_pixels() : s.pixels()) * s.c_in + (double)s.pixels() * s.c_out);
	const size_t count = (size_t)s.c_out * (size_t)s.columns(), g_count = (size_t)s.pixels() * (size_t)s.g_pitch, x_count = (size_t)s.in_pixels() * (size_t)s.x_pitch;
	const int parts = conv_weight_parts<S>(s.pixels(), s.c_out, s.columns(), device_sms());
	device_array<float> partial((size_t)parts * count), dweight(count);
	timed_maps<T> maps;
	std::vector<conv_weight<T>> p;
	for (int set = 0; set < sets_beyond_cache(bytes); set++)
		p.push_back({ maps.add(g_count, true), maps.add(x_count, true), partial, s.pixels(), s.side, s.in_side(), s.kernel, s.step, s.g_pitch, s.x_pitch, s.c_out, s.c_in, parts });
	const double us = median_us((int)p.size(), [&](int set, device_stream stream) {
		check_device((conv_weight_launch<T, S>(p[(size_t)set], stream)), "conv_weight");
		check_device(weight_gradient_launch({ partial, dweight, nullptr, 1, s.c_out, s.c_in, s.c_in, s.kernel * s.kernel, parts, 0 }, stream), "weight_gradient");
	});
	report("parts", parts);
	report("tflop_per_s", 2.0 * (double)s.pixels() * s.columns() * s.c_out / us * 1e-6);
	report_rate(us, bytes);
}

/* An H100 has the variant for this shape, or would have it with less shared memory. */
template <class S> bool suits(const shape &s)
{
	const auto same = [](auto cut) { return std::is_same<decltype(cut), S>::value; };
	return with_weight_tiles(s.c_out, s.columns(), 227 * 1024, same) || with_weight_tiles(s.c_out, s.columns(), S::shared_bytes(), same);
}

#endif

template <class T, class S> void add(std::vector<kernel_case> &cases, const char *variant)
{
	const std::string name = std::string("conv_weight:") + variant + ":" + type_name<T>();
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

void add_conv_weight_cases(std::vector<kernel_case> &cases)
{
	add<bf16, weight_tiles>(cases, "1");
	add<bf16, wide_weight_tiles>(cases, "2");   /* a quarter less to read for a product; needs the shared memory of an A100 */
	add<bf16, narrow_weight_tiles>(cases, "3"); /* for few input channels … */
	add<bf16, low_weight_tiles>(cases, "4");    /* … for few output channels … */
	add<bf16, small_weight_tiles>(cases, "5");  /* … and for few of both */
	add<fp16, weight_tiles>(cases, "1");
	add<fp16, wide_weight_tiles>(cases, "2");
	cases.push_back({ "conv_weight:parts", check_parts, nullptr, 0 });
}

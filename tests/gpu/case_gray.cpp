/* SPDX-License-Identifier: Apache-2.0
 * The stem's convolution of gray images on tensor cores, forward and back. */
#include "cases.h"
#include "gray_convolution.h"
#include "reduce.h"

namespace {

struct shape {
	long images;
	int side, c_out; /* of the folded map */

	int out() const
	{
		return side - GRAY_BORDER;
	}
	long places() const
	{
		return images * side * side;
	}
	size_t pixels() const
	{
		return (size_t)(images * out() * out());
	}
};

/* Maps of one output pixel, of less than a tile and of several, filters that fill a half or not, tails; 115 is that of 224². */
#ifdef __SANITIZE_ADDRESS__ /* a switch of lanes costs system calls there */
const shape shapes[] = { { 3, 4, 8 }, { 2, 9, 40 } };
#else
const shape shapes[] = { { 3, 4, 8 }, { 2, 9, 40 }, { 5, 19, 64 }, { 1, 61, 32 }, { 1, 115, 64 } };
#endif
const double ACCUMULATION = 4e-6; /* fp32, in any order: a few roundings of the sum of absolute terms */
/* Squares of odd numbers are 1 modulo 8, so sums of squares of 16-bit numbers are rounded down more often than up: by 3 to 4e-6 where a thread adds a thousand. */
const double SQUARES = 8e-6;

template <class T> struct stem {
	shape s;
	size_t out;
	std::vector<T> map, weight, dz, y;
	std::vector<float> a, b, c;

	explicit stem(const shape &of) : s(of), out((size_t)of.c_out)
	{
		map = random_numbers<T>((size_t)s.places() * GRAY_CHANNELS, 0.2, 1);
		weight = random_numbers<T>(out * GRAY_COLUMNS, 0, 0.1);
		dz = random_numbers<T>(s.pixels() * out, 0, 1);
		y = random_numbers<T>(s.pixels() * out, 0.2, 1);
		a = random_numbers<float>(out, 1, 0.2);
		b = random_numbers<float>(out, 0, 0.1);
		c = random_numbers<float>(out, 0.3, 0.1); /* what border places must not get */
	}
	/* The eight channels that tap t of output pixel p reads. */
	const T *read(size_t p, int tap) const
	{
		const size_t o = (size_t)s.out(), image = p / (o * o), row = p / o % o + (size_t)(tap / GRAY_TAPS), column = p % o + (size_t)(tap % GRAY_TAPS);
		return &map[((image * (size_t)s.side + row) * (size_t)s.side + column) * GRAY_CHANNELS];
	}
};

template <class T> void check_forward_shape(const shape &s, int most)
{
	const stem<T> l(s);
	device_array<T> map(l.map), weight(l.weight), y(s.pixels() * l.out);
	const int blocks = line_blocks(s.places(), gray_forward_shape::ROWS, most);
	device_array<float> partial((size_t)blocks * 2 * GRAY_FILTERS), totals(2 * GRAY_FILTERS);
	check_device(gray_forward_launch<T>({ map, weight, y, partial, s.places(), s.side, s.c_out }, blocks, nullptr), "gray_forward");
	check_device(reduce_partials_launch({ partial, totals, 2 * GRAY_FILTERS, 2 * GRAY_FILTERS, blocks, 1, 0 }, nullptr), "reduce_partials");
	const std::vector<T> got = y.download();
	const std::vector<float> got_totals = totals.download();
	sums sum(l.out), square(l.out);
	for (size_t p = 0; p < s.pixels(); p++)
		for (size_t n = 0; n < l.out; n++) {
			double want = 0, terms = 0;
			for (int tap = 0; tap < GRAY_TAPS * GRAY_TAPS; tap++)
				for (int c = 0; c < GRAY_CHANNELS; c++) {
					const double term = (double)to_float(l.read(p, tap)[c]) * to_float(l.weight[n * GRAY_COLUMNS + (size_t)(tap * GRAY_CHANNELS + c)]);
					want += term;
					terms += std::fabs(term);
				}
			const double value = to_float(got[p * l.out + n]);
			expect_near(value, want, 1.001 * half_ulp<T>(want) + ACCUMULATION * terms, "y[%zu][%zu] of %ld×%d²", p, n, s.images, s.side);
			sum.value[n] += value;
			sum.terms[n] += std::fabs(value);
			square.value[n] += value * value;
		}
	for (size_t n = 0; n < l.out; n++) {
		expect_near(got_totals[n], sum.value[n], ACCUMULATION * sum.terms[n] + 1e-30, "sum[%zu] of %ld×%d²", n, s.images, s.side);
		expect_near(got_totals[GRAY_FILTERS + n], square.value[n], SQUARES * square.value[n] + 1e-30, "square[%zu] of %ld×%d²", n, s.images, s.side);
	}
}

template <class T> void check_weight_shape(const shape &s, int most)
{
	const stem<T> l(s);
	const size_t count = l.out * GRAY_COLUMNS;
	device_array<T> map(l.map), dz(l.dz), y(l.y);
	device_array<float> a(l.a), b(l.b), c(l.c);
	const int blocks = line_blocks(s.places(), gray_weight_shape::ROWS, most);
	device_array<float> partial((size_t)blocks * count), totals(count);
	check_device(gray_weight_launch<T>({ map, dz, y, a, b, c, partial, s.places(), s.side, s.c_out }, blocks, nullptr), "gray_weight");
	check_device(reduce_partials_launch({ partial, totals, count, count, blocks, 1, 0 }, nullptr), "reduce_partials");
	const std::vector<float> got = totals.download();
	std::vector<float> dy(s.pixels() * l.out);
	for (size_t i = 0; i < dy.size(); i++)
		dy[i] = to_float(from_float<T>(fmaf(l.a[i % l.out], to_float(l.dz[i]), fmaf(l.b[i % l.out], to_float(l.y[i]), l.c[i % l.out]))));
	for (int tap = 0; tap < GRAY_TAPS * GRAY_TAPS; tap++)
		for (size_t channel = 0; channel < GRAY_CHANNELS; channel++) {
			sums want(l.out);
			for (size_t p = 0; p < s.pixels(); p++)
				want.add(to_float(l.read(p, tap)[channel]), &dy[p * l.out]);
			for (size_t n = 0; n < l.out; n++)
				expect_near(got[n * GRAY_COLUMNS + (size_t)tap * GRAY_CHANNELS + channel], want.value[n], ACCUMULATION * want.terms[n] + 1e-30, "dW[%zu][%d][%zu] of %ld×%d²", n, tap, channel,
				            s.images, s.side);
		}
}

template <class F> void each_shape(F check)
{
	for (const shape &s : shapes)
		for (int most : { 1, 3 })
			check(s, most);
#ifdef __CUDACC__
	check({ 2, 115, 40 }, 2 * device_sms());
	check({ 1, GRAY_SIDES, 8 }, device_sms()); /* the longest stretch that a ring holds */
#endif
}

template <class T> void check_forward(const kernel_case &)
{
	each_shape(check_forward_shape<T>);
}

template <class T> void check_weight(const kernel_case &)
{
	each_shape(check_weight_shape<T>);
}

#ifdef __CUDACC__

/* Batch 256 at 224²; each map is larger than the second-level cache. */
const shape timed_shape = { 256, 115, 64 };

template <class T> struct timed {
	stem<T> l{ { 2, timed_shape.side, timed_shape.c_out } };
	device_array<T> map{ (size_t)timed_shape.places() * GRAY_CHANNELS }, weight{ l.weight }, y{ timed_shape.pixels() * l.out }, dz{ timed_shape.pixels() * l.out };
	device_array<float> a{ l.a }, b{ l.b }, c{ l.c };
	double bytes = (double)timed_shape.pixels() * 2 * GRAY_FILTERS;

	static void fill(T *to, size_t count, const std::vector<T> &values)
	{
		for (size_t at = 0; at + values.size() <= count; at += values.size())
			check_device(device_upload(to + at, values.data(), values.size() * sizeof(T), nullptr), "upload");
	}
	timed()
	{
		fill(map, (size_t)timed_shape.places() * GRAY_CHANNELS, l.map);
		fill(dz, timed_shape.pixels() * l.out, l.dz);
		fill(y, timed_shape.pixels() * l.out, l.y);
	}
};

template <class T> void time_forward(const kernel_case &)
{
	const timed<T> run;
	const int blocks = line_blocks(timed_shape.places(), gray_forward_shape::ROWS, gray_forward_shape::BLOCKS_PER_SM * device_sms());
	device_array<float> partial((size_t)blocks * 2 * GRAY_FILTERS);
	const double us = median_us(1, [&](int, device_stream stream) {
		check_device(gray_forward_launch<T>({ run.map, run.weight, run.y, partial, timed_shape.places(), timed_shape.side, timed_shape.c_out }, blocks, stream), "gray_forward");
	});
	report_rate(us, run.bytes + (double)timed_shape.places() * 16);
}

template <class T> void time_weight(const kernel_case &)
{
	const timed<T> run;
	const int blocks = line_blocks(timed_shape.places(), gray_weight_shape::ROWS, gray_weight_shape::BLOCKS_PER_SM * device_sms());
	device_array<float> partial((size_t)blocks * run.l.out * GRAY_COLUMNS);
	const double us = median_us(1, [&](int, device_stream stream) {
		check_device(gray_weight_launch<T>({ run.map, run.dz, run.y, run.a, run.b, run.c, partial, timed_shape.places(), timed_shape.side, timed_shape.c_out }, blocks, stream), "gray_weight");
	});
	report_rate(us, 2 * run.bytes + (double)timed_shape.places() * 16);
}

#define TIMED(function) function
#else
#define TIMED(function) nullptr
#endif

template <class T> void add_type(std::vector<kernel_case> &cases)
{
	cases.push_back({ std::string("gray_forward:") + type_name<T>(), check_forward<T>, nullptr, 0 });
	cases.push_back({ std::string("gray_weight:") + type_name<T>(), check_weight<T>, nullptr, 0 });
}

} // namespace

void add_gray_cases(std::vector<kernel_case> &cases)
{
	add_type<bf16>(cases);
	add_type<fp16>(cases);
	cases.push_back({ "gray_forward:bf16:stem", nullptr, TIMED((time_forward<bf16>)), 0 });
	cases.push_back({ "gray_weight:bf16:stem", nullptr, TIMED((time_weight<bf16>)), 0 });
}

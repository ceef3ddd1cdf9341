/* SPDX-License-Identifier: Apache-2.0
 * The passes of a residual block against fp64. */
#include "cases.h"

#include "reduce.h"
#include "residual.h"

namespace {

enum { IMAGES = 3, MAP = 13, CHANNELS = 40, PIXELS = IMAGES * MAP, COUNT = PIXELS * CHANNELS, BLOCKS = 4 };

/* The sums of `op`, which the pass has written, as [2][CHANNELS]. */
template <class Op> std::vector<float> run_with_sums(const Op &op)
{
	device_array<float> partial((size_t)BLOCKS * 2 * CHANNELS), total(2 * CHANNELS);
	const int blocks = channel_pass_blocks(PIXELS, CHANNELS, BLOCKS);
	check_device(channel_pass_launch(op, PIXELS, CHANNELS, partial, blocks, nullptr), "channel_pass");
	check_device(reduce_partials_launch({ partial, total, 2 * CHANNELS, 2 * CHANNELS, blocks, 1, 0 }, nullptr), "reduce_partials");
	return total.download();
}

template <class T> void check_join(const kernel_case &)
{
	const std::vector<T> x = random_numbers<T>(COUNT, 0, 1), shortcut = random_numbers<T>(COUNT, 0, 1);
	std::vector<float> v[4];
	for (std::vector<float> &one : v)
		one = random_numbers<float>(CHANNELS, 0.3, 0.8);
	device_array<T> dx(x), dshortcut(shortcut), projected(COUNT), plain(COUNT);
	device_array<float> scale(v[0]), bias(v[1]), shortcut_scale(v[2]), shortcut_bias(v[3]);
	check_device(channel_pass_launch(residual_join<T, true>{ dx, dshortcut, projected, scale, bias, shortcut_scale, shortcut_bias, CHANNELS }, PIXELS, CHANNELS, nullptr, 2, nullptr), "join");
	check_device(channel_pass_launch(residual_join<T, false>{ dx, dshortcut, plain, scale, bias, nullptr, nullptr, CHANNELS }, PIXELS, CHANNELS, nullptr, 2, nullptr), "join");
	const std::vector<T> got = projected.download(), got_plain = plain.download();
	for (size_t i = 0; i < COUNT; i++) {
		const size_t c = i % CHANNELS;
		const double z = (double)v[0][c] * to_float(x[i]) + v[1][c], other = to_float(shortcut[i]);
		const double want = std::fmax(0, z + (double)v[2][c] * other + v[3][c]), want_plain = std::fmax(0, z + other);
		expect_near(to_float(got[i]), want, 1.001 * half_ulp<T>(want) + 2e-6, "projected %zu", i);
		expect_near(to_float(got_plain[i]), want_plain, 1.001 * half_ulp<T>(want_plain) + 2e-6, "plain %zu", i);
	}
}

template <class T> void check_sums(const std::vector<float> &got, const std::vector<T> &g, const std::vector<T> &x, const std::vector<float> &mean, const std::vector<float> &rstd)
{
	for (size_t c = 0; c < CHANNELS; c++) {
		double sum = 0, dot = 0, terms = 0;
		for (size_t i = c; i < COUNT; i += CHANNELS) {
			const double d = to_float(g[i]), normal = ((double)to_float(x[i]) - mean[c]) * rstd[c];
			sum += d;
			dot += d * normal;
			terms += std::fabs(d) * (1 + std::fabs(normal));
		}
		expect_near(got[c], sum, 4e-6 * terms + 1e-9, "sum of channel %zu", c);
		expect_near(got[CHANNELS + c], dot, 4e-6 * terms + 1e-9, "dot of channel %zu", c);
	}
}

template <class T> void check_backward(const kernel_case &)
{
	const std::vector<T> first = random_numbers<T>(COUNT, 0, 1), second = random_numbers<T>(COUNT, 0, 1), x = random_numbers<T>(COUNT, 0.2, 1);
	std::vector<T> out = random_numbers<T>(COUNT, 0, 1);
	for (T &o : out) /* a ReLU's output */
		o = from_float<T>(std::fmax(0, to_float(o)));
	const std::vector<float> head = random_numbers<float>(IMAGES * CHANNELS, 0, 1), mean = random_numbers<float>(CHANNELS, 0.2, 0.2), rstd(CHANNELS, 0.9f);
	device_array<T> dfirst(first), dsecond(second), dx(x), dout(out), g(COUNT), added(COUNT);
	device_array<float> dhead(head), dmean(mean), drstd(rstd);
	for (int pooled = 0; pooled < 2; pooled++) {
		const std::vector<float> sums = pooled ? run_with_sums(residual_mask<T, true>{ nullptr, nullptr, dhead, dout, dx, g, dmean, drstd, CHANNELS, MAP })
		                                       : run_with_sums(residual_mask<T, false>{ dfirst, dsecond, nullptr, dout, dx, g, dmean, drstd, CHANNELS, MAP });
		const std::vector<T> got = g.download();
		for (size_t i = 0; i < COUNT; i++) {
			const double both = (double)to_float(first[i]) + to_float(second[i]), one = (double)head[i / (MAP * CHANNELS) * CHANNELS + i % CHANNELS] / MAP;
			const double want = to_float(out[i]) > 0 ? pooled ? one : both : 0;
			expect_near(to_float(got[i]), want, 1.001 * half_ulp<T>(want) + 1e-9, "%s gradient %zu", pooled ? "pooled" : "added", i);
		}
		check_sums(sums, got, x, mean, rstd);
		check_sums(run_with_sums(residual_sums<T>{ g, dx, dmean, drstd, CHANNELS }), got, x, mean, rstd);
	}
	check_device(channel_pass_launch(residual_add<T>{ dfirst, dsecond, added, CHANNELS }, PIXELS, CHANNELS, nullptr, 2, nullptr), "residual_add");
	const std::vector<T> got = added.download();
	for (size_t i = 0; i < COUNT; i++) {
		const double want = (double)to_float(first[i]) + to_float(second[i]);
		expect_near(to_float(got[i]), want, 1.001 * half_ulp<T>(want) + 1e-9, "sum %zu", i);
	}
}

template <class T> void add_type(std::vector<kernel_case> &cases)
{
	const std::string type = std::string(":") + type_name<T>();
	cases.push_back({ "residual_join" + type, check_join<T>, nullptr, 0 });
	cases.push_back({ "residual_backward" + type, check_backward<T>, nullptr, 0 });
}

} // namespace

void add_residual_cases(std::vector<kernel_case> &cases)
{
	add_type<float>(cases);
	add_type<bf16>(cases);
	add_type<fp16>(cases);
}

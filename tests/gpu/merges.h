/* SPDX-License-Identifier: Apache-2.0
 * Partial sums as the kernel before one leaves them, for kernels that merge them by themselves, and what must come of them. */
#ifndef GPU_MERGES_H
#define GPU_MERGES_H

#include "cases.h"
#include "layer_merge.h"

/* A normalisation of `all` channels whose last `fresh` ones have their statistics still in parts of `stride` channels. */
class unmerged_statistics {
public:
	unmerged_statistics(int all_channels, int fresh_channels, int row, int n_parts)
		: all((size_t)all_channels), fresh((size_t)fresh_channels), from(all - fresh), stride((size_t)row), parts((size_t)n_parts), gammas(random_numbers<float>(all, 1, 0.3)),
		  betas(random_numbers<float>(all, 0, 0.5)), means(random_numbers<float>(all, 0.2, 0.1)), rstds(random_numbers<float>(all, 1, 0.1)), squares(random_numbers<float>(all, 1, 0.1)),
		  slabs(random_numbers<float>(2 * all, 0, 1)), sums(parts * 2 * stride, NAN), gamma(gammas), beta(betas), mean(means), rstd(rstds), square(squares), slab(slabs), scale(all), bias(all),
		  partial((fill_sums(), sums))
	{
	}
	bn_statistics arguments() const
	{
		const bn_scale next = { gamma, beta, mean, rstd, nullptr, scale, bias, square, slab, slab + all, 0.25f, EPSILON, 1, (int)all };
		return { partial, mean + from, rstd + from, square + from, 1 / (double)parts, EPSILON, (int)parts, (int)fresh, (int)stride, next, (int)from };
	}
	/* After the kernel: what it kept must be right, and its scale and bias are what the rest is judged by. */
	void expect(std::vector<float> *got_scale, std::vector<float> *got_bias) const
	{
		const std::vector<float> got_mean = mean.download(), got_rstd = rstd.download(), got_square = square.download(), got_slab = slab.download();
		*got_scale = scale.download();
		*got_bias = bias.download();
		for (size_t c = 0; c < all; c++) {
			double want[3] = { means[c], squares[c], rstds[c] };
			if (c >= from) {
				want[0] = want[1] = 0;
				for (size_t p = 0; p < parts; p++)
					for (size_t which = 0; which < 2; which++)
						want[which] += sums[(2 * p + which) * stride + c - from] / (double)parts;
				want[2] = 1 / std::sqrt(want[1] - want[0] * want[0] + EPSILON);
			}
			expect_near(got_mean[c], want[0], 1e-6, "mean[%zu] of %zu", c, all);
			expect_near(got_square[c], want[1], 2e-6, "square[%zu] of %zu", c, all);
			expect_near(got_rstd[c], want[2], 3e-6, "rstd[%zu] of %zu", c, all);
			expect_near(got_slab[c], slabs[c] + 0.25 * want[0], 1e-6, "mean[%zu] of %zu in the slab", c, all);
			expect_near(got_slab[all + c], slabs[all + c] + 0.25 * want[1], 2e-6, "square[%zu] of %zu in the slab", c, all);
			expect_near((*got_scale)[c], gammas[c] * want[2], 1e-5, "scale[%zu] of %zu", c, all);
			expect_near((*got_bias)[c], betas[c] - want[0] * gammas[c] * want[2], 1e-5, "bias[%zu] of %zu", c, all);
		}
	}

private:
	static constexpr float EPSILON = 1e-5f;

	/* One pixel a part; columns beyond the channels stay NaNs: nobody may use them. */
	void fill_sums()
	{
		for (size_t p = 0; p < parts; p++)
			for (size_t c = 0; c < fresh; c++) {
				sums[2 * p * stride + c] = (float)(0.2 + 0.3 * random_normal());
				sums[(2 * p + 1) * stride + c] = (float)random_uniform(1, 2);
			}
	}

	size_t all, fresh, from, stride, parts;
	std::vector<float> gammas, betas, means, rstds, squares, slabs, sums;
	device_array<float> gamma, beta, mean, rstd, square, slab, scale, bias, partial;
};

/* Numbers whose sums and products come out exactly, in whatever order. */
inline std::vector<float> few_bits(size_t count, int low, int high, double unit)
{
	std::vector<float> v(count);
	for (float &x : v)
		x = (float)(unit * std::floor(random_uniform(low, high + 1)));
	return v;
}

/* A private normalisation whose backward sums are still in parts. All are numbers of few bits, so that a, b and c come out exactly, in whatever order they are added. */
class unmerged_gradients {
public:
	unmerged_gradients(int n_channels, int n_parts)
		: channels((size_t)n_channels), parts((size_t)n_parts), gammas(few_bits(channels, 1, 3, 0.5)), means(few_bits(channels, -2, 2, 0.25)), rstds(few_bits(channels, 1, 2, 0.5)),
		  sums(few_bits(parts * 2 * channels, -8, 8, 0.25)), slabs(few_bits(2 * channels, -8, 8, 0.25)), gamma(gammas), mean(means), rstd(rstds), partial(sums), slab(slabs),
		  unscale(std::vector<float>(1, 0.5f))
	{
	}
	bn_backward_sums arguments() const
	{
		return { partial, gamma, mean, rstd, slab, slab + channels, nullptr, nullptr, nullptr, nullptr, nullptr, unscale, 1 / PIXELS, 0.5f, 1, 0, (int)parts, (int)channels, 0, 0 };
	}
	void coefficients(std::vector<float> *a, std::vector<float> *b, std::vector<float> *c) const
	{
		for (size_t k = 0; k < channels; k++) {
			const double scale = (double)gammas[k] * rstds[k], slope = total(1, k) * rstds[k] / PIXELS;
			(*a)[k] = (float)scale;
			(*b)[k] = (float)(-scale * slope);
			(*c)[k] = (float)(scale * (slope * means[k] - total(0, k) / PIXELS));
		}
	}
	void expect() const
	{
		const std::vector<float> got = slab.download();
		for (size_t k = 0; k < channels; k++) {
			expect_near(got[k], slabs[k] + 0.25 * total(1, k), 1e-6, "gradient of gamma[%zu] of %zu", k, channels);
			expect_near(got[channels + k], slabs[channels + k] + 0.25 * total(0, k), 1e-6, "gradient of beta[%zu] of %zu", k, channels);
		}
	}

private:
	static constexpr double PIXELS = 1024;

	double total(size_t which, size_t k) const
	{
		double sum = 0;
		for (size_t p = 0; p < parts; p++)
			sum += sums[(2 * p + which) * channels + k];
		return sum;
	}

	size_t channels, parts;
	std::vector<float> gammas, means, rstds, sums, slabs;
	device_array<float> gamma, mean, rstd, partial, slab, unscale;
};

/* What a 1×1 leaves: a shared normalisation's sums, whose last `due_channels` are due, and a weight's gradient of so many outputs, both in parts. */
class unmerged_layer {
public:
	unmerged_layer(int n_channels, int due_channels, int n_outputs, int n_parts)
		: channels((size_t)n_channels), due((size_t)due_channels), outputs((size_t)n_outputs), parts((size_t)n_parts), gammas(few_bits(channels, 1, 3, 0.5)), means(few_bits(channels, -2, 2, 0.25)),
		  rstds(few_bits(channels, 1, 2, 0.5)), sums(few_bits(parts * 2 * channels, -8, 8, 0.25)), olds(few_bits(2 * channels, -8, 8, 0.25)), slabs(few_bits(2 * channels, -8, 8, 0.25)),
		  weights(few_bits(parts * outputs * WIDTH, -8, 8, 0.25)), gradients(few_bits(outputs * WIDTH, -8, 8, 0.25)), gamma(gammas), mean(means), rstd(rstds), partial(sums), old(olds), slab(slabs),
		  weight(weights), gradient(gradients), unscale(std::vector<float>(1, 0.5f))
	{
	}
	bn_backward_sums bn() const
	{
		return { partial, gamma, mean, rstd, slab, slab + channels, old, old + channels, nullptr, nullptr, nullptr, unscale, 1 / PIXELS, 0.5f, 1, 0, (int)parts, (int)channels,
			 (int)(channels - due), (int)due };
	}
	weight_gradient of_weight() const
	{
		return { weight, gradient, unscale, 0.5f, (int)outputs, WIDTH, WIDTH, 1, (int)parts, 1 };
	}
	/* Of the channels that are due, in front; zeros behind them. */
	void coefficients(std::vector<float> *a, std::vector<float> *b, std::vector<float> *c) const
	{
		for (size_t k = 0; k < a->size(); k++) {
			const size_t from = channels - due + k;
			const double r = k < due ? rstds[from] : 0, slope = k < due ? r * sum(1, from) / PIXELS : 0;
			(*a)[k] = (float)r;
			(*b)[k] = (float)(-r * slope);
			(*c)[k] = k < due ? (float)(r * (slope * means[from] - sum(0, from) / PIXELS)) : 0;
		}
	}
	void expect() const
	{
		expect_weight();
		const std::vector<float> got = slab.download(), got_sums = old.download();
		for (size_t which = 0; which < 2; which++)
			for (size_t k = 0; k < channels; k++) {
				expect_near(got[(1 - which) * channels + k], slabs[(1 - which) * channels + k] + 0.25 * total(which, k), 1e-6, "gradient of %s[%zu] of %zu", which ? "gamma" : "beta", k, channels);
				expect_near(got_sums[which * channels + k], k < channels - due ? sum(which, k) : olds[which * channels + k], 1e-6, "s%zu[%zu] of %zu", which + 1, k, channels);
			}
	}
	void expect_weight() const
	{
		const std::vector<float> got = gradient.download();
		for (size_t i = 0; i < outputs * WIDTH; i++) {
			double want = 0;
			for (size_t p = 0; p < parts; p++)
				want += weights[p * outputs * WIDTH + i];
			expect_near(got[i], gradients[i] + 0.25 * want, 1e-6, "a weight's gradient, %zu", i);
		}
	}

private:
	static constexpr double PIXELS = 1024;
	enum { WIDTH = 72 };

	double total(size_t which, size_t k) const
	{
		double sum = 0;
		for (size_t p = 0; p < parts; p++)
			sum += sums[(2 * p + which) * channels + k];
		return sum;
	}
	/* s1 and s2 with this layer's part. */
	double sum(size_t which, size_t k) const
	{
		return olds[which * channels + k] + gammas[k] * total(which, k);
	}

	size_t channels, due, outputs, parts;
	std::vector<float> gammas, means, rstds, sums, olds, slabs, weights, gradients;
	device_array<float> gamma, mean, rstd, partial, old, slab, weight, gradient, unscale;
};

#endif

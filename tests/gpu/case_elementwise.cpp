/* SPDX-License-Identifier: Apache-2.0
 * Batch normalisation in pieces, pools, head, optimiser and plain convolutions against fp64. */
#include "cases.h"

#include "batchnorm.h"
#include "bn_merge.h"
#include "convolution.h"
#include "gray_stem.h"
#include "head.h"
#include "images.h"
#include "loss_scale.h"
#include "maxpool.h"
#include "reduce.h"
#include "weight_gradient.h"

namespace {

const double SUMS = 4e-6; /* fp32 sums in any order, of the sum of absolute terms */

template <class T> double value(const std::vector<T> &v, size_t i)
{
	return to_float(v[i]);
}

/* ---- batch normalisation ---- */

struct map_shape {
	long pixels;
	int channels, pitch;
};

const map_shape maps[] = { { 1, 8, 8 }, { 37, 24, 64 }, { 500, 32, 40 }, { 1300, 1000, 1024 } }; /* the last in more parts than are waited for at once */

template <class T> void check_statistics(const kernel_case &)
{
	for (const map_shape &s : maps) {
		const size_t pitch = (size_t)s.pitch, channels = (size_t)s.channels;
		std::vector<T> x = random_numbers<T>((size_t)s.pixels * pitch, 0.7, 1.3);
		for (size_t i = 0; i < x.size(); i++)
			if (i % pitch >= channels)
				x[i] = from_float<T>(NAN);
		device_array<T> dx(x);
		const int blocks = channel_pass_blocks(s.pixels, s.channels, s.pixels < 1000 ? 5 : 1000);
		device_array<float> partial((size_t)blocks * 2 * channels);
		check_device(channel_pass_launch(channel_sums<T>{ dx, s.pitch }, s.pixels, s.channels, partial, blocks, nullptr), "channel_sums");
		/* the reader has as many channels before and behind these as they are */
		const std::vector<float> gammas = random_numbers<float>(3 * channels, 1, 0.4), betas = random_numbers<float>(3 * channels, 0, 0.4);
		const std::vector<float> means = random_numbers<float>(3 * channels, 0, 1), rstds = random_numbers<float>(3 * channels, 1, 0.1);
		device_array<float> gamma(gammas), beta(betas), all_mean(means), all_rstd(rstds), all_square(means), scale(3 * channels), bias(3 * channels);
		float *mean = all_mean + channels, *rstd = all_rstd + channels, *square = all_square + channels;
		const bn_scale next = { gamma, beta, all_mean, all_rstd, nullptr, scale, bias, all_square, nullptr, nullptr, 1, 1e-5f, 0, 3 * s.channels };
		check_device(bn_statistics_launch({ partial, mean, rstd, square, 1 / (double)s.pixels, 1e-5f, blocks, s.channels, s.channels, next, s.channels }, nullptr), "bn_statistics");
		const std::vector<float> all[] = { all_mean.download(), all_rstd.download(), all_square.download() }, got_scale = scale.download(), got_bias = bias.download();
		for (size_t c = 0; c < 3 * channels; c++) {
			if (c < channels || c >= 2 * channels)
				expect_near(all[0][c] + all[1][c], means[c] + rstds[c], 1e-30, "statistics of channel %zu that is not new", c);
			expect_near(got_scale[c], (double)gammas[c] * all[1][c], 1e-6 * std::fabs(got_scale[c]), "scale of channel %zu", c);
			expect_near(got_bias[c], betas[c] - (double)all[0][c] * got_scale[c], 1e-6 * (1 + std::fabs(got_bias[c])), "bias of channel %zu", c);
		}
		const float *got_mean = all[0].data() + channels, *got_rstd = all[1].data() + channels, *got_square = all[2].data() + channels;
		for (size_t c = 0; c < channels; c++) {
			double sum = 0, squares = 0, deviation = 0;
			for (size_t m = 0; m < (size_t)s.pixels; m++) {
				sum += value(x, m * pitch + c);
				squares += value(x, m * pitch + c) * value(x, m * pitch + c);
			}
			const double want = sum / (double)s.pixels;
			for (size_t m = 0; m < (size_t)s.pixels; m++)
				deviation += (value(x, m * pitch + c) - want) * (value(x, m * pitch + c) - want);
			const double want_rstd = 1 / std::sqrt(deviation / (double)s.pixels + 1e-5);
			expect_near(got_mean[c], want, 2e-6 * (1 + std::fabs(want)), "mean of channel %zu, %ld pixels", c, s.pixels);
			expect_near(got_square[c], squares / (double)s.pixels, 2e-6 * (1 + squares / (double)s.pixels), "E[x²] of channel %zu, %ld pixels", c, s.pixels);
			if (s.pixels > 1) /* of one pixel the variance is all cancellation */
				expect_near(got_rstd[c], want_rstd, 3e-5 * want_rstd, "rstd of channel %zu, %ld pixels", c, s.pixels);
		}
	}
}

template <class T> void check_bn_relu(const kernel_case &)
{
	const int images = 3, side = 4, channels = 40, pitch = 56;
	const size_t pixels = (size_t)(images * side * side);
	const std::vector<T> x = random_numbers<T>(pixels * pitch, 0, 1);
	const std::vector<float> scale = random_numbers<float>(channels, 1, 0.5), bias = random_numbers<float>(channels, 0, 0.5);
	device_array<T> dx(x), out(pixels * 48), pooled(pixels / 4 * 48);
	device_array<float> dscale(scale), dbias(bias);
	check_device(channel_pass_launch(bn_relu<T, false>{ dx, out, dscale, dbias, pitch, 48, 0 }, (long)pixels, channels, nullptr, 2, nullptr), "bn_relu");
	check_device(channel_pass_launch(bn_relu<T, true>{ dx, pooled, dscale, dbias, pitch, 48, side / 2 }, (long)pixels / 4, channels, nullptr, 2, nullptr), "bn_relu");
	const std::vector<T> got = out.download(), got_pooled = pooled.download();
	auto activation = [&](size_t pixel, size_t c) {
		return std::fmax(0, value(x, pixel * pitch + c) * scale[c] + (double)bias[c]);
	};
	for (size_t m = 0; m < pixels; m++)
		for (size_t c = 0; c < (size_t)channels; c++)
			expect_near(value(got, m * 48 + c), activation(m, c), 1.001 * half_ulp<T>(activation(m, c)) + 1e-7, "pixel %zu channel %zu", m, c);
	for (size_t m = 0; m < pixels / 4; m++)
		for (size_t c = 0; c < (size_t)channels; c++) {
			const size_t image = m / 4, row = m % 4 / 2, column = m % 2, first = image * 16 + row * 8 + column * 2;
			const double want = (activation(first, c) + activation(first + 1, c) + activation(first + 4, c) + activation(first + 5, c)) / 4;
			expect_near(value(got_pooled, m * 48 + c), want, 1.001 * half_ulp<T>(want) + 5e-7, "pooled pixel %zu channel %zu", m, c);
		}
}

/* A channel slice with three consumers, each with its own gamma and beta: one full, one through a 2 × 2 mean, one through a
 * global mean. The shared backward must equal three textbook backwards added up. */
template <class T> void check_bn_backward(const kernel_case &)
{
	const int images = 5, side = 4, channels = 16, pitch = 24, layers = 3;
	const size_t pixels = (size_t)(images * side * side);
	const std::vector<T> x = random_numbers<T>(pixels * pitch, 0.3, 1.2);
	const std::vector<T> full = random_numbers<T>(pixels * channels, 0, 1), quarter = random_numbers<T>(pixels / 4 * channels, 0, 1);
	const std::vector<float> global = random_numbers<float>((size_t)(images * channels), 0, 1);
	device_array<T> dx(x), dfull(full), dquarter(quarter), g(pixels * pitch), dz(pixels * channels);
	device_array<float> dglobal(global), partial(7 * 2 * channels), mean(channels), rstd(channels), square(channels);
	device_array<float> s1(channels), s2(channels), a(channels), b(channels), c(channels), slab(2 * layers * channels), private_slab(2 * channels);
	const int blocks = 7;
	check_device(channel_pass_launch(channel_sums<T>{ dx, pitch }, (long)pixels, channels, partial, blocks, nullptr), "channel_sums");

	std::vector<double> want(pixels * channels), private_want(pixels * channels), magnitude(pixels * channels);
	for (int layer = 0; layer < layers; layer++) {
		const std::vector<float> gamma = random_numbers<float>(channels, 1, 0.4), beta = random_numbers<float>(channels, 0, 0.4);
		device_array<float> dgamma(gamma), dbeta(beta), scale(channels), bias(channels);
		const bn_scale next = { dgamma, dbeta, mean, rstd, nullptr, scale, bias, square, nullptr, nullptr, 1, 1e-5f, 0, channels };
		if (layer == 0)
			check_device(bn_statistics_launch({ partial, mean, rstd, square, 1 / (double)pixels, 1e-5f, blocks, channels, channels, next, 0 }, nullptr), "bn_statistics");
		else
			check_device(per_channel_launch(bn_scale_kernel, next, nullptr), "bn_scale");
		const int first = layer == 0;
		auto finish = [&](float *to, float *sums1, float *sums2, float *ca, float *cb, float *cc) {
			check_device(bn_backward_sums_launch({ partial, dgamma, mean, rstd, to, to + channels, sums1, sums2, ca, cb, cc, nullptr, 1 / (double)pixels, 1, 0, first, blocks, channels,
			                                       0, layer == layers - 1 ? channels : 0 }, nullptr), "bn_backward_sums");
		};
		if (layer == 0) {
			bn_relu_backward<T, GRADIENT_FULL, false> alone = { dfull, dx, dz, scale, bias, dgamma, mean, rstd, channels, pitch, channels, side, 0 };
			check_device(channel_pass_launch(alone, (long)pixels, channels, partial, blocks, nullptr), "bn_relu_backward");
			finish(private_slab, nullptr, nullptr, a, b, c);
			check_device(channel_pass_launch(affine<T>{ dz, dx, a, b, c, channels, pitch }, (long)pixels, channels, nullptr, blocks, nullptr), "affine");
			bn_relu_backward<T, GRADIENT_FULL, true> op = { dfull, dx, g, scale, bias, dgamma, mean, rstd, channels, pitch, pitch, side, first };
			check_device(channel_pass_launch(op, (long)pixels, channels, partial, blocks, nullptr), "bn_relu_backward");
		} else if (layer == 1) {
			device_array<T> pooled(pixels / 4 * (size_t)channels), again(pixels / 4 * (size_t)channels);
			bn_relu_backward<T, GRADIENT_QUARTER, true> op = { dquarter, dx, g, scale, bias, dgamma, mean, rstd, channels, pitch, pitch, side / 2, first, again };
			check_device(channel_pass_launch(op, (long)pixels / 4, channels, partial, blocks, nullptr), "bn_relu_backward");
			const bn_relu<T, true> forward = { dx, pooled, scale, bias, pitch, channels, side / 2 };
			check_device(channel_pass_launch(forward, (long)pixels / 4, channels, nullptr, blocks, nullptr), "bn_relu");
			const std::vector<T> want_pooled = pooled.download(), got_pooled = again.download();
			if (memcmp(want_pooled.data(), got_pooled.data(), got_pooled.size() * sizeof(T)))
				give_up("the pooled activation that the backward pass makes again is another");
		} else {
			bn_relu_backward<T, GRADIENT_GLOBAL, true> op = { dglobal, dx, g, scale, bias, dgamma, mean, rstd, channels, pitch, pitch, side, first };
			check_device(channel_pass_launch(op, (long)pixels, channels, partial, blocks, nullptr), "bn_relu_backward");
		}
		finish(slab + 2 * layer * channels, s1, s2, a, b, c); /* with the last layer all corrections are due */

		/* textbook, this layer alone */
		const std::vector<float> got = slab.download(), used_scale = scale.download(), used_bias = bias.download();
		for (size_t k = 0; k < (size_t)channels; k++) {
			double sum = 0, squares = 0, beta_sum = 0, gamma_sum = 0, terms = 0;
			for (size_t m = 0; m < pixels; m++) {
				sum += value(x, m * pitch + k);
				squares += value(x, m * pitch + k) * value(x, m * pitch + k);
			}
			const double mu = sum / (double)pixels, r = 1 / std::sqrt(squares / (double)pixels - mu * mu + 1e-5);
			std::vector<double> d(pixels), normal(pixels);
			for (size_t m = 0; m < pixels; m++) {
				const size_t image = m / 16, row = m % 16 / 4, column = m % 4;
				const double in = layer == 0   ? value(full, m * channels + k)
				                  : layer == 1 ? value(quarter, (image * 4 + row / 2 * 2 + column / 2) * channels + k) / 4
				                               : global[image * channels + k] / 16;
				normal[m] = (value(x, m * pitch + k) - mu) * r;
				d[m] = fmaf(to_float(x[m * pitch + k]), used_scale[k], used_bias[k]) > 0 ? in : 0;
				beta_sum += d[m];
				gamma_sum += d[m] * normal[m];
				terms += std::fabs(d[m]) * (1 + std::fabs(normal[m]));
			}
			expect_near(got[(size_t)(2 * layer * channels) + k], gamma_sum, 3e-5 * terms + 1e-9, "layer %d dgamma[%zu]", layer, k);
			expect_near(got[(size_t)((2 * layer + 1) * channels) + k], beta_sum, SUMS * terms + 1e-9, "layer %d dbeta[%zu]", layer, k);
			for (size_t m = 0; m < pixels; m++) {
				const double part = gamma[k] * r * (d[m] - beta_sum / (double)pixels - normal[m] * gamma_sum / (double)pixels);
				want[m * channels + k] += part;
				magnitude[m * channels + k] += std::fabs(gamma[k] * r) * (std::fabs(d[m]) + terms / (double)pixels * (1 + std::fabs(normal[m])));
				if (layer == 0)
					private_want[m * channels + k] = part;
			}
		}
		if (layer == 0) {
			const std::vector<T> got_private = dz.download();
			for (size_t i = 0; i < private_want.size(); i++)
				expect_near(value(got_private, i), private_want[i], 2 * half_ulp<T>(magnitude[i]) + 3e-5 * magnitude[i], "private dx[%zu]", i);
		}
	}
	check_device(channel_pass_launch(affine<T>{ g, dx, a, b, c, pitch, pitch }, (long)pixels, channels, nullptr, blocks, nullptr), "affine");
	const std::vector<T> got = g.download();
	for (size_t m = 0; m < pixels; m++)
		for (size_t k = 0; k < (size_t)channels; k++) {
			const double scale = magnitude[m * channels + k]; /* g is rounded once a layer, then at the end */
			expect_near(value(got, m * pitch + k), want[m * channels + k], (layers + 2) * half_ulp<T>(scale) + 3e-5 * scale, "shared dx[%zu][%zu]", m, k);
		}
}

/* ---- stem ---- */

template <class T> void check_maxpool(const kernel_case &)
{
	for (int side : { 1, 2, 4, 7 }) { /* even and odd maps */
		const int images = 2, channels = 16, pitch = 24, pooled = (side + 1) / 2, blocks = 3;
		const size_t pixels = (size_t)(images * side * side), pooled_pixels = (size_t)(images * pooled * pooled);
		const std::vector<T> x = random_numbers<T>(pixels * channels, 0, 1), gradient = random_numbers<T>(pooled_pixels * pitch, 0, 1);
		/* positive scales, so that there are ties only among zeros, where the mask settles it */
		std::vector<float> scale(channels), bias = random_numbers<float>(channels, 0, 0.5), mean = random_numbers<float>(channels, 0, 0.2), rstd(channels, 0.9f);
		for (float &v : scale)
			v = (float)random_uniform(0.5, 1.5);
		device_array<T> dx(x), out(pooled_pixels * pitch), dgradient(gradient), dz(pixels * channels);
		device_array<uint8_t> place(pooled_pixels * channels);
		device_array<float> dscale(scale), dbias(bias), dmean(mean), drstd(rstd), partial(blocks * 2 * channels), sums(2 * channels);
		check_device(channel_pass_launch(bn_relu_maxpool<T>{ dx, out, place, dscale, dbias, side, channels, pitch }, (long)pooled_pixels, channels, nullptr, blocks, nullptr), "bn_relu_maxpool");
		check_device(channel_pass_launch(bn_relu_maxpool_backward<T>{ dx, dgradient, place, dz, dmean, drstd, side, channels, pitch }, (long)pooled_pixels, channels,
		                                 partial, blocks, nullptr), "bn_relu_maxpool_backward");
		check_device(reduce_partials_launch({ partial, sums, 2 * channels, 2 * channels, blocks, 1, 0 }, nullptr), "reduce_partials");
		const std::vector<T> got = out.download(), got_dz = dz.download();
		const std::vector<float> totals = sums.download();
		std::vector<double> want(pixels * channels), activation(pixels * channels);
		for (size_t i = 0; i < activation.size(); i++) {
			const float z = fmaf(to_float(x[i]), scale[i % channels], bias[i % channels]);
			activation[i] = to_float(from_float<T>(z > 0 ? z : 0));
		}
		for (int image = 0; image < images; image++)
			for (int row = 0; row < pooled; row++)
				for (int column = 0; column < pooled; column++)
					for (size_t c = 0; c < (size_t)channels; c++) {
						size_t best = 0, to = (size_t)((image * pooled + row) * pooled + column);
						double most = -1;
						for (int r = 2 * row - 1; r <= 2 * row + 1; r++)
							for (int k = 2 * column - 1; k <= 2 * column + 1; k++) {
								const size_t at = (size_t)((image * side + r) * side + k) * channels + c;
								if (r >= 0 && r < side && k >= 0 && k < side && activation[at] > most) {
									most = activation[at];
									best = at;
								}
							}
						expect_near(value(got, to * pitch + c), most, 1e-9, "side %d pooled (%d, %d) channel %zu", side, row, column, c);
						if (most > 0)
							want[best] += value(gradient, to * pitch + c);
					}
		for (size_t i = 0; i < want.size(); i++)
			expect_near(value(got_dz, i), want[i], 1.001 * half_ulp<T>(want[i]) + 1e-6, "side %d dz[%zu]", side, i);
		for (size_t c = 0; c < (size_t)channels; c++) {
			double beta = 0, gamma = 0;
			for (size_t m = 0; m < pixels; m++) {
				beta += want[m * channels + c];
				gamma += want[m * channels + c] * (value(x, m * channels + c) - mean[c]) * rstd[c];
			}
			expect_near(totals[c], beta, 1e-4, "side %d dbeta[%zu]", side, c);
			expect_near(totals[(size_t)channels + c], gamma, 1e-4, "side %d dgamma[%zu]", side, c);
		}
	}
	/* NaN is greater than all, before it and behind it: the middle of a map of 3 × 3 is in every window */
	std::vector<T> x = random_numbers<T>(9 * 8, 0, 1);
	for (size_t c = 0; c < 8; c++)
		x[4 * 8 + c] = from_float<T>(NAN);
	device_array<T> dx(x), out(4 * 8);
	device_array<uint8_t> place(4 * 8);
	device_array<float> one(std::vector<float>(8, 1));
	check_device(channel_pass_launch(bn_relu_maxpool<T>{ dx, out, place, one, one, 3, 8, 8 }, 4, 8, nullptr, 1, nullptr), "bn_relu_maxpool");
	const std::vector<T> got = out.download();
	const std::vector<uint8_t> got_place = place.download();
	for (size_t i = 0; i < got.size(); i++)
		if (value(got, i) == value(got, i) || got_place[i] != (i / 16 ? 2 : 8) - (i / 8 % 2 ? 2 : 0))
			give_up("pooled pixel %zu beside NaN: %g of place %d", i / 8, value(got, i), got_place[i]);
}

template <class T> void check_images(const kernel_case &)
{
	for (int channels : { 1, 3 }) {
		const int images = 3, source = 9, side = 6;
		std::vector<uint8_t> pixels((size_t)(images * source * source * channels));
		for (uint8_t &p : pixels)
			p = (uint8_t)random_bits();
		device_array<uint8_t> dpixels(pixels);
		const size_t image = (size_t)(source * source * channels);
		const std::vector<image_window> windows = { { dpixels, 0, 0, 0 }, { dpixels + image, 3, 1, 1 }, { dpixels + 2 * image, 2, 3, 0 } };
		device_array<image_window> dwindows(windows);
		device_array<T> out((size_t)(images * side * side) * 8);
		gather_images<T> op = { dwindows, out, { 0.017f, 0.0175f, 0.0174f }, { -2.1f, -2.0f, -1.8f }, source, side, channels };
		check_device(channel_pass_launch(op, images * side * side, 8, nullptr, 2, nullptr), "gather_images");
		const std::vector<T> got = out.download();
		for (int n = 0; n < images; n++)
			for (int row = 0; row < side; row++)
				for (int column = 0; column < side; column++)
					for (int c = 0; c < 8; c++) {
						const int from = windows[(size_t)n].x + (windows[(size_t)n].flip ? side - 1 - column : column);
						const size_t at = (size_t)((n * source + windows[(size_t)n].y + row) * source + from) * (size_t)channels + (size_t)(channels == 3 ? c : 0);
						const double want = c < 3 ? (double)op.scale[c] * pixels[at] + (double)op.bias[c] : 0;
						expect_near(value(got, (size_t)((n * side + row) * side + column) * 8 + (size_t)c), want, 1.001 * half_ulp<T>(want) + 1e-6,
						            "image %d (%d, %d) channel %d of %d", n, row, column, c, channels);
					}
	}
}

/* ---- head ---- */

double logistic_loss(double x, int positive)
{
	return (positive ? std::fmax(-x, 0) : std::fmax(x, 0)) + std::log1p(std::exp(-std::fabs(x)));
}

template <class T> void check_head(const kernel_case &)
{
	static const struct {
		int images, map, channels, pitch, classes, softmax;
	} shapes[] = { { 5, 9, 72, 80, 14, 0 }, { 5, 9, 72, 80, 14, 1 }, { 1, 4, 8, 8, 2, 1 }, { 75, 4, 328, 328, 14, 0 } /* more labels than the loss has threads, and channels than a warp has at once */,
		       { 43, 4, 136, 144, 130, 1 } /* more images than the loss has warps, classes that share images */ };
	for (const auto &s : shapes) {
		const int images = s.images, map = s.map, channels = s.channels, pitch = s.pitch, classes = s.classes, softmax = s.softmax;
		const std::vector<T> x = random_numbers<T>((size_t)(images * map * pitch), 0.2, 1);
		const std::vector<float> scale = random_numbers<float>(channels, 1, 0.3), bias = random_numbers<float>(channels, 0, 0.3);
		const std::vector<float> weight = random_numbers<float>((size_t)(classes * channels), 0, 0.3);
		std::vector<float> offset = random_numbers<float>(classes, 0, 2);
		for (int k = 64; k < classes; k++)
			offset[(size_t)k] += k % 32 < 16 ? 100 : 0; /* what no exponential holds, and some lanes do not have */
		std::vector<uint32_t> labels(images), known(images);
		std::vector<float> image_weight(images), pos_weight(classes);
		for (int n = 0; n < images; n++) {
			labels[(size_t)n] = (uint32_t)(softmax ? random_bits() % classes : random_bits());
			known[(size_t)n] = (uint32_t)random_bits();
			image_weight[(size_t)n] = (float)random_uniform(0, 2);
		}
		for (float &w : pos_weight)
			w = (float)random_uniform(0.5, 3);
		device_array<T> dx(x);
		device_array<float> dscale(scale), dbias(bias), dweight(weight), doffset(offset), dimage(image_weight), dpos(pos_weight);
		device_array<uint32_t> dlabels(labels), dknown(known);
		device_array<float> pooled((size_t)(images * channels)), logits((size_t)(images * classes)), dlogits((size_t)(images * classes)), loss(1), scales(std::vector<float>{ 4, 0.5f });
		device_array<float> grad_weight(weight.size()), grad_bias(classes), dpooled((size_t)(images * channels));
		check_device(head_pool_launch(head_pool<T>{ dx, dscale, dbias, pooled, images, map, channels, pitch }, nullptr), "head_pool");
		check_device(head_logits_launch({ pooled, dweight, doffset, logits, images, channels, classes }, nullptr), "head_logits");
		const head_loss l = { logits, dlabels, softmax ? (uint32_t *)nullptr : dknown, dimage, softmax ? (float *)nullptr : dpos, dlogits, loss, scales, 0.5f, images, classes, softmax, 0 };
		check_device(head_loss_launch(l, nullptr), "head_loss");
		check_device(head_backward_launch({ dlogits, pooled, dweight, grad_weight, grad_bias, dpooled, scales + 1, 0.5f, images, channels, classes, 0 }, nullptr), "head_backward");

		const std::vector<float> got_logits = logits.download(), got_dlogits = dlogits.download(), got_loss = loss.download(), got_dpooled = dpooled.download();
		const std::vector<float> got_weight = grad_weight.download(), got_bias = grad_bias.download();
		std::vector<double> pool((size_t)(images * channels)), want((size_t)(images * classes)), dwant(want.size());
		for (size_t i = 0; i < pool.size(); i++) {
			const size_t n = i / channels, c = i % channels;
			for (size_t m = 0; m < (size_t)map; m++)
				pool[i] += std::fmax(0, value(x, (n * map + m) * pitch + c) * scale[c] + (double)bias[c]) / map;
		}
		double total = 0;
		for (size_t n = 0; n < (size_t)images; n++) {
			double most = -1e30, sum = 0;
			for (size_t k = 0; k < (size_t)classes; k++) {
				double &logit = want[n * classes + k];
				logit = offset[k];
				for (size_t c = 0; c < (size_t)channels; c++)
					logit += pool[n * channels + c] * weight[k * channels + c];
				expect_near(got_logits[n * classes + k], logit, 2e-5, "logit of image %zu class %zu", n, k);
				most = std::fmax(most, logit);
			}
			for (size_t k = 0; k < (size_t)classes; k++)
				sum += std::exp(want[n * classes + k] - most);
			for (size_t k = 0; k < (size_t)classes; k++) {
				const double logit = want[n * classes + k];
				if (softmax) {
					dwant[n * classes + k] = 4.0 / images * image_weight[n] * (std::exp(logit - most) / sum - (labels[n] == k));
					total += labels[n] == k ? image_weight[n] * (most + std::log(sum) - logit) / images : 0;
				} else {
					const int positive = labels[n] >> k & 1;
					const double w = image_weight[n] * (known[n] >> k & 1) * (positive ? pos_weight[k] : 1);
					dwant[n * classes + k] = 4.0 / (images * classes) * w * (1 / (1 + std::exp(-logit)) - positive);
					total += w * logistic_loss(logit, positive) / (images * classes);
				}
				expect_near(got_dlogits[n * classes + k], dwant[n * classes + k], 2e-5, "dlogit of image %zu class %zu, softmax %d", n, k, softmax);
			}
		}
		expect_near(got_loss[0], 0.5 * total, 1e-5 * (1 + total), "loss, softmax %d", softmax);
		for (size_t k = 0; k < (size_t)classes; k++) {
			double sum = 0;
			for (size_t n = 0; n < (size_t)images; n++)
				sum += dwant[n * classes + k];
			expect_near(got_bias[k], 0.25 * sum, 1e-5, "gradient of bias %zu", k);
			for (size_t c = 0; c < (size_t)channels; c++) {
				double product = 0;
				for (size_t n = 0; n < (size_t)images; n++)
					product += dwant[n * classes + k] * pool[n * channels + c];
				expect_near(got_weight[k * channels + c], 0.25 * product, 2e-5, "gradient of weight %zu, %zu", k, c);
			}
		}
		for (size_t n = 0; n < (size_t)images; n++)
			for (size_t c = 0; c < (size_t)channels; c++) {
				double sum = 0;
				for (size_t k = 0; k < (size_t)classes; k++)
					sum += dwant[n * classes + k] * weight[k * channels + c];
				expect_near(got_dpooled[n * channels + c], sum, 5e-5, "gradient of pool %zu, %zu", n, c);
			}
	}
}

/* ---- optimiser ---- */

template <class T> void check_update(const kernel_case &)
{
	/* In padded order, each group with a gap behind it: a bias, a convolution 6 × 3 × 3 × 3 padded to 8 input channels, a 1×1 that needs two blocks, a 1×1 whose
	 * copy is padded. */
	const struct {
		weight_group group;
		size_t outputs;
	} all[] = { { { 0, 5, NO_COPY, 0, 0, 0, 0 }, 0 }, { { 16, 6 * 3 * 9, 0, 3, 8, 9, 1 }, 6 }, { { 192, 72 * 16, 6 * 9 * 8, 16, 16, 1, 1 }, 72 }, { { 1344, 6 * 3, 6 * 9 * 8 + 72 * 16, 3, 8, 1, 1 }, 6 } };
	const size_t count = 1344 + 32, copies = 6 * 9 * 8 + 72 * 16 + 6 * 8;
	std::vector<weight_group> groups;
	std::vector<uint32_t> block_group, block_first;
	for (const auto &one : all) {
		for (uint32_t first = 0; first < one.group.count; first += UPDATE_BLOCK) {
			block_group.push_back((uint32_t)groups.size());
			block_first.push_back(first);
		}
		groups.push_back(one.group);
	}
	const unsigned blocks = (unsigned)block_group.size();
	for (int sgd = 0; sgd < 2; sgd++) {
		std::vector<float> weights = random_numbers<float>(count, 0, 1), gradients = random_numbers<float>(count, 0, 1);
		device_array<float> w(weights), m(std::vector<float>(count, 0)), v(std::vector<float>(count, 0)), g(gradients);
		device_array<weight_group> dgroups(groups);
		device_array<uint32_t> dblock_group(block_group), dblock_first(block_first);
		device_array<T> copy(std::vector<T>(copies, from_float<T>(0)));
		device_array<update_step> step(1);
		device_array<step_gate> gate(std::vector<step_gate>(1));
		update p = { w, m, v, g, dgroups, dblock_group, dblock_first, step, gate, (T *)copy, 0.9f, 0.999f, 1e-8f, 0.01f, sgd, 0 };
		std::vector<double> want(weights.begin(), weights.end()), m1(count), m2(count);
		for (int t = 1; t <= 3; t++) {
			const update_step now = { 0.01f, 1 - std::pow(0.9f, (float)t), 1 - std::pow(0.999f, (float)t) };
			check_device(device_upload(step, &now, sizeof now, nullptr), "upload");
			check_device(launch(update_kernel<T>, blocks, UPDATE_THREADS, 0, nullptr, p), "update");
			for (const weight_group &group : groups)
				for (size_t i = group.offset; i < group.offset + group.count; i++) {
					const double gradient = gradients[i] + (group.decays ? 0.01 * want[i] : 0);
					m1[i] = sgd ? 0.9 * m1[i] + gradient : 0.9 * m1[i] + 0.1 * gradient;
					m2[i] = sgd ? 0 : 0.999 * m2[i] + 0.001 * gradient * gradient;
					want[i] -= sgd ? 0.01 * m1[i] : 0.01 * m1[i] / (1 - std::pow(0.9, t)) / (std::sqrt(m2[i] / (1 - std::pow(0.999, t))) + 1e-8);
				}
		}
		/* what lies between the groups stays as it was */
		const std::vector<float> got = w.download(), got_m1 = m.download(), got_m2 = v.download();
		const std::vector<T> got_copy = copy.download();
		for (size_t i = 0; i < count; i++) {
			expect_near(got[i], want[i], 2e-6 * (1 + std::fabs(want[i])) + 3e-6, "weight %zu, sgd %d", i, sgd);
			expect_near(got_m1[i], m1[i], 1e-5 * std::fabs(m1[i]) + (m1[i] != 0 ? 1e-6 : 1e-30), "first moment %zu, sgd %d", i, sgd);
			expect_near(got_m2[i], m2[i], 1e-4 * m2[i] + 1e-30, "second moment %zu, sgd %d", i, sgd); /* 1 - 0.999f is 0.001 to 2e-5 */
		}
		std::vector<double> want_copy(copies);
		for (const auto &one : all)
			for (size_t out = 0; out < one.outputs; out++)
				for (size_t c = 0; c < one.group.c_in; c++)
					for (size_t tap = 0; tap < one.group.taps; tap++)
						want_copy[one.group.copy + (out * one.group.taps + tap) * one.group.c_padded + c] =
							to_float(from_float<T>(got[one.group.offset + (out * one.group.c_in + c) * one.group.taps + tap]));
		for (size_t i = 0; i < copies; i++)
			expect_near(value(got_copy, i), want_copy[i], 1e-12, "copy %zu", i);

		const step_gate closed = { 1, 0 };
		check_device(device_upload(gate, &closed, sizeof closed, nullptr), "upload");
		check_device(launch(update_kernel<T>, blocks, UPDATE_THREADS, 0, nullptr, p), "update");
		const std::vector<float> after = w.download();
		for (size_t i = 0; i < count; i++)
			expect_near(after[i], got[i], 1e-30, "weight %zu behind a closed gate", i);
		/* weights put by hand: only the copy, whatever the gate says of steps */
		p.gate = nullptr;
		p.copy_only = 1;
		check_device(device_upload(w, weights.data(), count * sizeof(float), nullptr), "upload");
		check_device(launch(update_kernel<T>, blocks, UPDATE_THREADS, 0, nullptr, p), "update");
		const std::vector<float> put = w.download();
		const std::vector<T> put_copy = copy.download();
		for (size_t i = 0; i < count; i++)
			expect_near(put[i], weights[i], 1e-30, "weight %zu put by hand", i);
		for (size_t i = 0; i < 72 * 16; i++)
			expect_near(value(put_copy, 6 * 9 * 8 + i), to_float(from_float<T>(weights[192 + i])), 1e-30, "copy of weight %zu put by hand", i);
	}
	/* the way back: gradients of the copy, in one part and in many, to the slab's order */
	const size_t outputs = 62;
	for (int parts : { 1, 2, 16, 37, 150 }) { /* by one warp, by two, by eight, by all of a block, which wait twice */
		const size_t part = outputs * 9 * 8;
		const std::vector<float> partial = random_numbers<float>((size_t)parts * part, 0, 1);
		device_array<float> dpartial(partial), out(std::vector<float>(outputs * 3 * 9, 10)), unscale(std::vector<float>(1, 0.25f));
		check_device(weight_gradient_launch({ dpartial, out, unscale, 0.5f, (int)outputs, 3, 8, 9, parts, 1 }, nullptr), "weight_gradient");
		const std::vector<float> got = out.download();
		for (size_t k = 0; k < outputs; k++)
			for (size_t c = 0; c < 3; c++)
				for (size_t tap = 0; tap < 9; tap++) {
					double want = 0;
					for (size_t at = (k * 9 + tap) * 8 + c; at < partial.size(); at += part)
						want += partial[at];
					expect_near(got[(k * 3 + c) * 9 + tap], 10 + 0.125 * want, 1e-5, "gradient %zu, %zu, %zu of %d parts", k, c, tap, parts);
				}
	}
}

/* The folded stem, forward and back, must be the 7 × 7 convolution of three equal normalised channels. */
template <class T> void check_gray_stem(const kernel_case &)
{
	for (int size : { 10, 13 }) {
		const int images = 3, source = 16, out = 8, h = (size + 1) / 2, side = h + GRAY_BORDER;
		std::vector<uint8_t> bytes((size_t)(images * source * source));
		for (uint8_t &b : bytes)
			b = (uint8_t)random_bits();
		bytes[0] = 0;
		bytes[1] = 255;
		device_array<uint8_t> dbytes(bytes);
		const size_t image = (size_t)(source * source);
		const std::vector<image_window> windows = { { dbytes, 0, 0, 0 }, { dbytes + image, 3, 1, 1 }, { dbytes + 2 * image, 2, 3, 0 } };
		const std::vector<float> weight = random_numbers<float>((size_t)(out * 3 * 49), 0, 0.1);
		const std::vector<T> gradient = random_numbers<T>((size_t)(images * h * h * out), 0, 1);
		const gray_fold fold = gray_fold_make();
		device_array<image_window> dwindows(windows);
		const int parts = 2 * UNFOLD_GROUPS + 3; /* of three images: some have nothing */
		device_array<float> dweight(weight), partial((size_t)(parts * out * 16 * 8)), dw(std::vector<float>(weight.size(), 10)), unscale(std::vector<float>(1, 0.5f));
		device_array<T> map((size_t)(images * side * side * 8)), copy((size_t)(out * 16 * 8)), y((size_t)(images * h * h * out)), dgradient(gradient);
		const convolution_shape shape = { images, side, h, 8, out, GRAY_TAPS, 1, 0, 8, out };
		check_device(channel_pass_launch(gather_gray<T>{ dwindows, map, source, size, side }, images * side * side, 8, nullptr, 3, nullptr), "gather_gray");
		check_device(fold_weight_launch<T>({ dweight, copy, fold, out }, nullptr), "fold_weight");
		check_device(convolution_forward<T>({ shape, map, copy, nullptr, y, nullptr, 1 }, nullptr), "convolution_forward");
		check_device(convolution_weight<T>({ shape, map, nullptr, dgradient, nullptr, partial, parts }, nullptr), "convolution_weight");
		check_device(unfold_gradient_launch({ partial, dw, unscale, fold, 0.5f, out, parts, 1 }, nullptr), "unfold_gradient");
		const std::vector<T> got = y.download();
		const std::vector<float> got_dw = dw.download();
		std::vector<double> dw_want(weight.size()), dw_size(weight.size());
		for (size_t o = 0; o < got.size(); o++) {
			const int k = (int)o % out, column = (int)o / out % h, row = (int)o / out / h % h, n = (int)o / out / h / h;
			double want = 0, magnitude = 0;
			for (int tap = 0; tap < 49; tap++) {
				const int r = 2 * row - 3 + tap / 7, c = 2 * column - 3 + tap % 7;
				if (r < 0 || r >= size || c < 0 || c >= size)
					continue;
				const image_window w = windows[(size_t)n];
				const double pixel = bytes[(size_t)((n * source + w.y + r) * source + w.x + (w.flip ? size - 1 - c : c))] / 255.0;
				for (int channel = 0; channel < 3; channel++) {
					const size_t at = (size_t)((k * 3 + channel) * 49 + tap);
					const double x = (pixel - pixel_mean[channel]) / pixel_deviation[channel];
					want += x * weight[at];
					magnitude += (std::fabs(x) + 1) * std::fabs(weight[at]);
					dw_want[at] += x * value(gradient, o);
					dw_size[at] += (std::fabs(x) + 1) * std::fabs(value(gradient, o));
				}
			}
			expect_near(value(got, o), want, half_ulp<T>(1) * magnitude + half_ulp<T>(want) + 1e-6 * magnitude, "size %d, image %d (%d, %d) channel %d", size, n, row, column, k);
		}
		for (size_t i = 0; i < weight.size(); i++) /* neither the map nor the sums are rounded to T */
			expect_near(got_dw[i], 10 + 0.25 * dw_want[i], 2e-6 * (10 + dw_size[i]), "size %d, gradient %zu", size, i);
	}
}

/* A step that overflows is skipped and halves the scale; `patience` steps that do not double it; what is not finite is found
 * wherever it is. */
void check_loss_scale(const kernel_case &)
{
	const size_t count = 8 * 2500; /* more than the blocks of one multiprocessor have threads */
	const float bad[] = { INFINITY, -INFINITY, NAN };
	struct expected {
		double scale;
		uint64_t steps, skipped;
		uint32_t good;
	} want = { 1024, 10, 3, 0 };
	device_array<loss_scale> state(std::vector<loss_scale>(1, { 1024, 1 / 1024.f, 0, 0, 2, 10, 3 }));
	device_array<update_step> step(std::vector<update_step>(1, { 0.01f, 5, 5 }));
	device_array<int> stop(std::vector<int>(1, 0));
	device_array<step_gate> gate(std::vector<step_gate>(1));
	device_array<float> gradients(count);
	for (int i = 0; i < 12; i++) {
		std::vector<float> values = random_numbers<float>(count, 0, 1e30);
		const int overflows = i % 4 == 0, stopped = i == 10; /* after one that was made */
		const size_t where = i == 0 ? 0 : i == 4 ? count - 1 : (size_t)(random_bits() % count);
		if (overflows || stopped)
			values[where] = bad[i % 3];
		check_device(device_upload(gradients, values.data(), count * sizeof(float), nullptr), "upload");
		check_device(device_upload(stop, &stopped, sizeof stopped, nullptr), "upload");
		check_device(find_overflow_launch({ gradients, count, state }, 1, nullptr), "find_overflow");
		check_device(launch(settle_step_kernel, 1, SETTLE_THREADS, 0, nullptr, settle_step{ gate, stop, state, step, 0.9, 0.999 }), "settle_step");
		if (overflows) {
			want.scale /= 2;
			want.skipped++;
			want.good = 0;
		} else if (!stopped) {
			want.steps++;
			want.good = (want.good + 1) % 2;
			want.scale *= want.good ? 1 : 2;
			expect_near(step.download()[0].correction1, 1 - std::pow(0.9, (double)want.steps), 1e-6, "Adam's first correction in round %d", i);
			expect_near(step.download()[0].correction2, 1 - std::pow(0.999, (double)want.steps), 1e-6, "Adam's second correction in round %d", i);
		}
		const loss_scale got = state.download()[0];
		expect_near(got.scale, want.scale, 1e-30, "scale in round %d", i);
		expect_near(got.unscale, 1 / want.scale, 1e-30, "its inverse in round %d", i);
		expect_near((double)got.steps, (double)want.steps, 1e-30, "steps in round %d", i);
		expect_near((double)got.skipped, (double)want.skipped, 1e-30, "skipped steps in round %d", i);
		expect_near((double)got.good, (double)want.good, 1e-30, "good steps in round %d", i);
		expect_near(got.overflow, 0, 1e-30, "the flag in round %d", i);
		expect_near(gate.download()[0].closed, overflows || stopped, 1e-30, "whether round %d is skipped", i);
		expect_near((double)gate.download()[0].passed, i + 1 - (i >= 10), 1e-30, "steps that nobody stopped in round %d", i);
	}
}

/* ---- plain convolutions ---- */

template <class T> void check_convolution(const kernel_case &)
{
	const convolution_shape shapes[] = { { 2, 7, 4, 8, 16, 7, 2, 3, 8, 24 }, { 3, 5, 5, 16, 8, 3, 1, 1, 24, 16 }, { 2, 4, 4, 24, 8, 1, 1, 0, 40, 8 }, { 1, 6, 3, 8, 8, 1, 2, 0, 8, 8 } };
	for (const convolution_shape &s : shapes) {
		const size_t in_count = (size_t)(s.images * s.h_in * s.h_in), out_count = (size_t)(s.images * s.h_out * s.h_out), taps = (size_t)(s.kernel * s.kernel);
		const std::vector<T> in = random_numbers<T>(in_count * (size_t)s.in_pitch, 0.1, 1), gradient = random_numbers<T>(out_count * (size_t)s.out_pitch, 0, 1);
		const std::vector<T> weight = random_numbers<T>((size_t)s.c_out * taps * (size_t)s.c_in, 0, 0.3);
		device_array<T> din(in), dgradient(gradient), dweight(weight), out(out_count * (size_t)s.out_pitch), back(in_count * (size_t)s.in_pitch);
		device_array<float> partial(2 * weight.size()), total(weight.size());
		check_device(convolution_forward<T>({ s, din, dweight, nullptr, out, nullptr, 1 }, nullptr), "convolution_forward");
		check_device(convolution_data<T>({ s, nullptr, dweight, dgradient, back, nullptr, 1 }, nullptr), "convolution_data");
		check_device(convolution_weight<T>({ s, din, nullptr, dgradient, nullptr, partial, 2 }, nullptr), "convolution_weight");
		check_device(reduce_partials_launch({ partial, total, weight.size(), weight.size(), 2, 1, 0 }, nullptr), "reduce_partials");
		std::vector<double> want(out_count * (size_t)s.c_out), want_back(in_count * (size_t)s.c_in), want_weight(weight.size());
		for (size_t o = 0; o < out_count; o++)
			for (size_t tap = 0; tap < taps; tap++) {
				const int h = s.h_out, row = (int)(o / (size_t)h) % h * s.stride - s.pad + (int)tap / s.kernel, column = (int)o % h * s.stride - s.pad + (int)tap % s.kernel;
				if (row < 0 || row >= s.h_in || column < 0 || column >= s.h_in)
					continue;
				const size_t i = (o / (size_t)(h * h) * (size_t)s.h_in + (size_t)row) * (size_t)s.h_in + (size_t)column;
				for (size_t k = 0; k < (size_t)s.c_out; k++)
					for (size_t c = 0; c < (size_t)s.c_in; c++) {
						const double x = value(in, i * (size_t)s.in_pitch + c), w = value(weight, (k * taps + tap) * (size_t)s.c_in + c);
						const double g = value(gradient, o * (size_t)s.out_pitch + k);
						want[o * (size_t)s.c_out + k] += x * w;
						want_back[i * (size_t)s.c_in + c] += g * w;
						want_weight[(k * taps + tap) * (size_t)s.c_in + c] += g * x;
					}
			}
		const std::vector<T> got = out.download(), got_back = back.download();
		const std::vector<float> got_weight = total.download();
		for (size_t i = 0; i < want.size(); i++)
			expect_near(value(got, i / (size_t)s.c_out * (size_t)s.out_pitch + i % (size_t)s.c_out), want[i], 1.001 * half_ulp<T>(want[i]) + 1e-4, "%d×%d forward %zu", s.kernel, s.kernel, i);
		for (size_t i = 0; i < want_back.size(); i++)
			expect_near(value(got_back, i / (size_t)s.c_in * (size_t)s.in_pitch + i % (size_t)s.c_in), want_back[i], 1.001 * half_ulp<T>(want_back[i]) + 1e-4, "%d×%d data %zu", s.kernel, s.kernel, i);
		for (size_t i = 0; i < want_weight.size(); i++)
			expect_near(got_weight[i], want_weight[i], 1e-4, "%d×%d weight %zu", s.kernel, s.kernel, i);
	}
}

#ifdef __CUDACC__

/* Block 1's map with all its channels, batch 256. */
template <class T> void time_bn_relu(const kernel_case &)
{
	const long pixels = 256L * 3136;
	const int channels = 256;
	device_array<T> x((size_t)pixels * channels), out((size_t)pixels * channels);
	const std::vector<T> noise = random_numbers<T>(1 << 20, 0, 1);
	for (size_t at = 0; at < (size_t)pixels * channels; at += noise.size())
		check_device(device_upload(x + at, noise.data(), std::min(noise.size(), (size_t)pixels * channels - at) * sizeof(T), nullptr), "upload");
	device_array<float> scale(random_numbers<float>(channels, 1, 0.3)), bias(random_numbers<float>(channels, 0, 0.3));
	const bn_relu<T, false> op = { x, out, scale, bias, channels, channels, 0 };
	report_rate(median_us(1, [&](int, device_stream stream) { check_device(channel_pass_launch(op, pixels, channels, nullptr, 8 * device_sms(), stream), "bn_relu"); }), 4.0 * (double)pixels * channels);
}

template <class T> void time_channel_sums(const kernel_case &)
{
	const long pixels = 256L * 3136;
	const int channels = 256, blocks = 8 * device_sms();
	device_array<T> x((size_t)pixels * channels);
	const std::vector<T> noise = random_numbers<T>(1 << 20, 0, 1);
	for (size_t at = 0; at < (size_t)pixels * channels; at += noise.size())
		check_device(device_upload(x + at, noise.data(), std::min(noise.size(), (size_t)pixels * channels - at) * sizeof(T), nullptr), "upload");
	device_array<float> partial((size_t)blocks * 2 * channels);
	report_rate(median_us(1, [&](int, device_stream stream) { check_device(channel_pass_launch(channel_sums<T>{ x, channels }, pixels, channels, partial, blocks, stream), "channel_sums"); }),
	            2.0 * (double)pixels * channels);
}

#endif

template <class T> void add_type(std::vector<kernel_case> &cases)
{
	const std::string type = std::string(":") + type_name<T>();
	cases.push_back({ "statistics" + type, check_statistics<T>, nullptr, 0 });
	cases.push_back({ "bn_relu" + type, check_bn_relu<T>, nullptr, 0 });
	cases.push_back({ "bn_backward" + type, check_bn_backward<T>, nullptr, 0 });
	cases.push_back({ "maxpool" + type, check_maxpool<T>, nullptr, 0 });
	cases.push_back({ "images" + type, check_images<T>, nullptr, 0 });
	cases.push_back({ "gray_stem" + type, check_gray_stem<T>, nullptr, 0 });
	cases.push_back({ "head" + type, check_head<T>, nullptr, 0 });
	cases.push_back({ "update" + type, check_update<T>, nullptr, 0 });
	cases.push_back({ "convolution" + type, check_convolution<T>, nullptr, 0 });
}

} // namespace

void add_elementwise_cases(std::vector<kernel_case> &cases)
{
	add_type<float>(cases);
	add_type<bf16>(cases);
	add_type<fp16>(cases);
	cases.push_back({ "loss_scale", check_loss_scale, nullptr, 0 });
#ifdef __CUDACC__
	cases.push_back({ "bn_relu:bf16:block1", nullptr, time_bn_relu<bf16>, 0 });
	cases.push_back({ "channel_sums:bf16:block1", nullptr, time_channel_sums<bf16>, 0 });
#endif
}

/* SPDX-License-Identifier: Apache-2.0
 * Forward and backward of a network as a sequence of kernels on one stream. Every launch goes through `rc`: after the
 * first failure nothing more is launched. */
#ifndef CUDA_STEP_H
#define CUDA_STEP_H

#include <utility>
#include <vector>

#include "batchnorm.h"
#include "conv1x1_backward.h"
#include "conv3x3_backward.h"
#include "conv3x3_forward.h"
#include "convolution.h"
#include "gray_stem.h"
#include "head.h"
#include "images.h"
#include "loss_scale.h"
#include "maxpool.h"
#include "network.h"
#include "reduce.h"
#include "residual.h"

/* How the fused kernels are cut: for the 227 KiB of shared memory that a block has on an H100, and for the 163 on an A100. */
struct large_tiles {
	typedef conv1x1_forward_shape<128, 3, false> forward_1x1;
	typedef conv1x1_backward_shape<64, 2, 16, true, true> backward_1x1;
	typedef conv3x3_forward_shape<128, 32, 2> forward_3x3;
	typedef conv3x3_data_shape<128, 32, 64> data_3x3;
	typedef conv3x3_weight_shape<128> weight_3x3;
};
struct small_tiles {
	typedef conv1x1_forward_shape<128, 3, false> forward_1x1;
	typedef conv1x1_backward_shape<32, 3, 8, true, true> backward_1x1;
	typedef conv3x3_forward_shape<64, 32, 4> forward_3x3;
	typedef conv3x3_data_shape<64, 32, 32> data_3x3;
	typedef conv3x3_weight_shape<128> weight_3x3;
};

/* Who computes a convolution that no fused kernel takes: cuDNN on a device, convolution.h otherwise. */
template <class T> struct convolver {
	virtual ~convolver() = default;
	virtual int forward(const convolution<T> &c, device_stream stream) = 0;
	virtual int data(const convolution<T> &c, device_stream stream) = 0;
	virtual int weight(const convolution<T> &c, device_stream stream) = 0; /* one part */
};

template <class T> struct step;

enum convolution_pass { PASS_FORWARD, PASS_DATA, PASS_WEIGHT };

/* Every convolution that a step asks its convolver for: f(pass, shape). */
template <class T, class F> void each_call(const step<T> &s, F f)
{
	each_convolution(s.net, [&](const conv_place &place, int in_pitch, int out_pitch, bool data) {
		const convolution_shape shape = s.shape(place, in_pitch, out_pitch);
		if (!(place.fused & FUSED_FORWARD))
			f(PASS_FORWARD, shape);
		if (!(place.fused & FUSED_BACKWARD) && data)
			f(PASS_DATA, shape);
		if (!(place.fused & FUSED_BACKWARD))
			f(PASS_WEIGHT, shape);
	});
}

inline bool same_shape(const convolution_shape &a, const convolution_shape &b)
{
	return a.images == b.images && a.h_in == b.h_in && a.h_out == b.h_out && a.c_in == b.c_in && a.c_out == b.c_out && a.kernel == b.kernel && a.stride == b.stride && a.pad == b.pad &&
	       a.in_pitch == b.in_pitch && a.out_pitch == b.out_pitch;
}

/* Refuses what each_call() does not name: cuDNN would have no plan for it. */
template <class T> struct plain_convolver : convolver<T> {
	std::vector<std::pair<convolution_pass, convolution_shape>> calls;

	explicit plain_convolver(const step<T> &s)
	{
		each_call(s, [&](convolution_pass pass, const convolution_shape &shape) { calls.push_back({ pass, shape }); });
	}
	bool named(convolution_pass pass, const convolution_shape &shape) const
	{
		for (const auto &c : calls)
			if (c.first == pass && same_shape(c.second, shape))
				return true;
		return false;
	}
	int forward(const convolution<T> &c, device_stream stream) override
	{
		return named(PASS_FORWARD, c.s) ? convolution_forward(c, stream) : 1;
	}
	int data(const convolution<T> &c, device_stream stream) override
	{
		return named(PASS_DATA, c.s) ? convolution_data(c, stream) : 1;
	}
	int weight(const convolution<T> &c, device_stream stream) override
	{
		return named(PASS_WEIGHT, c.s) ? convolution_weight(c, stream) : 1;
	}
};

/* residual_step.h */
template <class T> void residual_forward(step<T> &s);
template <class T, class Ready> T *residual_backward(step<T> &s, Ready ready);

template <class T> struct step {
	const engine_conf *conf;
	network net;
	memory<T> m;
	convolver<T> *conv;
	device_stream stream;
	int sms;
	bool small;        /* the fused kernels' tiles are small_tiles */
	int rc;            /* first failure, CUDA's code */
	/* of the micro-batch */
	int training, micro, micros;

	/* f(large_tiles()) or f(small_tiles()). */
	template <class F> auto with_tiles(F f) const
	{
		return small ? f(small_tiles()) : f(large_tiles());
	}

	void run(int code)
	{
		rc = rc ? rc : code;
	}
	template <class Op> int pass(const Op &op, long pixels, int channels)
	{
		const int blocks = channel_pass_blocks(pixels, channels, 8 * sms < SUM_BLOCKS ? 8 * sms : SUM_BLOCKS);
		if (!rc)
			rc = channel_pass_launch(op, pixels, channels, m.sums, blocks, stream);
		return blocks;
	}
	template <class P> void per_channel(void (*kernel)(P), const P &p)
	{
		if (!rc)
			rc = per_channel_launch(kernel, p, stream);
	}
	template <class P> void merge(void (*kernel)(P), const P &p)
	{
		if (!rc)
			rc = merge_launch(kernel, p, stream);
	}
	float factor() const
	{
		return 1.0f / (float)micros;
	}
	const float *unscale() const
	{
		return m.loss_scale ? &m.loss_scale->unscale : nullptr;
	}
	float *statistics_slab() const
	{
		return m.slab + conf->layout->groups[conf->plan->n_params].offset;
	}
	float *loss() const
	{
		return statistics_slab() + 2 * conf->plan->n_bn_channels;
	}
	long pixels(int side) const
	{
		return (long)conf->batch * side * side;
	}

	/* Room for the gradient of a block's bottlenecks: where its neighbours' gradients are not alive. */
	T *middle(int block) const
	{
		return m.gradient[(block + 1) % 2];
	}

	/* ---- convolutions ---- */

	convolution_shape shape(const conv_place &c, int in_pitch, int out_pitch) const
	{
		return { conf->batch, c.h_in, c.h_out, c.c_padded, c.c_out, c.kernel, c.stride, c.pad, in_pitch, out_pitch };
	}
	void forward(const conv_place &c, const T *in, int in_pitch, T *out, int out_pitch)
	{
		if (!rc)
			rc = conv->forward({ shape(c, in_pitch, out_pitch), in, m.copy + c.copy, nullptr, out, nullptr, 1 }, stream);
	}
	void data_gradient(const conv_place &c, const T *out_gradient, int out_pitch, T *in_gradient, int in_pitch)
	{
		if (!rc)
			rc = conv->data({ shape(c, in_pitch, out_pitch), nullptr, m.copy + c.copy, out_gradient, in_gradient, nullptr, 1 }, stream);
	}
	/* From m.partial to the slab. */
	void finish_weight(const conv_place &c, int parts)
	{
		const weight_gradient g = { m.partial, m.slab + c.weight, unscale(), factor(), c.c_out, c.c_in, c.c_padded, c.kernel * c.kernel, parts, micro != 0 };
		if (!rc)
			rc = weight_gradient_launch(g, stream);
	}
	void weight_gradient_of(const conv_place &c, const T *in, int in_pitch, const T *out_gradient, int out_pitch)
	{
		if (!rc)
			rc = conv->weight({ shape(c, in_pitch, out_pitch), in, nullptr, out_gradient, nullptr, m.partial, 1 }, stream);
		finish_weight(c, 1);
	}

	/* ---- normalisations ---- */

	void statistics(const T *x, int pitch, int channels, long count, float *mean, float *rstd, float *square)
	{
		if (!training)
			return;
		const int parts = pass(channel_sums<T>{ x, pitch }, count, channels);
		finish_statistics(parts, channels, channels, count, mean, rstd, square);
	}
	void finish_statistics(int parts, int channels, int stride, long count, float *mean, float *rstd, float *square)
	{
		merge(bn_statistics_kernel, { m.sums, mean, rstd, square, (double)count, 1e-5f, parts, channels, stride });
	}
	/* Scale and bias of a normalisation into m.scale, m.bias. */
	void prepare(const bn_place &bn, const float *mean, const float *rstd, const float *square)
	{
		const size_t at = bn.statistics, bns = conf->plan->n_bn_channels;
		bn_scale p = { m.weights + bn.gamma, m.weights + bn.beta, training ? mean : m.running_mean + at, rstd, training ? nullptr : m.running_variance + at,
			       m.scale + at, m.bias + at, square, training ? statistics_slab() + at : nullptr, training ? statistics_slab() + bns + at : nullptr,
			       factor(), 1e-5f, micro != 0, bn.channels };
		per_channel(bn_scale_kernel, p);
	}
	void backward_sums(const bn_place &bn, int parts, const float *mean, const float *rstd, long count, bool shared, bool first)
	{
		const bn_backward_sums p = { m.sums, m.weights + bn.gamma, mean, rstd, m.slab + bn.gamma, m.slab + bn.beta, shared ? m.s1 : nullptr, shared ? m.s2 : nullptr,
			                     m.a, m.b, m.c, unscale(), (double)count, factor(), micro != 0, first, parts, bn.channels };
		merge(bn_backward_sums_kernel, p);
	}
	/* Coefficients of the deferred correction of gradient channels [from, from + channels) of a block, into m.a, m.b, m.c. */
	void correction(int block, int from, int channels)
	{
		per_channel(bn_correction_kernel, { m.s1 + from, m.s2 + from, m.block_mean[block] + from, m.block_rstd[block] + from, m.a, m.b, m.c, (double)pixels(net.block[block].side), channels });
	}
	/* The correction itself: from here on they are used up. */
	void correct(int block, int from, int channels)
	{
		const dense_block &b = net.block[block];
		correction(block, from, channels);
		pass(affine<T>{ m.gradient[block % 2] + from, m.map[block] + from, m.a, m.b, m.c, b.channels, b.channels }, pixels(b.side), channels);
	}
	template <gradient_source source, bool shared>
	bn_relu_backward<T, source, shared> mask(const bn_place &bn, const void *gradient, int gradient_pitch, const T *x, int pitch, T *g, int g_pitch, const float *mean, const float *rstd,
	                                         int side, int first)
	{
		return { gradient, x, g, m.scale + bn.statistics, m.bias + bn.statistics, m.weights + bn.gamma, mean, rstd, gradient_pitch, pitch, g_pitch, side, first };
	}
	bn_relu<T, false> apply(const bn_place &bn, const T *x, int pitch, T *out, int out_pitch) const
	{
		return { x, out, m.scale + bn.statistics, m.bias + bn.statistics, pitch, out_pitch, 0 };
	}

	/* ---- forward ---- */

	void forward_layer(int block, int index)
	{
		const dense_block &b = net.block[block];
		const dense_layer &l = b.layer[index];
		const long count = pixels(b.side);
		T *y = m.bottleneck[block][index];
		const size_t at2 = l.bn2.statistics;
		prepare(l.bn1, m.block_mean[block], m.block_rstd[block], m.block_square[block]);
		if (l.conv1.fused & FUSED_FORWARD) {
			if constexpr (sizeof(T) == 2) {
				const int blocks = with_tiles([&](auto tiles) { return line_blocks(count, decltype(tiles)::forward_1x1::ROWS, sms); });
				const conv1x1_forward<T> p = { m.map[block], m.copy + l.conv1.copy, m.scale + l.bn1.statistics, m.bias + l.bn1.statistics, y, m.sums, count, b.channels, l.c_in, net.bottleneck };
				if (!rc)
					rc = with_tiles([&](auto tiles) { return conv1x1_forward_launch<T, typename decltype(tiles)::forward_1x1>(p, (unsigned)blocks, stream); });
				if (training)
					finish_statistics(blocks, net.bottleneck, 128, count, m.mean + at2, m.rstd + at2, m.square + at2);
			}
		} else {
			pass(apply(l.bn1, m.map[block], b.channels, m.activation, l.c_in), count, l.c_in);
			forward(l.conv1, m.activation, l.c_in, y, net.bottleneck);
			statistics(y, net.bottleneck, net.bottleneck, count, m.mean + at2, m.rstd + at2, m.square + at2);
		}
		prepare(l.bn2, m.mean + at2, m.rstd + at2, m.square + at2);
		if (l.conv2.fused & FUSED_FORWARD) {
			fused_forward_3x3(block, l, y);
		} else {
			pass(apply(l.bn2, y, net.bottleneck, m.activation, net.bottleneck), count, net.bottleneck);
			forward(l.conv2, m.activation, net.bottleneck, m.map[block] + l.c_in, b.channels);
			slice_statistics(block, l.c_in, net.growth);
		}
	}
	void fused_forward_3x3(int block, const dense_layer &l, const T *y)
	{
		if constexpr (sizeof(T) == 2) {
			const dense_block &b = net.block[block];
			const long count = pixels(b.side);
			const int blocks = with_tiles([&](auto tiles) { return line_blocks(count, decltype(tiles)::forward_3x3::ROWS, sms); });
			const conv3x3_forward<T> p = { y, m.copy + l.conv2.copy, m.scale + l.bn2.statistics, m.bias + l.bn2.statistics, m.map[block] + l.c_in, m.sums, count, b.side, b.channels,
				                       net.bottleneck, net.growth };
			if (!rc)
				rc = with_tiles([&](auto tiles) { return conv3x3_forward_launch<T, typename decltype(tiles)::forward_3x3>(p, (unsigned)blocks, stream); });
			if (training)
				finish_statistics(blocks, net.growth, TAP_GROWTH, count, m.block_mean[block] + l.c_in, m.block_rstd[block] + l.c_in, m.block_square[block] + l.c_in);
		}
	}
	void slice_statistics(int block, int from, int channels)
	{
		const dense_block &b = net.block[block];
		statistics(m.map[block] + from, b.channels, channels, pixels(b.side), m.block_mean[block] + from, m.block_rstd[block] + from, m.block_square[block] + from);
	}
	void gather()
	{
		const engine_conf *c = conf;
		if (net.gray) {
			const int side = net.stem.h_in;
			pass(gather_gray<T>{ m.window, m.images, c->source_size, c->plan->image_size, side }, pixels(side), GRAY_CHANNELS);
			return;
		}
		gather_images<T> op = { m.window, m.images, {}, {}, c->source_size, c->plan->image_size, c->channels };
		for (int i = 0; i < 3; i++) {
			op.scale[i] = (float)(1 / (255 * pixel_deviation[i]));
			op.bias[i] = (float)(-pixel_mean[i] / pixel_deviation[i]);
		}
		pass(op, pixels(c->plan->image_size), STEM_CHANNELS);
	}
	void forward_stem()
	{
		const size_t at = net.stem_bn.statistics;
		gather();
		forward(net.stem, m.images, STEM_CHANNELS, m.stem, net.stem.c_out);
		statistics(m.stem, net.stem.c_out, net.stem.c_out, pixels(net.stem_side), m.mean + at, m.rstd + at, m.square + at);
		prepare(net.stem_bn, m.mean + at, m.rstd + at, m.square + at);
		const bool residual = net.family == NET_RESNET;
		T *out = residual ? m.residual_in : m.map[0];
		const int channels = net.stem.c_out, pitch = residual ? channels : net.block[0].channels;
		pass(bn_relu_maxpool<T>{ m.stem, out, training ? m.stem_place : nullptr, m.scale + at, m.bias + at, net.stem_side, channels, pitch }, pixels(net.first_side), channels);
	}
	/* relu and normalisation, 2 × 2 mean, 1×1: the pool first, since both are linear. */
	void pooled_activation(int block)
	{
		const dense_block &b = net.block[block], &before = net.block[block - 1];
		const bn_relu<T, true> op = { m.map[block - 1], m.activation, m.scale + b.transition_bn.statistics, m.bias + b.transition_bn.statistics, before.channels, before.channels, b.side };
		pass(op, pixels(b.side), before.channels);
	}
	void forward_transition(int block)
	{
		const dense_block &b = net.block[block];
		prepare(b.transition_bn, m.block_mean[block - 1], m.block_rstd[block - 1], m.block_square[block - 1]);
		pooled_activation(block);
		forward(b.transition, m.activation, net.block[block - 1].channels, m.map[block], b.channels);
		slice_statistics(block, 0, b.c_in);
	}
	/* What the head reads: relu(scale · x + bias), or x itself where scale is NULL. */
	struct last_map {
		const T *x;
		const float *scale, *bias;
	};
	last_map head_input() const
	{
		if (net.family == NET_RESNET)
			return { m.residual_out[net.residuals - 1], nullptr, nullptr };
		return { m.map[net.blocks - 1], m.scale + net.head_bn.statistics, m.bias + net.head_bn.statistics };
	}
	void forward_head()
	{
		const int n = conf->batch, channels = net.features;
		const last_map in = head_input();
		const head_pool<T> pool = { in.x, in.scale, in.bias, m.pooled, n, net.last_side * net.last_side, channels, channels };
		if (!rc)
			rc = launch(head_pool_kernel<T>, (unsigned)(n * channels / 8 + HEAD_THREADS - 1) / HEAD_THREADS, HEAD_THREADS, 0, stream, pool);
		const head_logits l = { m.pooled, m.weights + net.classifier_weight, m.weights + net.classifier_bias, m.logits, n, channels, net.classes };
		if (!rc)
			rc = launch(head_logits_kernel, (unsigned)(n * net.classes * 32 + HEAD_THREADS - 1) / HEAD_THREADS, HEAD_THREADS, 0, stream, l);
	}
	void forward_blocks()
	{
		slice_statistics(0, 0, net.block[0].c_in);
		for (int block = 0; block < net.blocks; block++) {
			if (block)
				forward_transition(block);
			for (int l = 0; l < net.block[block].layers; l++)
				forward_layer(block, l);
		}
		const int last = net.blocks - 1;
		prepare(net.head_bn, m.block_mean[last], m.block_rstd[last], m.block_square[last]);
	}
	void forward_all()
	{
		forward_stem();
		if (net.family == NET_RESNET)
			residual_forward(*this);
		else
			forward_blocks();
		forward_head();
	}

	/* ---- backward. ready(param): that parameter's gradient is in the slab. ---- */

	void backward_head()
	{
		const int n = conf->batch, softmax = conf->loss == LOSS_SOFTMAX;
		const head_loss l = { m.logits, m.labels, softmax ? nullptr : m.known, m.image_weight, softmax ? nullptr : m.pos_weight, m.dlogits, loss(),
			              m.loss_scale ? &m.loss_scale->scale : nullptr, factor(), n, net.classes, softmax, micro != 0 };
		if (!rc)
			rc = launch(head_loss_kernel, 1, HEAD_THREADS, HEAD_THREADS * sizeof(float), stream, l);
		const head_backward h = { m.dlogits, m.pooled, m.weights + net.classifier_weight, m.slab + net.classifier_weight, m.slab + net.classifier_bias, m.dpooled,
			                  unscale(), factor(), n, net.features, net.classes, micro != 0 };
		if (!rc)
			rc = head_backward_launch(h, stream);
	}
	void backward_last_bn()
	{
		const int last = net.blocks - 1;
		const dense_block &b = net.block[last];
		const int parts = pass(mask<GRADIENT_GLOBAL, true>(net.head_bn, m.dpooled, b.channels, m.map[last], b.channels, m.gradient[last % 2], b.channels,
		                                                   m.block_mean[last], m.block_rstd[last], b.side, 1), pixels(b.side), b.channels);
		backward_sums(net.head_bn, parts, m.block_mean[last], m.block_rstd[last], pixels(b.side), true, true);
	}
	void backward_layer(int block, int index)
	{
		const dense_block &b = net.block[block];
		const dense_layer &l = b.layer[index];
		const long count = pixels(b.side);
		const size_t at2 = l.bn2.statistics;
		T *g = m.gradient[block % 2], *y = m.bottleneck[block][index];
		int parts = l.conv2.fused & FUSED_BACKWARD ? fused_backward_3x3(block, l, y, g) : separate_backward_3x3(block, l, y, g);
		backward_sums(l.bn2, parts, m.mean + at2, m.rstd + at2, count, false, false);
		parts = l.conv1.fused & FUSED_BACKWARD ? fused_backward(block, l, y, g) : separate_backward(block, l, y, g);
		backward_sums(l.bn1, parts, m.block_mean[block], m.block_rstd[block], count, true, false);
	}
	int separate_backward_3x3(int block, const dense_layer &l, const T *y, T *g)
	{
		const dense_block &b = net.block[block];
		const long count = pixels(b.side);
		const size_t at2 = l.bn2.statistics;
		correct(block, l.c_in, net.growth);
		pass(apply(l.bn2, y, net.bottleneck, m.activation, net.bottleneck), count, net.bottleneck);
		weight_gradient_of(l.conv2, m.activation, net.bottleneck, g + l.c_in, b.channels);
		data_gradient(l.conv2, g + l.c_in, b.channels, middle(block), net.bottleneck);
		return pass(mask<GRADIENT_FULL, false>(l.bn2, middle(block), net.bottleneck, y, net.bottleneck, middle(block), net.bottleneck, m.mean + at2, m.rstd + at2, b.side, 0), count, net.bottleneck);
	}
	int weight_blocks_3x3(long count) const
	{
		return with_tiles([&](auto tiles) { return line_blocks(count, decltype(tiles)::weight_3x3::ROWS, sms); });
	}
	int fused_backward_3x3(int block, const dense_layer &l, const T *y, const T *g)
	{
		const dense_block &b = net.block[block];
		const long count = pixels(b.side);
		const size_t at2 = l.bn2.statistics;
		const int weight_blocks = weight_blocks_3x3(count), data_blocks = with_tiles([&](auto tiles) { return line_blocks(count, decltype(tiles)::data_3x3::ROWS, sms); });
		correction(block, l.c_in, net.growth);
		if constexpr (sizeof(T) == 2) {
			const conv3x3_backward<T> p = { g + l.c_in, m.map[block] + l.c_in, m.a, m.b, m.c, y, m.copy + l.conv2.copy, m.scale + at2, m.bias + at2, m.mean + at2, m.rstd + at2,
				                        middle(block), m.sums, m.partial, count, b.side, b.channels, net.bottleneck, net.growth };
			if (!rc)
				rc = with_tiles([&](auto tiles) { return conv3x3_weight_launch<T, typename decltype(tiles)::weight_3x3>(p, (unsigned)weight_blocks, stream); });
			finish_weight(l.conv2, weight_blocks);
			if (!rc)
				rc = with_tiles([&](auto tiles) { return conv3x3_data_launch<T, typename decltype(tiles)::data_3x3>(p, (unsigned)data_blocks, stream); });
		}
		return data_blocks;
	}
	int separate_backward(int block, const dense_layer &l, const T *y, T *g)
	{
		const dense_block &b = net.block[block];
		const long count = pixels(b.side);
		pass(affine<T>{ middle(block), y, m.a, m.b, m.c, net.bottleneck, net.bottleneck }, count, net.bottleneck);
		pass(apply(l.bn1, m.map[block], b.channels, m.activation, l.c_in), count, l.c_in);
		weight_gradient_of(l.conv1, m.activation, l.c_in, middle(block), net.bottleneck);
		data_gradient(l.conv1, middle(block), net.bottleneck, m.back, l.c_in);
		return pass(mask<GRADIENT_FULL, true>(l.bn1, m.back, l.c_in, m.map[block], b.channels, g, b.channels, m.block_mean[block], m.block_rstd[block], b.side, 0), count, l.c_in);
	}
	/* Blocks that share a column tile of the fused backward kernel. */
	int backward_splits(long count, int c_in) const
	{
		const int wanted = sms / ((c_in + 127) / 128);
		return with_tiles([&](auto tiles) { return line_blocks(count, decltype(tiles)::backward_1x1::ROWS, wanted < 1 ? 1 : wanted); });
	}
	int fused_backward(int block, const dense_layer &l, const T *y, T *g)
	{
		const dense_block &b = net.block[block];
		const int splits = backward_splits(pixels(b.side), l.c_in);
		if constexpr (sizeof(T) == 2) {
			const conv1x1_backward<T> p = { middle(block), y, m.a, m.b, m.c, m.map[block], g, m.copy + l.conv1.copy, m.scale + l.bn1.statistics, m.bias + l.bn1.statistics,
				                        m.weights + l.bn1.gamma, m.block_mean[block], m.block_rstd[block], m.sums, m.partial, pixels(b.side), b.channels, l.c_in, net.bottleneck, splits };
			if (!rc)
				rc = with_tiles([&](auto tiles) { return conv1x1_backward_launch<T, typename decltype(tiles)::backward_1x1>(p, stream); });
			finish_weight(l.conv1, splits);
		}
		return splits;
	}
	void backward_transition(int block)
	{
		const dense_block &b = net.block[block], &before = net.block[block - 1];
		T *g = m.gradient[block % 2];
		correct(block, 0, b.c_in);
		pooled_activation(block);
		weight_gradient_of(b.transition, m.activation, before.channels, g, b.channels);
		data_gradient(b.transition, g, b.channels, m.back, before.channels);
		const float *mean = m.block_mean[block - 1], *rstd = m.block_rstd[block - 1];
		const int parts = pass(mask<GRADIENT_QUARTER, true>(b.transition_bn, m.back, before.channels, m.map[block - 1], before.channels, m.gradient[(block - 1) % 2], before.channels,
		                                                    mean, rstd, b.side, 1), pixels(before.side), before.channels);
		backward_sums(b.transition_bn, parts, mean, rstd, pixels(before.side), true, true);
	}
	/* gradient: of the pool's output. */
	void backward_stem(const T *gradient, int pitch)
	{
		const size_t at = net.stem_bn.statistics;
		const long count = pixels(net.stem_side);
		const int channels = net.stem.c_out;
		const bn_relu_maxpool_backward<T> op = { m.stem, gradient, m.stem_place, m.stem_gradient, m.scale + at, m.bias + at, m.mean + at, m.rstd + at, net.stem_side, channels, pitch };
		const int parts = pass(op, count, channels);
		backward_sums(net.stem_bn, parts, m.mean + at, m.rstd + at, count, false, false);
		pass(affine<T>{ m.stem_gradient, m.stem, m.a, m.b, m.c, channels, channels }, count, channels);
		gather(); /* again: keeping the images would cost 0.2 MB each at 224², and four times that in color */
		if (!net.gray) {
			weight_gradient_of(net.stem, m.images, STEM_CHANNELS, m.stem_gradient, channels);
			return;
		}
		if (!rc)
			rc = conv->weight({ shape(net.stem, GRAY_CHANNELS, channels), m.images, nullptr, m.stem_gradient, nullptr, m.partial, 1 }, stream);
		if (!rc)
			rc = unfold_gradient_launch({ m.partial, m.slab + net.stem.weight, unscale(), gray_fold_make(), factor(), channels, 1, micro != 0 }, stream);
	}
	template <class Ready> void backward_blocks(Ready ready)
	{
		backward_last_bn();
		for (int block = net.blocks - 1; block >= 0; block--) {
			for (int l = net.block[block].layers - 1; l >= 0; l--) {
				backward_layer(block, l);
				ready(net.block[block].layer[l].conv1.param - 2); /* norm1's weight: the layer's first in table order */
			}
			if (!block)
				break;
			backward_transition(block);
			ready(net.block[block].transition.param - 2);
		}
		correct(0, 0, net.block[0].c_in);
	}
	template <class Ready> void backward_all(Ready ready)
	{
		backward_head();
		ready(net.classifier_param);
		if (net.family == NET_RESNET) {
			backward_stem(residual_backward(*this, ready), net.stem.c_out);
		} else {
			backward_blocks(ready);
			backward_stem(m.gradient[0], net.block[0].channels);
		}
		ready(0);
		ready(-1); /* the statistics */
	}
};

#include "residual_step.h"

#endif

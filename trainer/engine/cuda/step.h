/* SPDX-License-Identifier: Apache-2.0
 * Forward and backward of a network as a sequence of kernels on one stream. Every launch goes through `rc`: after the
 * first failure nothing more is launched. */
#ifndef CUDA_STEP_H
#define CUDA_STEP_H

#include <utility>
#include <vector>

#include "batchnorm.h"
#include "bn_merge.h"
#include "conv_weight.h"
#include "convolution.h"
#include "fused_tiles.h"
#include "gray_convolution.h"
#include "head.h"
#include "images.h"
#include "loss_scale.h"
#include "maxpool.h"
#include "network.h"
#include "residual.h"
#include "weight_gradient.h"

/* Who computes a convolution that no kernel of our own takes: cuDNN on a device, convolution.h otherwise. */
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
	each_convolution(s.net, [&](const conv_place &place, int in_pitch, int out_pitch, int gradient_pitch, bool data) {
		const convolution_shape back = s.shape(place, in_pitch, gradient_pitch);
		if (!(place.fused & FUSED_FORWARD))
			f(PASS_FORWARD, s.shape(place, in_pitch, out_pitch));
		if (!(place.fused & FUSED_BACKWARD) && data)
			f(PASS_DATA, back);
		if (!(place.fused & (FUSED_BACKWARD | OWN_WEIGHT)))
			f(PASS_WEIGHT, back);
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
	size_t shared;     /* memory of a block, bytes */
	bool small, wgmma; /* the fused kernels' tiles are small_tiles; wgmma_tiles instead of large_tiles */
	bool in_place;     /* a fused kernel merges the sums of the one before it */
	bool beside;       /* backward, all that the one before it left is merged by blocks of its launch, too */
	bool joined;       /* few_joined_tiles instead of few_wgmma_tiles */
	bool even;         /* backward, as few blocks as give none of them more tiles */
	int rc;            /* first failure, CUDA's code */
	/* of the micro-batch */
	int training, micro, micros;
	bn_statistics due;     /* of what is forward so far, not merged yet; parts 0: none */
	bn_backward_sums left; /* of the 3×3 that was backward last, for its 1×1 to merge (leaves_sums()); parts 0: none */
	layer_sums waiting;    /* of the 1×1 that was backward last, for the next layer's 3×3 (leaves_all()); blocks 0: none */

	/* f(large_tiles()), f(wgmma_tiles()) or f(small_tiles()); f(few_tiles()), f(few_wgmma_tiles()) or f(few_joined_tiles()) of maps that would leave most multiprocessors without a tile. */
	template <class F> auto with_tiles(const dense_block &b, F f) const
	{
		if (pixels(b.side) <= 64L * sms && b.side < few_tiles::SIDES_BELOW)
			return wgmma && joined ? f(few_joined_tiles()) : wgmma ? f(few_wgmma_tiles()) : f(few_tiles());
		return small ? f(small_tiles()) : wgmma && b.side < wgmma_tiles::SIDES_BELOW ? f(wgmma_tiles()) : f(large_tiles());
	}

	void run(int code)
	{
		rc = rc ? rc : code;
	}
	template <class Op> int pass(const Op &op, long pixels, int channels)
	{
		const int blocks = channel_pass_blocks(pixels, channels, 8 * sms < SUM_BLOCKS ? 8 * sms : SUM_BLOCKS);
		settle();
		if (!rc)
			rc = channel_pass_launch(op, pixels, channels, m.sums, blocks, stream);
		return blocks;
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
	weight_gradient gradient_of(const conv_place &c, int parts, size_t behind = 0) const
	{
		return { m.partial + behind, m.slab + c.weight, unscale(), factor(), c.c_out, c.c_in, c.c_padded, c.kernel * c.kernel, parts, micro != 0 };
	}
	/* Of what weight_parts_of() computes. */
	int weight_parts(const conv_place &c) const
	{
		if (!(c.fused & OWN_WEIGHT))
			return 1;
		const int columns = c.kernel * c.kernel * c.c_padded;
		return with_weight_tiles(c.c_out, columns, shared, [&](auto tiles) { return conv_weight_parts<decltype(tiles)>(pixels(c.h_out), c.c_out, columns, sms); });
	}
	/* Into m.partial. */
	void weight_parts_of(const conv_place &c, const T *in, int in_pitch, const T *out_gradient, int out_pitch)
	{
		if (c.fused & OWN_WEIGHT) {
			if constexpr (sizeof(T) == 2) {
				const conv_weight<T> p = { out_gradient, in, m.partial, pixels(c.h_out), c.h_out, c.h_in, c.kernel, c.stride, out_pitch, in_pitch, c.c_out, c.c_padded, weight_parts(c) };
				if (!rc)
					rc = with_weight_tiles(c.c_out, p.columns(), shared, [&](auto tiles) { return conv_weight_launch<T, decltype(tiles)>(p, stream); });
			}
		} else if (!rc) {
			rc = conv->weight({ shape(c, in_pitch, out_pitch), in, nullptr, out_gradient, nullptr, m.partial, 1 }, stream);
		}
	}
	void weight_gradient_of(const conv_place &c, const T *in, int in_pitch, const T *out_gradient, int out_pitch)
	{
		weight_parts_of(c, in, in_pitch, out_gradient, out_pitch);
		if (!rc)
			rc = weight_gradient_launch(gradient_of(c, weight_parts(c)), stream);
	}

	/* ---- normalisations ---- */

	/* Of a map's channels: of a block's, which many normalisations share, or of what one normalisation alone reads. */
	struct map_statistics {
		float *mean, *rstd, *square;
	};
	map_statistics block_statistics(int block) const
	{
		return { m.block_mean[block], m.block_rstd[block], m.block_square[block] };
	}
	map_statistics own_statistics(const bn_place &bn) const
	{
		return { m.mean + bn.statistics, m.rstd + bn.statistics, m.square + bn.statistics };
	}
	bn_scale scale_of(const bn_place &bn, const map_statistics &map) const
	{
		const size_t at = bn.statistics, bns = conf->plan->n_bn_channels;
		return { m.weights + bn.gamma, m.weights + bn.beta, training ? map.mean : m.running_mean + at, map.rstd, training ? nullptr : m.running_variance + at,
			 m.scale + at, m.bias + at, map.square, training ? statistics_slab() + at : nullptr, training ? statistics_slab() + bns + at : nullptr,
			 factor(), 1e-5f, micro != 0, bn.channels };
	}
	/* What becomes scale and bias of bn, in m.scale and m.bias: the statistics of the map that it reads, of which channels [from, from + channels) are new:
	 * their sums lie in `parts` parts of `stride` channels. */
	bn_statistics statistics_of(const bn_place &bn, const map_statistics &map, const float *sums, int from, int channels, int parts, int stride, long count) const
	{
		return { sums, map.mean + from, map.rstd + from, map.square + from, 1 / (double)count, 1e-5f, parts, channels, stride, scale_of(bn, map), from };
	}
	void normalise(const bn_statistics &p)
	{
		if (!rc)
			rc = training ? bn_statistics_launch(p, stream) : per_channel_launch(bn_scale_kernel, p.next, stream);
	}
	/* The next fused kernel merges them, anything else finds them merged: settle(). */
	void normalise_later(const bn_statistics &p)
	{
		due = p;
		if (!training || !in_place)
			settle();
	}
	bn_statistics take_due()
	{
		const bn_statistics p = due;
		due.parts = 0;
		return p;
	}
	void settle()
	{
		if (due.parts)
			normalise(take_due());
	}
	/* The same, with a pass over the new channels at x. */
	void normalise_map(const bn_place &bn, const map_statistics &map, int from, int channels, const T *x, int pitch, long count)
	{
		const int parts = training ? pass(channel_sums<T>{ x, pitch }, count, channels) : 0;
		normalise(statistics_of(bn, map, m.sums, from, channels, parts, channels, count));
	}
	/* The normalisation that reads a block's map when `layers` of its layers are there. */
	const bn_place &reader(int block, int layers) const
	{
		const dense_block &b = net.block[block];
		return layers < b.layers ? b.layer[layers].bn1 : block + 1 < net.blocks ? net.block[block + 1].transition_bn : net.head_bn;
	}

	bn_backward_sums sums_of(const bn_place &bn, const float *mean, const float *rstd, int parts, long count) const
	{
		return { m.sums, m.weights + bn.gamma, mean, rstd, m.slab + bn.gamma, m.slab + bn.beta, nullptr, nullptr, m.a, m.b, m.c, unscale(), 1 / (double)count, factor(), micro != 0, 0, parts,
			 bn.channels, 0, 0 };
	}
	bn_backward_sums private_sums(const bn_place &bn, int parts, long count) const
	{
		return sums_of(bn, m.mean + bn.statistics, m.rstd + bn.statistics, parts, count);
	}
	/* Of a block's map, when `layers` of its layers have not been backward yet. The last of them then finds the coefficients that correct the gradient of
	 * its slice in m.a, m.b, m.c; without one, these are of the channels that came into the block. first: nobody added to the sums before. */
	bn_backward_sums shared_sums(const bn_place &bn, int block, int layers, int parts, bool first) const
	{
		const dense_block &b = net.block[block];
		bn_backward_sums p = sums_of(bn, m.block_mean[block], m.block_rstd[block], parts, pixels(b.side));
		p.s1 = m.s1;
		p.s2 = m.s2;
		p.first = first;
		p.from = layers ? b.layer[layers - 1].c_in : 0;
		p.due = layers ? net.growth : b.c_in;
		return p;
	}
	void backward_sums(const bn_backward_sums &p)
	{
		if (!rc)
			rc = bn_backward_sums_launch(p, stream);
	}
	/* With weights' gradients. */
	void backward_sums(const bn_backward_sums &p, const weight_gradient &weight, const weight_gradient &second = {})
	{
		if (!rc)
			rc = layer_sums_launch(layer_sums_of(weight, second, p), stream);
	}
	/* The correction of gradient channels [from, from + channels) of a block that is due: from here on they are used up. out: [pixels][channels]; NULL: in place. */
	void correct(int block, int from, int channels, T *out = nullptr)
	{
		const dense_block &b = net.block[block];
		pass(affine<T>{ m.gradient[block % 2] + from, m.map[block] + from, m.a, m.b, m.c, b.channels, b.channels, out, channels }, pixels(b.side), channels);
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

	/* ---- dense layers: dense_step.h ---- */

	void forward_layer(int block, int index);
	/* The number of blocks that leave sums. */
	int forward_1x1(const dense_block &b, const conv1x1_forward<T> &p);
	void fused_forward(int block, const dense_layer &l, T *y);
	void fused_transition(int block);
	void fused_forward_3x3(int block, int index, const T *y);
	void backward_layer(int block, int index);
	void separate_backward_3x3(int block, const dense_layer &l, const T *y);
	bool leaves_sums(const dense_layer &l) const;
	bool leaves_all(const dense_block &b, int index) const;
	size_t left_weight(const dense_block &b, const dense_layer &l) const;
	int weight_blocks_3x3(const dense_block &b) const;
	void fused_backward_3x3(int block, const dense_layer &l, const T *y);
	layer_sums take_waiting();
	void separate_backward(int block, int index, const T *y);
	/* Blocks that share a column tile of the fused backward kernel. */
	int backward_splits(const dense_block &b, int c_in) const;
	void fused_backward(int block, int index, const T *y);

	/* ---- forward ---- */

	/* New channels of a block's map, of which `layers` layers are there. */
	void normalise_slice(int block, int layers, int from, int channels)
	{
		const dense_block &b = net.block[block];
		normalise_map(reader(block, layers), block_statistics(block), from, channels, m.map[block] + from, b.channels, pixels(b.side));
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
	void fused_forward_stem()
	{
		const long places = pixels(net.stem.h_in);
		const int blocks = line_blocks(places, gray_forward_shape::ROWS, gray_forward_shape::BLOCKS_PER_SM * sms);
		if constexpr (sizeof(T) == 2)
			if (!rc)
				rc = gray_forward_launch<T>({ m.images, m.copy + net.stem.copy, m.stem, m.sums, places, net.stem.h_in, net.stem.c_out }, blocks, stream);
		normalise(statistics_of(net.stem_bn, own_statistics(net.stem_bn), m.sums, 0, net.stem.c_out, blocks, GRAY_FILTERS, pixels(net.stem_side)));
	}
	void forward_stem()
	{
		const size_t at = net.stem_bn.statistics;
		const unsigned early = launch_early;
		launch_early = 0; /* a step begins when all before it is done: the update, for those that ask for weights at once (begin_early_kernel()) */
		gather();
		launch_early = early;
		if (net.stem.fused & FUSED_FORWARD) {
			fused_forward_stem();
		} else {
			forward(net.stem, m.images, STEM_CHANNELS, m.stem, net.stem.c_out);
			normalise_map(net.stem_bn, own_statistics(net.stem_bn), 0, net.stem.c_out, m.stem, net.stem.c_out, pixels(net.stem_side));
		}
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
		pooled_activation(block);
		if (b.transition.fused & FUSED_FORWARD) {
			fused_transition(block);
			return;
		}
		forward(b.transition, m.activation, net.block[block - 1].channels, m.map[block], b.channels);
		normalise_slice(block, 0, 0, b.c_in);
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
		settle();
		const int n = conf->batch, channels = net.features;
		const last_map in = head_input();
		const head_pool<T> pool = { in.x, in.scale, in.bias, m.pooled, n, net.last_side * net.last_side, channels, channels };
		if (!rc)
			rc = head_pool_launch(pool, stream);
		const head_logits l = { m.pooled, m.weights + net.classifier_weight, m.weights + net.classifier_bias, m.logits, n, channels, net.classes };
		if (!rc)
			rc = head_logits_launch(l, stream);
	}
	void forward_blocks()
	{
		normalise_slice(0, 0, 0, net.block[0].c_in);
		for (int block = 0; block < net.blocks; block++) {
			if (block)
				forward_transition(block);
			for (int l = 0; l < net.block[block].layers; l++)
				forward_layer(block, l);
		}
	}
	void forward_all()
	{
		due.parts = left.parts = waiting.blocks = 0;
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
			rc = head_loss_launch(l, stream);
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
		backward_sums(shared_sums(net.head_bn, last, b.layers, parts, true));
	}
	void backward_transition(int block)
	{
		const dense_block &b = net.block[block], &before = net.block[block - 1];
		const size_t pooled = (size_t)pixels(b.side) * (size_t)before.channels;
		T *activation = m.activation, *back = activation + pooled, *g = back + pooled;
		correct(block, 0, b.c_in, g); /* a cuDNN that is given a slice of a map copies it first */
		data_gradient(b.transition, g, b.c_in, back, before.channels);
		const float *mean = m.block_mean[block - 1], *rstd = m.block_rstd[block - 1];
		auto op = mask<GRADIENT_QUARTER, true>(b.transition_bn, back, before.channels, m.map[block - 1], before.channels, m.gradient[(block - 1) % 2], before.channels, mean, rstd, b.side, 1);
		op.activation = activation;
		const int parts = pass(op, pixels(b.side), before.channels);
		weight_parts_of(b.transition, activation, before.channels, g, b.c_in);
		backward_sums(shared_sums(b.transition_bn, block - 1, before.layers, parts, true), gradient_of(b.transition, weight_parts(b.transition)));
	}
	/* gradient: of the pool's output. */
	void backward_stem(const T *gradient, int pitch)
	{
		const size_t at = net.stem_bn.statistics;
		const long count = pixels(net.stem_side);
		const int channels = net.stem.c_out;
		const bn_relu_maxpool_backward<T> op = { m.stem, gradient, m.stem_place, m.stem_gradient, m.mean + at, m.rstd + at, net.stem_side, channels, pitch };
		const int parts = pass(op, pixels(net.first_side), channels);
		backward_sums(private_sums(net.stem_bn, parts, count));
		gather(); /* again: keeping the images would cost 0.2 MB each at 224², and four times that in color */
		if (net.stem.fused & FUSED_BACKWARD) {
			fused_backward_stem();
			return;
		}
		pass(affine<T>{ m.stem_gradient, m.stem, m.a, m.b, m.c, channels, channels }, count, channels);
		if (!net.gray) {
			weight_gradient_of(net.stem, m.images, STEM_CHANNELS, m.stem_gradient, channels);
			return;
		}
		if (!rc)
			rc = conv->weight({ shape(net.stem, GRAY_CHANNELS, channels), m.images, nullptr, m.stem_gradient, nullptr, m.partial, 1 }, stream);
		unfold_gradient_of(1);
	}
	int stem_parts() const
	{
		return line_blocks(pixels(net.stem.h_in), gray_weight_shape::ROWS, gray_weight_shape::BLOCKS_PER_SM * sms);
	}
	void fused_backward_stem()
	{
		if constexpr (sizeof(T) == 2)
			if (!rc)
				rc = gray_weight_launch<T>({ m.images, m.stem_gradient, m.stem, m.a, m.b, m.c, m.partial, pixels(net.stem.h_in), net.stem.h_in, net.stem.c_out }, stem_parts(), stream);
		unfold_gradient_of(stem_parts());
	}
	void unfold_gradient_of(int parts)
	{
		if (!rc)
			rc = unfold_gradient_launch({ m.partial, m.slab + net.stem.weight, unscale(), gray_fold_make(), factor(), net.stem.c_out, parts, micro != 0 }, stream);
	}
	template <class Ready> void backward_blocks(Ready ready)
	{
		backward_last_bn();
		for (int block = net.blocks - 1; block >= 0; block--) {
			for (int l = net.block[block].layers - 1; l >= 0; l--) {
				backward_layer(block, l);
				const int first = net.block[block].layer[l].conv1.param - 2; /* norm1's weight, norm1's bias, the 1×1's, norm2's and the 3×3's in table order */
				ready(waiting.blocks ? first + 3 : first);
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

#include "dense_step.h"
#include "residual_step.h"

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Forward and backward of a dense layer, by the fused kernels or in separate passes, for step.h, which includes this. */
#ifndef CUDA_DENSE_STEP_H
#define CUDA_DENSE_STEP_H

template <class T> void step<T>::forward_layer(int block, int index)
{
	const dense_layer &l = net.block[block].layer[index];
	const long count = pixels(net.block[block].side);
	T *y = m.bottleneck[block][index];
	if (l.conv1.fused & FUSED_FORWARD) {
		fused_forward(block, l, y);
	} else {
		pass(apply(l.bn1, m.map[block], net.block[block].channels, m.activation, l.c_in), count, l.c_in);
		forward(l.conv1, m.activation, l.c_in, y, net.bottleneck);
		normalise_map(l.bn2, own_statistics(l.bn2), 0, net.bottleneck, y, net.bottleneck, count);
	}
	if (l.conv2.fused & FUSED_FORWARD) {
		fused_forward_3x3(block, index, y);
	} else {
		pass(apply(l.bn2, y, net.bottleneck, m.activation, net.bottleneck), count, net.bottleneck);
		forward(l.conv2, m.activation, net.bottleneck, m.map[block] + l.c_in, net.block[block].channels);
		normalise_slice(block, index + 1, l.c_in, net.growth);
	}
}

template <class T> int step<T>::forward_1x1(const dense_block &b, const conv1x1_forward<T> &p)
{
	return with_tiles(b, [&](auto tiles) {
		typedef typename decltype(tiles)::forward_1x1 streamed;
		typedef typename decltype(tiles)::resident_1x1 resident;
		const int most = sms / streamed::shares(p.c_out), blocks = line_blocks(p.pixels, streamed::ROWS, p.c_out <= 128 ? sms : most < 1 ? 1 : most);
		const bool stays = resident::shared_bytes(p.c_in) <= shared && p.pixels > (long)streamed::ROWS * blocks;
		if constexpr (sizeof(T) == 2)
			if (!rc)
				rc = stays ? conv1x1_forward_launch<T, resident>(p, (unsigned)blocks, stream) : conv1x1_forward_launch<T, streamed>(p, (unsigned)blocks, stream);
		return blocks;
	});
}

template <class T> void step<T>::fused_forward(int block, const dense_layer &l, T *y)
{
	const dense_block &b = net.block[block];
	const long count = pixels(b.side);
	const int blocks = forward_1x1(b, { m.map[block], m.copy + l.conv1.copy, m.scale + l.bn1.statistics, m.bias + l.bn1.statistics, y, m.tile_sums[0], count, b.channels, l.c_in, net.bottleneck,
	                                    take_due() });
	normalise_later(statistics_of(l.bn2, own_statistics(l.bn2), m.tile_sums[0], 0, net.bottleneck, blocks, 128, count));
}

/* Behind pooled_activation(). */
template <class T> void step<T>::fused_transition(int block)
{
	const dense_block &b = net.block[block];
	const int from = net.block[block - 1].channels, width = with_tiles(b, [&](auto tiles) { return decltype(tiles)::forward_1x1::width(b.c_in); });
	const int blocks = forward_1x1(b, { m.activation, m.copy + b.transition.copy, nullptr, nullptr, m.map[block], m.sums, pixels(b.side), from, from, b.c_in, {}, b.channels });
	normalise(statistics_of(reader(block, 0), block_statistics(block), m.sums, 0, b.c_in, blocks, width, pixels(b.side)));
}

template <class T> void step<T>::fused_forward_3x3(int block, int index, const T *y)
{
	const dense_block &b = net.block[block];
	const dense_layer &l = b.layer[index];
	const long count = pixels(b.side);
	const int blocks = with_tiles(b, [&](auto tiles) { return line_blocks(count, decltype(tiles)::forward_3x3::ROWS, sms); });
	if constexpr (sizeof(T) == 2) {
		const conv3x3_forward<T> p = { y, m.copy + l.conv2.copy, m.scale + l.bn2.statistics, m.bias + l.bn2.statistics, m.map[block] + l.c_in, m.tile_sums[1], count, b.side,
			                       b.channels, net.bottleneck, net.growth, take_due() };
		if (!rc)
			rc = with_tiles(b, [&](auto tiles) { return conv3x3_forward_launch<T, typename decltype(tiles)::forward_3x3>(p, (unsigned)blocks, stream); });
	}
	normalise_later(statistics_of(reader(block, index + 1), block_statistics(block), m.tile_sums[1], l.c_in, net.growth, blocks, TAP_GROWTH, count));
}

template <class T> void step<T>::backward_layer(int block, int index)
{
	const dense_layer &l = net.block[block].layer[index];
	const T *y = m.bottleneck[block][index];
	if (l.conv2.fused & FUSED_BACKWARD)
		fused_backward_3x3(block, l, y);
	else
		separate_backward_3x3(block, l, y);
	if (l.conv1.fused & FUSED_BACKWARD)
		fused_backward(block, index, y);
	else
		separate_backward(block, index, y);
}

/* Is what the fused 3×3 leaves left to the fused 1×1: the sums of the normalisation between them, and the weight's parts, in front of its own? */
template <class T> bool step<T>::leaves_sums(const dense_layer &l) const
{
	return in_place && l.conv1.fused & l.conv2.fused & FUSED_BACKWARD;
}

/* And what the fused 1×1 leaves to the next layer's fused 3×3? Both leave their weights' parts in rooms that lie side by side, of the same sizes in the whole block: each is written
 * again in the launch after the one that merges it. */
template <class T> bool step<T>::leaves_all(const dense_block &b, int index) const
{
	return beside && index && leaves_sums(b.layer[index]) && leaves_sums(b.layer[index - 1]);
}

template <class T> layer_sums step<T>::take_waiting()
{
	const layer_sums p = waiting;
	waiting.blocks = 0;
	return p.blocks ? p : layer_sums{};
}

/* Floats of what it leaves. */
template <class T> size_t step<T>::left_weight(const dense_block &b, const dense_layer &l) const
{
	return leaves_sums(l) ? (size_t)weight_blocks_3x3(b) * (size_t)l.conv2.c_out * TAPS * (size_t)l.conv2.c_padded : 0;
}

template <class T> void step<T>::separate_backward_3x3(int block, const dense_layer &l, const T *y)
{
	const dense_block &b = net.block[block];
	const long count = pixels(b.side);
	const size_t at2 = l.bn2.statistics;
	T *g = m.gradient[block % 2] + l.c_in;
	correct(block, l.c_in, net.growth);
	pass(apply(l.bn2, y, net.bottleneck, m.activation, net.bottleneck), count, net.bottleneck);
	weight_gradient_of(l.conv2, m.activation, net.bottleneck, g, b.channels);
	data_gradient(l.conv2, g, b.channels, middle(block), net.bottleneck);
	const int parts = pass(mask<GRADIENT_FULL, false>(l.bn2, middle(block), net.bottleneck, y, net.bottleneck, middle(block), net.bottleneck, m.mean + at2, m.rstd + at2, b.side, 0),
	                       count, net.bottleneck);
	backward_sums(private_sums(l.bn2, parts, count));
}

template <class T> int step<T>::weight_blocks_3x3(const dense_block &b) const
{
	return with_tiles(b, [&](auto tiles) {
		typedef conv3x3_joined_wgmma_shape joined;
		if constexpr (joined_3x3<decltype(tiles)>) {
			const int parts = conv3x3_joined_parts(pixels(b.side), b.side, net.bottleneck, sms);
			return even ? even_blocks(joined::line(pixels(b.side), b.side), joined::ROWS, parts) : parts;
		} else
			return line_blocks(pixels(b.side), decltype(tiles)::weight_3x3::ROWS, sms);
	});
}

template <class T> void step<T>::fused_backward_3x3(int block, const dense_layer &l, const T *y)
{
	const dense_block &b = net.block[block];
	const long count = pixels(b.side);
	const size_t at2 = l.bn2.statistics;
	const int weight_blocks = weight_blocks_3x3(b);
	const int data_blocks = with_tiles(b, [&](auto tiles) { return joined_3x3<decltype(tiles)> ? weight_blocks : line_blocks(count, decltype(tiles)::data_3x3::ROWS, sms); });
	const layer_sums before = take_waiting();
	if constexpr (sizeof(T) == 2) {
		const conv3x3_backward<T> p = { m.gradient[block % 2] + l.c_in, m.map[block] + l.c_in, m.a, m.b, m.c, y, m.copy + l.conv2.copy, m.scale + at2, m.bias + at2, m.mean + at2,
			                        m.rstd + at2, middle(block), m.tile_sums[0], m.partial, count, b.side, b.channels, net.bottleneck, net.growth };
		const auto run = [&](const auto &p, const auto &second) { /* second: of the second kernel, where each gradient has its own */
			return with_tiles(b, [&](auto tiles) {
				typedef typename decltype(tiles)::weight_3x3 weight;
				if constexpr (joined_3x3<decltype(tiles)>) {
					return conv3x3_joined_launch<T, weight>(p, weight_blocks, stream);
				} else if constexpr (std::is_base_of<few_tiles, decltype(tiles)>::value) {
					return conv3x3_both_launch<T, typename few_tiles::data_3x3, weight>(p, (unsigned)data_blocks, (unsigned)weight_blocks, stream);
				} else {
					const int failed = conv3x3_weight_launch<T, weight>(p, (unsigned)weight_blocks, stream);
					return failed ? failed : conv3x3_data_launch<T, typename decltype(tiles)::data_3x3>(second, (unsigned)data_blocks, stream);
				}
			});
		};
		if (!rc)
			rc = before.blocks ? run(conv3x3_merging<T>{ p, before.bn, before }, conv3x3_merging<T>{ p, before.bn, {} }) : run(p, p);
	}
	left = private_sums(l.bn2, data_blocks, count);
	left.partial = m.tile_sums[0];
	if (!leaves_sums(l)) {
		backward_sums(left, gradient_of(l.conv2, weight_blocks));
		left.parts = 0;
	}
}

template <class T> void step<T>::separate_backward(int block, int index, const T *y)
{
	const dense_block &b = net.block[block];
	const dense_layer &l = b.layer[index];
	const long count = pixels(b.side);
	T *g = m.gradient[block % 2];
	pass(affine<T>{ middle(block), y, m.a, m.b, m.c, net.bottleneck, net.bottleneck }, count, net.bottleneck);
	pass(apply(l.bn1, m.map[block], b.channels, m.activation, l.c_in), count, l.c_in);
	weight_gradient_of(l.conv1, m.activation, l.c_in, middle(block), net.bottleneck);
	data_gradient(l.conv1, middle(block), net.bottleneck, m.back, l.c_in);
	const int parts = pass(mask<GRADIENT_FULL, true>(l.bn1, m.back, l.c_in, m.map[block], b.channels, g, b.channels, m.block_mean[block], m.block_rstd[block], b.side, 0), count, l.c_in);
	backward_sums(shared_sums(l.bn1, block, index, parts, false));
}

template <class T> int step<T>::backward_splits(const dense_block &b, int c_in) const
{
	const int wanted = sms / ((c_in + 127) / 128);
	return with_tiles(b, [&](auto tiles) {
		typedef typename decltype(tiles)::backward_1x1 backward;
		const int splits = line_blocks(pixels(b.side), backward::ROWS, wanted < 1 ? 1 : wanted);
		return even ? even_blocks(pixels(b.side), backward::ROWS, splits) : splits;
	});
}

template <class T> void step<T>::fused_backward(int block, int index, const T *y)
{
	const dense_block &b = net.block[block];
	const dense_layer &l = b.layer[index];
	const int splits = backward_splits(b, l.c_in);
	const size_t behind = left_weight(b, l);
	const weight_gradient weight = gradient_of(l.conv1, splits, behind), second = left.parts ? gradient_of(l.conv2, weight_blocks_3x3(b)) : weight_gradient{};
	if constexpr (sizeof(T) == 2) {
		const conv1x1_backward<T> p = { middle(block), y, m.a, m.b, m.c, m.map[block], m.gradient[block % 2], m.copy + l.conv1.copy, m.scale + l.bn1.statistics,
			                        m.bias + l.bn1.statistics, m.weights + l.bn1.gamma, m.block_mean[block], m.block_rstd[block], m.sums, m.partial + behind, pixels(b.side),
			                        b.channels, l.c_in, net.bottleneck, splits, left };
		const auto run = [&](const auto &p) { return with_tiles(b, [&](auto tiles) { return conv1x1_backward_launch<T, typename decltype(tiles)::backward_1x1>(p, stream); }); };
		if (!rc)
			rc = beside && second.parts ? run(conv1x1_merging<T>{ p, layer_sums_of(second, {}, {}) }) : run(p);
	}
	left.parts = 0;
	bn_backward_sums sums = shared_sums(l.bn1, block, index, splits, false);
	if (leaves_all(b, index)) {
		sums.a = sums.b = sums.c = nullptr;
		waiting = layer_sums_of(weight, {}, sums);
	} else {
		backward_sums(sums, weight, beside ? weight_gradient{} : second);
	}
}

#endif

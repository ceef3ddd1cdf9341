/* SPDX-License-Identifier: Apache-2.0
 * Forward and backward of a ResNet's blocks, for step.h, which includes this. */
#ifndef CUDA_RESIDUAL_STEP_H
#define CUDA_RESIDUAL_STEP_H

template <class T> const T *residual_input(const step<T> &s, int i)
{
	return i ? s.m.residual_out[i - 1] : s.m.residual_in;
}

/* A convolution, its statistics, and the scale and bias of the normalisation behind it. */
template <class T> void residual_convolve(step<T> &s, const conv_place &c, const bn_place &bn, const T *in, T *y)
{
	s.forward(c, in, c.c_in, y, c.c_out);
	s.normalise_map(bn, s.own_statistics(bn), 0, c.c_out, y, c.c_out, s.pixels(c.h_out));
}

/* relu of a normalised map into m.activation. */
template <class T> void residual_activate(step<T> &s, const bn_place &bn, const T *y, int side)
{
	s.pass(s.apply(bn, y, bn.channels, s.m.activation, bn.channels), s.pixels(side), bn.channels);
}

template <class T> void residual_forward_block(step<T> &s, int i)
{
	const residual_block &b = s.net.residual[i];
	const T *x = residual_input(s, i);
	T **y = s.m.residual_y[i];
	const float *scale = s.m.scale + b.bn[2].statistics, *bias = s.m.bias + b.bn[2].statistics;
	residual_convolve(s, b.conv[0], b.bn[0], x, y[0]);
	residual_activate(s, b.bn[0], y[0], b.h_in);
	residual_convolve(s, b.conv[1], b.bn[1], (const T *)s.m.activation, y[1]);
	residual_activate(s, b.bn[1], y[1], b.h_out);
	residual_convolve(s, b.conv[2], b.bn[2], (const T *)s.m.activation, y[2]);
	if (b.projected) {
		residual_convolve(s, b.shortcut, b.shortcut_bn, x, s.m.residual_shortcut[i]);
		s.pass(residual_join<T, true>{ y[2], s.m.residual_shortcut[i], s.m.residual_out[i], scale, bias, s.m.scale + b.shortcut_bn.statistics,
		                               s.m.bias + b.shortcut_bn.statistics, b.c_out }, s.pixels(b.h_out), b.c_out);
	} else {
		s.pass(residual_join<T, false>{ y[2], x, s.m.residual_out[i], scale, bias, nullptr, nullptr, b.c_out }, s.pixels(b.h_out), b.c_out);
	}
}

/* Sums of a normalisation into the slab, then the gradient of its input: from g into out (NULL: in place). */
template <class T> void residual_normalise_backward(step<T> &s, const bn_place &bn, int parts, int side, T *g, const T *y, T *out)
{
	s.backward_sums(s.private_sums(bn, parts, s.pixels(side)));
	s.pass(affine<T>{ g, y, s.m.a, s.m.b, s.m.c, bn.channels, bn.channels, out, bn.channels }, s.pixels(side), bn.channels);
}

/* The data gradient of `c`, whose input was relu(bn(y)), back through both into g. */
template <class T> void residual_convolve_backward(step<T> &s, const conv_place &c, const bn_place &bn, const T *y, const T *gradient, T *g)
{
	const size_t at = bn.statistics;
	s.data_gradient(c, gradient, c.c_out, g, c.c_in);
	const int parts = s.pass(s.template mask<GRADIENT_FULL, false>(bn, g, c.c_in, y, c.c_in, g, c.c_in, s.m.mean + at, s.m.rstd + at, c.h_in, 0), s.pixels(c.h_in), c.c_in);
	residual_normalise_backward(s, bn, parts, c.h_in, g, y, (T *)nullptr);
}

/* From m.back and `second`, the gradients of the block's output by its two readers (the head for the last block), to m.back and
 * the returned buffer, those of its input. gradient[0] and gradient[1] belong to even and odd blocks. */
template <class T> T *residual_backward_block(step<T> &s, int i, const T *second)
{
	const residual_block &b = s.net.residual[i];
	const memory<T> &m = s.m;
	const T *x = residual_input(s, i);
	T *const *y = m.residual_y[i], *g = m.gradient[i % 2];
	const size_t at = b.bn[2].statistics;
	const long count = s.pixels(b.h_out);
	int parts;
	if (second)
		parts = s.pass(residual_mask<T, false>{ m.back, second, nullptr, m.residual_out[i], y[2], g, m.mean + at, m.rstd + at, b.c_out, b.h_out * b.h_out }, count, b.c_out);
	else
		parts = s.pass(residual_mask<T, true>{ nullptr, nullptr, m.dpooled, m.residual_out[i], y[2], g, m.mean + at, m.rstd + at, b.c_out, b.h_out * b.h_out }, count, b.c_out);
	residual_normalise_backward(s, b.bn[2], parts, b.h_out, g, (const T *)y[2], m.back);
	if (b.projected) {
		const size_t shortcut = b.shortcut_bn.statistics;
		parts = s.pass(residual_sums<T>{ g, m.residual_shortcut[i], m.mean + shortcut, m.rstd + shortcut, b.c_out }, count, b.c_out);
		residual_normalise_backward(s, b.shortcut_bn, parts, b.h_out, g, (const T *)m.residual_shortcut[i], (T *)nullptr);
		s.weight_gradient_of(b.shortcut, x, b.c_in, g, b.c_out);
	}
	residual_activate(s, b.bn[1], (const T *)y[1], b.h_out);
	s.weight_gradient_of(b.conv[2], m.activation, b.conv[2].c_in, m.back, b.c_out);
	residual_convolve_backward(s, b.conv[2], b.bn[1], (const T *)y[1], (const T *)m.back, s.middle(i));
	residual_activate(s, b.bn[0], (const T *)y[0], b.h_in);
	s.weight_gradient_of(b.conv[1], m.activation, b.conv[1].c_in, s.middle(i), b.conv[1].c_out);
	residual_convolve_backward(s, b.conv[1], b.bn[0], (const T *)y[0], (const T *)s.middle(i), m.activation);
	s.weight_gradient_of(b.conv[0], x, b.c_in, m.activation, b.conv[0].c_out);
	s.data_gradient(b.conv[0], m.activation, b.conv[0].c_out, m.back, b.c_in);
	if (!b.projected)
		return g;
	s.data_gradient(b.shortcut, g, b.c_out, m.gradient[(i + 1) % 2], b.c_in);
	return m.gradient[(i + 1) % 2];
}

template <class T> void residual_forward(step<T> &s)
{
	for (int i = 0; i < s.net.residuals; i++)
		residual_forward_block(s, i);
}

/* Returns the gradient of the first block's input. */
template <class T, class Ready> T *residual_backward(step<T> &s, Ready ready)
{
	const residual_block &first = s.net.residual[0];
	T *second = nullptr;
	for (int i = s.net.residuals - 1; i >= 0; i--) {
		second = residual_backward_block(s, i, (const T *)second);
		ready(s.net.residual[i].conv[0].param); /* the block's first in table order */
	}
	s.pass(residual_add<T>{ s.m.back, second, second, first.c_in }, s.pixels(first.h_in), first.c_in);
	return second;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 * A DenseNet's or ResNet's layer table as the engine walks it, and the arena that holds everything the engine keeps on the device.
 * Plain arithmetic: nothing here touches a GPU. */
#ifndef CUDA_NETWORK_H
#define CUDA_NETWORK_H

#include <cstddef>
#include <cstdint>

extern "C" {
#include "engine/backend.h"
}

enum { FUSED_FORWARD = 1, FUSED_BACKWARD = 2, OWN_WEIGHT = 4 };
enum { MAX_LAYERS = 64, STEM_CHANNELS = 8, SUM_BLOCKS = 1024, STAGING_SLOTS = 2 };

/* A normalisation's parameters: floats from the start of the padded order, and of its statistics. */
struct bn_place {
	size_t gamma, beta, statistics;
	int channels;
};

/* A convolution: its shape, its weight in the padded order and in the copy that kernels read. */
struct conv_place {
	int param;
	size_t weight, copy;
	int h_in, h_out, c_in, c_padded, c_out, kernel, stride, pad;
	int fused;                      /* passes that kernels of our own take, as bits: FUSED_… of a dense layer, with the normalisations beside it; OWN_WEIGHT: the weight's gradient alone */
};

/* What goes to the device with each micro-batch beside its pixels, in one copy: an update_step, then arrays of [batch] at these offsets. */
struct batch_words {
	size_t window, weight, labels, known, bytes;
};
batch_words batch_words_of(int batch);

struct dense_layer {
	bn_place bn1, bn2;
	conv_place conv1, conv2;
	int c_in;
};

struct dense_block {
	int side, c_in, channels, layers;
	dense_layer layer[MAX_LAYERS];
	/* the transition into this block; block 0 has the stem instead */
	bn_place transition_bn;
	conv_place transition;
};

struct residual_block {
	bn_place bn[3], shortcut_bn;
	conv_place conv[3], shortcut;
	int h_in, h_out, c_in, c_out;
	bool projected;                 /* the shortcut has a convolution */
};

struct network {
	net_family family;
	conv_place stem;
	bool gray;                      /* the stem is gray_stem.h's */
	bn_place stem_bn, head_bn;
	int stem_side;
	dense_block block[NET_MAX_BLOCKS];
	int blocks, growth, bottleneck; /* channels of a new slice, of a bottleneck */
	residual_block residual[MAX_LAYERS];
	int residuals;
	int first_side, last_side;      /* of the maps behind the stem and before the head */
	int classes, features;
	size_t classifier_weight, classifier_bias;
	int classifier_param;           /* of the weight; the bias follows */
	size_t copy_count;              /* elements of all copies */
};

/* Every convolution: f(place, pitch of its input, pitch of its output, of its output's gradient, whether its input has a gradient). N: network, or const. */
template <class N, class F> void each_convolution(N &net, F f)
{
	f(net.stem, STEM_CHANNELS, net.stem.c_out, net.stem.c_out, false);
	for (int i = 0; i < net.blocks; i++) {
		auto &b = net.block[i];
		if (i)
			f(b.transition, net.block[i - 1].channels, b.channels, b.c_in, true);
		for (int l = 0; l < b.layers; l++) {
			f(b.layer[l].conv1, b.layer[l].c_in, net.bottleneck, net.bottleneck, true);
			f(b.layer[l].conv2, net.bottleneck, b.channels, b.channels, true);
		}
	}
	for (int i = 0; i < net.residuals; i++) {
		auto &b = net.residual[i];
		for (auto &c : b.conv)
			f(c, c.c_in, c.c_out, c.c_out, true);
		if (b.projected)
			f(b.shortcut, b.c_in, b.c_out, b.c_out, true);
	}
}

/* Every normalisation: f(place, side of its map). */
template <class F> void each_normalisation(const network &net, F f)
{
	f(net.stem_bn, net.stem_side);
	for (int i = 0; i < net.blocks; i++) {
		const dense_block &b = net.block[i];
		if (i)
			f(b.transition_bn, net.block[i - 1].side);
		for (int l = 0; l < b.layers; l++) {
			f(b.layer[l].bn1, b.side);
			f(b.layer[l].bn2, b.side);
		}
	}
	if (net.blocks)
		f(net.head_bn, net.last_side);
	for (int i = 0; i < net.residuals; i++) {
		const residual_block &b = net.residual[i];
		f(b.bn[0], b.h_in);
		f(b.bn[1], b.h_out);
		f(b.bn[2], b.h_out);
		if (b.projected)
			f(b.shortcut_bn, b.h_out);
	}
}

/* EXIT_USAGE, with what is wrong, for a plan that this engine does not compute: channels in multiples of 8 and at most 2048, even maps in DenseNets. */
int network_make(network *net, const engine_conf *conf, error *e);

/* Blocks of the update kernel: each stays within one parameter. */
size_t update_blocks(const net_plan *plan);

/* Offsets in one allocation. Laid out twice: first to learn the size, then with the memory. */
enum arena_part { ARENA_PARAMETERS, ARENA_OPTIMISER, ARENA_MAPS, ARENA_WORKSPACE, ARENA_PARTS };
struct arena {
	char *base;
	size_t bytes;
	size_t of_part[ARENA_PARTS]; /* what each took of them */
	arena_part part;             /* that takes */

	template <class P> void take(P *&to, size_t count)
	{
		const size_t room = (count * sizeof(P) + 255) / 256 * 256;
		to = base ? (P *)(base + bytes) : nullptr;
		bytes += room;
		of_part[part] += room;
	}
};

/* Everything on the device. T: the maps' number format. */
template <class T> struct memory {
	/* padded order, layout->slab_count floats each */
	float *weights, *moment1, *moment2, *slab;
	T *copy;
	float *running_mean, *running_variance, *unbias; /* [n_bn_channels] */
	/* one batch */
	uint8_t *pixels[STAGING_SLOTS];
	char *words;                             /* batch_words; the next ones point into it */
	uint32_t *labels, *known;
	float *image_weight, *pos_weight;
	struct image_window *window;
	struct update_step *step;
	T *stem;
	uint8_t *stem_place;                     /* maxpool.h's */
	T *map[NET_MAX_BLOCKS], *gradient[2];    /* a block's channels side by side; gradients of even and odd blocks */
	T *bottleneck[NET_MAX_BLOCKS][MAX_LAYERS];
	T *residual_in, *residual_y[MAX_LAYERS][3], *residual_shortcut[MAX_LAYERS], *residual_out[MAX_LAYERS]; /* a ResNet's instead */
	T *activation, *back;                    /* normalised input of a convolution; gradient of it */
	T *images, *stem_gradient;               /* rooms that are free at either end of a step: a gradient's, and back's */
	float *scale, *bias, *mean, *rstd, *square; /* [n_bn_channels], per normalisation; statistics at the slice's first reader */
	float *block_mean[NET_MAX_BLOCKS], *block_rstd[NET_MAX_BLOCKS], *block_square[NET_MAX_BLOCKS];
	float *s1, *s2, *a, *b, *c;              /* [widest] */
	float *sums;                             /* [SUM_BLOCKS][2][widest] */
	float *tile_sums[2];                     /* [SUM_BLOCKS][2][128], of a fused 1×1 and 3×3, each of which merges the other's in place */
	float *partial;                          /* a weight's gradient in parts */
	float *pooled, *logits, *dlogits, *dpooled;
	struct weight_group *groups;             /* [n_params] in the padded order, for the update */
	uint32_t *block_group, *block_first;     /* [update_blocks()] */
	struct step_gate *gate;
	struct loss_scale *loss_scale;           /* NULL: gradients are not scaled */
	void *workspace;

	/* outside: the slab, where it is not in the arena; NULL: it is. */
	void lay_out(arena *a, const network *net, const engine_conf *conf, size_t partial_floats, size_t workspace_bytes, float *outside);

private:
	size_t lay_out_blocks(arena *a, const network *net, const engine_conf *conf);
	size_t lay_out_residuals(arena *a, const network *net, const engine_conf *conf);
};

#endif

/* SPDX-License-Identifier: Apache-2.0
 * A DenseNet's layer table as the engine walks it, and the arena that holds everything the engine keeps on the device.
 * Plain arithmetic: nothing here touches a GPU. */
#ifndef CUDA_NETWORK_H
#define CUDA_NETWORK_H

#include <cstddef>
#include <cstdint>

extern "C" {
#include "engine/backend.h"
}

enum { MAX_LAYERS = 64, STEM_CHANNELS = 8, SUM_BLOCKS = 1024 };

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
};

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

struct network {
	conv_place stem;
	bn_place stem_bn, head_bn;
	int stem_side;
	dense_block block[NET_MAX_BLOCKS];
	int blocks, growth, bottleneck; /* channels of a new slice, of a bottleneck */
	int classes, features;
	size_t classifier_weight, classifier_bias;
	int classifier_param;           /* of the weight; the bias follows */
	size_t copy_count;              /* elements of all copies */
};

/* EXIT_USAGE, with what is wrong, for a plan that is no DenseNet of this engine's: channels in multiples of 8, even maps. */
int network_make(network *net, const engine_conf *conf, error *e);

/* Blocks of the update kernel: each stays within one parameter. */
size_t update_blocks(const net_plan *plan);

/* Offsets in one allocation. Laid out twice: first to learn the size, then with the memory. */
struct arena {
	char *base;
	size_t bytes;

	template <class P> void take(P *&to, size_t count)
	{
		to = base ? (P *)(base + bytes) : nullptr;
		bytes += (count * sizeof(P) + 255) / 256 * 256;
	}
};

/* Everything on the device. T: the maps' number format. */
template <class T> struct memory {
	/* padded order, layout->slab_count floats each */
	float *weights, *moment1, *moment2, *slab;
	T *copy;
	float *running_mean, *running_variance, *unbias; /* [n_bn_channels] */
	/* one batch */
	uint8_t *pixels;
	uint32_t *labels, *known;
	float *image_weight, *pos_weight;
	struct image_window *window;
	T *images, *stem, *stem_gradient;
	T *map[NET_MAX_BLOCKS], *gradient[2];    /* a block's channels side by side; gradients of even and odd blocks */
	T *bottleneck[NET_MAX_BLOCKS][MAX_LAYERS];
	T *activation, *back, *dz;               /* normalised input of a convolution; gradient of it; of a bottleneck */
	float *scale, *bias, *mean, *rstd, *square; /* [n_bn_channels], per normalisation; statistics at the slice's first reader */
	float *block_mean[NET_MAX_BLOCKS], *block_rstd[NET_MAX_BLOCKS], *block_square[NET_MAX_BLOCKS];
	float *s1, *s2, *a, *b, *c;              /* [widest] */
	float *sums;                             /* [SUM_BLOCKS][2][widest] */
	float *partial;                          /* a weight's gradient in parts */
	float *pooled, *logits, *dlogits, *dpooled;
	struct weight_group *groups;             /* [n_params] in the padded order, for the update */
	uint32_t *block_group, *block_first;     /* [update_blocks()] */
	struct update_step *step;
	void *workspace;

	void lay_out(arena *a, const network *net, const engine_conf *conf, size_t partial_floats, size_t workspace_bytes);
};

#endif

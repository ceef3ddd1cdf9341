/* SPDX-License-Identifier: Apache-2.0
 * A network as data: parameters with torchvision's names and shapes, and the layers over them.
 * Engines read a plan; nothing here knows how a layer is computed. */
#ifndef NET_PLAN_H
#define NET_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

enum { NET_MAX_BLOCKS = 4, NET_NAME = 96 };

enum param_kind { PARAM_CONV_WEIGHT, PARAM_BN_WEIGHT, PARAM_BN_BIAS, PARAM_LINEAR_WEIGHT, PARAM_LINEAR_BIAS };

struct net_param {
	char name[NET_NAME];  /* "features.denseblock1.denselayer1.conv1.weight" */
	enum param_kind kind;
	int ndim;
	int shape[4];         /* OIHW for convolutions, [out][in] for the classifier */
	size_t offset, count; /* in floats, in table order */
};

/* A batch normalisation's running statistics: mean and variance, `channels` floats each. */
struct net_bn {
	char name[NET_NAME]; /* "features.norm0" */
	int channels;
	size_t offset;       /* of its mean in [n_bn_channels] and of its variance in the same */
	int weight, bias;    /* indices into params */
};

enum layer_op { OP_CONV, OP_BN_RELU, OP_BN, OP_RELU, OP_MAXPOOL, OP_AVGPOOL, OP_CONCAT, OP_ADD_RELU, OP_GLOBAL_AVGPOOL, OP_LINEAR };

/* One operation on activations. Activation 0 is the normalised input [n][3][s][s]; layer i writes activation i + 1. */
struct net_layer {
	enum layer_op op;
	char name[NET_NAME];
	int in, in2;          /* activations read; in2 only for CONCAT and ADD_RELU, else -1 */
	int c_in, h_in;       /* channels and height (= width) of `in` */
	int c_out, h_out;
	int k, stride, pad;
	int weight, bias;     /* parameter indices or -1 */
	int bn;               /* index into bns or -1 */
};

enum net_family { NET_DENSENET, NET_RESNET };

struct net_plan {
	enum net_family family;
	char model[32];       /* "densenet121" */
	int image_size;       /* the square that enters the network, pixels */
	int classes;
	int growth, init_channels, bottleneck; /* DenseNets: 32, 64, 4; ResNets: 0, 64, 4 */
	int n_blocks, block[NET_MAX_BLOCKS];   /* dense layers (or residual blocks) a stage */
	struct net_param *params;
	int n_params;         /* tensors */
	size_t n_weights;     /* floats in all params */
	struct net_bn *bns;
	int n_bns;
	size_t n_bn_channels; /* floats in all running means */
	struct net_layer *layers;
	int n_layers;
};

struct net_conf {
	const char *model;    /* "densenet121", "densenet169", "densenet201", "resnet50", or "densenet" and "resnet" with the next fields */
	int image_size, classes;
	int growth, init_channels;            /* 0: 32 and 2 * growth in a "densenet"; a "resnet" has 64 initial channels and no growth */
	int n_blocks, block[NET_MAX_BLOCKS];
};

/* Fills *plan, to be freed by net_plan_free(). EXIT_USAGE for an unknown model or an image too small for its pools. */
int net_plan_make(struct net_plan *plan, const struct net_conf *conf, struct error *e);
void net_plan_free(struct net_plan *plan);

/* torchvision's initialisation in table order: kaiming_normal (fan in; of a ResNet, fan out) for convolutions, 1 and 0 for BN, uniform for the
 * classifier's weight; its bias becomes logit(prevalence[class]) where prevalence is not NULL, else 0 (a prevalence nearer
 * than 1e-4 to 0 or 1 counts as 1e-4 from it). Keyed by seed and parameter, so it does not depend on the order of filling. */
void net_init(const struct net_plan *plan, uint64_t seed, const double *prevalence, float *weights);

/* Index of a parameter or -1. */
int net_param_find(const struct net_plan *plan, const char *name);

/* Is this one of the last layer's two parameters, whose shape depends on the number of classes? */
int net_param_is_head(const struct net_plan *plan, const char *name);

#endif

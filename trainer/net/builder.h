/* SPDX-License-Identifier: Apache-2.0
 * Appends parameters, batch normalisations and layers to a plan in table order. Activations are named by the
 * number that net_layer gives them. After a failure the builder adds nothing more and `status` holds it. */
#ifndef NET_BUILDER_H
#define NET_BUILDER_H

#include "net/plan.h"

struct net_builder {
	struct net_plan *plan;
	struct error *error;
	int status; /* 0 or the first failure */
};

/* Each returns the activation that it writes. */
int net_add_conv(struct net_builder *b, int in, int c_out, int k, int stride, int pad, const char *name, ...)
	__attribute__((format(printf, 7, 8)));
int net_add_bn(struct net_builder *b, enum layer_op op, int in, const char *name, ...) __attribute__((format(printf, 4, 5)));
int net_add_pool(struct net_builder *b, enum layer_op op, int in, int k, int stride, int pad, const char *name, ...)
	__attribute__((format(printf, 7, 8)));
int net_add_join(struct net_builder *b, enum layer_op op, int in, int in2, const char *name, ...)
	__attribute__((format(printf, 5, 6)));
int net_add_linear(struct net_builder *b, int in, int outputs, const char *name, ...) __attribute__((format(printf, 4, 5)));

int net_unknown_model(struct net_builder *b, const char *model);

/* Copies plan->n_blocks numbers to plan->block; EXIT_USAGE for too many or few blocks, or `what` in one. */
int net_check_blocks(struct net_builder *b, const char *model, const char *what, const int *block);

/* The networks; EXIT_USAGE for a conf they cannot be made from. */
int net_build_densenet(struct net_builder *b, const struct net_conf *conf);
int net_build_resnet(struct net_builder *b, const struct net_conf *conf);

#endif

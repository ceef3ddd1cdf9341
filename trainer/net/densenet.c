/* SPDX-License-Identifier: Apache-2.0
 * DenseNet (Huang et al., CVPR 2017) as torchvision builds it: bottleneck layers, transitions that halve the channels. */
#include <string.h>

#include "net/builder.h"

enum { BOTTLENECK = 4 };

static const struct densenet {
	const char *model;
	int growth, init_channels, block[NET_MAX_BLOCKS];
} densenets[] = {
	{ "densenet121", 32, 64, { 6, 12, 24, 16 } },
	{ "densenet169", 32, 64, { 6, 12, 32, 32 } },
	{ "densenet201", 32, 64, { 6, 12, 48, 32 } },
};

static int small_densenet(struct net_builder *b, const struct net_conf *conf)
{
	struct net_plan *plan = b->plan;
	plan->growth = conf->growth ? conf->growth : 32;
	plan->init_channels = conf->init_channels ? conf->init_channels : 2 * plan->growth;
	plan->n_blocks = conf->n_blocks;
	if (plan->growth < 1 || plan->growth > 256 || plan->init_channels < 1 || plan->init_channels > 1024)
		return fail(b->error, EXIT_USAGE, "densenet: growth %d and %d initial channels: use 1 to 256 and 1 to 1024",
		            plan->growth, plan->init_channels);
	return net_check_blocks(b, "densenet", "layers", conf->block);
}

static int choose(struct net_builder *b, const struct net_conf *conf)
{
	struct net_plan *plan = b->plan;
	plan->bottleneck = BOTTLENECK;
	for (size_t i = 0; i < sizeof densenets / sizeof densenets[0]; i++) {
		if (strcmp(conf->model, densenets[i].model))
			continue;
		plan->growth = densenets[i].growth;
		plan->init_channels = densenets[i].init_channels;
		plan->n_blocks = NET_MAX_BLOCKS;
		memcpy(plan->block, densenets[i].block, sizeof plan->block);
		return 0;
	}
	if (!strcmp(conf->model, "densenet"))
		return small_densenet(b, conf);
	return net_unknown_model(b, conf->model);
}

static int dense_layer(struct net_builder *b, int x, int block, int layer)
{
	int growth = b->plan->growth;
	int y = net_add_bn(b, OP_BN_RELU, x, "features.denseblock%d.denselayer%d.norm1", block, layer);
	y = net_add_conv(b, y, BOTTLENECK * growth, 1, 1, 0, "features.denseblock%d.denselayer%d.conv1", block, layer);
	y = net_add_bn(b, OP_BN_RELU, y, "features.denseblock%d.denselayer%d.norm2", block, layer);
	y = net_add_conv(b, y, growth, 3, 1, 1, "features.denseblock%d.denselayer%d.conv2", block, layer);
	return net_add_join(b, OP_CONCAT, x, y, "features.denseblock%d.denselayer%d", block, layer);
}

static int transition(struct net_builder *b, int x, int block, int channels)
{
	x = net_add_bn(b, OP_BN_RELU, x, "features.transition%d.norm", block);
	x = net_add_conv(b, x, channels / 2, 1, 1, 0, "features.transition%d.conv", block);
	return net_add_pool(b, OP_AVGPOOL, x, 2, 2, 0, "features.transition%d.pool", block);
}

int net_build_densenet(struct net_builder *b, const struct net_conf *conf)
{
	struct net_plan *plan = b->plan;
	if (choose(b, conf))
		return -b->error->code;
	int channels = plan->init_channels;
	int x = net_add_conv(b, 0, channels, 7, 2, 3, "features.conv0");
	x = net_add_bn(b, OP_BN_RELU, x, "features.norm0");
	x = net_add_pool(b, OP_MAXPOOL, x, 3, 2, 1, "features.pool0");
	for (int i = 1; i <= plan->n_blocks; i++) {
		for (int layer = 1; layer <= plan->block[i - 1]; layer++)
			x = dense_layer(b, x, i, layer);
		channels += plan->block[i - 1] * plan->growth;
		if (i < plan->n_blocks) {
			x = transition(b, x, i, channels);
			channels /= 2;
		}
	}
	x = net_add_bn(b, OP_BN_RELU, x, "features.norm5"); /* so torchvision calls it after any number of blocks */
	x = net_add_pool(b, OP_GLOBAL_AVGPOOL, x, 0, 0, 0, "avgpool");
	net_add_linear(b, x, plan->classes, "classifier");
	return b->status;
}

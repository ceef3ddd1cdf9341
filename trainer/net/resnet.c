/* SPDX-License-Identifier: Apache-2.0
 * ResNet with bottlenecks (He et al., CVPR 2016) as torchvision builds it: the stride is in the 3 x 3 convolution. */
#include <string.h>

#include "net/builder.h"

enum { EXPANSION = 4 };

static int choose(struct net_builder *b, const struct net_conf *conf)
{
	static const int resnet50[NET_MAX_BLOCKS] = { 3, 4, 6, 3 };
	int small = !strcmp(conf->model, "resnet");
	struct net_plan *plan = b->plan;
	if (!small && strcmp(conf->model, "resnet50") != 0)
		return net_unknown_model(b, conf->model);
	plan->init_channels = small && conf->init_channels ? conf->init_channels : 64;
	plan->n_blocks = small ? conf->n_blocks : NET_MAX_BLOCKS;
	plan->bottleneck = EXPANSION;
	if (plan->init_channels < 1 || plan->init_channels > 1024)
		return fail(b->error, EXIT_USAGE, "resnet: %d initial channels: use 1 to 1024", plan->init_channels);
	if (net_check_blocks(b, "resnet", "blocks", small ? conf->block : resnet50))
		return -b->error->code;
	return 0;
}

/* 1 x 1 to `width`, 3 x 3, 1 x 1 to EXPANSION times as many; the shortcut is a 1 x 1 where shapes differ. */
static int bottleneck(struct net_builder *b, int x, int stage, int block, int width, int stride, int project)
{
	int y = net_add_conv(b, x, width, 1, 1, 0, "layer%d.%d.conv1", stage, block);
	y = net_add_bn(b, OP_BN_RELU, y, "layer%d.%d.bn1", stage, block);
	y = net_add_conv(b, y, width, 3, stride, 1, "layer%d.%d.conv2", stage, block);
	y = net_add_bn(b, OP_BN_RELU, y, "layer%d.%d.bn2", stage, block);
	y = net_add_conv(b, y, EXPANSION * width, 1, 1, 0, "layer%d.%d.conv3", stage, block);
	y = net_add_bn(b, OP_BN, y, "layer%d.%d.bn3", stage, block);
	if (project) {
		x = net_add_conv(b, x, EXPANSION * width, 1, stride, 0, "layer%d.%d.downsample.0", stage, block);
		x = net_add_bn(b, OP_BN, x, "layer%d.%d.downsample.1", stage, block);
	}
	return net_add_join(b, OP_ADD_RELU, y, x, "layer%d.%d", stage, block);
}

int net_build_resnet(struct net_builder *b, const struct net_conf *conf)
{
	struct net_plan *plan = b->plan;
	if (choose(b, conf))
		return -b->error->code;
	int width = plan->init_channels;
	int x = net_add_conv(b, 0, width, 7, 2, 3, "conv1");
	x = net_add_bn(b, OP_BN_RELU, x, "bn1");
	x = net_add_pool(b, OP_MAXPOOL, x, 3, 2, 1, "maxpool");
	for (int stage = 1; stage <= plan->n_blocks; stage++, width *= 2)
		for (int block = 0; block < plan->block[stage - 1]; block++)
			x = bottleneck(b, x, stage, block, width, stage > 1 && block == 0 ? 2 : 1, block == 0);
	x = net_add_pool(b, OP_GLOBAL_AVGPOOL, x, 0, 0, 0, "avgpool");
	net_add_linear(b, x, plan->classes, "fc");
	return b->status;
}

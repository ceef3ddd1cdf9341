/* SPDX-License-Identifier: Apache-2.0 */
#include "commands/network_options.h"

#include <stdio.h>
#include <string.h>

#include "data/findings.h"

const char *const engine_choices[] = { "auto", "cpu", "reference", "cuda", NULL };
const char *const precision_choices[] = { "fp32", "tf32", "bf16", "fp16", "fp64", NULL };

struct network network_from_options(const struct network_options *o)
{
	struct network n = { .image_size = o->image_size, .classes = FINDINGS };

	snprintf(n.model, sizeof n.model, "%s", o->model);
	if (strcmp(o->model, "densenet") != 0 && strcmp(o->model, "resnet") != 0)
		return n;
	n.growth = o->growth;
	n.init_channels = o->init_channels;
	n.n_blocks = o->blocks.n; /* net_plan_make() refuses more than NET_MAX_BLOCKS */
	for (int b = 0; b < n.n_blocks && b < NET_MAX_BLOCKS; b++)
		n.block[b] = o->blocks.value[b];
	return n;
}

int threads_from_options(const struct engine_options *o, const struct world *w)
{
	return o->threads ? o->threads : w->places[w->at->rank].threads;
}

int default_image_size(int source_size)
{
	return source_size * 7 / 8 / 8 * 8;
}

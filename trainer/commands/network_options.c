/* SPDX-License-Identifier: Apache-2.0 */
#include "commands/network_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/findings.h"
#include "learn/cam.h"

const char *const engine_choices[] = { "auto", "cpu", "reference", "cuda", NULL };
const char *const engine_others[] = { "gpu", "cuda", NULL };
const char *const precision_choices[] = { "fp32", "tf32", "bf16", "fp16", "fp64", NULL };

int check_network_options(const struct network_options *o, struct error *e)
{
	static const struct option_ints standard = { .n = 4, .value = { 6, 12, 24, 16 } };
	int densenet = strcmp(o->model, "densenet") == 0, resnet = strcmp(o->model, "resnet") == 0;
	const char *idle = o->growth != 32 && !densenet                                       ? "growth"
			 : o->init_channels && !densenet && !resnet                           ? "init-channels"
			 : memcmp(&o->blocks, &standard, sizeof standard) && !densenet && !resnet ? "blocks"
													    : NULL;

	if (!idle)
		return 0;
	return fail(e, EXIT_USAGE, "--%s changes nothing in --model=%s: it is for --model=densenet%s", idle, o->model, strcmp(idle, "growth") ? " or resnet" : "");
}

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

const char *precision_advice(const struct engine_options *o, enum engine_kind kind)
{
	if (kind != ENGINE_CUDA || o->precision_typed)
		return NULL;
	return "fp32, the default, leaves the GPU's tensor cores unused: --precision=bf16 computes with them (fp16 on GPUs before Ampere)";
}

int check_weights(const char *path, int typed, struct error *e)
{
	if (!path)
		return fail(e, EXIT_USAGE, "--weights=FILE is needed");
	if (typed > 1)
		return fail(e, EXIT_USAGE, "--weights is given %d times, the last is %s: one model at a time; chexnet ensemble averages the predictions of several", typed, path);
	return 0;
}

int size_of_weights(const char *path, const char *option, int noted, int typed, struct error *e)
{
	if (noted && typed && noted != typed)
		return fail(e, EXIT_USAGE, "--%s=%d: %s says %d itself: leave the option out", option, typed, path, noted);
	return noted ? noted : typed;
}

void say_findings(const char *command, const char *path)
{
	char names[FINDING_HINT];

	fprintf(stderr, "chexnet %s: %s does not say which findings its outputs stand for: taken as %s, in this order\n", command, path,
		findings_write(names, sizeof names, ALL_FINDINGS, ", "));
}

/* Pixels of the window from one of a DenseNet's last cells to the next; 0: it is none, or there is no such network, as will be said when it is
 * made. */
static int densenet_pitch(const struct network *n, int image_size)
{
	struct net_conf conf = network_conf(n);
	struct net_plan plan;
	struct error ignored = { 0 };

	conf.image_size = image_size;
	if (net_plan_make(&plan, &conf, &ignored) < 0)
		return 0;
	int pitch = plan.family == NET_DENSENET ? (int)cam_grid_of(&plan).pitch : 0;

	net_plan_free(&plan);
	return pitch;
}

/* The side that a DenseNet's cells cover and that shows about as much as `window` of `of`; 0: there is none. */
static int covered_like(const struct network *n, int window, int of, int source_size)
{
	int pitch = densenet_pitch(n, source_size), even = pitch ? (source_size * window / of + pitch / 2) / pitch * pitch : 0;

	return even <= source_size && 16 * abs(even * of - source_size * window) <= source_size * of ? even : 0;
}

int image_size_like(const struct network *n, int window, int of, int source_size)
{
	int even = covered_like(n, window, of, source_size);

	return even ? even : (source_size * window + of / 2) / of;
}

int default_image_size(const struct network *n, int source_size, int halving)
{
	int even = covered_like(n, 7, 8, source_size), pitch = even || !halving ? 0 : densenet_pitch(n, source_size);

	if (pitch) {
		even = (source_size * 7 / 8 + pitch / 2) / pitch * pitch;
		even -= even > source_size ? pitch : 0;
	}
	return even ? even : source_size * 7 / 8 / 8 * 8;
}

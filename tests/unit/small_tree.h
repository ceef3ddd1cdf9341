/* SPDX-License-Identifier: Apache-2.0
 * Synthetic images in NIH's layout, in a test's directory. */
#ifndef TESTS_SMALL_TREE_H
#define TESTS_SMALL_TREE_H

#include "prepare/prepare.h"
#include "prepare/synth_tree.h"
#include "scratch.h"

static char tree[FILE_PATH];
static struct synth_conf synth = SYNTH_BUILTIN;

/* 120 images of 48 pixels. Makes the directory too. */
static inline int small_tree(void **state)
{
	struct synth_report r;
	struct error e = { 0 };

	if (scratch_make(state))
		return -1;
	synth.images = 120;
	synth.size = 48;
	snprintf(tree, sizeof tree, "%s", scratch_path("tree"));
	if (synth_tree(&synth, tree, 0, 2, NULL, NULL, &r, &e))
		fprintf(stderr, "%s\n", e.text);
	return e.code ? -1 : 0;
}

static inline struct prepare_conf prepare_to(const char *out)
{
	return (struct prepare_conf){ .out = out, .size = 32, .shards = 2, .seed = 7 };
}

#endif

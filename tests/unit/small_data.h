/* SPDX-License-Identifier: Apache-2.0
 * A data set of synthetic images in a test's directory, as TFRecords and packed. */
#ifndef TESTS_SMALL_DATA_H
#define TESTS_SMALL_DATA_H

#include "prepare/prepare.h"
#include "prepare/synth_tree.h"
#include "scratch.h"

static char prepared[FILE_PATH], packed[FILE_PATH];

/* 300 images of side pixels; the TFRecords in so many shards. Makes the directory too. */
static inline int small_data(void **state, int side, int shards)
{
	struct synth_conf synth = SYNTH_BUILTIN;
	struct synth_report report;
	struct prepare_report r;
	struct origin origin;
	struct error e = { 0 };

	if (scratch_make(state))
		return -1;
	synth.images = 300;
	synth.size = side;
	snprintf(prepared, sizeof prepared, "%s", scratch_path("prepared"));
	snprintf(packed, sizeof packed, "%s", scratch_path("packed"));
	const char *tree = scratch_path("tree");
	struct prepare_conf conf = { .out = prepared, .size = side, .shards = shards, .seed = 7 };
	struct prepare_conf flat = { .out = packed, .size = side, .encoding = ENCODING_PACKED, .seed = 7 };
	if (synth_tree(&synth, tree, 0, 2, NULL, NULL, &report, &e) || origin_nih(&origin, tree, SPLIT_OFFICIAL, 7, &e) ||
	    prepare(&conf, &origin, &r, &e) || prepare(&flat, &origin, &r, &e)) {
		fprintf(stderr, "%s\n", e.text);
		return -1;
	}
	origin_close(&origin);
	return 0;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 * A directory of a test's own for model files, emptied after each test, and a small network to fill them with. */
#ifndef CHECKPOINT_FILES_H
#define CHECKPOINT_FILES_H

#include "tests/unit/test.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "learn/checkpoint.h"

static char directory[512], path[600];

static int make_directory(void **state)
{
	const char *build = getenv("BUILD");

	(void)state;
	snprintf(directory, sizeof directory, "%s/tests/tmp-checkpoint-%ld", build ? build : "build", (long)getpid());
	snprintf(path, sizeof path, "%s/model.safetensors", directory);
	return mkdir(directory, 0777);
}

static inline int files_in_directory(void)
{
	DIR *d = opendir(directory);
	int n = -2; /* . and .. */

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int empty_directory(void **state)
{
	(void)state;
	DIR *d = opendir(directory);
	struct dirent *entry;

	while (d && (entry = readdir(d)))
		if (entry->d_name[0] != '.')
			unlinkat(dirfd(d), entry->d_name, 0);
	return d ? closedir(d) : 0;
}

static int remove_directory(void **state)
{
	empty_directory(state);
	return rmdir(directory);
}

static void make_small_net(struct net_plan *plan, int classes)
{
	struct net_conf conf = { .model = "densenet", .image_size = 32, .classes = classes, .growth = 4, .init_channels = 8, .n_blocks = 2, .block = { 2, 3 } };
	struct error e = { 0 };

	assert_int_equal(net_plan_make(plan, &conf, &e), 0);
}

static void make_values(struct model_values *v, const struct net_plan *plan, int with_moments)
{
	struct error e = { 0 };

	assert_int_equal(model_values_alloc(v, plan, with_moments, &e), 0);
	for (size_t i = 0; i < plan->n_weights; i++) {
		v->params[i] = (float)sin((double)i);
		if (with_moments) {
			v->moment1[i] = (float)cos((double)i);
			v->moment2[i] = (float)i * 1e-30f;
		}
	}
	for (size_t i = 0; i < plan->n_bn_channels; i++) {
		v->mean[i] = (float)i - 3;
		v->variance[i] = 1.0f / (float)(i + 1);
	}
}

static const struct checkpoint_notes example = {
	.seed = UINT64_C(18446744073709551615), .position = UINT64_C(9007199254740993), .step = 1234, .data_hash = UINT64_C(0xfedcba9876543210),
	.val_hash = UINT64_C(0xfedcba9876543211),
	.global_batch = 64, .batch = 16, .bucket_bytes = 1 << 21, .source_size = 64, .leaky = 1, .untrained = 1 << 3 | 1 << 13,
	.validated = 1200, .window = 3, .window_layout = UINT64_C(0x8badf00d0badcafe), .pos_weight = "balanced", .stored_as = "jpeg", .options = "--learning-rate=0.004 --momentum=0.9",
	.split_policy = "official", .resize = "area", .mask = "00c0ffee00c0ffee", .precision = "fp32", .trained_on = "synthetic, then ChestX-ray14, labels of 2020", .optimizer = "sgd", .best_auroc = 0.81234567890123456, .best_step = 1200, .best_loss = 0.1625, .stale = 2, .rate_factor = 0.01, .loss_scale = 4096, .scale_good = 77, .skipped = 5,
};

#endif

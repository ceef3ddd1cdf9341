/* SPDX-License-Identifier: Apache-2.0
 * Gradients in the order in which they become ready, padded to whole vectors: what is put in comes out, and lies where it belongs. */
#include "tests/unit/test.h"

#include "engine/backend.h"

static struct net_plan plan;
static struct engine_layout layout;

static int make(void **state)
{
	struct net_conf conf = { .model = "densenet", .image_size = 32, .classes = 5, .growth = 4, .init_channels = 8, .n_blocks = 2, .block = { 2, 1 } };
	struct error e = { 0 };
	(void)state;
	return net_plan_make(&plan, &conf, &e) || engine_layout_make(&layout, &plan, &e);
}

static int unmake(void **state)
{
	(void)state;
	engine_layout_free(&layout);
	net_plan_free(&plan);
	return 0;
}

static void groups_follow_each_other_backwards_and_begin_at_whole_vectors(void **state)
{
	(void)state;
	size_t at = 0;
	assert_int_equal(layout.n_groups, plan.n_params + 1);
	for (int g = 0; g < layout.n_groups; g++) {
		const struct engine_group *group = &layout.groups[g];
		int param = plan.n_params - 1 - g;
		size_t least = param < 0 ? 2 * plan.n_bn_channels + 1 : plan.params[param].count;
		assert_int_equal(group->param, param);
		assert_string_equal(group->name, param < 0 ? "statistics" : plan.params[param].name);
		assert_int_equal(group->offset, at);
		assert_int_equal(group->offset % 16, 0);
		assert_true(group->count >= least && group->count < least + 32);
		at += group->count;
	}
	assert_int_equal(layout.slab_count, at);
}

/* Number i of the table, wherever it lies. */
static size_t place_of(size_t i)
{
	for (int p = 0; p < plan.n_params; p++)
		if (i >= plan.params[p].offset && i < plan.params[p].offset + plan.params[p].count)
			return layout.groups[plan.n_params - 1 - p].offset + i - plan.params[p].offset;
	fail_msg("%zu is in no parameter", i);
	return 0;
}

static void any_stretch_goes_to_its_places_and_back(void **state)
{
	(void)state;
	size_t n = plan.n_weights;
	float *table = malloc(n * sizeof *table), *slab = malloc(layout.slab_count * sizeof *slab), *back = malloc(n * sizeof *back);
	unsigned random = 4711;
	assert_true(table && slab && back);
	for (size_t i = 0; i < n; i++)
		table[i] = (float)(i + 1);
	for (int round = 0; round < 60; round++) {
		size_t offset = round ? (size_t)rand_r(&random) % n : 0, count = round ? (size_t)rand_r(&random) % (n - offset + 1) : n;
		memset(slab, 0, layout.slab_count * sizeof *slab);
		memset(back, 0, n * sizeof *back);
		engine_layout_put(&layout, &plan, slab, offset, table + offset, count);
		size_t filled = 0;
		for (size_t i = 0; i < layout.slab_count; i++)
			filled += slab[i] != 0;
		assert_int_equal(filled, count);
		for (size_t i = offset; i < offset + count; i++)
			assert_true(slab[place_of(i)] == table[i]);
		engine_layout_get(&layout, &plan, slab, offset, back + offset, count);
		for (size_t i = 0; i < n; i++)
			assert_true(back[i] == (i >= offset && i < offset + count ? table[i] : 0));
	}
	free(table);
	free(slab);
	free(back);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(groups_follow_each_other_backwards_and_begin_at_whole_vectors),
		cmocka_unit_test(any_stretch_goes_to_its_places_and_back),
	};
	return cmocka_run_group_tests(tests, make, unmake);
}

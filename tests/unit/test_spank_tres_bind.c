/* SPDX-License-Identifier: Apache-2.0
 * SLURM_TRES_BIND: whether a user chose the GPUs of tasks, and how the others' part of it stays. */
#include "test.h"

#include "../../spank/tres_bind.h"

static void a_users_choice_is_told_from_what_slurm_implies(void **state)
{
	(void)state;
	assert_true(tres_binds_gpus("gres/gpu:closest"));
	assert_true(tres_binds_gpus("gres/nic:closest+gres/gpu:verbose,map:0,1"));
	assert_true(tres_binds_gpus("gres/gpu:none"));
	assert_false(tres_binds_gpus("gres/gpu:per_task:1"));
	assert_false(tres_binds_gpus("gres/gpu:verbose,per_task:1"));
	assert_false(tres_binds_gpus("gres/gpu:none:socket"));
	assert_false(tres_binds_gpus("gres/nic:closest"));
	assert_false(tres_binds_gpus("gres/gpus:closest+"));
	assert_false(tres_binds_gpus(""));
}

static void other_resources_keep_their_binding(void **state)
{
	char buf[64];
	(void)state;
	assert_string_equal(tres_bind_no_gpus("gres/gpu:per_task:1", buf, sizeof buf), "gres/gpu:none");
	assert_string_equal(tres_bind_no_gpus("gres/nic:closest+gres/gpu:per_task:2+gres/x:none", buf, sizeof buf), "gres/gpu:none+gres/nic:closest+gres/x:none");
	assert_string_equal(tres_bind_no_gpus("", buf, sizeof buf), "gres/gpu:none");
	assert_string_equal(tres_bind_no_gpus("gres/x:none", buf, sizeof "gres/gpu:none+gres/x:none"), "gres/gpu:none+gres/x:none");
	for (size_t size = 1; size < sizeof "gres/gpu:none+gres/x:none"; size++) {
		memset(buf, '#', sizeof buf);
		assert_null(tres_bind_no_gpus("gres/x:none", buf, size));
		assert_int_equal(buf[size], '#');
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_users_choice_is_told_from_what_slurm_implies),
		cmocka_unit_test(other_resources_keep_their_binding),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

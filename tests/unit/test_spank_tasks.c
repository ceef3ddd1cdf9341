/* SPDX-License-Identifier: Apache-2.0
 * How many tasks a step gets, from the words that Slurm reads. */
#include "test.h"

#include "../../spank/tasks.h"

static void gpus_in_words(void **state)
{
	(void)state;
	assert_int_equal(count_gpus("4"), 4);
	assert_int_equal(count_gpus("a100:4"), 4);
	assert_int_equal(count_gpus("a100:2,v100:2"), 4);
	assert_int_equal(count_gpus("0"), 0);
	assert_int_equal(count_gpus(""), -1);
	assert_int_equal(count_gpus("a100"), 1);
	assert_int_equal(count_gpus("a100,v100:2"), 3);
	assert_int_equal(count_gpus("a100:"), -1);
	assert_int_equal(count_gpus("a100:x"), -1);
	assert_int_equal(count_gpus("a\n100"), -1); /* it would be said in a line */
	assert_int_equal(count_gpus("a\033[1m"), -1);
	assert_int_equal(count_gpus("4,"), -1);
	assert_int_equal(count_gpus("-1"), -1);
	assert_int_equal(count_gpus("99999999999"), -1);
	assert_int_equal(count_gpus("4294967298"), -1); /* 2 in 32 bits */
}

static void gpus_in_gres(void **state)
{
	(void)state;
	assert_int_equal(count_gres_gpus("gpu:2"), 2);
	assert_int_equal(count_gres_gpus("gpu"), 1);
	assert_int_equal(count_gres_gpus("gpu:a100"), 1);
	assert_int_equal(count_gres_gpus("gpu:a100:4"), 4);
	assert_int_equal(count_gres_gpus("gpu:a100:4(S:0-1),craynetwork:1"), 4);
	assert_int_equal(count_gres_gpus("craynetwork:1,gpu:2,gpu:v100:1"), 3);
	assert_int_equal(count_gres_gpus("gres/gpu:2"), 2);
	assert_int_equal(count_gres_gpus("gres:gpu:2"), 2);
	assert_int_equal(count_gres_gpus("gres/gpu=2"), 2);
	assert_int_equal(count_gres_gpus("cpu=8,gres/gpu:a100=2"), 2);
	assert_int_equal(count_gres_gpus("cpu=8"), 0);
	assert_int_equal(count_gres_gpus("shard:4"), 0);
	assert_int_equal(count_gres_gpus("none"), 0);
	assert_int_equal(count_gres_gpus("gpus:2"), 0);
	assert_int_equal(count_gres_gpus("gpu:a100:x"), -1);
	assert_int_equal(count_gres_gpus("gpu:"), -1);
	assert_int_equal(count_gres_gpus("gpu:a100:x,gpu:2"), -1);

	char rest[24];
	assert_string_equal(without_gpus("cpu=8,gres/gpu:a100=2,mem=4", rest, sizeof rest), "cpu=8,mem=4");
	assert_string_equal(without_gpus("gres/gpu=2", rest, sizeof rest), "");
	assert_string_equal(without_gpus("cpu=8", rest, sizeof rest), "cpu=8");
	assert_null(without_gpus("cpu=8", rest, 5));
	assert_string_equal(without_gpus("gpu:2(S:0,1),nic:1", rest, sizeof rest), "nic:1");
	assert_null(without_gpus("cpu=8,license/something=1000", rest, sizeof rest));
}

static void nodes_and_counts(void **state)
{
	int position = -1;
	(void)state;
	assert_int_equal(count_nodes("2"), 2);
	assert_int_equal(count_nodes("2-2"), 2);
	assert_int_equal(count_nodes("2-4"), 0);
	assert_int_equal(count_nodes("0"), 0);
	assert_int_equal(count_nodes("two"), 0);
	assert_int_equal(smallest_count("8(x2),2,4,2", &position), 2);
	assert_int_equal(position, 2);
	assert_int_equal(smallest_count("1(x2)", &position), 1);
	assert_int_equal(position, 0);
	assert_int_equal(smallest_count("", &position), -1);
	assert_int_equal(smallest_count("1(x)", &position), -1);
	assert_int_equal(smallest_count("1,", &position), -1);
	assert_int_equal(sum_of_largest("8(x2),2,4", 4), 22);
	assert_int_equal(sum_of_largest("8(x2),2,4", 9), 22);
	assert_int_equal(sum_of_largest("2,8(x2),4,8", 4), 28);
	assert_int_equal(sum_of_largest("2,8(x2),4,8", 2), 16);
	assert_int_equal(sum_of_largest("4,1", 1), 4);
	assert_int_equal(sum_of_largest("1(x)", 1), -1);
	assert_int_equal(sum_of_largest("1,", 1), -1);
}

#define STEP(...) (&(struct step_words){ __VA_ARGS__ })

/* One GPU a task unless the test says otherwise. */
static struct step_words with_group(const struct step_words *words)
{
	struct step_words w = *words;
	if (!w.group)
		w.group = 1;
	return w;
}

static void asks_for(const struct step_words *words, int tasks)
{
	struct step_size size;
	struct step_words w = with_group(words);
	if (step_size(&w, &size))
		fail_msg("%s", size.refusal);
	assert_int_equal(size.tasks, tasks);
}

static void refuses(const struct step_words *words, const char *line)
{
	struct step_size size;
	struct step_words w = with_group(words);
	assert_int_equal(step_size(&w, &size), -1);
	assert_string_equal(size.refusal, line);
}

static void one_task_per_gpu(void **state)
{
	(void)state;
	asks_for(STEP(.gpus = "4"), 4);
	asks_for(STEP(.gpus = "4", .nodes = "2-4"), 4);
	asks_for(STEP(.gpus_per_node = "a100:4", .nodes = "2"), 8);
	asks_for(STEP(.gpus_per_node = "2"), 2);
	asks_for(STEP(.gres = "gpu:2", .nodes = "3"), 6);
	asks_for(STEP(.gpus_per_task = "1", .nodes = "2"), 2);
	asks_for(STEP(.tres_per_task = "gres/gpu:1", .nodes = "2"), 2);
	/* since 24.05 sbatch leaves -c 8 there */
	asks_for(STEP(.gres = "gpu:4", .nodes = "2", .tres_per_task = "cpu=8"), 8);
	asks_for(STEP(.tres_per_task = "cpu=8,gres/gpu:a100=2", .nodes = "1", .ntasks = "2"), 0);
	asks_for(STEP(.gpus = "8", .group = 2), 4);
	/* all of them, so many for each task, of whatever type */
	asks_for(STEP(.gpus = "8", .gpus_per_task = "2", .group = 2), 4);
	asks_for(STEP(.gpus = "2", .gpus_per_task = "a100"), 2);
	/* an odd one stays idle */
	asks_for(STEP(.gpus = "7", .group = 2), 3);
}

static void on_each_node(const struct step_words *words, int tasks)
{
	struct step_size size;
	struct step_words w = with_group(words);
	if (step_size(&w, &size))
		fail_msg("%s", size.refusal);
	assert_int_equal(size.per_node, tasks);
}

static void as_many_tasks_on_each_node_as_it_has_gpus(void **state)
{
	(void)state;
	on_each_node(STEP(.gpus_per_node = "2", .nodes = "2"), 2);
	on_each_node(STEP(.gres = "gpu:a100:2,craynetwork:1", .nodes = "2"), 2);
	on_each_node(STEP(.gres = "gpu:2", .nodes = "2", .tres_per_task = "cpu=8"), 2);
	on_each_node(STEP(.gpus_per_node = "4", .nodes = "2", .ntasks = "8"), 4);
	on_each_node(STEP(.gpus_per_node = "4", .nodes = "2", .group = 2), 2);
	on_each_node(STEP(.packages_per_node = 2, .nodes = "2"), 2);
	/* more tasks than GPUs: as many on one as on the other, if that comes out even */
	on_each_node(STEP(.gpus_per_node = "1", .nodes = "2", .ntasks = "6", .share = true), 3);
	on_each_node(STEP(.gpus_per_node = "2", .nodes = "2", .ntasks = "5", .share = true), 0);
	/* Slurm takes no number for each node beside one for each GPU */
	on_each_node(STEP(.gpus_per_node = "2", .nodes = "2", .ntasks = "4", .ntasks_per_gpu = "1", .share = true), 0);
	/* nobody says how many GPUs are on which node */
	on_each_node(STEP(.gpus = "4", .nodes = "2"), 0);
	on_each_node(STEP(.gpus = "4", .gpus_per_node = "2"), 0);
	/* of both numbers Slurm gives a step the one for each node */
	on_each_node(STEP(.gpus = "4", .gpus_per_node = "2", .nodes = "2"), 2);
	asks_for(STEP(.gpus = "4", .gpus_per_node = "2", .nodes = "1"), 2);
	asks_for(STEP(.gpus = "4", .gpus_per_node = "2", .nodes = "1", .ntasks = "2"), 0);
	on_each_node(STEP(.gpus_per_task = "1", .nodes = "2"), 0);
	on_each_node(STEP(.packages_per_node = 2, .nodes = "2-4"), 0);
	on_each_node(STEP(.packages_per_node = 2, .nodes = "2", .ntasks = "4"), 0);
	/* the odd GPU of each node stays idle: two nodes with three GPUs are two pairs, not three */
	asks_for(STEP(.gpus_per_node = "3", .nodes = "2", .group = 2), 2);
}

static void gpus_asked_for_by_task(void **state)
{
	(void)state;
	assert_int_equal(gpus_of_each_task(STEP(.gpus_per_task = "a100:2")), 2);
	assert_int_equal(gpus_of_each_task(STEP(.tres_per_task = "cpu=8,gres/gpu=3")), 3);
	assert_int_equal(gpus_of_each_task(STEP(.tres_per_task = "cpu=8", .gres = "gpu:4")), 0);
	assert_int_equal(gpus_of_each_task(STEP(.gpus = "4")), 0);
	assert_int_equal(gpus_of_each_task(STEP(.gpus_per_task = "a100")), 1);
	assert_int_equal(gpus_of_each_task(STEP(.gpus_per_task = "2x")), 0);
}

static void given_counts_are_kept(void **state)
{
	(void)state;
	asks_for(STEP(.gpus = "4", .ntasks = "4"), 0);
	asks_for(STEP(.gpus_per_node = "2", .nodes = "2", .ntasks_per_node = "2"), 0);
	asks_for(STEP(.gpus_per_task = "2", .ntasks = "3"), 0);
	asks_for(STEP(.gpus = "2", .ntasks = "5", .share = true), 0);
	asks_for(STEP(.gpus = "2", .ntasks_per_gpu = "1"), 0);
	asks_for(STEP(.gpus = "2", .ntasks_per_socket = "1"), 0);
	asks_for(STEP(.hidden_gpus = true, .ntasks = "4"), 0);
	asks_for(STEP(.gpus = "4", .group = 2, .ntasks = "2"), 0);
	asks_for(STEP(.gpus = "4", .ntasks_per_node = "4"), 0);
	asks_for(STEP(.gres = "gpu:2", .ntasks_per_node = "2"), 0);
	asks_for(STEP(.gpus_per_node = "1", .ntasks = "2", .ntasks_per_node = "1"), 0);
	/* of one node; how many there are follows from the GPUs */
	asks_for(STEP(.gpus = "8", .ntasks_per_node = "4"), 8);
	asks_for(STEP(.gpus = "a100:8", .ntasks_per_node = "2", .group = 2), 4);
	asks_for(STEP(.gpus = "8", .ntasks_per_node = "4", .nodes = "2"), 0);
	asks_for(STEP(.gpus = "8", .ntasks_per_node = "4", .gpus_per_node = "4"), 8);
	asks_for(STEP(.gpus = "6", .ntasks_per_node = "2", .gpus_per_node = "4"), 6); /* which do not say how many nodes */
	asks_for(STEP(.gpus = "8", .ntasks_per_node = "4", .share = true), 0);
}

static void without_gpus_one_per_package(void **state)
{
	(void)state;
	asks_for(STEP(.packages_per_node = 2, .nodes = "2"), 4);
	asks_for(STEP(.packages_per_node = 2, .gpus = "0"), 2);
	asks_for(STEP(.packages_per_node = 2, .gres = "none"), 2);
	asks_for(STEP(.packages_per_node = 2, .gpus_per_task = "0"), 2);
	asks_for(STEP(.packages_per_node = 0), 0);
	asks_for(STEP(.packages_per_node = 2, .ntasks = "7"), 0);
}

/* Their product is 13824 in 32 bits, which is less than one for each task. */
static void numbers_that_no_machine_has_are_not_known(void **state)
{
	int position;
	(void)state;
	struct step_size size;
	struct step_words w = { .gpus_per_task = "1000000", .ntasks = "133144", .group = 1 };
	assert_int_equal(step_size(&w, &size), 0);
	assert_int_equal(size.gpus, -1);
	refuses(&(struct step_words){ .gpus_per_node = "1000000", .nodes = "1000000" }, "how many GPUs this step has is not known here: type -n N, one task for each GPU");
	assert_int_equal(sum_of_largest("1000000(x1000000)", 1000000), -1);
	assert_int_equal(sum_of_largest("1(x1000000),0(x1000000)", 1000000), 1000000);
	char many[3000 * 12 + 1] = "";
	for (int i = 0; i < 3000; i++)
		strcpy(many + 12 * i, "1(x1000000),");
	strcpy(many + 12 * 2999, "0(x1000000)");
	assert_int_equal(sum_of_largest(many, 4), 4);
	assert_int_equal(smallest_count(many, &position), -1);
}

static void refusals_carry_both_numbers_and_the_n(void **state)
{
	(void)state;
	refuses(STEP(.gpus = "2", .ntasks = "3"), "3 tasks but 2 GPUs: type -n 2, or --hvd-bind=share");
	refuses(STEP(.gpus = "4", .ntasks = "2"), "2 tasks but 4 GPUs: type -n 4, -G 2, or --hvd-bind=gpus-per-task=2");
	refuses(STEP(.gpus_per_node = "4", .nodes = "2", .ntasks = "4"), "4 tasks but 8 GPUs: type -n 8, --gpus-per-node=2, or --hvd-bind=gpus-per-task=2");
	/* without -N there may be more nodes than one */
	refuses(STEP(.gpus_per_node = "4", .ntasks = "8"), "8 tasks but 4 GPUs a node: type -N 2, or -n 4 for one node, or --hvd-bind=share");
	refuses(STEP(.gres = "gpu:4", .ntasks = "8"), "8 tasks but 4 GPUs a node: type -N 2, or -n 4 for one node, or --hvd-bind=share");
	refuses(STEP(.gpus_per_node = "4", .group = 2, .ntasks = "6"), "6 tasks with 2 GPUs each but 4 GPUs a node: type -N 3, or -n 2 for one node");
	/* with it, or with tasks of each node, there are not */
	refuses(STEP(.gpus_per_node = "4", .nodes = "1", .ntasks = "8"), "8 tasks but 4 GPUs: type -n 4, or --hvd-bind=share");
	refuses(STEP(.gpus_per_node = "4", .ntasks_per_node = "8"), "8 tasks but 4 GPUs: type -n 4 --ntasks-per-node=4, or --hvd-bind=share");
	refuses(STEP(.gpus_per_node = "4", .ntasks = "6"), "6 tasks but 4 GPUs: type -n 4, or --hvd-bind=share");
	asks_for(STEP(.gpus_per_node = "4", .ntasks = "8", .ntasks_per_node = "4"), 0);
	refuses(STEP(.gpus_per_node = "4", .ntasks = "5", .ntasks_per_node = "4"), "5 tasks but 8 GPUs: type -n 8");
	refuses(STEP(.gpus_per_node = "4", .nodes = "2", .ntasks_per_node = "2"), "4 tasks but 8 GPUs: type -n 8 --ntasks-per-node=4, --gpus-per-node=2, or --hvd-bind=gpus-per-task=2");
	refuses(STEP(.gres = "gpu:4", .nodes = "2", .ntasks = "4"), "4 tasks but 8 GPUs: type -n 8, --gres=gpu:2, or --hvd-bind=gpus-per-task=2");
	refuses(STEP(.gres = "gpu:4,craynetwork:1", .ntasks = "2"), "2 tasks but 4 GPUs: type -n 4, or --hvd-bind=gpus-per-task=2");
	/* of one number for all nodes Slurm deals as it likes, unless it hears those of each; in a job they are there already */
	refuses(STEP(.gpus = "8", .nodes = "2", .ntasks = "4"),
		"4 tasks but 8 GPUs: type -n 8 --gpus-per-node=4, -G 4 --gpus-per-node=2, or --hvd-bind=gpus-per-task=2 --gpus-per-node=4");
	refuses(STEP(.gpus = "8", .nodes = "2", .ntasks = "4", .in_job = true), "4 tasks but 8 GPUs: type -n 8");
	refuses(STEP(.gpus = "8", .nodes = "1", .ntasks = "4", .in_job = true), "4 tasks but 8 GPUs: type -n 8, -G 4, or --hvd-bind=gpus-per-task=2");
	refuses(STEP(.gpus = "6", .nodes = "2", .ntasks = "3"), "3 tasks but 6 GPUs: type -n 6 --gpus-per-node=3");
	refuses(STEP(.gpus = "8", .nodes = "2-4", .ntasks = "4", .ntasks_per_node = "1"), "4 tasks but 8 GPUs: type -n 8, -G 4, or --hvd-bind=gpus-per-task=2");
	/* both numbers say how many nodes there are; beside the one for all, the one for each alone would ask for more of them */
	refuses(STEP(.gpus = "8", .gpus_per_node = "4", .ntasks_per_node = "2"), "4 tasks but 8 GPUs: type -n 8 --gpus-per-node=4 --ntasks-per-node=4, "
		"-G 4 --gpus-per-node=2, or --hvd-bind=gpus-per-task=2 --gpus-per-node=4");
	refuses(STEP(.gpus = "8", .gpus_per_node = "4", .nodes = "2", .ntasks = "4"), "4 tasks but 8 GPUs: type -n 8, -G 4 --gpus-per-node=2, or --hvd-bind=gpus-per-task=2");
	/* what would keep Slurm from starting so many */
	refuses(STEP(.gpus = "4", .ntasks = "6", .ntasks_per_socket = "1"), "6 tasks but 4 GPUs: type -n 4 and no --ntasks-per-socket");
	refuses(STEP(.gpus = "4", .ntasks = "3", .ntasks_per_core = "1"), "3 tasks but 4 GPUs: type -n 4 and no --ntasks-per-core");
	refuses(STEP(.gpus = "4", .ntasks = "3"), "3 tasks but 4 GPUs: type -n 4");
	refuses(STEP(.gpus = "4", .ntasks_per_node = "3"), "3 tasks but 4 GPUs: type -n 4 --ntasks-per-node=4");
	refuses(STEP(.gpus_per_node = "1", .nodes = "2", .ntasks = "1"), "1 task but 2 GPUs: type -n 2");
	refuses(STEP(.gpus_per_node = "3", .nodes = "2", .ntasks = "3"), "3 tasks but 6 GPUs: type -n 6");
	refuses(STEP(.gpus = "4", .group = 2, .ntasks = "4"), "4 tasks with 2 GPUs each but 4 GPUs: type -n 2");
	refuses(STEP(.gpus_per_node = "3", .nodes = "2", .group = 2, .ntasks = "3"), "3 tasks with 2 GPUs each but 2 nodes with 3 GPUs each: type -n 2");
	refuses(STEP(.gpus_per_node = "4", .nodes = "1", .group = 2, .ntasks = "3"), "3 tasks with 2 GPUs each but 4 GPUs: type -n 2");
	refuses(STEP(.gpus_per_node = "3", .group = 2, .ntasks = "3"), "3 tasks with 2 GPUs each but 3 GPUs a node: type -N 3, or -n 1 for one node");
	refuses(STEP(.gpus = "1", .group = 2), "gpus-per-task=2 but 1 GPU");
	refuses(STEP(.gpus_per_node = "1", .nodes = "2", .group = 2), "gpus-per-task=2 but 1 GPU");
	refuses(STEP(.gpus_per_socket = "1"), "how many GPUs this step has is not known here: type -n N, one task for each GPU");
	refuses(STEP(.hidden_gpus = true), "how many GPUs this step has is not known here: type -n N, one task for each GPU");
	refuses(STEP(.gpus_per_task = "a100", .ntasks = "2"),
		"--gpus-per-task=a100: Slurm, from some release on, gives tasks no GPU for a type without a number: type --gpus-per-task=a100:1");
	refuses(STEP(.gpus_per_node = "2", .nodes = "1-3"), "how many GPUs this step has is not known here: type -n N, one task for each GPU");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gpus_in_words),
		cmocka_unit_test(gpus_in_gres),
		cmocka_unit_test(nodes_and_counts),
		cmocka_unit_test(one_task_per_gpu),
		cmocka_unit_test(as_many_tasks_on_each_node_as_it_has_gpus),
		cmocka_unit_test(gpus_asked_for_by_task),
		cmocka_unit_test(given_counts_are_kept),
		cmocka_unit_test(without_gpus_one_per_package),
		cmocka_unit_test(numbers_that_no_machine_has_are_not_known),
		cmocka_unit_test(refusals_carry_both_numbers_and_the_n),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

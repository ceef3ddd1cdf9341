/* SPDX-License-Identifier: Apache-2.0
 * Where the ranks of a node meet: who is answered, with what, and for how long one waits. */
#include "tests/unit/test.h"

#include "runtime/node.h"
#include "runtime/world.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct node meeting_place(void)
{
	static int places;
	struct node n = { .listener = -1, .lock = PTHREAD_MUTEX_INITIALIZER };
	snprintf(n.name, sizeof n.name, "hvd-test-%d-%d", (int)getpid(), places++);
	return n;
}

static void *ask(void *arg)
{
	uint64_t card = 0;
	return (void *)(uintptr_t)(node_ask(arg, &card, sizeof card, lived() + 10) ? card : 0);
}

static void whoever_asks_before_there_is_a_card_waits_for_it(void **state)
{
	(void)state;
	struct node n = meeting_place(), other = n;
	pthread_t asking[4];
	uint64_t card = 4711;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&asking[i], NULL, ask, &other), 0);
	usleep(20000);
	node_listen(&n);
	assert_true(n.listener >= 0);
	usleep(20000);
	node_serve(&n, &card, sizeof card);
	for (int i = 0; i < 4; i++) {
		void *got;
		pthread_join(asking[i], &got);
		assert_int_equal((uintptr_t)got, 4711);
	}
	card = 4712; /* the first one was that of an earlier world */
	node_serve(&n, &card, sizeof card);
	assert_int_equal((uintptr_t)ask(&other), 4712);
	node_close(&n);
}

static void nobody_answers_and_the_time_is_kept(void **state)
{
	(void)state;
	struct node n = meeting_place(), other = n;
	uint64_t card;
	double begin = now();
	assert_false(node_ask(&other, &card, sizeof card, begin + 0.1));
	node_listen(&n); /* … and never serves */
	assert_false(node_ask(&other, &card, sizeof card, lived() + 0.1));
	assert_true(now() - begin < 5);
	node_close(&n);
}

static void a_card_of_another_size_is_none(void **state)
{
	(void)state;
	struct node n = meeting_place(), other = n;
	uint64_t card;
	node_listen(&n);
	node_serve(&n, "short", 5);
	assert_false(node_ask(&other, &card, sizeof card, lived() + 10));
	node_close(&n);
}

static void a_name_that_is_taken_is_left_alone(void **state)
{
	(void)state;
	struct node n = meeting_place(), late = n;
	uint64_t card = 1;
	node_listen(&n);
	node_listen(&late);
	assert_true(late.listener < 0);
	node_serve(&late, &card, sizeof card); /* nothing to do */
	node_close(&late);
	node_serve(&n, &card, sizeof card);
	assert_int_equal((uintptr_t)ask(&late), 1);
	node_close(&n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whoever_asks_before_there_is_a_card_waits_for_it),
		cmocka_unit_test(nobody_answers_and_the_time_is_kept),
		cmocka_unit_test(a_card_of_another_size_is_none),
		cmocka_unit_test(a_name_that_is_taken_is_left_alone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

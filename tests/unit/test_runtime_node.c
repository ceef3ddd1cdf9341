/* SPDX-License-Identifier: Apache-2.0
 * Where the ranks of a node meet: who is answered, with what, and for how long one waits. */
#include "tests/unit/test.h"

#include "runtime/node.h"
#include "runtime/world.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
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

static void who_is_done_leaves_the_name_to_others(void **state)
{
	(void)state;
	struct node n = meeting_place(), next = n;
	uint64_t card = 1;
	node_listen(&n);
	node_serve(&n, &card, sizeof card);
	node_close(&n);
	node_listen(&next);
	assert_true(next.listener >= 0);
	node_close(&next);
}

/* As node_ask() does, but believing any server. */
static bool is_given_a_card(const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char card[64];
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	memcpy(a.sun_path + 1, name, strlen(name)); /* abstract */
	bool given = !connect(fd, (void *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) && recv(fd, card, sizeof card, 0) > 0;
	close(fd);
	return given;
}

/* Whoever has the card may speak as a rank. */
static void another_user_gets_no_card_and_none_is_taken_from_one(void **state)
{
	(void)state;
	struct node n = meeting_place(), other = n;
	uint64_t card = 1;
	int status, ready[2];
	if (geteuid())
		skip_because("only root can be another user");
	node_listen(&n);
	node_serve(&n, &card, sizeof card);
	assert_true(is_given_a_card(n.name));
	pid_t child = fork();
	if (!child)
		_exit(seteuid(65534) || is_given_a_card(n.name) || node_ask(&other, &card, sizeof card, lived() + 0.3));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	node_close(&n);

	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (!child) {
		struct node theirs = other;
		alarm(20); /* ends it even where the test fails */
		if (seteuid(65534))
			_exit(1);
		node_listen(&theirs);
		if (write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			send(accept(theirs.listener, NULL, NULL), &card, sizeof card, MSG_NOSIGNAL);
	}
	assert_int_equal(read(ready[0], &status, 1), 1);
	assert_false(node_ask(&other, &card, sizeof card, lived() + 0.3));
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	close(ready[0]);
	close(ready[1]);
}

static void nobody_answers_and_the_time_is_kept(void **state)
{
	(void)state;
	struct node n = meeting_place(), other = n;
	uint64_t card;
	double begin = now();
	assert_false(node_ask(&other, &card, sizeof card, begin + 0.1));
	assert_true(now() - begin < 5);
	node_listen(&n); /* … and never serves */
	begin = now();
	assert_false(node_ask(&other, &card, sizeof card, lived() + 2));
	assert_true(now() - begin < 4); /* none of it is taken for time in which this process stood still */
	node_close(&n);
}

static void a_card_of_another_size_is_none(void **state)
{
	(void)state;
	struct node n = meeting_place(), other = n;
	uint64_t card;
	node_listen(&n);
	node_serve(&n, "short", 5);
	assert_false(node_ask(&other, &card, sizeof card, lived() + 0.1));
	node_serve(&n, "a longer one", 12);
	assert_false(node_ask(&other, &card, sizeof card, lived() + 0.1));
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
		cmocka_unit_test(who_is_done_leaves_the_name_to_others),
		cmocka_unit_test(another_user_gets_no_card_and_none_is_taken_from_one),
		cmocka_unit_test(nobody_answers_and_the_time_is_kept),
		cmocka_unit_test(a_card_of_another_size_is_none),
		cmocka_unit_test(a_name_that_is_taken_is_left_alone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

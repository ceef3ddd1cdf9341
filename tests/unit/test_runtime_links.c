/* SPDX-License-Identifier: Apache-2.0
 * Links between ranks, without a mesh: who waits for how long, for whom, and what is left of others who come. */
#include "tests/unit/runtime_world.h"

#include "runtime/links.h"
#include "runtime/siphash.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char why[WHY_BYTES];

static void listen_as(struct links *l, int rank)
{
	*l = (struct links){ .rank = rank, .listener = { -1, -1, -1 }, .alarm = -1, .again = 1000, .lock = &lock };
	must(!links_listen(l, "node-a", "lo", false, why));
}

/* Of all ranks, each of which listens. */
static struct card *exchange(struct links *l)
{
	static struct card cards[RANKS_MAX];
	const int n = (int)strlen(meeting_hosts);
	listen_as(l, meeting_rank);
	memcpy(meeting->text[meeting_rank], &l->card, sizeof l->card);
	all_arrive();
	for (int r = 0; r < n; r++)
		memcpy(&cards[r], meeting->text[r], sizeof cards[r]);
	return cards;
}

static int connect_to(const struct card *c)
{
	struct sockaddr_un a;
	socklen_t size = unix_address(c->unix_name, &a);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	must(fd >= 0);
	if (connect(fd, (void *)&a, size))
		close_fd(&fd);
	return fd;
}

/* Rank 1 has its link when it asks for another; rank 2 comes after that. */
static void come_twice(void *arg)
{
	struct links l;
	struct card *cards = exchange(&l);
	struct link link[2] = { { meeting_rank ? 0 : 1, -1 }, { 2, -1 } }, again[1] = { { 0, -1 } };
	(void)arg;
	if (meeting_rank == 2)
		wait_at(0, 2);
	if (meeting_rank == 0)
		must(freopen("/dev/null", "w", stderr)); /* it tells of the second connection */
	must(!links_form(&l, link, meeting_rank ? 1 : 2, cards, lived() + 40, why));
	if (meeting_rank == 1) {
		must(links_form(&l, again, 1, cards, lived() + 0.3, why) == HVD_EBOOT && again[0].fd < 0);
		wait_at(0, 2);
	}
	must(link[0].fd >= 0 && (meeting_rank || link[1].fd >= 0));
	wait_at(1, 3);
}

static void a_rank_that_comes_twice_does_not_take_the_place_of_another(void **state)
{
	(void)state;
	run_ranks("aaa", come_twice, NULL);
}

/* Nobody takes connections from rank 0's listener before it has no room for more. */
static void find_no_room(void *arg)
{
	struct links l;
	struct sockaddr_un a;
	struct card *cards = exchange(&l);
	struct link link[1] = { { !meeting_rank, -1 } };
	(void)arg;
	if (meeting_rank == 0) {
		must(freopen("/dev/null", "w", stderr));
		socklen_t size = unix_address(l.card.unix_name, &a);
		close(l.listener[0]);
		l.listener[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		must(!bind(l.listener[0], (void *)&a, size) && !listen(l.listener[0], 0));
	}
	wait_at(0, 2);
	while (meeting_rank && connect_to(&cards[0]) >= 0)
		;
	must(!meeting_rank || errno == EAGAIN);
	wait_at(1, 2);
	if (meeting_rank == 0)
		usleep(100000); /* rank 1 is turned away */
	must(!links_form(&l, link, 1, cards, lived() + 40, why));
	wait_at(2, 2);
}

static void where_many_connect_at_once_a_rank_tries_again(void **state)
{
	(void)state;
	run_ranks("aa", find_no_room, NULL);
}

/* Of those that come and say nothing, more than there are places. */
static void send_strangers_away(void *arg)
{
	struct links l;
	struct card *cards = exchange(&l);
	struct link link[1] = { { !meeting_rank, -1 } };
	const int before = open_files();
	(void)arg;
	for (int i = 0; meeting_rank && i < 100; i++)
		must(connect_to(&cards[0]) >= 0);
	wait_at(0, 2);
	if (meeting_rank == 0)
		must(freopen("/dev/null", "w", stderr));
	must(!links_form(&l, link, 1, cards, lived() + 40, why));
	must(meeting_rank || open_files() == before + 1);
	wait_at(1, 2);
}

static void of_strangers_nothing_stays_open(void **state)
{
	(void)state;
	run_ranks("aa", send_strangers_away, NULL);
}

/* Rank 1's HELLO, which somebody has heard and says again, more often than there are places. */
static void repeat_a_hello(void *arg)
{
	struct links l;
	struct card *cards = exchange(&l);
	struct link link[1] = { { !meeting_rank, -1 } };
	struct {
		uint64_t frame;
		char magic[8];
		uint32_t from, to;
		uint8_t nonces[32];
	} text = { .from = 1 };
	uint8_t mac[16];
	(void)arg;
	memcpy(text.magic, CARD_MAGIC, sizeof text.magic);
	siphash128(l.secret, &text, sizeof text, mac);
	for (int i = 0, fd; meeting_rank && i < 100; i++)
		must((fd = connect_to(&cards[0])) >= 0 && send(fd, text.magic, 32, 0) == 32 && send(fd, mac, sizeof mac, 0) == sizeof mac);
	wait_at(0, 2);
	if (meeting_rank == 0)
		must(freopen("/dev/null", "w", stderr));
	must(!links_form(&l, link, 1, cards, lived() + 40, why));
	wait_at(1, 2);
}

static void an_old_hello_keeps_no_rank_from_being_heard(void **state)
{
	(void)state;
	run_ranks("aa", repeat_a_hello, NULL);
}

/* Links with rank 0, as rank 1, within that time. */
static int ask(struct links *l, const struct card *first, double seconds)
{
	struct link link[1] = { { 0, -1 } };
	int status = links_form(l, link, 1, first, lived() + seconds, why);
	close_fd(&link[0].fd);
	return status;
}

static void who_takes_a_connection_and_says_nothing_is_not_called_out_of_reach(void **state)
{
	(void)state;
	struct links silent, l;
	listen_as(&silent, 0);
	listen_as(&l, 1);
	assert_int_equal(ask(&l, &silent.card, 0.2), HVD_EBOOT);
	assert_string_equal(why, "");
	assert_false(l.refused);
	links_close(&silent);
	links_close(&l);
}

static void an_alarm_ends_what_would_wait_for_long(void **state)
{
	(void)state;
	struct links silent, l;
	listen_as(&silent, 0);
	listen_as(&l, 1);
	l.alarm = eventfd(1, EFD_CLOEXEC);
	alarm(60); /* what is asked for lasts longer */
	assert_int_equal(ask(&l, &silent.card, 1000), HVD_EBOOT);
	alarm(0);
	close(l.alarm);
	links_close(&silent);
	links_close(&l);
}

static struct links *ends; /* as soon as a connection has come to it */

int __wrap_connect(int fd, const struct sockaddr *a, socklen_t size);
int __real_connect(int fd, const struct sockaddr *a, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *a, socklen_t size)
{
	int status = __real_connect(fd, a, size);
	if (ends)
		links_close(ends);
	return status;
}

static void a_listener_that_ends_before_it_takes_a_connection_counts_as_none(void **state)
{
	(void)state;
	struct links first, l;
	listen_as(&first, 0);
	listen_as(&l, 1);
	ends = &first;
	assert_int_equal(ask(&l, &first.card, 20), HVD_EBOOT);
	ends = NULL;
	assert_non_null(strstr(why, "rank 1 on node-a cannot reach rank 0 on node-a at its Unix socket: "));
	assert_true(l.refused);
	links_close(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_that_comes_twice_does_not_take_the_place_of_another),
		cmocka_unit_test(where_many_connect_at_once_a_rank_tries_again),
		cmocka_unit_test(of_strangers_nothing_stays_open),
		cmocka_unit_test(an_old_hello_keeps_no_rank_from_being_heard),
		cmocka_unit_test(who_takes_a_connection_and_says_nothing_is_not_called_out_of_reach),
		cmocka_unit_test(an_alarm_ends_what_would_wait_for_long),
		cmocka_unit_test(a_listener_that_ends_before_it_takes_a_connection_counts_as_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * The chain of sums between nodes where it comes to a stop: of the two neighbours, which is named; and where it does not. */
#include "tests/unit/test.h"

#include "runtime/chain.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CHUNK = CHAIN_PIECE / sizeof(float), MANY = 2 * CHUNK - 7 };

/* A neighbour's end of a link. */
struct end {
	bool there, full; /* full: it reads nothing, and no byte more has room */
	size_t sent;      /* elements that came from it; SILENT: not even its stamp */
};
#define SILENT SIZE_MAX

static const struct stamp stamp = { .n = MANY, .piece = MANY, .type = HVD_F32 };

/* Returns the other end, which closes the link. */
static int link_to(struct link *k, int rank, const struct end *end)
{
	static const float zeros[MANY];
	int fd[2];
	*k = (struct link){ .rank = rank, .fd = -1 };
	if (!end->there)
		return -1;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	k->fd = fd[0];
	for (int i = 0; i < 2; i++)
		assert_int_equal(setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &(int){ 1 << 20 }, sizeof(int)), 0);
	if (end->sent != SILENT) {
		assert_int_equal(send(fd[1], &stamp, sizeof stamp, 0), sizeof stamp);
		assert_int_equal(send(fd[1], zeros, end->sent * sizeof(float), MSG_DONTWAIT), end->sent * sizeof(float));
	}
	while (end->full && send(fd[0], zeros, 4096, MSG_DONTWAIT) > 0)
		;
	return fd[1];
}

/* Who is late for rank 1 of 0, 1 and 2 in an all-reduce of n floats. */
static int late_of(size_t n, struct end prev, struct end next)
{
	assert_int_equal(arithmetic(HVD_F32, HVD_SUM, 0)->running, sizeof(float));
	static float data[MANY];
	struct peer peer[3] = { { .host = "a", .fd = -1, .member = true }, { .host = "b", .fd = -1, .member = true }, { .host = "c", .fd = -1, .member = true } };
	struct mesh m = { .rank = 1, .size = 3, .peer = peer, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .wake = -1, .alarm = -1, .lost = -1 };
	const struct op sum = { .type = HVD_F32, .op = HVD_SUM };
	struct chain c;
	struct link link[2];
	int ends[2] = { link_to(&link[0], 0, &prev), link_to(&link[1], 2, &next) };
	assert_int_equal(chain_open(&c, &m, prev.there ? link : link + 1, prev.there + next.there, 3), 0);
	assert_int_equal(chain_reduce(&c, &stamp, &sum, (uint8_t *[]){ (uint8_t *)data }, 1, 0, 0, n, 1), HVD_EPEER);
	chain_close(&c);
	for (int i = 0; i < 2; i++)
		if (ends[i] >= 0)
			close(ends[i]);
	return m.lost;
}

static int late(struct end prev, struct end next)
{
	return late_of(MANY, prev, next);
}

static void who_owes_something_is_late(void **state)
{
	(void)state;
	const struct end none = { .sent = SILENT }, silent = { .there = true, .sent = SILENT };
	assert_int_equal(late(silent, silent), 0); /* before the first sum nobody can do anything */
	assert_int_equal(late((struct end){ true, .sent = CHUNK }, (struct end){ true, .sent = CHUNK }), 0);
	assert_int_equal(late((struct end){ true, .sent = CHUNK + 1 }, (struct end){ true, .sent = CHUNK }), 0);
	assert_int_equal(late((struct end){ true, .sent = CHUNK }, silent), 2); /* a sender may wait for the result of what it has sent */
	assert_int_equal(late((struct end){ true, .sent = MANY }, (struct end){ true, .sent = CHUNK }), 2);
	assert_int_equal(late((struct end){ true, .sent = MANY }, silent), 2);
	assert_int_equal(late((struct end){ true, .sent = MANY }, (struct end){ true, .full = true, .sent = SILENT }), 2);
	assert_int_equal(late((struct end){ true, .full = true, .sent = MANY }, (struct end){ true, .sent = MANY }), 0); /* it takes no result */
	/* of a barrier there are stamps only */
	assert_int_equal(late_of(0, silent, silent), 0);
	assert_int_equal(late_of(0, (struct end){ .there = true }, silent), 2);
	assert_int_equal(late_of(0, none, silent), 2);
	assert_int_equal(late_of(0, silent, none), 0);
	/* at the chain's ends there is only one */
	assert_int_equal(late(none, silent), 2);
	assert_int_equal(late(none, (struct end){ true, .full = true, .sent = SILENT }), 2);
	assert_int_equal(late(silent, none), 0);
	assert_int_equal(late((struct end){ true, .full = true, .sent = MANY }, none), 0);
}

/* Who waits for one that is behind is behind, too, but not as far. */
static void of_those_behind_the_furthest_is_late(void **state)
{
	(void)state;
	for (int furthest = 0; furthest < 3; furthest++) {
		struct peer peer[4];
		struct mesh m = { .rank = 3, .size = 4, .peer = peer, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .wake = -1, .alarm = -1, .lost = -1, .sequence = 9 };
		for (int i = 0; i < 4; i++)
			peer[i] = (struct peer){ .host = "a", .fd = -1, .member = true, .doing.sequence = i == furthest ? 7 : 8 };
		assert_int_equal(mesh_late(&m, -1), HVD_EPEER);
		assert_int_equal(m.lost, furthest);
	}
}

enum { PARTS = 6, PART = CHUNK / 8 };

static void *send_slowly(void *fd)
{
	static const float zeros[PART];
	for (int i = 0; i < PARTS; i++) {
		usleep(500000);
		send(*(int *)fd, zeros, sizeof zeros, MSG_NOSIGNAL);
	}
	return NULL;
}

/* Sums come from rank 0, part by part; all together they take longer than the deadline. */
static void what_goes_on_is_not_late_however_slow_it_is(void **state)
{
	(void)state;
	static float data[PARTS * PART];
	struct peer peer[2] = { { .host = "a", .fd = -1, .member = true }, { .host = "b", .fd = -1, .member = true } };
	struct mesh m = { .rank = 1, .size = 2, .peer = peer, .deadline = 2, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .wake = -1, .alarm = -1, .lost = -1 };
	const struct op sum = { .type = HVD_F32, .op = HVD_SUM };
	struct chain c;
	struct link link;
	pthread_t sender;
	int end = link_to(&link, 0, &(struct end){ .there = true });
	assert_int_equal(chain_open(&c, &m, &link, 1, 2), 0);
	assert_int_equal(pthread_create(&sender, NULL, send_slowly, &end), 0);
	assert_int_equal(chain_reduce(&c, &stamp, &sum, (uint8_t *[]){ (uint8_t *)data }, 1, 0, 0, PARTS * PART, 1), 0);
	chain_close(&c);
	pthread_join(sender, NULL);
	close(end);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_owes_something_is_late),
		cmocka_unit_test(of_those_behind_the_furthest_is_late),
		cmocka_unit_test(what_goes_on_is_not_late_however_slow_it_is),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

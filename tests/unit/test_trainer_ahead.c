/* SPDX-License-Identifier: Apache-2.0
 * What a thread makes ahead of whoever takes it: all of it, in order, and no more at a time than there is room for. */
#include <stdatomic.h>
#include <unistd.h>

#include "files/ahead.h"
#include "test.h"

enum { ROOM = 3, ITEMS = 200 };

static _Atomic int made; /* so far */

static void *make(void *from)
{
	const int last = *(const int *)from;

	if (made == last)
		return &ahead_broken;
	int *item = malloc(sizeof *item);
	assert_non_null(item);
	*item = made++;
	return item;
}

static struct ahead *start(int *last)
{
	struct error e = { 0 };

	made = 0;
	struct ahead *a = ahead_start(make, last, ROOM, &e);
	assert_non_null(a);
	return a;
}

static void each_comes_once_and_in_order_however_late_it_is_taken(void **state)
{
	(void)state;
	int last = ITEMS;
	struct ahead *a = start(&last);

	for (int i = 0; i < ITEMS; i++) {
		while (i % 50 == 0 && i < ITEMS - ROOM && made < i + ROOM + 1) /* one waits for room, and stays the only one */
			usleep(1000);
		if (i % 50 == 0)
			usleep(20000);
		assert_in_range(made, i, i + ROOM + 1);
		int *item = ahead_take(a);
		assert_ptr_not_equal(item, &ahead_broken);
		assert_int_equal(*item, i);
		free(item);
	}
	for (int i = 0; i < 2; i++) /* and stays broken */
		assert_ptr_equal(ahead_take(a), &ahead_broken);
	ahead_free(a);
}

/* With the thread waiting for room, and what it made not taken: nothing of that is left (SAN=1). */
static void what_is_stopped_ends_and_gives_nothing_more(void **state)
{
	(void)state;
	int last = ITEMS;
	struct ahead *a = start(&last);

	while (made < ROOM + 1)
		usleep(1000);
	ahead_stop(a);
	assert_ptr_equal(ahead_take(a), &ahead_broken);
	ahead_free(a);
	ahead_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_comes_once_and_in_order_however_late_it_is_taken),
		cmocka_unit_test(what_is_stopped_ends_and_gives_nothing_more),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

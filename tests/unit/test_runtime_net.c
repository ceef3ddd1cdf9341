/* SPDX-License-Identifier: Apache-2.0
 * Which interface a rank listens on, of those that a machine may have. */
#include "tests/unit/test.h"

#include "runtime/links.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

enum { HERE = IFF_UP | IFF_RUNNING, LO = HERE | IFF_LOOPBACK, INTERFACES_MAX = 8 };

/* In the kernel's order. */
static const struct interface {
	const char *name, *address; /* 127.…, where anybody may listen; NULL: none */
	unsigned flags;
} *machine;

int __wrap_getifaddrs(struct ifaddrs **all);
int __wrap_getifaddrs(struct ifaddrs **all)
{
	static struct ifaddrs list[INTERFACES_MAX];
	static struct sockaddr_in address[INTERFACES_MAX];
	struct ifaddrs **next = all;

	for (int i = 0; machine[i].name; i++) {
		list[i] = (struct ifaddrs){ .ifa_name = (char *)(uintptr_t)machine[i].name, .ifa_flags = machine[i].flags };
		if (machine[i].address) {
			address[i] = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = inet_addr(machine[i].address) };
			list[i].ifa_addr = (struct sockaddr *)&address[i];
		}
		*next = &list[i];
		next = &list[i].ifa_next;
	}
	*next = NULL;
	return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *all);
void __wrap_freeifaddrs(struct ifaddrs *all)
{
	(void)all;
}

/* The address on which a rank of that machine listens, or why it does not. */
static const char *listens_on(const struct interface *of, const char *chosen)
{
	static char text[WHY_BYTES];
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct links l = { .listener = { -1, -1, -1 }, .alarm = -1, .lock = &lock };

	machine = of;
	if (links_listen(&l, "n1", chosen, true, text) == 0) {
		inet_ntop(AF_INET, &l.card.v4.sin_addr, text, sizeof text);
		links_close(&l);
	}
	return text;
}

static void the_first_that_is_up_and_has_a_carrier_is_taken_and_loopback_where_there_is_no_other(void **state)
{
	static const struct interface good[] = {
		{ "lo", "127.0.0.1", LO }, { "bare0", NULL, HERE }, { "down0", "127.0.0.2", IFF_RUNNING }, { "nocarrier0", "127.0.0.3", IFF_UP }, { "ib0", "127.0.0.4", HERE },
		{ "eth0", "127.0.0.5", HERE }, { 0 },
	};
	static const struct interface alone[] = { { "down0", "127.0.0.2", IFF_RUNNING }, { "nocarrier0", "127.0.0.3", IFF_UP }, { "lo", "127.0.0.1", LO }, { 0 } };
	static const struct interface none[] = { { "lo", "127.0.0.1", IFF_LOOPBACK }, { "nocarrier0", "127.0.0.3", IFF_UP }, { 0 } };

	(void)state;
	assert_string_equal(listens_on(good, NULL), "127.0.0.4");
	assert_string_equal(listens_on(good, "eth0"), "127.0.0.5");
	assert_string_equal(listens_on(alone, NULL), "127.0.0.1");
	assert_string_equal(listens_on(none, NULL), "n1: no network interface is up: is this a container without the host's network?");
	assert_string_equal(listens_on(good, "eth7"), "n1: interface eth7 (HVD_IFACE) has no address; interfaces with one: lo ib0 eth0");
}

/* It found no interface of its own, and has to say so to a rank whose network has no IPv6. */
static void who_listens_nowhere_reaches_others_by_ipv4(void **state)
{
	static const struct interface only_v4[] = { { "eth0", "127.0.0.5", HERE }, { 0 } };
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct links there = { .listener = { -1, -1, -1 }, .alarm = -1, .lock = &lock }, nowhere = there;
	struct sockaddr_in a = { .sin_family = AF_UNSPEC };
	char why[WHY_BYTES];

	(void)state;
	machine = only_v4;
	assert_int_equal(links_listen(&there, "n1", NULL, true, why), 0);
	int fd = links_connect(&nowhere, &there.card);
	assert_true(fd >= 0);
	assert_int_equal(getpeername(fd, (void *)&a, &(socklen_t){ sizeof a }), 0);
	assert_true(a.sin_family == AF_INET && a.sin_port == there.card.v4.sin_port);
	close_fd(&fd);
	links_close(&there);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_that_is_up_and_has_a_carrier_is_taken_and_loopback_where_there_is_no_other),
		cmocka_unit_test(who_listens_nowhere_reaches_others_by_ipv4),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

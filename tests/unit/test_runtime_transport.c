/* SPDX-License-Identifier: Apache-2.0
 * NCCL's log, as it writes it, to a table of who talks to whom over what. */
#include "tests/unit/test.h"

#include "runtime/transport.h"

static const char *const lines[] = {
	"n1:4711:4750 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>",
	"n1:4711:4750 [0] NCCL INFO Channel 00/02 : 0 1 2 3",
	"n1:4711:4750 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC",
	"n1:4712:4751 [1] NCCL INFO Channel 00 : 1[c1000] -> 0[41000] via SHM/direct/direct",
	"n1:4712:4751 [1] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/Socket/0",
	"n2:90:91 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [receive] via NET/Socket/0", /* the same channel, at its other end */
	"n2:90:91 [0] NCCL INFO Channel 00/0 : 2[0] -> 1[1] [send] via NET/IB/3/GDRDMA/Shared",
	"n2:90:91 [0] NCCL INFO Channel 00/0 : 2[0] -> 3[1] via P2P/CUMEM/read",
	"n2:90:92 [1] NCCL INFO Channel 00/0 : 3[1] -> 2[0] [receive] via NET/Socket/0",
	"n2:90:92 [1] NCCL INFO Channel 00/0 : 3[1] -> 0[0] [send] via NET/IB/0",
	"n2:90:92 [1] NCCL INFO Connected all rings",
	"n1:4711:4750 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/IPC",
	"n1:4711:4750 [0] NCCL INFO Channel 00/0 : 4[0] -> 0[0] via SHM", /* of another communicator */
	"n1:4711:4750 [0] NCCL INFO Channel 00/0 : 0[0] -> 4[0] via SHM",
};

static size_t read_lines(struct pair *p)
{
	size_t n = 0;
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
		n += transport_line(lines[i], &p[n]);
	return n;
}

static void lines_of_the_log_are_understood(void **state)
{
	(void)state;
	struct pair p[16];
	assert_int_equal(read_lines(p), 11);
	assert_true(p[0].from == 0 && p[0].to == 1 && !strcmp(p[0].how, "P2P/IPC"));
	assert_true(p[1].from == 1 && p[1].to == 0 && !strcmp(p[1].how, "SHM/direct/direct"));
	assert_true(p[4].from == 2 && p[4].to == 1 && !strcmp(p[4].how, "NET/IB/3/GDRDMA/Shared"));
	assert_false(transport_line("NCCL INFO Channel 00 : -1[0] -> 1[0] via SHM", &p[0]));
	assert_false(transport_line("NCCL INFO Channel 00 : 0[0] -> 1[0] via ", &p[0]));
}

static char *table(const int *node, bool infiniband, int warnings)
{
	struct pair p[16];
	char *text = NULL;
	size_t size, n = read_lines(p);
	FILE *out = open_memstream(&text, &size);
	assert_non_null(out);
	assert_int_equal(transport_table(out, p, n, node, 4, infiniband), warnings);
	fclose(out);
	return text;
}

static void slow_ways_are_complained_of(void **state)
{
	(void)state;
	static const int two_nodes[] = { 0, 0, 1, 1 }, four_nodes[] = { 0, 1, 2, 3 };
	char *text = table(two_nodes, true, 4);
	assert_ptr_equal(strstr(text, "# from   to channels over\n     0    1        2 P2P/IPC             \n     1    0 "), text);
	assert_null(strstr(text, "4 "));
	assert_non_null(strstr(text, "SHM/direct/direct    WARNING: one node, but through host memory"));
	assert_non_null(strstr(text, "     1    2        1 NET/Socket/0         WARNING: over TCP, though there is InfiniBand"));
	assert_non_null(strstr(text, "     3    2        1 NET/Socket/0         WARNING: one node, but over the network"));
	assert_non_null(strstr(text, "     3    0        1 NET/IB/0             WARNING: without GPUDirect"));
	assert_non_null(strstr(text, "     2    1        1 NET/IB/3/GDRDMA/Shared\n"));
	free(text);
	free(table(two_nodes, false, 3));
	free(table(four_nodes, false, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_of_the_log_are_understood),
		cmocka_unit_test(slow_ways_are_complained_of),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

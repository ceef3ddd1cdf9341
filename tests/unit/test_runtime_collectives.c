/* SPDX-License-Identifier: Apache-2.0
 * Collectives on the CPU give what a serial program gives, bit for bit, however the ranks lie on nodes. */
#include "tests/unit/runtime_world.h"

#include <math.h>
#include <sys/socket.h>

static const char *const layouts[] = { "aa", "ab", "aaaa", "aabb", "aaab", "abbb", "abab", "abcd", "aabbcc", "aaabbc" };
#define LAYOUTS (sizeof layouts / sizeof layouts[0])

/* A number that depends on rank and place and is no round one. */
static float sample(int rank, size_t i)
{
	uint32_t x = (uint32_t)(i * 2654435761u) ^ (uint32_t)(rank + 1) * 0x9e3779b9u;
	x ^= x >> 15, x *= 0x85ebca6bu, x ^= x >> 13;
	return ((float)(x & 0xffffff) / 8388608.0f - 1.0f) * (float)(1 + x % 1000);
}

static float serial_sum(int ranks, size_t i)
{
	float sum = sample(0, i);
	for (int r = 1; r < ranks; r++)
		sum += sample(r, i);
	return sum;
}

/* A whole number below 2048 as f16, for which not every compiler has a type. */
static uint16_t f16(int n)
{
	int exponent = 0;
	while (n >> exponent > 1)
		exponent++;
	return n ? (uint16_t)((exponent + 15) << 10 | (((n << 10) >> exponent) & 0x3ff)) : 0;
}

static void sums_of_every_size(void *arg)
{
	static const size_t sizes[] = { 0, 1, 2, 3, 17, 63, 64, 65, 1000, 4097, 70001, 300007 };
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	(void)arg;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	int size = hvd_world(h)->size, rank = hvd_world(h)->rank;
	must(rank == meeting_rank);
	for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
		size_t n = sizes[k];
		float *in = malloc(n * 4 + 4), *out = malloc(n * 4 + 4);
		for (size_t i = 0; i < n; i++)
			in[i] = sample(rank, i);
		works(h, hvd_allreduce(h, in, out, n, HVD_F32, HVD_SUM));
		for (size_t i = 0; i < n; i++) {
			float want = serial_sum(size, i);
			must(!memcmp(&out[i], &want, 4));
		}
		works(h, hvd_allreduce(h, in, in, n, HVD_F32, HVD_AVG));
		for (size_t i = 0; i < n; i++)
			must(in[i] == out[i] / (float)size);
		free(in);
		free(out);
	}
	works(h, hvd_close(h));
}

static void sums_are_the_serial_sums_on_every_layout(void **state)
{
	(void)state;
	for (size_t i = 0; i < LAYOUTS; i++)
		run_ranks(layouts[i], sums_of_every_size, NULL);
}

/* Of no numbers, between two regions that one rank may have side by side and another not, and where in and out overlap. */
static void sum_at_the_borders(void *arg)
{
	(void)arg;
	struct hvd *h = join_within(20);
	float *p = hvd_alloc(h, 4096), *q = hvd_alloc(h, 4096);
	must(p && q);
	for (int k = 0; k < 4; k++) {
		works(h, hvd_allreduce(h, p, p, 0, HVD_F32, HVD_SUM));
		works(h, hvd_allreduce(h, q, q, 0, HVD_F32, HVD_SUM));
		works(h, hvd_allreduce(h, p + 1024, p + 1024, 0, HVD_F32, HVD_SUM));
	}
	float own[6] = { 1, 2, 3, 4, 5, 6 };
	must(hvd_allreduce(h, own, own + 1, 4, HVD_F32, HVD_SUM) == HVD_EINVAL && strstr(hvd_error(h), "in and out overlap"));
	must(hvd_allreduce(h, own + 1, own, 4, HVD_F32, HVD_SUM) == HVD_EINVAL);
	works(h, hvd_allreduce(h, own, own + 3, 3, HVD_F32, HVD_SUM));
	must(own[3] == 1 * (float)hvd_world(h)->size && own[0] == 1);
	works(h, hvd_close(h));
}

static void sums_of_nothing_and_of_what_overlaps(void **state)
{
	(void)state;
	run_ranks("aab", sum_at_the_borders, NULL);
	run_ranks("aa", sum_at_the_borders, NULL);
}

/* Small sums one behind the other, in which now one rank and now another comes late: nobody may use what is left of the sum before, nor what is there for the next. */
static void sums_in_a_row(void *arg)
{
	(void)arg;
	struct hvd *h = join_within(20);
	const int size = hvd_world(h)->size, rank = hvd_world(h)->rank;
	enum { MOST = 1026 }; /* from below a page of them to above it */
	static const size_t lengths[] = { 1, MOST, 17, 1024, 3, 2 };
	float *slab = hvd_alloc(h, MOST * 4);
	must(slab);
	for (int round = 0; round < 1000; round++) {
		const size_t n = lengths[round % 6];
		for (size_t i = 0; i < n; i++)
			slab[i] = (float)(round + rank);
		if (round % (size + 3) == rank)
			usleep(200);
		works(h, hvd_allreduce(h, slab, slab, n, HVD_F32, HVD_SUM));
		for (size_t i = 0; i < n; i++)
			must(slab[i] == (float)(size * round + size * (size - 1) / 2));
		if (round % 7 == 0)
			works(h, hvd_barrier(h));
	}
	works(h, hvd_close(h));
}

static void small_sums_in_a_row_do_not_meet(void **state)
{
	(void)state;
	run_ranks("aa", sums_in_a_row, NULL);
	run_ranks("aaaa", sums_in_a_row, NULL);
	run_ranks("aab", sums_in_a_row, NULL);
}

static void shared_memory_in_place(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	(void)arg;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	int size = hvd_world(h)->size, rank = hvd_world(h)->rank;
	size_t n = 300001;
	float *first = hvd_alloc(h, 100), *slab = hvd_alloc(h, n * 4);
	must(first && slab && (uintptr_t)slab % 64 == 0);
	hvd_free(h, first);
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < n; i++)
			slab[i] = sample(rank, i);
		/* a middle part: what lies around it must stay */
		works(h, hvd_allreduce(h, slab + 1001, slab + 1001, n - 2002, HVD_F32, HVD_SUM));
		if (round == 2) { /* with the program's own memory in between */
			float *own = malloc(n * 4);
			must(own);
			works(h, hvd_copy(h, own, slab, n * 4));
			memset(slab, 0xff, n * 4);
			works(h, hvd_copy(h, slab, own, n * 4));
			free(own);
		}
		for (size_t i = 0; i < n; i++) {
			float want = i < 1001 || i >= n - 1001 ? sample(rank, i) : serial_sum(size, i);
			must(!memcmp(&slab[i], &want, 4));
		}
	}
	hvd_free(h, slab);
	works(h, hvd_close(h));
}

static void shared_memory_is_reduced_in_place(void **state)
{
	(void)state;
	for (size_t i = 0; i < LAYOUTS; i++)
		run_ranks(layouts[i], shared_memory_in_place, NULL);
}

static bool is_tcp(int fd)
{
	struct sockaddr_storage a = { 0 };
	socklen_t size = sizeof a;
	return !getsockname(fd, (void *)&a, &size) && a.ss_family == AF_INET;
}

/* Sums larger than what may be on its way between nodes, of sizes around its parts, in memory that is not cut into pieces; arg: bytes that a socket
 * takes at once, 0: as usual. */
static void more_than_is_on_its_way(void *arg)
{
	enum { PART = 128 << 10, MOST = 5 << 20 };
	static const size_t bytes[] = { PART - 4, PART, PART + 4, 2 * PART - 4, 2 * PART, 2 * PART + 4, 3 * PART + 4, 8 * PART + 4, 15 * PART - 4, MOST };
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	const int *buffer = arg;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	unsigned size = (unsigned)hvd_world(h)->size, rank = (unsigned)hvd_world(h)->rank;
	for (int fd = 3; *buffer && (size == 2 || rank == 4) && fd < 100; fd++) /* those to other nodes, data among them */
		if (is_tcp(fd))
			must(!setsockopt(fd, SOL_SOCKET, SO_SNDBUF, buffer, sizeof *buffer));
	uint8_t *slab = hvd_alloc(h, MOST);
	must(slab);
	uint16_t *half = (void *)slab;
	for (size_t k = 0; k < sizeof bytes / sizeof bytes[0]; k++) {
		size_t n = bytes[k];
		for (size_t i = 0; i < n; i++)
			slab[i] = (uint8_t)(i * 7 + i / PART + rank * 3);
		if (*buffer && rank == 5 && n == MOST) /* sums pile up in the rank before it, as far as they may */
			usleep(200000);
		works(h, hvd_allreduce(h, slab, slab, n, HVD_U8, HVD_SUM));
		for (size_t i = 0; i < n; i++)
			must(slab[i] == (uint8_t)((i * 7 + i / PART) * size + 3 * (size * (size - 1) / 2)));
		for (size_t i = 0; i < n / 2; i++)
			half[i] = f16((int)(i % 101 + rank));
		works(h, hvd_allreduce(h, half, half, n / 2, HVD_F16, HVD_SUM)); /* running sums have 4 bytes on the way there, 2 on the way back */
		for (size_t i = 0; i < n / 2; i++)
			must(half[i] == f16((int)(i % 101 * size + size * (size - 1) / 2)));
	}
	works(h, hvd_close(h));
}

static void sums_larger_than_the_window_between_nodes_get_through(void **state)
{
	static const char *const chains[] = { "ab", "aabb", "abab", "abc", "aabbcc", "abcdefgh" };
	int usual = 0, narrow = 24576;
	(void)state;
	for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++)
		run_ranks(chains[i], more_than_is_on_its_way, &usual);
	run_ranks("ab", more_than_is_on_its_way, &narrow);
	run_ranks("abcdefgh", more_than_is_on_its_way, &narrow);
}

#define CHECK_TYPE(CTYPE, TYPE, N)                                                             \
	do {                                                                                   \
		CTYPE in[N], sum[N], least[N], most[N];                                        \
		for (int i = 0; i < N; i++)                                                    \
			in[i] = (CTYPE)((i * 7 + rank * 3) % 23);                              \
		works(h, hvd_allreduce(h, in, sum, N, TYPE, HVD_SUM));                         \
		works(h, hvd_allreduce(h, in, least, N, TYPE, HVD_MIN));                       \
		works(h, hvd_allreduce(h, in, most, N, TYPE, HVD_MAX));                        \
		for (int i = 0; i < N; i++) {                                                  \
			CTYPE s = 0, lo = 100, hi = 0;                                         \
			for (int r = 0; r < size; r++) {                                       \
				CTYPE x = (CTYPE)((i * 7 + r * 3) % 23);                       \
				s = (CTYPE)(s + x), lo = x < lo ? x : lo, hi = x > hi ? x : hi; \
			}                                                                      \
			must(sum[i] == s && least[i] == lo && most[i] == hi);                  \
		}                                                                              \
	} while (0)

static void every_type(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	(void)arg;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	int size = hvd_world(h)->size, rank = hvd_world(h)->rank;
	CHECK_TYPE(double, HVD_F64, 131);
	CHECK_TYPE(int32_t, HVD_I32, 131);
	CHECK_TYPE(int64_t, HVD_I64, 131);
	CHECK_TYPE(uint8_t, HVD_U8, 131);
	CHECK_TYPE(uint64_t, HVD_U64, 131);

	uint16_t half[3] = { f16(rank), f16(rank), f16(rank) };
	works(h, hvd_allreduce(h, &half[0], &half[0], 1, HVD_F16, HVD_SUM));
	works(h, hvd_allreduce(h, &half[1], &half[1], 1, HVD_F16, HVD_MIN));
	works(h, hvd_allreduce(h, &half[2], &half[2], 1, HVD_F16, HVD_MAX));
	must(half[0] == f16(size * (size - 1) / 2) && half[1] == 0 && half[2] == f16(size - 1));

	/* 16-bit sums are rounded once: 256 + 1 + 1 in bf16 steps of 2 would stay at 256, summed in f32 it is 258 */
	uint16_t x = rank == 0 ? 0x4380 : 0x3f80, sum;
	works(h, hvd_allreduce(h, &x, &sum, 1, HVD_BF16, HVD_SUM));
	float want = 256.0f + (float)(size - 1);
	uint32_t bits;
	memcpy(&bits, &want, 4);
	bits += 0x7fff + (bits >> 16 & 1);
	must(sum == bits >> 16);
	works(h, hvd_close(h));
}

static void not_a_number(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	(void)arg;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	int size = hvd_world(h)->size, rank = hvd_world(h)->rank;
	for (int who = 0; who <= size; who++) { /* of `size`: none */
		double x = who == rank ? NAN : rank, least, most;
		float y = rank == 1 ? -INFINITY : INFINITY, low, high;
		uint16_t z = who == rank ? 0x7e00 : f16(rank), z_most;
		works(h, hvd_allreduce(h, &x, &least, 1, HVD_F64, HVD_MIN));
		works(h, hvd_allreduce(h, &x, &most, 1, HVD_F64, HVD_MAX));
		works(h, hvd_allreduce(h, &y, &low, 1, HVD_F32, HVD_MIN));
		works(h, hvd_allreduce(h, &y, &high, 1, HVD_F32, HVD_MAX));
		works(h, hvd_allreduce(h, &z, &z_most, 1, HVD_F16, HVD_MAX));
		must(who < size ? isnan(least) && isnan(most) && (z_most & 0x7fff) > 0x7c00 : least == 0 && most == size - 1 && z_most == f16(size - 1));
		must(low == -INFINITY && high == INFINITY);
	}
	works(h, hvd_close(h));
}

static void not_a_number_is_least_and_most_whoever_has_it(void **state)
{
	(void)state;
	run_ranks("aaa", not_a_number, NULL);
	run_ranks("aab", not_a_number, NULL);
	run_ranks("abc", not_a_number, NULL);
}

enum { LARGE = 300000 }; /* floats, more than one piece */

/* The message must say in what the ranks differ; arg: 'r'oot, 'o'peration, 'b'locks, 'n'umber, 'k'ind, 'p'lace, other 'm'emory or 'd'isplaced in the same, 't'ype. */
static void calls_that_differ(void *arg)
{
	static const char *const words[] = { ['r'] = "with another root", ['o'] = "with another operation", ['b'] = "calls an all-gather of 4 f32, with blocks of other sizes",
					     ['n'] = "calls a broadcast of 300000 f32", ['p'] = "calls an all-reduce of 300000 f32, in another place of hvd_alloc()'s memory",
					     ['m'] = "in another place of hvd_alloc()'s memory", ['k'] = "calls an all-reduce of 300000 f32", ['t'] = "calls an all-reduce of 300000 i32", ['d'] = "calls an all-reduce of 150000 f32, in another place of hvd_alloc()'s memory" };
	static float own[LARGE];
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	const char what = *(const char *)arg;
	conf.on_death = 1; /* nobody ends the process */
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	all_arrive();
	const bool odd = hvd_world(h)->rank % 2;
	float *slab = hvd_alloc(h, sizeof own), *other = hvd_alloc(h, sizeof own);
	must(slab && other);
	works(h, hvd_barrier(h));
	float *p = what == 'p' && odd ? slab : what == 'm' ? odd ? slab : other : what == 'd' ? odd ? slab : slab + LARGE / 2 : own;
	const size_t blocks[] = { odd ? 1 : 3, odd ? 3 : 1 };
	status = what == 'r' ? hvd_broadcast(h, own, 4, HVD_F32, odd) :
		 what == 'n' ? hvd_broadcast(h, own, odd ? LARGE : LARGE - 1, HVD_F32, 0) :
		 what == 'k' && !odd ? hvd_barrier(h) :
		 what == 'b' ? hvd_allgatherv(h, slab, own, blocks, HVD_F32) :
			       hvd_allreduce(h, p, p, what == 'd' ? LARGE / 2 : LARGE, what == 't' && odd ? HVD_I32 : HVD_F32, what == 'o' && odd ? HVD_MAX : HVD_SUM);
	must(status == HVD_EMISMATCH);
	must(strstr(hvd_error(h), words[(int)what]) && !strstr(hvd_error(h), "a barrier of") && !strstr(hvd_error(h), "in another place") == !strchr("pmd", what));
	hvd_close(h);
}

static void a_call_that_differs_is_told_by_its_difference(void **state)
{
	(void)state;
	run_ranks("ab", calls_that_differ, "r"); /* over a link */
	run_ranks("ab", calls_that_differ, "o");
	run_ranks("ab", calls_that_differ, "b");
	run_ranks("ab", calls_that_differ, "n");
	run_ranks("ab", calls_that_differ, "k");
	run_ranks("ab", calls_that_differ, "p");
	run_ranks("ab", calls_that_differ, "m");
	run_ranks("ab", calls_that_differ, "d");
	run_ranks("ab", calls_that_differ, "t");
	run_ranks("aa", calls_that_differ, "r");
	run_ranks("aa", calls_that_differ, "n");
	run_ranks("aa", calls_that_differ, "b");
	run_ranks("aa", calls_that_differ, "o");
	run_ranks("aa", calls_that_differ, "p");
	run_ranks("aa", calls_that_differ, "m");
	run_ranks("aa", calls_that_differ, "d");
}

static void every_type_and_operation_is_right(void **state)
{
	(void)state;
	run_ranks("aaa", every_type, NULL);
	run_ranks("aabbc", every_type, NULL);
	run_ranks("aba", every_type, NULL);
}

static void copies(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	static const size_t sizes[] = { 1, 5, 1000, 20003, 300001 };
	(void)arg;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	int size = hvd_world(h)->size, rank = hvd_world(h)->rank;
	for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
		size_t n = sizes[k];
		float *mine = malloc(n * 4), *all = malloc(n * 4 * (size_t)size);
		for (int root = 0; root < size; root++) {
			for (size_t i = 0; i < n; i++)
				mine[i] = sample(rank, i);
			works(h, hvd_broadcast(h, mine, n, HVD_F32, root));
			for (size_t i = 0; i < n; i++)
				must(mine[i] == sample(root, i));
		}
		for (size_t i = 0; i < n; i++)
			mine[i] = sample(rank, i);
		works(h, hvd_allgather(h, mine, all, n, HVD_F32));
		for (int r = 0; r < size; r++)
			for (size_t i = 0; i < n; i++)
				must(all[(size_t)r * n + i] == sample(r, i));
		memset(all, 0, n * 4 * (size_t)size); /* the own block at the beginning, where rank 0's comes; then in its place */
		for (int place = 0; place < 2; place++) {
			memcpy(all + (place ? (size_t)rank * n : 0), mine, n * 4);
			works(h, hvd_allgather(h, all + (place ? (size_t)rank * n : 0), all, n, HVD_F32));
			for (int r = 0; r < size; r++)
				for (size_t i = 0; i < n; i++)
					must(all[(size_t)r * n + i] == sample(r, i));
		}
		works(h, hvd_barrier(h));
		free(mine);
		free(all);
	}
	works(h, hvd_close(h));
}

static void broadcast_and_allgather_copy_every_byte(void **state)
{
	(void)state;
	for (size_t i = 0; i < LAYOUTS; i++)
		run_ranks(layouts[i], copies, NULL);
}

static void blocks(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	static const size_t sizes[] = { 0, 1, 7, 1000, 60001 };
	(void)arg;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	int size = hvd_world(h)->size, rank = hvd_world(h)->rank;
	for (size_t k = 0; k < 5; k++) {
		size_t n = sizes[k], total = n * (size_t)size;
		float *in = malloc(total * 4 + 4), *out = malloc(total * 4 + 4);
		for (size_t i = 0; i < total; i++)
			in[i] = sample(rank, i);
		works(h, hvd_reduce_scatter(h, in, out, n, HVD_F32, HVD_SUM));
		for (size_t i = 0; i < n; i++) {
			float want = serial_sum(size, (size_t)rank * n + i);
			must(!memcmp(&out[i], &want, 4));
		}
		works(h, hvd_alltoall(h, in, out, n, HVD_F32));
		for (int r = 0; r < size; r++)
			for (size_t i = 0; i < n; i++)
				must(out[(size_t)r * n + i] == sample(r, (size_t)rank * n + i));
		memcpy(out, in, total * 4);
		works(h, hvd_alltoall(h, out, out, n, HVD_F32));
		for (size_t i = 0; i < total; i++)
			must(out[i] == sample((int)(i / n), (size_t)rank * n + i % n));
		/* rank r has r * n elements, rank 0 none */
		size_t counts[RANKS_MAX], at = 0;
		for (int r = 0; r < size; r++)
			counts[r] = (size_t)r * n;
		float *all = malloc((total * (size_t)size + 1) * 4);
		works(h, hvd_allgatherv(h, in, all, counts, HVD_F32));
		for (int r = 0; r < size; r++)
			for (size_t i = 0; i < counts[r]; i++, at++)
				must(all[at] == sample(r, i));
		free(in);
		free(out);
		free(all);
	}
	works(h, hvd_close(h));
}

static void scattered_exchanged_and_unequal_blocks_arrive(void **state)
{
	(void)state;
	for (size_t i = 0; i < LAYOUTS; i++)
		run_ranks(layouts[i], blocks, NULL);
}

/* The same number of elements in all, in other blocks: a hash of 32 bits took these for the same. */
static void gather_other_blocks(void *arg)
{
	static const size_t counts[2][3] = { { 0, 102912, 97088 }, { 256, 0, 199744 } };
	static uint8_t in[200000], out[200000];
	struct hvd_conf conf = quick_conf();
	struct hvd *h;
	(void)arg;
	conf.on_death = 1;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	all_arrive();
	must(hvd_allgatherv(h, in, out, counts[meeting_rank > 0], HVD_U8) == HVD_EMISMATCH);
	hvd_close(h);
}

static void blocks_that_differ_between_ranks_are_refused(void **state)
{
	(void)state;
	run_ranks("aaa", gather_other_blocks, NULL);
	run_ranks("aab", gather_other_blocks, NULL);
}

static void *reduce_on_a_small_stack(void *arg)
{
	float one[1000] = { 0 };
	for (size_t n = 1; n <= 1000; n = 3 * n + 1)
		works(arg, hvd_allreduce(arg, one, one, n, HVD_F32, HVD_SUM));
	return NULL;
}

static void reduce_in_a_small_thread(void *arg)
{
	struct hvd_conf conf = quick_conf();
	pthread_attr_t small;
	pthread_t thread;
	struct hvd *h;
	const long least = sysconf(_SC_THREAD_STACK_MIN); /* 128 KiB on ARM */
	(void)arg;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	must(!pthread_attr_init(&small) && !pthread_attr_setstacksize(&small, least > 40 << 10 ? (size_t)least : 40 << 10));
	must(!pthread_create(&thread, &small, reduce_on_a_small_stack, h) && !pthread_join(thread, NULL));
	works(h, hvd_close(h));
}

static void small_sums_need_little_stack(void **state)
{
	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip_because("a sanitizer needs stack of its own");
#endif
	run_ranks("aa", reduce_in_a_small_thread, NULL);
}

/* One splits while the other allocates, or agrees on a number of the same size: their messages are not taken for each other's. */
struct call {
	int rank;
	bool allocates;
};

static void split_or_not(void *arg)
{
	static const struct hvd_tensor tensor = { "a", 100 };
	const struct call *other = arg;
	struct hvd *h, *part;
	struct hvd_plan *p;
	char want[100];
	struct hvd_conf conf = quick_conf();
	conf.on_death = 1; /* nobody ends the process */
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	works(h, hvd_plan_open(h, &p, &tensor, 1, 0));
	all_arrive();
	if (meeting_rank != other->rank)
		must(hvd_split(h, 0, &part) == HVD_EMISMATCH);
	else if (other->allocates)
		must(!hvd_alloc(h, 4096));
	else
		must(hvd_plan_accumulate(p, 1) == HVD_EMISMATCH);
	must(h->mesh->failed == HVD_EMISMATCH);
	const char *name = other->allocates ? "hvd_alloc" : "hvd_plan_accumulate";
	for (int r = 0; r < 2; r++) { /* whichever noticed it first */
		snprintf(want, sizeof want, "rank %d on node-a is in %s where rank %d is in %s", r, r == other->rank ? name : "hvd_split", !r,
			 r == other->rank ? "hvd_split" : name);
		meeting->note[meeting_rank] += strstr(hvd_error(h), want) != NULL;
	}
	must(meeting->note[meeting_rank] == 1);
	hvd_plan_close(p);
	hvd_close(h);
}

static void an_exchange_meets_none_of_another_call(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++)
		run_ranks("aa", split_or_not, &(struct call){ i / 2, i % 2 });
}

/* Rank 1 waits for messages, the others in shared memory or for a message of another exchange. */
static void meet_or_allocate(void *arg)
{
	struct hvd *h = join_within(1);
	(void)arg;
	must(meeting_rank == 1 ? !hvd_alloc(h, 4096) : hvd_barrier(h) == HVD_EMISMATCH);
	must(h->mesh->failed == HVD_EMISMATCH);
	must(strstr(hvd_error(h), " is in a barrier where rank 1 is in hvd_alloc") || strstr(hvd_error(h), "rank 1 on node-a is in hvd_alloc where rank 0 is in a barrier"));
	hvd_close(h);
}

static void ranks_that_wait_in_different_calls_are_not_lost(void **state)
{
	(void)state;
	run_ranks("aa", meet_or_allocate, NULL);
	run_ranks("aaa", meet_or_allocate, NULL);
}

/* Rank 2 waits longest, and for rank 0, which does as it does. */
static void reduce_or_split(void *arg)
{
	struct hvd *h = join_within(1), *part;
	double x = 1, sum;
	(void)arg;
	usleep(meeting_rank ? 0 : 400000);
	must((meeting_rank == 1 ? hvd_split(h, 0, &part) : hvd_allreduce(h, &x, &sum, 1, HVD_F64, HVD_SUM)) == HVD_EMISMATCH);
	must(strstr(hvd_error(h), " is in an all-reduce where rank 1 is in hvd_split"));
	hvd_close(h);
}

static void who_waits_for_one_that_does_alike_names_the_one_that_does_not(void **state)
{
	(void)state;
	run_ranks("aab", reduce_or_split, NULL);
}

static void barrier_waits(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	(void)arg;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	int size = hvd_world(h)->size, rank = hvd_world(h)->rank;
	for (int round = 1; round <= 5; round++) {
		usleep((useconds_t)(1000 * ((rank * 7 + round * 3) % 11)));
		meeting->note[rank] = round;
		works(h, hvd_barrier(h));
		for (int r = 0; r < size; r++)
			must(meeting->note[r] >= round);
		works(h, hvd_barrier(h));
	}
	works(h, hvd_close(h));
}

static void nobody_passes_a_barrier_alone(void **state)
{
	(void)state;
	for (size_t i = 0; i < LAYOUTS; i++)
		run_ranks(layouts[i], barrier_waits, NULL);
}

static void world_shape(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	(void)arg;
	int status = hvd_init_from(&h, &conf, meet);
	works(h, status);
	static const struct hvd_world want[] = {
		{ 0, 5, 0, 3, 0, 2, 0, "cpu" }, { 1, 5, 0, 2, 1, 2, 0, "cpu" }, { 2, 5, 1, 3, 0, 2, 0, "cpu" },
		{ 3, 5, 1, 2, 1, 2, 0, "cpu" }, { 4, 5, 2, 3, 0, 2, 0, "cpu" },
	};
	const struct hvd_world *w = hvd_world(h), *e = &want[meeting_rank];
	must(w->rank == e->rank && w->size == e->size && w->local_rank == e->local_rank && w->local_size == e->local_size);
	must(w->node == e->node && w->nodes == e->nodes && !strcmp(w->backend, e->backend));
	must(!strcmp(hvd_host(h, 0), "node-x") && !strcmp(hvd_host(h, 3), "node-b"));
	works(h, hvd_close(h));
}

static void ranks_are_grouped_by_node_name(void **state)
{
	(void)state;
	run_ranks("xbxbx", world_shape, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_are_grouped_by_node_name),
		cmocka_unit_test(sums_are_the_serial_sums_on_every_layout),
		cmocka_unit_test(sums_of_nothing_and_of_what_overlaps),
		cmocka_unit_test(small_sums_in_a_row_do_not_meet),
		cmocka_unit_test(shared_memory_is_reduced_in_place),
		cmocka_unit_test(sums_larger_than_the_window_between_nodes_get_through),
		cmocka_unit_test(every_type_and_operation_is_right),
		cmocka_unit_test(not_a_number_is_least_and_most_whoever_has_it),
		cmocka_unit_test(a_call_that_differs_is_told_by_its_difference),
		cmocka_unit_test(broadcast_and_allgather_copy_every_byte),
		cmocka_unit_test(scattered_exchanged_and_unequal_blocks_arrive),
		cmocka_unit_test(blocks_that_differ_between_ranks_are_refused),
		cmocka_unit_test(small_sums_need_little_stack),
		cmocka_unit_test(an_exchange_meets_none_of_another_call),
		cmocka_unit_test(ranks_that_wait_in_different_calls_are_not_lost),
		cmocka_unit_test(who_waits_for_one_that_does_alike_names_the_one_that_does_not),
		cmocka_unit_test(nobody_passes_a_barrier_alone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

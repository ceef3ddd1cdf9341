/* SPDX-License-Identifier: Apache-2.0
 * A world is formed: without who does not come, whatever strangers do, over IPv4 or IPv6, and with one protocol. */
#include "tests/unit/runtime_world.h"

#include "runtime/links.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>

struct absence {
	int first, last; /* ranks */
	const char *line;
};

static void stay_away(void *arg)
{
	const struct absence *a = arg;
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	conf.deadline = 1;
	if (meeting_rank >= a->first && meeting_rank <= a->last)
		_exit(0);
	double begin = now();
	int status = hvd_init_from(&h, &conf, meet);
	must(status == HVD_EBOOT && now() - begin < 1 + 4);
	must(strstr(hvd_error(h), a->line));
	hvd_close(h);
}

static void a_missing_rank_is_named_by_all(void **state)
{
	(void)state;
	run_ranks("aab", stay_away, &(struct absence){ 0, 0, "rank 0 did not join" });
	run_ranks("aab", stay_away, &(struct absence){ 1, 1, "rank 1 on node-a did not join within 1 s (not started, ended early, or not calling hvd_init)" });
	run_ranks("aab", stay_away, &(struct absence){ 1, 2, "rank 1 on node-a, rank 2 on node-b did not join within 1 s (not started, ended early, not calling hvd_init, or behind a firewall)" });
	run_ranks("aabbbbbbbbbbbbbb", stay_away, &(struct absence){ 2, 15, ", rank 11 on node-b, rank 12 on node-b, rank 13 on node-b and more did not join within 1 s (not started, ended early, not calling hvd_init, or behind a firewall)" });
}

/* ---- strangers ------------------------------------------------------------------------------------ */

static int knock(void)
{
	const struct card *card = (const void *)meeting->card;
	struct sockaddr_in a = card->v4;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	must(fd >= 0 && !connect(fd, (void *)&a, sizeof a));
	return fd;
}

/* As rank 1, but without the secret: no answer. What can be done with a HELLO overheard: tests/live/intruder.py */
static void forge(void)
{
	struct {
		char magic[8];
		uint32_t from, to;
		uint8_t nonce[16], mac[16];
	} hello = { .from = 1 };
	char byte;
	memcpy(hello.magic, CARD_MAGIC, sizeof hello.magic);
	int fd = knock();
	must(send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello);
	must(recv(fd, &byte, 1, 0) <= 0);
	close(fd);
}

/* Of two ranks: rank 0 writes its errors to *log; true in rank 1, once rank 0 listens. */
static bool beside_a_listener(const int *log)
{
	if (meeting_rank == 0)
		must(dup2(*log, STDERR_FILENO) == STDERR_FILENO);
	while (meeting_rank == 1 && !meeting->published)
		usleep(1000);
	return meeting_rank == 1;
}

/* Of two ranks, of which rank 0 says nothing. */
static void run_and_expect_no_line(void (*body)(void *))
{
	char line[512] = "";
	int log = memfd_create("stderr of rank 0", 0);
	run_ranks("ab", body, &log);
	assert_int_not_equal(pread(log, line, sizeof line - 1, 0), -1);
	assert_string_equal(line, "");
	close(log);
}

static void join_among_strangers(void *arg)
{
	int half_open[20];
	if (beside_a_listener(arg)) {
		for (int i = 0; i < 20; i++)
			half_open[i] = knock();
		forge();
		int fd = knock();
		for (int i = 0; i < 1000; i++)
			if (send(fd, "GET / HTTP/1.0\r\n\r\n garbage", 27, MSG_NOSIGNAL) < 0)
				break;
		char byte;
		must(recv(fd, &byte, 1, 0) <= 0);
		close(fd);
		for (int i = 0; i < 100; i++)
			close(knock());
	}
	struct hvd *h = join_within(20);
	float x = 1;
	works(h, hvd_allreduce(h, &x, &x, 1, HVD_F32, HVD_SUM));
	must(x == 3);
	if (meeting_rank == 1) { /* the world stands: nobody listens any more */
		const struct card *card = (const void *)meeting->card;
		struct sockaddr_in a = card->v4;
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		must(connect(fd, (void *)&a, sizeof a) && errno == ECONNREFUSED);
		for (int i = 0; i < 20; i++)
			close(half_open[i]);
	}
	works(h, hvd_close(h));
}

static void allow_more_files(int more)
{
	int fd = dup(0);
	must(fd >= 0 && !close(fd));
	must(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){ (rlim_t)(fd + more), (rlim_t)(fd + more) }));
}

/* More silent connections than there are places. */
#define CROWD 600
static void join_behind_a_crowd(void *arg)
{
	const int *files = arg;
	if (meeting_rank == 0)
		must(freopen("/dev/null", "w", stderr));
	if (meeting_rank == 0 && *files)
		allow_more_files(*files);
	if (meeting_rank == 1) {
		while (!meeting->published)
			usleep(1000);
		for (int i = 0; i < CROWD; i++)
			knock(); /* open until this process ends */
	}
	works(NULL, hvd_close(join_within(10)));
}

static void a_crowd_of_strangers_keeps_no_rank_out(void **state)
{
	(void)state;
	for (int files = 0; files <= 40; files += 40) /* also where files are fewer than places */
		run_ranks("ab", join_behind_a_crowd, &files);
}

/* The first connection is answered wrongly, and ends; what it said is said again by a crowd. Those that follow reach rank 0, which hears nothing of them for
 * as long as a rank waits for its core on a crowded node. */
static void *answer_wrongly_once(void *arg)
{
	const int *listener = arg;
	uint8_t bytes[4096] = { 0 };
	for (bool first = true;; first = false) {
		int in = accept(*listener, NULL, NULL), out = knock();
		struct pollfd p[2] = { { .fd = in, .events = POLLIN }, { .fd = out, .events = POLLIN } };
		must(in >= 0);
		if (first)
			must(recv(in, bytes, 48, MSG_WAITALL) == 48 && send(in, bytes, 32, MSG_NOSIGNAL) == 32);
		for (int i = 0; first && i < CROWD; i++)
			must(send(knock(), bytes, 48, MSG_NOSIGNAL) == 48);
		if (!first)
			usleep(2200000);
		for (ssize_t n = !first; n > 0;) {
			must(poll(p, 2, -1) > 0);
			int from = p[0].revents ? 0 : 1;
			n = recv(p[from].fd, bytes, 7, 0); /* no frame goes at once */
			if (n > 0)
				send(p[!from].fd, bytes, (size_t)n, MSG_NOSIGNAL);
		}
		close(in);
		close(out);
	}
	return NULL;
}

static int detour = -1;

static int look_up_the_detour(struct boot *b, void *card, size_t bytes, double until, char *why)
{
	struct sockaddr_in at;
	socklen_t size = sizeof at;
	must(!getsockname(detour, (void *)&at, &size));
	int status = meeting_lookup(b, card, bytes, until, why);
	((struct card *)card)->v4.sin_port = at.sin_port;
	return status;
}

static int meet_by_the_detour(struct boot *b, char *why)
{
	int status = meet(b, why);
	if (meeting_rank == 1)
		b->lookup = look_up_the_detour;
	return status;
}

static void join_after_a_wrong_answer(void *arg)
{
	const int *log = arg;
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	pthread_t thread;
	if (beside_a_listener(log)) {
		detour = listen_at(&at, sizeof at, SOCK_STREAM);
		must(detour >= 0 && !pthread_create(&thread, NULL, answer_wrongly_once, &detour));
	}
	conf.on_death = 1; /* rank 0 may see that rank 1 has ended */
	int status = hvd_init_from(&h, &conf, meet_by_the_detour);
	works(h, status);
	works(h, hvd_barrier(h));
	wait_at(0, 2);
	_exit(0);
}

static void a_handshake_that_breaks_is_begun_anew_and_a_slow_rank_is_no_stranger(void **state)
{
	(void)state;
	run_and_expect_no_line(join_after_a_wrong_answer);
}

/* Nobody listens where rank 1 finds rank 0 to be; when it looks again rank 0 has given up. */
static int lookup_in_vain(struct boot *b, void *card, size_t bytes, double until, char *why)
{
	static int times;
	struct sockaddr_in nowhere = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int status = meeting_lookup(b, card, bytes, until, why);
	must(!close(listen_at(&nowhere, sizeof nowhere, SOCK_STREAM)));
	((struct card *)card)->v4.sin_port = nowhere.sin_port;
	if (times++)
		memset(card, 0, bytes);
	return status;
}

static int meet_in_vain(struct boot *b, char *why)
{
	meet(b, why);
	b->lookup = lookup_in_vain;
	return 0;
}

static void join_in_vain(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	(void)arg;
	conf.deadline = 1;
	must(hvd_init_from(&h, &conf, meet_in_vain) == HVD_EBOOT);
	must(strstr(hvd_error(h), meeting_rank ? "says why; nobody listens at its address" : "rank 1 on node-b did not join"));
	hvd_close(h);
}

static void who_is_refused_says_so_though_rank_0_has_given_up_first(void **state)
{
	(void)state;
	run_ranks("ab", join_in_vain, NULL);
}

static void join_with_few_files(void *arg)
{
	(void)arg;
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	double begin = lived();
	if (meeting_rank == 0)
		allow_more_files(9); /* its own, and not those of seven links */
	int status = hvd_init_from(&h, &conf, meet);
	must(status < 0 && lived() - begin < 10);
	must(strstr(hvd_error(h), "ulimit -n") || (meeting_rank && strstr(hvd_error(h), "rank 0 cannot set up its part")));
	hvd_close(h);
	_exit(0);
}

static void a_rank_that_may_open_too_few_files_says_so_to_all_at_once(void **state)
{
	(void)state;
	run_ranks("aaaaaaaa", join_with_few_files, NULL);
}

/* Where the world cannot be formed because of rank 1: all hear so at once, with these words. */
static void expect_all_to_hear(const struct hvd_conf *conf, int (*find)(struct boot *, char *), const char *words)
{
	struct hvd *h;
	const int files = open_files();
	double begin = lived();
	must(hvd_init_from(&h, conf, find) < 0 && lived() - begin < 5);
	if (!strstr(hvd_error(h), words) || (meeting_rank != 1 && strncmp(hvd_error(h), "rank 1 ", 7))) {
		fprintf(stderr, "rank %d: %s\n", meeting_rank, hvd_error(h));
		_exit(1);
	}
	hvd_close(h);
	must(open_files() == files);
	_exit(0);
}

static void join_without_threads(void *arg)
{
	struct hvd_conf conf = quick_conf();
	pthread_attr_t vast;
	(void)arg;
	must(!pthread_attr_init(&vast) && !pthread_attr_setstacksize(&vast, 1UL << 50));
	must(meeting_rank != 1 || !pthread_setattr_default_np(&vast));
	expect_all_to_hear(&conf, meet, "node-a: cannot start a thread");
}

static void a_rank_that_may_start_no_thread_says_so_to_all(void **state)
{
	(void)state;
	run_ranks("aab", join_without_threads, NULL);
}

static void join_without_interface(void *arg)
{
	struct hvd_conf conf = quick_conf();
	(void)arg;
	conf.interface = meeting_rank == 1 ? "none" : "lo";
	expect_all_to_hear(&conf, meet, "node-b: interface none (HVD_IFACE) has no address");
}

static void a_rank_without_the_interface_says_so_to_all(void **state)
{
	(void)state;
	run_ranks("abc", join_without_interface, NULL);
}

static void join_without_a_place_for_the_trace(void *arg)
{
	struct hvd_conf conf = quick_conf();
	(void)arg;
	conf.trace = meeting_rank == 1 ? "/dev/null/trace" : "/dev/shm";
	expect_all_to_hear(&conf, meet, "rank 1 on node-a cannot go on: HVD_TRACE: cannot make /dev/null/trace: Not a directory");
}

static void a_rank_without_a_place_for_its_trace_says_so_to_all(void **state)
{
	(void)state;
	run_ranks("aab", join_without_a_place_for_the_trace, NULL);
}

static void join_with_a_long_name_for_the_trace(void *arg)
{
	struct hvd_conf conf = quick_conf();
	char long_name[4080];
	(void)arg;
	memcpy(long_name, "/dev/shm", 8);
	for (size_t i = 8; i < sizeof long_name - 1; i += 2)
		memcpy(long_name + i, "/.", 2);
	long_name[sizeof long_name - 2] = 0;
	conf.trace = meeting_rank == 1 ? long_name : "/dev/shm";
	expect_all_to_hear(&conf, meet, "is too long: 4105 bytes with a file's name, at most 4095"); /* the number of the file was cut off, and looked for for ever */
}

static void a_name_of_a_trace_that_no_system_takes_is_refused(void **state)
{
	(void)state;
	run_ranks("aab", join_with_a_long_name_for_the_trace, NULL);
}

/* Rank 1 takes the card that it finds for one of another version. */
static int lookup_of_another_version(struct boot *b, void *card, size_t bytes, double until, char *why)
{
	int status = meeting_lookup(b, card, bytes, until, why);
	if (meeting_rank == 1)
		snprintf(((struct card *)card)->version, sizeof ((struct card *)card)->version, "7");
	return status;
}

static int meet_one_of_another_version(struct boot *b, char *why)
{
	meet(b, why);
	b->lookup = lookup_of_another_version;
	return 0;
}

static void join_one_of_another_version(void *arg)
{
	struct hvd_conf conf = quick_conf();
	(void)arg;
	expect_all_to_hear(&conf, meet_one_of_another_version, "rank 1 on node-b has libhvd " HVD_VERSION " (hvd4), rank 0 on node-a has 7 (hvd4): install one");
}

static void a_rank_with_another_version_says_so_to_all(void **state)
{
	(void)state;
	run_ranks("abb", join_one_of_another_version, NULL);
}

/* A program whose standard files are closed: what it prints must not come to the library. */
static void join_without_standard_files(void *arg)
{
	char name[32], leads[32];
	(void)arg;
	for (int fd = 0; fd < 3; fd++)
		close(fd);
	struct hvd *h = join_within(20);
	for (int fd = 0; fd < 3; fd++) {
		snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
		must(readlink(name, leads, sizeof leads) == 9 && !memcmp(leads, "/dev/null", 9));
	}
	works(h, hvd_close(h));
}

static void closed_standard_files_lead_nowhere(void **state)
{
	(void)state;
	run_ranks("aa", join_without_standard_files, NULL);
}

/* As a rank does that hears of a death while it forms links. */
static void join_beside_connections_that_end(void *arg)
{
	if (beside_a_listener(arg)) {
		for (int i = 0; i < 100; i++)
			close(knock());
	}
	works(NULL, hvd_close(join_within(20)));
}

static void a_connection_that_ends_without_a_word_is_no_stranger(void **state)
{
	(void)state;
	run_and_expect_no_line(join_beside_connections_that_end);
}

/* As long as the world is being formed; rank 0 cannot know that it is none before all have come. */
static void join_beside_a_silent_one(void *arg)
{
	if (beside_a_listener(arg))
		knock();
	works(NULL, hvd_close(join_within(20)));
}

static void a_silent_stranger_is_reported_once_all_ranks_are_there(void **state)
{
	(void)state;
	char line[512] = "";
	int log = memfd_create("stderr of rank 0", 0);
	run_ranks("ab", join_beside_a_silent_one, &log);
	assert_true(pread(log, line, sizeof line - 1, 0) > 0);
	assert_non_null(strstr(line, "ignored a connection from 127.0.0.1"));
	close(log);
}

static void strangers_are_ignored_and_reported_once(void **state)
{
	(void)state;
	char line[512];
	int lines = 0, log = memfd_create("stderr of rank 0", 0);
	run_ranks("abb", join_among_strangers, &log);
	FILE *f = fdopen(log, "r");
	assert_non_null(f);
	rewind(f);
	while (fgets(line, sizeof line, f)) {
		lines++;
		assert_non_null(strstr(line, "ignored a connection from 127.0.0.1"));
	}
	fclose(f);
	assert_int_equal(lines, 1);
}

/* ---- IPv6 ----------------------------------------------------------------------------------------- */

static void sum_once(void *arg)
{
	struct hvd *h = join_within(5);
	float x = 1;
	(void)arg;
	works(h, hvd_allreduce(h, &x, &x, 1, HVD_F32, HVD_SUM));
	must(x == 3 && !h->mesh->cards[0].v4.sin_family && h->mesh->cards[0].v6.sin6_family == AF_INET6);
	works(h, hvd_close(h));
}

/* All links between nodes, whatever their number: IPv6 may not be routed. */
static void look_at_links(void *arg)
{
	struct hvd *h = join_within(5);
	(void)arg;
	for (int i = 0; i < h->mesh->size; i++) {
		struct sockaddr_storage a = { 0 };
		socklen_t size = sizeof a;
		if (i != h->mesh->rank)
			must(!getsockname(peer_now(h->mesh, i).fd, (void *)&a, &size) && a.ss_family == AF_INET);
	}
	wait_at(0, h->mesh->size);
	works(h, hvd_close(h));
}

static void where_there_is_ipv4_all_links_use_it(void **state)
{
	(void)state;
	run_ranks("abcdef", look_at_links, NULL);
}

static void a_network_without_ipv4_will_do(void **state)
{
	(void)state;
	pid_t pid = fork();
	if (!pid) { /* a network of its own, with ::1 only */
		if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
			_exit(77);
		if (system("ip link set lo up && ip addr del 127.0.0.1/8 dev lo") || system("ip -6 addr show lo | grep -q ::1"))
			_exit(77);
		int status[RANKS_MAX];
		spawn_ranks("aab", sum_once, NULL, status);
		_exit(status[0] || status[1] || status[2]);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip_because("no network namespace with IPv6 to be had here");
	assert_int_equal(status, 0);
}

/* ---- no way ---------------------------------------------------------------------------------------- */

static struct sockaddr_in full_address; /* of a listener that lets nobody in any more: as behind a firewall that answers nothing */

static int lookup_behind_a_firewall(struct boot *b, void *card, size_t bytes, double until, char *why)
{
	int status = meeting_lookup(b, card, bytes, until, why);
	((struct card *)card)->v4 = full_address;
	return status;
}

static int meet_behind_a_firewall(struct boot *b, char *why)
{
	meet(b, why);
	b->lookup = lookup_behind_a_firewall;
	return 0;
}

static void join_through_a_firewall(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	char want[128];
	(void)arg;
	conf.deadline = 1;
	must(hvd_init_from(&h, &conf, meet_behind_a_firewall) == HVD_EBOOT);
	snprintf(want, sizeof want, "rank 1 on node-b cannot reach rank 0 on node-a at 127.0.0.1 port %d: Connection timed out (a firewall", ntohs(full_address.sin_port));
	must(strstr(hvd_error(h), meeting_rank ? want : "rank 1 on node-b did not join within 1 s (not started, ended early, not calling hvd_init, or behind a firewall)"));
	hvd_close(h);
}

static void who_hears_nothing_from_the_network_says_where_and_why(void **state)
{
	(void)state;
	socklen_t size = sizeof full_address;
	int full = socket(AF_INET, SOCK_STREAM, 0), client[4];
	full_address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	assert_true(!bind(full, (void *)&full_address, size) && !listen(full, 0) && !getsockname(full, (void *)&full_address, &size));
	for (int i = 0; i < 4; i++) {
		client[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		assert_true(!connect(client[i], (void *)&full_address, size) || errno == EINPROGRESS);
	}
	run_ranks("ab", join_through_a_firewall, NULL);
	for (int i = 0; i < 4; i++)
		close(client[i]);
	close(full);
}

/* ---- an outage ------------------------------------------------------------------------------------ */

/* After it they need a moment's more than the network was away. */
static void outlast(void *arg)
{
	struct hvd *h = join_within(6);
	int64_t one = 1;
	for (double until = now() + 7; one; usleep(20000)) {
		if (meeting_rank == 0 && !meeting->note[0]++)
			must(!system("ip link set lo down && (sleep 3.7; ip link set lo up) &"));
		one = now() < until;
		works(h, hvd_allreduce(h, &one, &one, 1, HVD_I64, HVD_MIN));
	}
	(void)arg;
	works(h, hvd_close(h));
}

static void a_network_that_is_away_for_less_than_the_deadline_costs_no_rank(void **state)
{
	(void)state;
	int tcp = socket(AF_INET, SOCK_STREAM, 0), known = !setsockopt(tcp, IPPROTO_TCP, 44 /* TCP_RTO_MAX_MS */, &(int){ 1000 }, sizeof(int));
	close(tcp);
	if (!known)
		skip_because("Linux before 6.15 cannot be told when to try again");
	pid_t pid = fork();
	if (!pid) {
		if ((unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET)) || system("ip link set lo up"))
			_exit(77);
		int status[RANKS_MAX];
		spawn_ranks("ab", outlast, NULL, status);
		_exit(status[0] || status[1]);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip_because("no network namespace to be had here");
	assert_int_equal(status, 0);
}

/* ---- another build --------------------------------------------------------------------------------- */

static int lookup_of_before(struct boot *b, void *card, size_t bytes, double until, char *why)
{
	int status = meeting_lookup(b, card, bytes, until, why);
	memcpy(card, "hvd0", 4);
	return status;
}

static int meet_one_of_before(struct boot *b, char *why)
{
	meet(b, why);
	b->lookup = lookup_of_before;
	return 0;
}

static void join_one_of_before(void *arg)
{
	struct hvd *h;
	struct hvd_conf conf = quick_conf();
	(void)arg;
	conf.deadline = meeting_rank ? 20 : 1;
	must(hvd_init_from(&h, &conf, meet_one_of_before) == HVD_EBOOT);
	must(!meeting_rank || strstr(hvd_error(h), "rank 1 on node-b has libhvd " HVD_VERSION " (hvd4), rank 0 on node-a has " HVD_VERSION " (hvd0): install one"));
	hvd_close(h);
}

/* Two builds that call themselves the same, but speak differently. */
static void a_library_of_another_protocol_is_told_by_it(void **state)
{
	(void)state;
	run_ranks("ab", join_one_of_before, NULL);
}

/* Rank 1 cannot do its part. Rank 0 has heard that, and listens no more; rank 2 hears it a moment after it has found nobody there. */
static void link_to_one_that_gave_up(void *arg)
{
	struct hvd *h = join_to_survive(20);
	struct mesh *m = h->mesh;
	struct link link[1] = { { 0, -1 } };
	char why[WHY_BYTES];
	(void)arg;
	if (!meeting_rank) {
		links_close(&m->links);
		link[0].rank = 2;
		wait_at(0, 3);
		must(mesh_link(m, link, 1, why)); /* says that it would accept */
	} else if (meeting_rank == 1) {
		wait_at(0, 3);
		usleep(300000);
		mesh_fault(m, HVD_ESYS, "has no room left");
	} else {
		wait_at(0, 3);
		must(mesh_link(m, link, 1, why));
		must(strstr(why, "rank 1 on node-a has no room left") && !strstr(why, "cannot reach"));
	}
	hvd_close(h);
}

static void who_gave_up_for_another_rank_is_not_called_out_of_reach(void **state)
{
	(void)state;
	run_ranks("aab", link_to_one_that_gave_up, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_missing_rank_is_named_by_all),
		cmocka_unit_test(who_is_refused_says_so_though_rank_0_has_given_up_first),
		cmocka_unit_test(a_library_of_another_protocol_is_told_by_it),
		cmocka_unit_test(a_connection_that_ends_without_a_word_is_no_stranger),
		cmocka_unit_test(a_silent_stranger_is_reported_once_all_ranks_are_there),
		cmocka_unit_test(strangers_are_ignored_and_reported_once),
		cmocka_unit_test(a_crowd_of_strangers_keeps_no_rank_out),
		cmocka_unit_test(a_handshake_that_breaks_is_begun_anew_and_a_slow_rank_is_no_stranger),
		cmocka_unit_test(a_rank_that_may_open_too_few_files_says_so_to_all_at_once),
		cmocka_unit_test(a_rank_that_may_start_no_thread_says_so_to_all),
		cmocka_unit_test(a_rank_without_the_interface_says_so_to_all),
		cmocka_unit_test(a_rank_without_a_place_for_its_trace_says_so_to_all),
		cmocka_unit_test(a_name_of_a_trace_that_no_system_takes_is_refused),
		cmocka_unit_test(a_rank_with_another_version_says_so_to_all),
		cmocka_unit_test(closed_standard_files_lead_nowhere),
		cmocka_unit_test(where_there_is_ipv4_all_links_use_it),
		cmocka_unit_test(a_network_without_ipv4_will_do),
		cmocka_unit_test(who_hears_nothing_from_the_network_says_where_and_why),
		cmocka_unit_test(a_network_that_is_away_for_less_than_the_deadline_costs_no_rank),
		cmocka_unit_test(who_gave_up_for_another_rank_is_not_called_out_of_reach),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * hvd-bench: start-up, latency and bandwidth of a world, with every result checked. */
#include "base.h"
#include "hvd.h"
#include "predict.h"
#include "transport.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EXIT_USAGE = 64, EXIT_DATA = 65, EXIT_FAILED = 70, ROUNDS_MAX = 10000, PERIOD = 65521 };

struct settings {
	size_t from, to; /* bytes */
	int rounds;      /* 0: chosen by size */
	const char *what;
	int startup_only, transports;
	const char *predict; /* file of a plan */
	double step;         /* seconds, 0: as in that file */
};

static double number(const char *text)
{
	char *end;
	double x = strtod(text, &end);
	return end == text || *end ? -1 : x;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static int failed(struct hvd *h, const char *what)
{
	fprintf(stderr, "hvd-bench: %s: %s\n", what, hvd_error(h));
	return EXIT_FAILED;
}

/* Numbers whose sum depends on the order of the additions. They come again after a prime number of elements, so that what is taken for another's place is
 * seen, and a thousand ranks need not add up the numbers of a thousand for each. */
static float sample(int rank, size_t i)
{
	uint32_t x = ((uint32_t)(i % PERIOD) + 1) * 2654435761u ^ ((uint32_t)rank + 1) * 0x9e3779b9u;
	x ^= x >> 15;
	return (float)(x & 0xffffff) / 8388608.0f * (float)(1 + x % 1000);
}

/* One line of the table. p is reduced, mine the host's side of it, want[PERIOD] what comes out. algbw: bytes per second of the result; busbw: what a
 * link carries, as in nccl-tests. */
static int measure(struct hvd *h, float *p, float *mine, const float *want, size_t bytes, const struct settings *s, double *seconds)
{
	const struct hvd_world *w = hvd_world(h);
	const bool sums = !strcmp(s->what, "allreduce");
	const float tolerance = sums && !strcmp(w->backend, "nccl") ? 1e-5f : 0; /* it chooses its own order; the CPU back end gives every bit */
	size_t n = bytes / sizeof(float), wrong = 0;
	int rounds = s->rounds ? s->rounds : bytes <= 65536 ? 200 : bytes <= 4u << 20 ? 20 : 7;
	for (int k = -2; k < rounds; k++) {
		for (size_t i = 0; i < n; i++)
			mine[i] = sample(w->rank, i);
		if ((mine != p && hvd_copy(h, p, mine, bytes)) || hvd_barrier(h))
			return failed(h, "before a round");
		double begin = now();
		if (sums ? hvd_allreduce(h, p, p, n, HVD_F32, HVD_SUM) : hvd_broadcast(h, p, n, HVD_F32, 0))
			return failed(h, s->what);
		if (k >= 0)
			seconds[k] = now() - begin;
		if (hvd_barrier(h) || (mine != p && hvd_copy(h, mine, p, bytes))) /* nobody computes while others still reduce */
			return failed(h, "after a round");
		for (size_t i = 0; i < n; i++) {
			const float right = want[i % PERIOD], off = right * tolerance;
			wrong += !(mine[i] >= right - off && mine[i] <= right + off);
		}
	}
	if (hvd_allreduce(h, seconds, seconds, (size_t)rounds, HVD_F64, HVD_MAX))
		return failed(h, "allreduce");
	qsort(seconds, (size_t)rounds, sizeof *seconds, ascending);
	double t = (seconds[rounds / 2] + seconds[(rounds - 1) / 2]) / 2, algbw = (double)bytes / t * 1e-9;
	double factor = sums ? 2.0 * (w->size - 1) / w->size : 1, all_wrong = (double)wrong;
	if (hvd_allreduce(h, &all_wrong, &all_wrong, 1, HVD_F64, HVD_SUM))
		return failed(h, "allreduce");
	if (w->rank == 0)
		printf("%12zu %12zu %10.1f %10.1f %10.1f %9.3f %9.3f %8.0f\n", bytes, n, t * 1e6, seconds[0] * 1e6, seconds[rounds - 1] * 1e6, algbw,
		       algbw * factor, all_wrong);
	return all_wrong > 0 ? EXIT_FAILED : 0;
}

static int table(struct hvd *h, const struct settings *s)
{
	float *p = hvd_alloc(h, s->to), *mine = p && hvd_stream(h) ? malloc(s->to) : p, want[PERIOD];
	double *seconds = calloc(ROUNDS_MAX, sizeof *seconds);
	int status = !p ? failed(h, "memory") : mine && seconds ? 0 : EXIT_FAILED;
	if (p && status)
		fprintf(stderr, "hvd-bench: no memory for %zu bytes\n", s->to);
	for (size_t i = 0; i < PERIOD && i < s->to / sizeof *want; i++) { /* the serial sum, in rank order */
		want[i] = sample(0, i);
		for (int r = 1; !strcmp(s->what, "allreduce") && r < hvd_world(h)->size; r++)
			want[i] += sample(r, i);
	}
	if (!status && hvd_world(h)->rank == 0)
		printf("# %s of f32, slowest rank; median, least and most of the rounds; algbw and busbw in GB/s\n%12s %12s %10s %10s %10s %9s %9s %8s\n", s->what, "bytes",
		       "elements", "time us", "least", "most", "algbw", "busbw", "wrong");
	for (size_t bytes = s->from; !status && bytes <= s->to; bytes = bytes < s->to && bytes * 4 > s->to ? s->to : bytes * 4)
		status = measure(h, p, mine, want, bytes, s, seconds);
	free(seconds);
	if (mine != p)
		free(mine);
	hvd_free(h, p);
	return status;
}

/* ---- prediction ----------------------------------------------------------------------------------- */

static int print_prediction(const struct settings *s)
{
	struct profile p;
	char why[WHY_BYTES];
	int status = profile_read(s->predict, &p, why);
	if (status)
		fprintf(stderr, "hvd-bench: %s\n", why);
	else if ((status = predict_table(stdout, s->predict, &p, s->step)))
		fprintf(stderr, "hvd-bench: no memory for %d gradients\n", p.n);
	free(p.bytes);
	free(p.ready);
	return status ? EXIT_DATA : 0;
}

/* ---- transports ----------------------------------------------------------------------------------- */

static char log_path[32]; /* of what NCCL says: memory, of which nothing can be left behind */

/* Before NCCL reads its environment. */
static int open_log(void)
{
	int fd = memfd_create("what NCCL says", MFD_CLOEXEC);
	if (fd < 0) {
		perror("hvd-bench: memory for NCCL's log");
		return -1;
	}
	snprintf(log_path, sizeof log_path, "/proc/self/fd/%d", fd);
	setenv("NCCL_DEBUG", "INFO", 1);
	setenv("NCCL_DEBUG_SUBSYS", "INIT", 1);
	setenv("NCCL_DEBUG_FILE", log_path, 1);
	return 0;
}

/* The pairs that this rank's log tells of; [*n], the caller's. */
static struct pair *read_log(size_t *n)
{
	char line[1024];
	struct pair *pairs = NULL;
	size_t room = 0;
	FILE *f = fopen(log_path, "r");
	for (*n = 0; f && fgets(line, sizeof line, f);) {
		if (*n == room) {
			struct pair *more = realloc(pairs, (room = 2 * room + 64) * sizeof *pairs);
			if (!more)
				break;
			pairs = more;
		}
		*n += transport_line(line, &pairs[*n]);
	}
	if (f)
		fclose(f);
	return pairs;
}

static int report_transports(struct hvd *h)
{
	const struct hvd_world *w = hvd_world(h);
	const size_t size = (size_t)w->size;
	int32_t node = w->node, *nodes = calloc(size, sizeof *nodes);
	size_t n, *bytes = calloc(size, sizeof *bytes), all = 0;
	struct pair *pairs = read_log(&n), *of_all = NULL;
	const size_t own = n * sizeof *pairs;
	int status = !nodes || !bytes || hvd_allgather(h, &node, nodes, 1, HVD_I32) || hvd_allgather(h, &own, bytes, 1, HVD_U64);
	for (size_t r = 0; !status && r < size; r++)
		all += bytes[r];
	status = status || !(of_all = malloc(all + 1)) || hvd_allgatherv(h, pairs, of_all, bytes, HVD_U8);
	if (!status && w->rank == 0 && !all)
		printf("# no pairs in NCCL's log: back end %s\n", w->backend);
	else if (!status && w->rank == 0)
		transport_table(stdout, of_all, all / sizeof *pairs, nodes, w->size, !access("/sys/class/infiniband_verbs/uverbs0", F_OK) /* a driver without a device leaves classes */);
	free(nodes);
	free(bytes);
	free(pairs);
	free(of_all);
	return status ? failed(h, "transports") : 0;
}

static int size_option(const char *text, size_t *bytes)
{
	char *end;
	double x = strtod(text, &end);
	double unit = *end == 'K' ? 1024 : *end == 'M' ? 1048576 : *end == 'G' ? 1073741824 : 1;
	if (end == text || end[unit > 1] || !(x * unit >= sizeof(float) && x * unit <= 1e18))
		return -1;
	*bytes = (size_t)(x * unit) / sizeof(float) * sizeof(float);
	return 0;
}

static int printed(int status)
{
	if (!fflush(stdout) && !ferror(stdout) && !fclose(stdout)) /* the close is where a network file system says that there is no room */
		return status;
	fprintf(stderr, "hvd-bench: what was printed is not complete: %s\n", strerror(errno));
	return status ? status : EXIT_FAILED;
}

static int usage(void)
{
	return printf("usage: srun --hvd hvd-bench [OPTION…]\n"
		    "       hvd-bench --predict FILE [--step MS]\n"
		    "Latency and bandwidth of collectives between all tasks of a job step, each result checked.\n\n"
		    "  -b, --from BYTES      smallest message (default 256; K, M, G)\n"
		    "  -e, --to BYTES        largest message (default 32M)\n"
		    "  -n, --rounds N        rounds a size, up to 10,000 (default: by size)\n"
		    "  -c, --collective NAME allreduce (default) or broadcast\n"
		    "  -s, --start-up        only the time from main() to the first verified all-reduce\n"
		    "  -t, --transports      also who talks to whom over what, by NCCL's log, and what should be faster\n"
		    "  -p, --predict FILE    no measurement: what a training would be slowed down by communication on 16, 64 and 1,024 GPUs;\n"
		    "                        FILE: what HVD_PLAN left of one that ran on CPUs\n"
		    "  -S, --step MS         with --predict: time of a step on one GPU (default: as measured in FILE)\n"
		    "  -h, --help; --version\n") < 0;
}

/* Options are the same in every task of a step: the first one says what is wrong with them. */
static bool first_task(void)
{
	const char *task = getenv("SLURM_PROCID");
	return !task || !strcmp(task, "0");
}

__attribute__((format(printf, 1, 2))) static int refused(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	if (first_task()) {
		fputs("hvd-bench: ", stderr);
		vfprintf(stderr, format, args);
		fputc('\n', stderr);
	}
	va_end(args);
	return EXIT_USAGE;
}

static int options(int argc, char **argv, struct settings *s)
{
	static const struct option table_of[] = {
		{ "from", required_argument, NULL, 'b' },   { "to", required_argument, NULL, 'e' },
		{ "rounds", required_argument, NULL, 'n' }, { "collective", required_argument, NULL, 'c' },
		{ "start-up", no_argument, NULL, 's' },     { "transports", no_argument, NULL, 't' },
		{ "predict", required_argument, NULL, 'p' }, { "step", required_argument, NULL, 'S' },
		{ "help", no_argument, NULL, 'h' },         { "version", no_argument, NULL, 'V' }, { 0 },
	};
	bool measures = false;
	opterr = first_task();
	for (int c; (c = getopt_long(argc, argv, "b:e:n:c:stp:S:h", table_of, NULL)) != -1;) {
		const char *want = NULL, *const size = "4 to 1e18 bytes (K, M, G)";
		measures |= strchr("bencst", c) != NULL;
		switch (c) {
		case 'b':
		case 'e':
			want = size_option(optarg, c == 'b' ? &s->from : &s->to) ? size : NULL;
			break;
		case 'n':
			want = number(optarg) >= 1 && number(optarg) <= ROUNDS_MAX && number(optarg) == (int)number(optarg) ? NULL : "1 to 10,000";
			s->rounds = want ? 0 : (int)number(optarg);
			break;
		case 'c':
			s->what = optarg;
			want = strcmp(optarg, "allreduce") && strcmp(optarg, "broadcast") ? "allreduce or broadcast" : NULL;
			break;
		case 's':
			s->startup_only = 1;
			break;
		case 't':
			s->transports = 1;
			break;
		case 'p':
			s->predict = optarg;
			break;
		case 'S':
			s->step = number(optarg) * 1e-3;
			want = s->step > 0 && s->step < 1e6 ? NULL : "milliseconds, above 0 and below 1e9";
			break;
		case 'h':
			exit(printed(usage()));
		case 'V':
			exit(printed(puts("hvd-bench " HVD_VERSION) < 0));
		default:
			return refused("hvd-bench --help lists the options");
		}
		if (want) {
			const char *name = argv[optind - 1] == optarg ? argv[optind - 2] : "";
			return refused("%s%s%s: must be %s", name, *name ? " " : "", argv[optind - 1], want);
		}
	}
	if (optind < argc)
		return refused("%s: not expected here: hvd-bench --help lists the options", argv[optind]);
	if (s->step > 0 && !s->predict)
		return refused("--step is for --predict FILE, which is not given");
	if (measures && s->predict)
		return refused("--predict FILE measures nothing: leave out all other options but --step");
	return s->from > s->to ? refused("--from %zu is more than --to %zu", s->from, s->to) : 0;
}

int main(int argc, char **argv)
{
	double begin = now();
	struct settings s = { .from = 256, .to = 32u << 20, .what = "allreduce" };
	int status = options(argc, argv, &s);
	if (status)
		return status;
	if (s.predict)
		return printed(print_prediction(&s));
	struct hvd *h;
	setvbuf(stdout, NULL, _IOLBF, 0); /* a step that is ended half-way has its lines */
	signal(SIGXFSZ, SIG_IGN); /* shared memory counts as a file: then an error says so */
	setenv("HVD_SYNC", "1", 1); /* a collective has taken what the device needs for it */
	if (s.transports && open_log())
		return EXIT_FAILED;
	status = hvd_init(&h, NULL);
	if (status) {
		failed(h, "hvd_init");
		hvd_close(h);
		return status == HVD_EINVAL ? EXIT_USAGE : EXIT_FAILED;
	}
	double formed = now();
	const struct hvd_world *w = hvd_world(h);
	float one = 1;
	if (hvd_allreduce(h, &one, &one, 1, HVD_F32, HVD_SUM))
		return failed(h, "first all-reduce");
	if (one != (float)w->size) {
		fprintf(stderr, "hvd-bench: first all-reduce: %d ones add up to %g\n", w->size, (double)one);
		return EXIT_FAILED;
	}
	const double took = now() - begin;
	double most[3] = { formed - begin, took, -took }; /* all have the sum at the same time: who took least has begun last */
	if (hvd_allreduce(h, most, most, 3, HVD_F64, HVD_MAX))
		return failed(h, "allreduce");
	if (w->rank == 0)
		printf("# %d rank%s on %d node%s, back end %s: world formed in %.1f ms, first all-reduce verified %.1f ms after main() of the first rank, %.1f of the last\n%s",
		       w->size, w->size > 1 ? "s" : "", w->nodes, w->nodes > 1 ? "s" : "", w->backend, most[0] * 1e3, most[1] * 1e3, -most[2] * 1e3,
		       w->size > 1 ? "" : "# a rank alone sends nothing: srun --hvd -n RANKS hvd-bench measures\n");
	status = s.startup_only ? 0 : table(h, &s);
	if (s.transports && !status)
		status = report_transports(h);
	if (hvd_close(h) && !status)
		status = EXIT_FAILED;
	return printed(status);
}

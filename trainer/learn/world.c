/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/world.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cgroup.h"
#include "data/hash.h"
#include "engine/cuda/library.h"
#include "files/file.h"
#include "learn/log.h"
#include "threads.h"

/* ---- a lost rank ------------------------------------------------------------------------------------- */

/* Where the "end" event of a process that lost a rank, or a page of a file, goes. */
static struct {
	pthread_mutex_t lock; /* who tells the end keeps it: nobody closes the log meanwhile */
	int fd;
	const uint64_t *step;
	char output[8192]; /* escaped */
} lost_log = { PTHREAD_MUTEX_INITIALIZER, .fd = -1 };

enum { PATIENCE_MS = 3000 }; /* as libhvd's own line waits for its reader */

/* The end of one task may be the end of the step (KillOnBadExit, or a PMIx client that is not finalised): Slurm then
 * drops what it has not passed on yet. Without this pause the line was lost in every second try. */
static void let_line_travel(void)
{
	if (getenv("SLURM_STEP_ID"))
		usleep(300000);
}

/* A pipe that nobody reads keeps no rank from ending. */
static void write_soon(int fd, const char *text, int size)
{
	struct pollfd out = { .fd = fd, .events = POLLOUT };

	if (size > 0 && poll(&out, 1, PATIENCE_MS) == 1 && write(fd, text, (size_t)size) < 0)
		return;
}

/* As tell_end() writes it. */
static void write_end(enum exit_code code, const char *line)
{
	static char text[sizeof lost_log.output + 2048];
	char reason[1600];
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	int size = snprintf(text, sizeof text, "{\"event\":\"end\",\"time\":%lld.%03ld,\"code\":%d,\"step\":%llu,\"reason\":\"%s\",\"output\":\"%s\"}\n",
			    (long long)t.tv_sec, t.tv_nsec / 1000000, code, (unsigned long long)__atomic_load_n(lost_log.step, __ATOMIC_RELAXED),
			    json_escape(reason, sizeof reason, line), lost_log.output);

	write_soon(lost_log.fd, text, size);
}

/* Runs in libhvd's watching thread while the main thread may be anywhere: only poll(), write() and _exit(), and a lock that is soon free. */
static void on_lost(void *arg, const char *line)
{
	const struct world *w = arg;
	char text[1400];
	int size = snprintf(text, sizeof text, "%schexnet %s: %s\n", isatty(STDERR_FILENO) ? "\n" : "", w->command, line);

	write_soon(STDERR_FILENO, text, size);
	pthread_mutex_lock(&lost_log.lock);
	if (lost_log.fd >= 0)
		write_end(EXIT_INTERNAL, line);
	_exit(EXIT_INTERNAL);
}

/* In a signal handler of a thread that reads a mapped file, and so holds no lock here; the program ends when it returns. */
static void on_lost_page(const char *line)
{
	pthread_mutex_lock(&lost_log.lock);
	if (lost_log.fd >= 0)
		write_end(EXIT_DATA, line);
}

void world_on_lost_log(int fd, const uint64_t *step, const char *output)
{
	pthread_mutex_lock(&lost_log.lock);
	lost_log.fd = fd;
	lost_log.step = step;
	json_escape(lost_log.output, sizeof lost_log.output, output ? output : "");
	pthread_mutex_unlock(&lost_log.lock);
	file_on_lost_page(on_lost_page);
}

/* ---- places ------------------------------------------------------------------------------------------ */

/* 1 when libcuda is here, its driver answers, and it shows a GPU. */
static int cuda_driver_answers(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	int devices = 0;

	if (!library)
		return 0;
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
	int (*count)(int *) = (int (*)(int *))dlsym(library, "cuDeviceGetCount");

	/* It stays: the runtime, which may come later, is not to find a driver that was taken away under its feet. */
	return init && count && init(0) == 0 && count(&devices) == 0 && devices > 0;
}

static void find_place(const char *host, struct place *p)
{
	const char *gpu = getenv("HVD_GPU"), *visible = getenv("CUDA_VISIBLE_DEVICES");

	*p = (struct place){ .driver = cuda_driver_answers() };
	snprintf(p->host, sizeof p->host, "%s", host);
	/* HVD_GPU names the GPU that an instance is cut from */
	snprintf(p->gpu, sizeof p->gpu, "%s", gpu && *gpu && strncmp(visible ? visible : "", "MIG-", 4) ? gpu : visible ? visible : "");
	sched_getaffinity(0, sizeof p->cpus, (cpu_set_t *)p->cpus);
	p->quota = cgroup_cpus(&p->quota_group);
}

static int has_cpu(const struct place *p, int c)
{
	return p->cpus[c / 64] >> (c % 64) & 1;
}

enum { MOST_THREADS = PLACE_CPUS };

/* What HVD_THREADS says; 0: nothing. */
static int given_threads(struct error *e)
{
	const char *text = getenv("HVD_THREADS");
	char *end;

	if (!text || !*text)
		return 0;
	long n = strtol(text, &end, 10);

	if (*end || n < 1 || n > MOST_THREADS)
		return fail(e, EXIT_USAGE, "HVD_THREADS=%s: must be a whole number from 1 to %d; srun --hvd sets it to a task's share of its CPUs", text, MOST_THREADS);
	return (int)n;
}

/* A rank's CPUs, each divided by the number of the node's ranks that may run there, or its part of a quota: threads beyond that would stand still
 * together for most of each period. */
static int thread_share(const struct world *w, int rank)
{
	const struct place *own = &w->places[rank];
	double share = 0;
	int group = 0; /* a container of its own may have a quota of its own */

	for (int r = 0; r < w->at->size; r++)
		group += strcmp(w->places[r].host, own->host) == 0 && w->places[r].quota > 0 && w->places[r].quota_group == own->quota_group;

	for (int c = 0; c < PLACE_CPUS; c++) {
		int sharers = 0;

		if (!has_cpu(&w->places[rank], c))
			continue;
		for (int r = 0; r < w->at->size; r++)
			sharers += strcmp(w->places[r].host, w->places[rank].host) == 0 && has_cpu(&w->places[r], c);
		share += 1.0 / sharers;
	}
	if (own->quota > 0 && own->quota / group < share)
		share = own->quota / group;
	return share > 1 ? (int)(share + 1e-9) : 1;
}

static int gather_places(struct world *w, struct error *e)
{
	struct place own;

	w->places = calloc((size_t)w->at->size, sizeof *w->places);
	w->words = calloc((size_t)w->at->size, sizeof *w->words);
	if (!w->places || !w->words)
		return fail(e, EXIT_INTERNAL, "no memory for %d ranks", w->at->size);
	find_place(hvd_host(w->hvd, w->at->rank), &own);
	if (hvd_allgather(w->hvd, &own, w->places, sizeof own, HVD_U8) < 0)
		return world_fail(w, e);
	own.threads = given_threads(e);
	if (own.threads == 0)
		own.threads = thread_share(w, w->at->rank);
	if (hvd_allgather(w->hvd, &own, w->places, sizeof own, HVD_U8) < 0)
		return world_fail(w, e);
	return world_agree(w, e);
}

void cpu_list(const uint64_t cpus[PLACE_CPUS / 64], char *text, size_t size)
{
	size_t used = 0;

	*text = '\0';
	for (int c = 0; c < PLACE_CPUS; c++) {
		int last = c;

		if (!(cpus[c / 64] >> (c % 64) & 1))
			continue;
		while (last + 1 < PLACE_CPUS && (cpus[(last + 1) / 64] >> ((last + 1) % 64) & 1))
			last++;
		if (used < size)
			used += (size_t)snprintf(text + used, size - used, last > c ? "%s%d-%d" : "%s%d", used ? "," : "", c, last);
		c = last;
	}
}

void world_print_places(const struct world *w, int threads, FILE *out)
{
	fprintf(out, "%5s  %-12s %-18s %-16s %s\n", "rank", "host", "GPU", "CPUs", "threads");
	for (int r = 0; r < w->at->size; r++) {
		const struct place *p = &w->places[r];
		char cpus[256];

		cpu_list(p->cpus, cpus, sizeof cpus);
		fprintf(out, "%5d  %-12s %-18s %-16s %d\n", r, p->host, *p->gpu ? p->gpu : p->driver ? "not named" : "none", cpus, threads ? threads : p->threads);
	}
}

/* ---- the world --------------------------------------------------------------------------------------- */

/* torchrun, or an mpirun without PMIx, starts processes that would all do the whole work and seem to do it together. */
static void tell_lonely(const struct world *w)
{
	static const char *const starters[][2] = { { "RANK", "WORLD_SIZE" }, { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" }, { "PMI_RANK", "PMI_SIZE" } };

	for (size_t i = 0; w->at->size == 1 && i < sizeof starters / sizeof starters[0]; i++) {
		const char *rank = getenv(starters[i][0]), *size = getenv(starters[i][1]);

		if (!rank || !size || atoi(size) < 2)
			continue;
		if (strcmp(rank, "0") == 0) /* one line for all of them */
			fprintf(stderr, "chexnet %s: warning: %s=%s, but nothing joins these processes: each does the whole work alone. Start them with `srun --hvd` or `srun --mpi=pmix`\n",
				w->command, starters[i][1], size);
		return;
	}
}

/* Where no world came about. What the ranks differ in all have heard, so rank 0 says it; back ends are the user's, of options too, of which libhvd does not know. */
static int refuse_world(struct world *w, int status, struct error *e)
{
	const char *why = hvd_error(w->hvd);

	w->told = !e->code && status == HVD_EMISMATCH && hvd_world(w->hvd)->rank != 0;
	if (w->told)
		let_line_travel(); /* rank 0's */
	if (strstr(why, " wants back end "))
		fail(e, EXIT_USAGE, "%s: give all ranks the same --engine, where cpu and reference want cpu, and the same HVD_BACKEND", why);
	fail(e, EXIT_INTERNAL, "%s", why); /* unless that was said */
	world_close(w);
	return -e->code;
}

int world_open(struct world *w, const char *command, int on_cpu, struct error *e)
{
	struct hvd_conf conf;
	char why[256];

	*w = (struct world){ .command = command };
	if (hvd_conf_default(&conf, why) < 0)
		return fail(e, EXIT_USAGE, "%s", why);
	if (on_cpu && strcmp(conf.backend, "nccl") == 0)
		return fail(e, EXIT_USAGE, "HVD_BACKEND=nccl adds up what is in a GPU's memory, and --engine says that the CPU computes: leave out one of them");
	if (on_cpu)
		conf.backend = "cpu";
	w->continues = conf.on_death;
	w->deadline = conf.deadline;
	conf.on_lost = on_lost;
	conf.on_lost_arg = w;
	/* libhvd takes the NCCL that is loaded; it does not look among Python's wheels itself */
	if (strcmp(conf.backend, "cpu") && cuda_driver_answers())
		library_open("libnccl.so.2", &(struct error){ 0 });
	int status = hvd_init(&w->hvd, &conf);
	if (status < 0)
		return refuse_world(w, status, e);
	w->at = hvd_world(w->hvd);
	threads_check(0, e);
	if (gather_places(w, e) < 0) {
		world_close(w);
		return -e->code;
	}
	tell_lonely(w);
	return 0;
}

int world_alone(struct world *w, const char *command, struct error *e)
{
	static const struct hvd_world one = { .size = 1, .local_size = 1, .nodes = 1, .backend = "single" };
	char host[PLACE_TEXT] = "";

	*w = (struct world){ .command = command, .at = &one, .places = calloc(1, sizeof *w->places) };
	if (!w->places)
		return fail(e, EXIT_INTERNAL, "no memory");
	gethostname(host, sizeof host - 1);
	find_place(host, w->places);
	w->places->threads = given_threads(e);
	if (w->places->threads == 0)
		w->places->threads = thread_share(w, 0);
	threads_check(0, e);
	return e->code ? -e->code : 0;
}

static void free_places(struct world *w)
{
	free(w->places);
	free(w->words);
	w->places = NULL;
	w->words = NULL;
}

void world_close(struct world *w)
{
	hvd_close(w->hvd);
	free_places(w);
	w->hvd = NULL;
	w->at = NULL;
}

int world_first(struct world *w, int ranks, struct world *part, struct error *e)
{
	*part = (struct world){ .command = w->command, .deadline = w->deadline, .places = w->places, .words = w->words };
	if (hvd_split(w->hvd, w->at->rank < ranks ? 0 : HVD_SPLIT_NONE, &part->hvd) < 0)
		return world_fail(w, e);
	part->at = part->hvd ? hvd_world(part->hvd) : NULL;
	return 0;
}

void world_first_close(struct world *w, struct world *part)
{
	w->told |= part->told;
	hvd_close(part->hvd);
	*part = (struct world){ 0 };
}

int world_recover(struct world *w, char lost[512], struct error *e)
{
	while (w->continues && hvd_lost(w->hvd) >= 0) {
		snprintf(lost, 512, "%s", hvd_error(w->hvd));
		*e = (struct error){ 0 };
		if (hvd_recover(w->hvd) < 0) {
			world_fail(w, e);
			return 0;
		}
		w->told = 0;
		free_places(w);
		if (gather_places(w, e) == 0)
			return 1;
	}
	return 0;
}

int world_fail(const struct world *w, struct error *e)
{
	return fail(e, EXIT_INTERNAL, "%s", hvd_error(w->hvd));
}

/* code << 32 | 32 bits of the text's hash: equal errors are equal words. */
static uint64_t error_word(const struct error *e)
{
	return e->code ? (uint64_t)e->code << 32 | (uint32_t)hash_bytes(1, e->text, strlen(e->text)) : 0;
}

static void print_own(const struct world *w, const struct error *e, const uint64_t *words)
{
	int same = 0;

	for (int r = 0; r < w->at->size; r++) {
		same += words[r] == words[w->at->rank];
		if (r < w->at->rank && words[r] == words[w->at->rank])
			return;
	}
	if (same == w->at->size)
		fprintf(stderr, "chexnet %s: %s\n", w->command, e->text);
	else
		fprintf(stderr, "chexnet %s: rank %d on %s: %s\n", w->command, w->at->rank, hvd_host(w->hvd, w->at->rank), e->text);
}

int world_agree(struct world *w, struct error *e)
{
	uint64_t own = error_word(e), *words = w->words;
	int first = 0;

	if (hvd_allgather(w->hvd, &own, words, 1, HVD_U64) < 0)
		return world_fail(w, e);
	while (first < w->at->size && !words[first])
		first++;
	if (first < w->at->size) {
		if (own && !w->told)
			print_own(w, e, words);
		else if (!own)
			snprintf(e->text, sizeof e->text, "rank %d on %s failed, and its line on standard error says why", first, hvd_host(w->hvd, first));
		e->code = (int)(words[first] >> 32);
		w->told = 1;
	}
	return first < w->at->size ? -e->code : 0;
}

int world_end(const struct world *w, const struct error *e)
{
	if (w->told)
		return e->code;
	if (w->at && w->at->size > 1)
		fprintf(stderr, "chexnet %s: rank %d on %s: %s\n", w->command, w->at->rank, hvd_host(w->hvd, w->at->rank), e->text);
	else
		fprintf(stderr, "chexnet %s: %s\n", w->command, e->text);
	let_line_travel();
	return e->code;
}

int world_refuse(const char *command, int on_cpu, struct error *e)
{
	struct world w;

	world_open(&w, command, on_cpu, e); /* fails, and the ranks without an error hear of it where all first agree */
	return world_end(&w, e);
}

int world_same(struct world *w, uint64_t value, const char *what, const char *cure, struct error *e)
{
	uint64_t low, high;

	if (hvd_allreduce(w->hvd, &value, &low, 1, HVD_U64, HVD_MIN) < 0 || hvd_allreduce(w->hvd, &value, &high, 1, HVD_U64, HVD_MAX) < 0)
		return world_fail(w, e);
	if (low == high)
		return 0;
	fail(e, EXIT_DATA, "%s differs between ranks: %s", what, cure);
	return world_agree(w, e);
}

uint64_t world_hash(uint64_t seed, const void *data, size_t bytes)
{
	return hash_bytes(seed, data, bytes);
}

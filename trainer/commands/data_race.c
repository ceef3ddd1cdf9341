/* SPDX-License-Identifier: Apache-2.0 */
#include "commands/data_race.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "commands/stop.h"
#include "data/manifest.h"
#include "files/file.h"
#include "json.h"
#include "prepare/prepare.h"
#include "prepare/synth_tree.h"
#include "report/page.h"
#include "report/svg.h"

enum { MAX_RANKS = 64 };

/* Memory that all ranks and their parent share. */
struct board {
	_Atomic int ready;  /* ranks that have their first batch: then all begin to count */
	_Atomic int failed;
	struct {
		uint64_t images, decoded;
		double seconds;
		struct error e;
	} rank[MAX_RANKS];
};

struct rate_cell {
	double images_per_s; /* of all ranks together */
	double decoded;      /* images decoded for one that is used */
};

struct race {
	const struct race_conf *conf;
	struct board *board;
	struct manifest manifest;
	const char *directory;
	const char *own; /* of images made for the occasion: goes at the end; or NULL */
	cpu_set_t cpus[8]; /* 8192 CPUs: as many as a kernel can have */
	struct rate_cell cell[SEQUENCES][OPTION_INTS_MAX];
};

/* Those that have not ended; 0: an entry that is free. Whoever ends the command tells its parent alone, and it tells them. */
static volatile pid_t children[MAX_RANKS];

static void tell_children(void)
{
	for (int i = 0; i < MAX_RANKS; i++)
		if (children[i] > 0)
			kill(children[i], SIGTERM);
}

static void on_signal(int number)
{
	stop_asked = number;
	tell_children();
}

/* ---- one rank ---------------------------------------------------------------------------------------- */

/* A rank's threads get CPUs one after the other; ranks share them when there are too few. */
static void take_cpus(const struct race *r, int rank)
{
	int n = CPU_COUNT_S(sizeof r->cpus, r->cpus), threads = r->conf->threads;
	cpu_set_t own[8];

	CPU_ZERO_S(sizeof own, own);
	for (int t = 0; t < threads; t++)
		for (int cpu = 0, k = (rank * threads + t) % n; cpu < 8 * CPU_SETSIZE; cpu++)
			if (CPU_ISSET_S(cpu, sizeof own, r->cpus) && k-- == 0)
				CPU_SET_S(cpu, sizeof own, own);
	sched_setaffinity(0, sizeof own, own);
}

/* Takes batches as fast as they come; counts from when every rank has one. */
static void run_rank(const struct race *r, enum sequence_kind kind, int rank, int ranks)
{
	struct board *board = r->board;
	struct sequence_conf conf = {
		.kind = kind, .directory = r->directory, .rank = rank, .ranks = ranks, .threads = r->conf->threads, .batch = r->conf->batch, .seed = r->conf->seed,
	};
	struct sequence_batch b;
	struct sequence *s;
	struct error *e = &board->rank[rank].e;
	double begin = 0, end = 0;
	uint64_t images = 0, decoded = 0;
	int counts = 0;

	take_cpus(r, rank);
	if (sequence_open(&s, &conf, e) || sequence_next(s, &b, e))
		return;
	atomic_fetch_add(&board->ready, 1);
	while (!stop_asked && !atomic_load(&board->failed) && (!counts || end - begin < r->conf->seconds)) {
		if (sequence_next(s, &b, e))
			return;
		end = now();
		if (counts) {
			images += (uint64_t)b.count;
		} else if (atomic_load(&board->ready) == ranks) {
			counts = 1;
			begin = end;
			decoded = sequence_decoded(s);
		}
	}
	board->rank[rank].images = images;
	board->rank[rank].decoded = sequence_decoded(s) - decoded;
	board->rank[rank].seconds = end - begin;
}

/* ---- processes --------------------------------------------------------------------------------------- */

/* fork(); the child ends with its parent, also where that is killed. */
static pid_t start_child(void)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0) {
		memset((void *)children, 0, sizeof children);
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent) /* it was gone before that was asked for */
			stop_asked = SIGTERM;
		return 0;
	}
	for (int i = 0; i < MAX_RANKS && pid > 0; i++)
		if (!children[i]) {
			children[i] = pid;
			break;
		}
	if (stop_asked)
		tell_children(); /* the signal came before it was on the list */
	return pid;
}

/* What a parent that is gone would have removed goes with its children. */
static void end_child(const struct race *r, pid_t parent, int code)
{
	if (r->own && getppid() != parent)
		directory_remove(r->own);
	_exit(code);
}

/* The next process to end: its number, and how it went; 0: there is none. */
static pid_t next_end(int *status)
{
	pid_t pid;

	while ((pid = waitpid(-1, status, 0)) < 0)
		if (errno != EINTR)
			return 0;
	for (int i = 0; i < MAX_RANKS; i++)
		if (children[i] == pid)
			children[i] = 0;
	return pid;
}

static int run_ranks(struct race *r, enum sequence_kind kind, int ranks, struct rate_cell *cell, struct error *e)
{
	struct board *board = r->board;
	uint64_t images = 0, decoded = 0;
	int died = 0;

	memset(board, 0, sizeof *board);
	fflush(NULL);
	for (int rank = 0; rank < ranks; rank++) {
		pid_t parent = getpid(), pid = start_child();
		if (pid == 0) {
			run_rank(r, kind, rank, ranks);
			end_child(r, parent, board->rank[rank].e.code);
		}
		if (pid < 0) {
			fail(e, EXIT_INTERNAL, "rank %d cannot be started: %s", rank, strerror(errno));
			atomic_store(&board->failed, 1);
			ranks = rank;
		}
	}
	for (int status = 0; next_end(&status);) {
		if (status)
			atomic_store(&board->failed, 1); /* the others wait for it to begin */
		died |= status && !WIFEXITED(status);
	}
	*cell = (struct rate_cell){ 0 };
	for (int rank = 0; rank < ranks; rank++) {
		if (board->rank[rank].e.code)
			fail(e, board->rank[rank].e.code, "%s", board->rank[rank].e.text);
		images += board->rank[rank].images;
		decoded += board->rank[rank].decoded;
		if (board->rank[rank].seconds > 0)
			cell->images_per_s += (double)board->rank[rank].images / board->rank[rank].seconds;
	}
	if (died)
		fail(e, EXIT_INTERNAL, "a rank of --%s was killed", sequence_names[kind]);
	cell->decoded = images ? (double)decoded / (double)images : 0;
	if (stop_asked)
		fail(e, EXIT_INTERNAL, "interrupted");
	return -e->code;
}

/* ---- data -------------------------------------------------------------------------------------------- */

enum { OWN_IMAGES = 800, OWN_SHARDS = 16, OWN_SIZE = 256 };

static void make_data(const char *directory, struct error *e)
{
	struct synth_conf synth = SYNTH_BUILTIN;
	struct synth_report report;
	struct prepare_report prepared;
	struct origin origin;
	char tree[FILE_PATH], out[FILE_PATH];
	struct prepare_conf conf = { .out = out, .size = OWN_SIZE, .encoding = ENCODING_JPEG, .shards = OWN_SHARDS, .seed = 1, .stop = &stop_asked };

	synth.images = OWN_IMAGES;
	synth.size = OWN_SIZE;
	if (path_join(tree, e, "%s/tree", directory) || path_join(out, e, "%s/data", directory) ||
	    synth_tree(&synth, tree, 0, 0, &stop_asked, NULL, &report, e) || origin_nih(&origin, tree, SPLIT_OFFICIAL, 1, e))
		return;
	prepare(&conf, &origin, &prepared, e);
	origin_close(&origin);
}

/* In a process of its own: threads of OpenMP do not survive a fork, and the ranks want theirs. */
static int make_own_data(struct race *r, const char *directory, struct error *e)
{
	struct error *told = &r->board->rank[0].e;

	fflush(NULL);
	pid_t parent = getpid(), pid = start_child();
	if (pid == 0) {
		make_data(directory, told);
		end_child(r, parent, told->code);
	}
	int status = -1, why = errno;
	if (pid > 0)
		next_end(&status);
	if (told->code)
		return fail(e, told->code, "%s", told->text);
	if (pid < 0 || WIFSIGNALED(status))
		return fail(e, EXIT_INTERNAL, "images cannot be made in %s: %s", directory, pid < 0 ? strerror(why) : strsignal(WTERMSIG(status)));
	return status ? fail(e, EXIT_INTERNAL, "images cannot be made in %s", directory) : 0;
}

/* ---- telling ----------------------------------------------------------------------------------------- */

static const char disclaimer[] =
	"old and new are this program's own versions of Dell's steps, on the same files and decoders as ours; no TensorFlow took part";

static const char *what_text(const struct race *r, char text[240])
{
	const struct manifest *m = &r->manifest;

	snprintf(text, 240, "%zu %simage%s of %d x %d as %s in %d TFRecord file%s, read from memory; a rank is a process of %d decode thread%s, batch %d; %d CPU%s",
		 m->split[SPLIT_TRAIN].images, r->conf->directory ? "" : "synthetic ", m->split[SPLIT_TRAIN].images == 1 ? "" : "s", m->size, m->size,
		 m->encoding == ENCODING_JPEG ? "JPEG" : "PNG", m->split[SPLIT_TRAIN].shards, m->split[SPLIT_TRAIN].shards == 1 ? "" : "s", r->conf->threads, r->conf->threads == 1 ? "" : "s", r->conf->batch, CPU_COUNT_S(sizeof r->cpus, r->cpus),
		 CPU_COUNT_S(sizeof r->cpus, r->cpus) == 1 ? "" : "s");
	return text;
}

static void print_table(const struct race *r)
{
	const struct option_ints *ranks = &r->conf->ranks;
	char text[240];

	printf("%s\n%s\n\nimages/s of all ranks together, and images decoded for one that is used\n%-6s", what_text(r, text), disclaimer, "ranks");
	for (int k = 0; k < SEQUENCES; k++)
		if (r->conf->run[k])
			printf(" %10s       ", sequence_names[k]);
	putchar('\n');
	for (int i = 0; i < ranks->n; i++) {
		printf("%-6d", ranks->value[i]);
		for (int k = 0; k < SEQUENCES; k++)
			if (r->conf->run[k])
				printf(" %10.0f (%.1f)", r->cell[k][i].images_per_s, r->cell[k][i].decoded);
		printf("%s\n", ranks->value[i] * r->conf->threads > CPU_COUNT_S(sizeof r->cpus, r->cpus) ? "  ranks share CPUs" : "");
	}
}

static void print_json(const struct race *r, struct error *e)
{
	const struct option_ints *ranks = &r->conf->ranks;
	cJSON *o = cJSON_CreateObject();
	char text[240];

	cJSON_AddStringToObject(o, "what", what_text(r, text));
	cJSON_AddStringToObject(o, "note", disclaimer);
	cJSON_AddItemToObject(o, "ranks", cJSON_CreateIntArray(ranks->value, ranks->n));
	for (int k = 0; k < SEQUENCES; k++) {
		if (!r->conf->run[k])
			continue;
		cJSON *row = cJSON_AddObjectToObject(o, sequence_names[k]);
		cJSON *rate = cJSON_AddArrayToObject(row, "images_per_s"), *decoded = cJSON_AddArrayToObject(row, "decoded_per_image");
		for (int i = 0; i < ranks->n; i++) {
			cJSON_AddItemToArray(rate, cJSON_CreateNumber(r->cell[k][i].images_per_s));
			cJSON_AddItemToArray(decoded, cJSON_CreateNumber(r->cell[k][i].decoded));
		}
	}
	json_print(o, 0, e);
}

/* One group of bars for each number of ranks. */
static void put_bars(const struct race *r, const struct plot *p, int kinds)
{
	const struct option_ints *ranks = &r->conf->ranks;
	double width = 0.8 / kinds;
	char text[32];

	for (int i = 0; i < ranks->n; i++) {
		double x = i + 0.1;
		for (int k = 0; k < SEQUENCES; k++) {
			if (!r->conf->run[k])
				continue;
			double rate = r->cell[k][i].images_per_s;
			plot_bar(p, sequence_names[k], x, x + 0.94 * width, rate);
			snprintf(text, sizeof text, "%.0f", rate);
			plot_text(p, "value", "middle", x + 0.47 * width, rate, 0, -4, text);
			x += width;
		}
		snprintf(text, sizeof text, "%d rank%s", ranks->value[i], ranks->value[i] == 1 ? "" : "s");
		plot_text(p, "label", "middle", i + 0.5, 0, 0, 16, text);
	}
}

static void put_key(const struct race *r, struct page *page)
{
	static const char *const words[SEQUENCES] = { "old approach, 8 steps", "new approach, 10 steps", "chexnet" };
	int x = 52;

	for (int k = 0; k < SEQUENCES; k++) {
		if (!r->conf->run[k])
			continue;
		page_put(page, "<rect class=\"%s\" x=\"%d\" y=\"34\" width=\"11\" height=\"11\"/><text class=\"label\" x=\"%d\" y=\"44\">%s</text>",
			 sequence_names[k], x, x + 16, words[k]);
		x += 170;
	}
}

/* The figure of Dell's article with the numbers of this machine; needs no other file. */
static int write_picture(const struct race *r, struct error *e)
{
	struct page page = { 0 };
	struct plot p = { .page = &page, .width = 640, .height = 330, .left = 52, .right = 12, .top = 20, .bottom = 30, .x1 = r->conf->ranks.n, .y_ticks = 6,
			  .y_label = "images/s of all ranks together" };
	double most = 0;
	char text[240];
	int kinds = 0;

	for (int k = 0; k < SEQUENCES; k++) {
		kinds += r->conf->run[k] != 0;
		for (int i = 0; i < r->conf->ranks.n; i++)
			most = r->cell[k][i].images_per_s > most ? r->cell[k][i].images_per_s : most;
	}
	p.y1 = most > 0 ? 1.08 * most : 1;
	page_put(&page, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 430\" width=\"640\" height=\"430\" font-family=\"sans-serif\" font-size=\"11\">\n"
			"<style>rect.paper{fill:#fff}text{fill:#59636e}.label{fill:#1c2128}.title{fill:#1c2128;font-size:15px;font-weight:600}"
			".value{font-size:10px}.note{font-size:8.5px}.grid{stroke:#eceff2}.old{fill:#9aa4af}.new{fill:#bc4c00}.ours{fill:#0a69b7}</style>\n"
			"<rect class=\"paper\" width=\"640\" height=\"430\"/><text class=\"title\" x=\"12\" y=\"22\">Input pipelines over ranks</text>\n");
	put_key(r, &page);
	plot_begin(&p, "images per second of each pipeline by number of ranks");
	put_bars(r, &p, kinds);
	plot_end(&p);
	page_put(&page, "<text class=\"note\" x=\"12\" y=\"404\">");
	page_text(&page, what_text(r, text));
	page_put(&page, "</text>\n<text class=\"note\" x=\"12\" y=\"418\">");
	page_text(&page, disclaimer);
	page_put(&page, "</text>\n</svg>\n");
	int rc = page.failed ? fail(e, EXIT_INTERNAL, "no memory for the picture") : file_write(r->conf->svg, page.text, page.size, e);
	free(page.text);
	return rc;
}

/* ---- all of it --------------------------------------------------------------------------------------- */

static int run_all(struct race *r, struct error *e)
{
	const struct race_conf *conf = r->conf;

	if (manifest_read(&r->manifest, r->directory, e))
		return -e->code;
	for (int i = 0; i < conf->ranks.n; i++)
		for (int k = 0; k < SEQUENCES; k++)
			if (conf->run[k] && run_ranks(r, (enum sequence_kind)k, conf->ranks.value[i], &r->cell[k][i], e))
				return -e->code;
	conf->json ? print_json(r, e) : print_table(r);
	fflush(stdout);
	if (conf->svg && !e->code)
		write_picture(r, e);
	return -e->code;
}

static int run_on_own_data(struct race *r, struct error *e)
{
	const char *tmp = getenv("TMPDIR");
	char directory[FILE_PATH], data[FILE_PATH];

	if (path_join(directory, e, "%s/chexnet-race-XXXXXX", tmp && *tmp ? tmp : "/tmp"))
		return -e->code;
	if (!mkdtemp(directory))
		return fail(e, EXIT_INTERNAL, "%s: cannot be made: %s", directory, strerror(errno));
	r->directory = data;
	r->own = directory;
	int rc = path_join(data, e, "%s/data", directory);
	if (!rc)
		rc = make_own_data(r, directory, e);
	if (!rc)
		rc = run_all(r, e);
	directory_remove(directory);
	return rc;
}

int data_race(const struct race_conf *conf, struct error *e)
{
	struct race r = { .conf = conf, .directory = conf->directory };
	struct sigaction action = { .sa_handler = on_signal }, hangup;

	for (int i = 0; i < conf->ranks.n; i++)
		if (conf->ranks.value[i] > MAX_RANKS)
			return fail(e, EXIT_USAGE, "--ranks: at most %d", MAX_RANKS);
	if (sched_getaffinity(0, sizeof r.cpus, r.cpus))
		return fail(e, EXIT_INTERNAL, "sched_getaffinity: %s", strerror(errno));
	r.board = mmap(NULL, sizeof *r.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (r.board == MAP_FAILED)
		return fail(e, EXIT_INTERNAL, "no memory");
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, NULL, &hangup);
	if (hangup.sa_handler != SIG_IGN) /* not under nohup */
		sigaction(SIGHUP, &action, NULL);
	int rc = conf->directory ? run_all(&r, e) : run_on_own_data(&r, e);
	munmap(r.board, sizeof *r.board);
	if (stop_asked)
		signal(stop_asked, SIG_DFL); /* for stop_as_asked() */
	return rc;
}

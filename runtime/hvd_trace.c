/* SPDX-License-Identifier: Apache-2.0
 * hvd-trace: the trace files of all ranks as one timeline (Chrome's JSON, with the names that Horovod uses), and as a few
 * lines that say what a step's time goes to. */
#include "trace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EXIT_USAGE = 64, EXIT_DATA = 65, EXIT_INTERNAL = 70 };

#define TIMELINE "[{\"ph\":\"M\"," /* how one begins */

#define FARTHEST (INT64_MAX / 4) /* nanoseconds of a clock: 73 years */
#define SPAN (2 * TRACE_RECORDS) /* steps that a file can be about: each leaves records, and a recovery a gap */

struct traces {
	struct trace_file **file; /* [n], by rank; what is written there stays here */
	int n;
};

__attribute__((format(printf, 2, 3))) static int fault(int status, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fputs("hvd-trace: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	return status;
}

static uint64_t records_of(const struct trace_file *f)
{
	uint64_t n = atomic_load(&f->written);
	return n < TRACE_RECORDS ? n : TRACE_RECORDS;
}

/* Read once, as the file may be written to meanwhile. Of no kind where a part of it is missing, as after a machine's end with a page that was not written, or damaged. */
static struct trace_record record_of(const struct trace_file *f, uint64_t k)
{
	struct trace_record r = *(const volatile struct trace_record *)&f->record[k % TRACE_RECORDS];
	r.kind = r.begin && r.end >= r.begin && r.end <= FARTHEST ? r.kind : TRACE_NONE;
	return r;
}

/* Widens [*least, *most], which is empty where *most is less, by the steps of a file's records of a kind, or of any with TRACE_NONE. */
static void steps_of(const struct trace_file *f, enum trace_kind kind, uint32_t *least, uint32_t *most)
{
	for (uint64_t k = 0; k < records_of(f); k++) {
		const struct trace_record r = record_of(f, k);
		if (!r.kind || (kind && r.kind != kind))
			continue;
		*least = r.step < *least ? r.step : *least;
		*most = r.step > *most ? r.step : *most;
	}
}

/* Nanoseconds of rank 0's clock. */
static double aligned(const struct trace_file *f, uint64_t t)
{
	return (double)t + (double)f->offset;
}

/* Names are the program's own: whatever is in them, the JSON stays valid. */
static const char *clean(const char *name, size_t size, char *text)
{
	size_t i = 0;
	for (; i < size - 1 && name[i]; i++)
		text[i] = (unsigned char)name[i] >= ' ' && (unsigned char)name[i] < 127 && name[i] != '"' && name[i] != '\\' ? name[i] : '_';
	text[i] = 0;
	return text;
}

/* ---- reading -------------------------------------------------------------------------------------- */

static char beside[PATH_MAX + 8]; /* where the timeline is until it is whole; "": at its place */
static void lost_page(__attribute__((unused)) int number)
{
	unlink(beside);
	_exit(fault(EXIT_DATA, "a trace was cut meanwhile, or its file server does not give it any more"));
}

static int add_file(struct traces *t, const char *path)
{
	struct stat s;
	char host[sizeof t->file[0]->host];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &s))
		return fault(EXIT_DATA, "%s: %s", path, strerror(errno));
	struct trace_file *f = s.st_size == sizeof *f ? mmap(NULL, sizeof *f, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
	close(fd);
	if (f == MAP_FAILED || memcmp(f->magic, TRACE_MAGIC, sizeof f->magic))
		return fault(EXIT_DATA, "%s: not a trace of this version of libhvd (%zu bytes expected, %lld found)", path, sizeof *f,
			(long long)s.st_size);
	if (mprotect(f, sizeof *f - sizeof f->record, PROT_READ | PROT_WRITE))
		return fault(EXIT_INTERNAL, "no memory for %d traces", t->n + 1);
	_Static_assert(sizeof *f - sizeof f->record <= 4096, "this copies one page, which has all but the records: of these one would need the memory");
	atomic_fetch_add(&f->names, 0); /* it is this process's own from now on, whatever is written to the file */
	uint32_t least = UINT32_MAX, most = 0;
	steps_of(f, TRACE_NONE, &least, &most);
	least = most < least ? most : least;
	if (f->rank >= f->size || strcmp(clean(f->host, sizeof host, host), f->host) || most - least > SPAN || f->offset > FARTHEST || f->offset < -FARTHEST)
		return fault(EXIT_DATA, "%s: damaged: rank %u of %u, steps %u to %u", path, f->rank, f->size, least, most);
	t->file = realloc(t->file, ((size_t)t->n + 1) * sizeof *t->file);
	if (!t->file)
		return fault(EXIT_INTERNAL, "no memory for %d traces", t->n + 1);
	t->file[t->n++] = f;
	return 0;
}

/* local.0, outside of jobs, comes after every job's. */
static int newest_first(const struct dirent **a, const struct dirent **b)
{
	const char *x = (*a)->d_name, *y = (*b)->d_name;
	int jobs = (*y <= '9') - (*x <= '9');
	return jobs ? jobs : strverscmp(y, x);
}

static int is_trace(const struct dirent *d)
{
	char text[sizeof d->d_name];
	const char *end = strstr(d->d_name, ".hvdtrace");
	return end && !end[9] && strstr(d->d_name, "-rank") && !strcmp(clean(d->d_name, sizeof text, text), d->d_name); /* others' names may hold escapes */
}

/* Of a directory: the traces of its last job step, and of that, the last world. */
static int add_directory(struct traces *t, const char *path)
{
	struct dirent **list;
	int n = scandir(path, &list, is_trace, newest_first), status = 0, others = 0;
	if (n <= 0)
		return fault(EXIT_DATA, "%s: %s", path, n ? strerror(errno) : "no traces (*-rank*.hvdtrace) in it");
	size_t prefix = (size_t)(strstr(list[0]->d_name, "-rank") - list[0]->d_name);
	for (int i = 0; i < n; i++) {
		char file[4096];
		snprintf(file, sizeof file, "%s/%s", path, list[i]->d_name);
		if (strncmp(list[i]->d_name, list[0]->d_name, prefix + 5))
			others++;
		else if (!status)
			status = add_file(t, file);
	}
	if (others)
		fprintf(stderr, "hvd-trace: taking step %.*s; %d file%s of other steps or worlds left out\n", (int)prefix, list[0]->d_name, others, others > 1 ? "s" : "");
	for (int i = 0; i < n; i++)
		free(list[i]);
	free(list);
	return status;
}

static int by_rank(const void *a, const void *b)
{
	const struct trace_file *x = *(const struct trace_file *const *)a, *y = *(const struct trace_file *const *)b;
	return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Clocks drift after they were compared. Where one rank would have the mean of a bucket before the other has begun with it, both are taken to have it at once. */
static void put_right(struct trace_file *f, const struct trace_file *first)
{
	double sum = 0, n = 0;
	bool wrong = false;
	for (uint64_t a = first->written - records_of(first), b = f->written - records_of(f); a < first->written && b < f->written;) {
		const struct trace_record x = record_of(first, a), y = record_of(f, b);
		bool here = x.kind == TRACE_BUCKET, there = y.kind == TRACE_BUCKET;
		uint64_t mine = (uint64_t)x.step << 32 | x.index, theirs = (uint64_t)y.step << 32 | y.index;
		if (here && there && mine == theirs) {
			wrong |= aligned(f, y.end) < aligned(first, x.begin) || aligned(first, x.end) < aligned(f, y.begin);
			sum += aligned(first, x.end) - aligned(f, y.end);
			n++;
		}
		a += !here || (there && mine <= theirs);
		b += !there || (here && mine >= theirs);
	}
	if (wrong)
		f->offset += (int64_t)(sum / n);
}

/* By rank, and all of one world: clocks and steps of others mean nothing beside them. */
static int put_in_order(struct traces *t)
{
	qsort(t->file, (size_t)t->n, sizeof *t->file, by_rank);
	for (int i = 1; i < t->n; i++) {
		const struct trace_file *before = t->file[i - 1], *f = t->file[i];
		if (f->size != before->size || memcmp(f->world, before->world, sizeof f->world))
			return fault(EXIT_DATA, "traces of several job steps: rank %u of %u is followed by another's rank %u of %u. Name those of one",
				       before->rank, before->size, f->rank, f->size);
		if (f->rank == before->rank)
			return fault(EXIT_DATA, "the trace of rank %u of %u is named twice: name each file once", f->rank, f->size);
	}
	for (int i = 1; i < t->n; i++)
		put_right(t->file[i], t->file[0]);
	if ((uint32_t)t->n < t->file[0]->size)
		fprintf(stderr, "hvd-trace: %d of the step's %u ranks: the others' traces are not here\n", t->n, t->file[0]->size);
	return 0;
}

/* ---- timeline ------------------------------------------------------------------------------------- */

static void event(FILE *out, const struct trace_file *f, unsigned thread, const char *name, double begin, double end, double zero,
		  const struct trace_record *r)
{
	fprintf(out, ",\n{\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"name\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%u", f->rank, thread, name,
		(aligned(f, 0) + begin - zero) * 1e-3, (end - begin) * 1e-3, r->step);
	if (r->kind == TRACE_READY || r->kind == TRACE_BUCKET)
		fprintf(out, ",\"bucket\":%u", r->index);
	fprintf(out, ",\"bytes\":%u}}", r->bytes);
}

static void name_thread(FILE *out, const struct trace_file *f, unsigned thread, const char *name)
{
	fprintf(out, ",\n{\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}", f->rank, thread, name);
}

static void timeline_of(FILE *out, const struct trace_file *f, double zero)
{
	static const char *const collectives[] = { "ALLREDUCE", "BROADCAST", "ALLGATHER", "REDUCESCATTER", "ALLTOALL", "BARRIER" };
	enum { QUEUES = 2 /* a thread for each bucket's wait, behind those of compute and communication: waits overlap, and spans of one thread must not */ };
	static struct bucket { double ready; bool named; } bucket[TRACE_RECORDS]; /* of the step that is being read; a trace holds no step of more */
	char text[TRACE_NAME_BYTES];
	fprintf(out, ",\n{\"ph\":\"M\",\"pid\":%u,\"name\":\"process_name\",\"args\":{\"name\":\"rank %u on %s\"}}", f->rank, f->rank, f->host);
	fprintf(out, ",\n{\"ph\":\"M\",\"pid\":%u,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%u}}", f->rank, f->rank);
	name_thread(out, f, 0, "compute");
	name_thread(out, f, 1, "communication");
	memset(bucket, 0, sizeof bucket);
	uint64_t written = atomic_load(&f->written), n = records_of(f);
	for (uint64_t i = written - n; i < written; i++) {
		const struct trace_record r = record_of(f, i);
		struct bucket *b = &bucket[r.index % TRACE_RECORDS];
		double begin = (double)r.begin, end = (double)r.end;
		switch (r.kind) {
		case TRACE_READY:
			b->ready = begin;
			break;
		case TRACE_BUCKET:
			if (b->ready > 0 && b->ready < begin) {
				snprintf(text, sizeof text, "bucket %u waits", r.index);
				if (!b->named)
					name_thread(out, f, QUEUES + r.index, text);
				b->named = true;
				event(out, f, QUEUES + r.index, "QUEUE", b->ready, begin, zero, &r);
			}
			event(out, f, 1, "ALLREDUCE", begin, end, zero, &r);
			break;
		case TRACE_WAIT:
			event(out, f, 0, "WAIT_FOR_DATA", begin, end, zero, &r);
			break;
		case TRACE_COLLECTIVE:
			event(out, f, r.index > 5, collectives[r.index % 6], begin, end, zero, &r);
			break;
		case TRACE_MARK:
			event(out, f, 0, clean(f->name[r.index % TRACE_NAMES], TRACE_NAME_BYTES, text), begin, end, zero, &r);
			break;
		}
	}
}

/* An old timeline may be replaced; another file with something in it is somebody's work. errno says why that cannot be read, or 0. *old: which file it is. */
static bool is_timeline(const char *path, struct stat *old)
{
	char begin[sizeof TIMELINE] = "";
	errno = 0;
	FILE *f = fopen(path, "r");
	bool ours = f && !fstat(fileno(f), old) && fgets(begin, sizeof begin, f) && !strcmp(begin, TIMELINE);
	if (f)
		fclose(f);
	return ours;
}

static int timeline(const struct traces *t, const char *path)
{
	double zero = 1e300;
	struct stat old, shown;
	/* opened by its name once more standard output would begin where the summary does */
	bool there = !stat(path, &old), own = there && !fstat(STDOUT_FILENO, &shown) && old.st_dev == shown.st_dev && old.st_ino == shown.st_ino;
	bool filled = there && !own && S_ISREG(old.st_mode) && old.st_size;
	if (filled && !is_timeline(path, &old))
		return fault(errno ? EXIT_INTERNAL : EXIT_USAGE, "%s is there and %s%s: name another file, or remove it first", path, errno ? "cannot be read: " : "no timeline",
			errno ? strerror(errno) : "");
	/* root writes over a user's file where it is: who owns the directory could have another take its place meanwhile, which a new file would give to that user */
	char at[PATH_MAX], *real = filled && (geteuid() || !old.st_uid) ? realpath(path, at) : NULL;
	snprintf(beside, sizeof beside, "%s%s", real ? real : "", real ? ".XXXXXX" : ""); /* until it is whole the old one stays */
	int fd = own ? dup(STDOUT_FILENO) : real ? mkstemp(beside) : -1;
	if (fd < 0 && !(real && errno == ENOSPC)) { /* nothing may be made beside it; what is opened may be another file than was looked at */
		real = NULL, *beside = 0;
		fd = open(path, O_WRONLY | (there ? 0 : O_CREAT), 0666);
		if (fd >= 0 && !fstat(fd, &shown) && S_ISREG(shown.st_mode) && ((filled ? shown.st_dev != old.st_dev || shown.st_ino != old.st_ino : shown.st_size) || ftruncate(fd, 0)))
			return fault(EXIT_INTERNAL, "%s: another file has taken its place meanwhile", path);
	}
	FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
	if (!out)
		return fault(EXIT_INTERNAL, "%s: %s", path, strerror(errno));
	for (int i = 0; i < t->n; i++)
		for (uint64_t k = 0; k < records_of(t->file[i]); k++) {
			const struct trace_record r = record_of(t->file[i], k);
			double begin = aligned(t->file[i], r.begin);
			zero = begin < zero && r.kind ? begin : zero;
		}
	fprintf(out, TIMELINE "\"pid\":0,\"name\":\"trace\",\"args\":{\"ranks\":%d}}", t->n);
	for (int i = 0; i < t->n; i++)
		timeline_of(out, t->file[i], zero);
	fprintf(out, "\n]\n");
	bool bad = fflush(out) || ferror(out) || (real && fchmod(fd, old.st_mode & 0777) && errno != EPERM);
	if (fclose(out) || bad || (real && rename(beside, real))) {
		fault(EXIT_INTERNAL, "%s is not complete%s: %s", path, real ? ", the old one stays" : "", strerror(errno));
		unlink(beside);
		return EXIT_INTERNAL;
	}
	return 0;
}

/* ---- summary -------------------------------------------------------------------------------------- */

/* One step on one rank, nanoseconds of rank 0's clock. */
struct step {
	double ready, end;             /* of the last gradient; of the step; 0: not seen */
	double waited, busy;           /* in hvd_plan_finish(); in all-reduces */
	double input, aside;           /* in marks named input; in those that are no part of a step */
	bool there;                    /* the rank has the end of this step or of a later one: it was not yet lost */
};

/* Into every ranks-th of s, from the first on. */
static void read_steps(const struct trace_file *f, struct step *s, uint32_t first, uint32_t steps, int ranks)
{
	for (uint64_t i = 0; i < records_of(f); i++) {
		const struct trace_record r = record_of(f, i);
		if (!r.kind || r.step < first || r.step - first >= steps)
			continue;
		struct step *p = &s[(size_t)(r.step - first) * (size_t)ranks];
		double begin = aligned(f, r.begin), end = aligned(f, r.end);
		if (r.kind == TRACE_READY)
			p->ready = begin > p->ready ? begin : p->ready;
		else if (r.kind == TRACE_BUCKET)
			p->busy += end - begin;
		else if (r.kind == TRACE_WAIT) {
			p->end = end;
			p->waited = end - begin;
		} else if (r.kind == TRACE_MARK) {
			const char *name = f->name[r.index % TRACE_NAMES];
			if (!strcmp(name, "input"))
				p->input += end - begin;
			else if (!strcmp(name, "validation") || !strcmp(name, "checkpoint"))
				p->aside += end - begin;
		}
	}
}

struct sums {
	int steps, left_out, shares; /* shares: ranks, summed over the steps */
	double whole, compute, input, late, exposed, busy, aside; /* nanoseconds, over all steps and ranks */
	int *last;        /* [ranks] steps in which a rank was the last to be ready */
	double *by;       /* [ranks] how much later than the mean of the others */
};

/* step[steps][ranks]; the first step of the range has no beginning and is left out, and so are those that a rank has not whole: lost in
 * them, or recovering before them. */
static void sum_up(const struct traces *t, const struct step *step, uint32_t steps, uint32_t first, bool each, struct sums *s)
{
	for (uint32_t k = 1; k < steps; k++) {
		const struct step *before = &step[(size_t)(k - 1) * (size_t)t->n], *this = before + t->n; /* [ranks] */
		int last = 0, ranks = 0;
		bool whole = true, any = false;
		double mean = 0;
		for (int r = 0; r < t->n; r++) {
			any |= this[r].end > 0;
			whole &= !this[r].there || (this[r].end > 0 && this[r].ready > 0 && before[r].end > 0);
			last = this[r].there && (!this[last].there || this[r].ready > this[last].ready) ? r : last;
			mean += this[r].there ? this[r].ready : 0;
			ranks += this[r].there;
		}
		s->left_out += any && !whole;
		if (!whole)
			continue;
		double latest = this[last].ready, by = ranks > 1 ? latest - (mean - latest) / (ranks - 1) : 0;
		s->steps++;
		s->shares += ranks;
		s->last[last]++;
		s->by[last] += by;
		for (int r = 0; r < t->n; r++) {
			const struct step *p = &this[r];
			if (!p->there)
				continue;
			double late = latest - p->ready < p->waited ? latest - p->ready : p->waited;
			double took = p->end - before[r].end - p->aside;
			s->whole += took;
			s->compute += took - p->waited - p->input;
			s->aside += p->aside;
			s->input += p->input;
			s->late += late;
			s->exposed += p->waited - late;
			s->busy += p->busy;
		}
		if (each)
			printf("step %u: %.2f ms, last to be ready rank %u on %s, %.2f ms after the others\n", first + k,
			       (this[last].end - before[last].end - this[last].aside) * 1e-6, t->file[last]->rank, t->file[last]->host, by * 1e-6);
	}
}

static void print_share(const char *what, double part, const struct sums *s)
{
	printf("  %-26s %8.2f ms %5.1f %%\n", what, part * (1e-6 / s->shares), s->whole > 0 ? 100 * part / s->whole : 0);
}

static void print_sums(const struct traces *t, const struct sums *s)
{
	double unit = 1e-6 / s->shares; /* milliseconds a step */
	int last = 0;
	for (int r = 1; r < t->n; r++)
		last = s->last[r] > s->last[last] ? r : last;
	printf("%d rank%s, %d step%s, %.2f ms a step\n", t->n, t->n > 1 ? "s" : "", s->steps, s->steps > 1 ? "s" : "", s->whole * unit);
	print_share("computing", s->compute, s);
	print_share("input", s->input, s);
	print_share("waiting for late ranks", s->late, s);
	print_share("communication not hidden", s->exposed, s);
	printf("all-reduces take %.2f ms a step, with the waiting for each other\n", s->busy * unit);
	if (s->aside > 0)
		printf("validations and checkpoints, not counted above: %.2f ms a step\n", s->aside * unit);
	if (t->n > 1)
		printf("most often last to be ready: rank %u on %s, in %d of %d steps, %.2f ms after the others\n", t->file[last]->rank,
		       t->file[last]->host, s->last[last], s->steps, s->by[last] * 1e-6 / s->last[last]);
	if (s->late > s->exposed && s->late > s->input && s->late > 0.05 * s->whole)
		printf("bottleneck: rank %u on %s is late\n", t->file[last]->rank, t->file[last]->host);
	else
		printf("bottleneck: %s\n", s->input > s->compute && s->input > s->exposed ? "input" :
			s->exposed > 0.1 * s->whole ? "communication that is not hidden" : "computing");
}

static int summary(const struct traces *t, bool each)
{
	uint32_t least = UINT32_MAX, most = 0;
	for (int i = 0; i < t->n; i++)
		steps_of(t->file[i], TRACE_WAIT, &least, &most);
	for (int i = 0; i < t->n; i++) { /* before the first step of a rank that went on to the end no step is whole: of the time of one that was lost long ago its file holds nothing */
		uint32_t first = UINT32_MAX, last = 0;
		steps_of(t->file[i], TRACE_WAIT, &first, &last);
		least = last == most && first > least && first <= most ? first : least;
	}
	if (most > least && most - least > SPAN)
		least = most - SPAN;
	uint32_t steps = most >= least ? most - least + 1 : 0;
	struct step *step = calloc((size_t)steps * (size_t)t->n + 1, sizeof *step);
	struct sums s = { .last = calloc((size_t)t->n, sizeof *s.last), .by = calloc((size_t)t->n, sizeof *s.by) };
	if (!step || !s.last || !s.by)
		return fault(EXIT_INTERNAL, "no memory for %u steps", steps);
	for (int i = 0; i < t->n; i++)
		read_steps(t->file[i], &step[i], least, steps, t->n);
	for (size_t n = (size_t)t->n, all = steps * n, i = all; i-- > 0;)
		step[i].there = step[i].end > 0 || (i + n < all && step[i + n].there);
	sum_up(t, step, steps, least, each, &s);
	if (s.steps)
		print_sums(t, &s);
	else
		printf("%d rank%s, no two whole steps\n", t->n, t->n > 1 ? "s" : "");
	if (s.left_out)
		printf("%d step%s left out, which not every rank has from beginning to end: a rank was lost, or a trace's first steps are overwritten\n", s.left_out, s.left_out > 1 ? "s" : "");
	free(step);
	free(s.last);
	free(s.by);
	return 0;
}

static int usage(void)
{
	return printf("usage: hvd-trace [OPTION…] DIRECTORY|FILE…\n"
		    "What a step's time goes to, from the traces that ranks left in DIRECTORY (srun --hvd=trace=DIRECTORY).\n\n"
		    "  -o, --output FILE   also write the timeline of all ranks, for ui.perfetto.dev or chrome://tracing\n"
		    "  -e, --each          one line a step: which rank was the last to be ready\n"
		    "  -h, --help; --version\n") < 0;
}

static int printed(int status)
{
	if (!fflush(stdout) && !ferror(stdout) && !fclose(stdout)) /* the close is where a network file system says that there is no room */
		return status;
	return fault(status ? status : EXIT_INTERNAL, "what was printed is not complete: %s", strerror(errno));
}

int main(int argc, char **argv)
{
	static const struct option table[] = {
		{ "output", required_argument, NULL, 'o' }, { "each", no_argument, NULL, 'e' }, { "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' }, { 0 },
	};
	struct traces t = { 0 };
	const char *output = NULL;
	bool each = false;
	int status = 0;
	for (int c; (c = getopt_long(argc, argv, "o:eh", table, NULL)) != -1;) {
		if (c == 'h' || c == 'V')
			return printed(c == 'h' ? usage() : puts("hvd-trace " HVD_VERSION) < 0);
		if (c == '?')
			return fault(EXIT_USAGE, "hvd-trace --help lists the options");
		output = c == 'o' ? optarg : output;
		each |= c == 'e';
	}
	if (optind == argc)
		return fault(EXIT_USAGE, "no DIRECTORY or FILE of traces is named: hvd-trace --help");
	signal(SIGBUS, lost_page);
	signal(SIGXFSZ, SIG_IGN); /* a file-size limit is an error like others */
	for (int i = optind; !status && i < argc; i++) {
		struct stat s;
		status = !stat(argv[i], &s) && S_ISDIR(s.st_mode) ? add_directory(&t, argv[i]) : add_file(&t, argv[i]);
	}
	if (!status && !(status = put_in_order(&t)))
		status = summary(&t, each);
	if (!status && output && !fflush(stdout)) /* which may be the same file */
		status = timeline(&t, output);
	free(t.file);
	return printed(status);
}

/* SPDX-License-Identifier: Apache-2.0
 * TensorBoard event files, read back by a strict reader written here from event.proto and summary.proto. */
#include "tests/unit/test.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/file.h"
#include "files/tfrecord.h"
#include "learn/events.h"

static char directory[512];

static int name_directory(void **state)
{
	const char *build = getenv("BUILD");

	(void)state;
	snprintf(directory, sizeof directory, "%s/tests/tmp", build ? build : "build");
	mkdir(directory, 0777);
	snprintf(directory, sizeof directory, "%s/tests/tmp/events.%d", build ? build : "build", (int)getpid());
	return 0;
}

static int remove_directory(void **state)
{
	(void)state;
	directory_remove(directory);
	return 0;
}

/* ---- the reader ------------------------------------------------------------------------------------- */

struct message {
	const uint8_t *p, *end;
};

static uint64_t varint(struct message *m)
{
	uint64_t v = 0;

	for (int shift = 0;; shift += 7) {
		assert_true(m->p < m->end && shift < 70);
		v |= (uint64_t)(*m->p & 0x7f) << shift;
		if (!(*m->p++ & 0x80))
			return v;
	}
}

struct field {
	int number, wire;
	uint64_t bits; /* of varints, 64- and 32-bit values */
	struct message bytes;
};

static int next_field(struct message *m, struct field *f)
{
	if (m->p == m->end)
		return 0;
	uint64_t key = varint(m);

	*f = (struct field){ .number = (int)(key >> 3), .wire = (int)(key & 7) };
	size_t width = f->wire == 1 ? 8 : f->wire == 5 ? 4 : 0;

	if (f->wire == 0) {
		f->bits = varint(m);
	} else if (f->wire == 2) {
		uint64_t size = varint(m);

		assert_true(size <= (uint64_t)(m->end - m->p));
		f->bytes = (struct message){ m->p, m->p + size };
		m->p += size;
	} else {
		assert_true(width && (size_t)(m->end - m->p) >= width);
		for (size_t i = 0; i < width; i++)
			f->bits |= (uint64_t)*m->p++ << 8 * i;
	}
	return 1;
}

static void want(struct message *m, int number, int wire, struct field *f)
{
	assert_true(next_field(m, f));
	assert_int_equal(f->number, number);
	assert_int_equal(f->wire, wire);
}

static void want_text(struct message *m, int number, const char *text)
{
	struct field f;

	want(m, number, 2, &f);
	assert_int_equal(f.bytes.end - f.bytes.p, strlen(text));
	assert_memory_equal(f.bytes.p, text, strlen(text));
}

static void want_end(struct message *m)
{
	assert_ptr_equal(m->p, m->end);
}

static double as_double(uint64_t bits)
{
	double v;

	memcpy(&v, &bits, sizeof v);
	return v;
}

static float as_float(uint32_t bits)
{
	float v;

	memcpy(&v, &bits, sizeof v);
	return v;
}

/* A file, record by record. */
struct log {
	struct mapped_file file;
	size_t offset;
	double time; /* of the last event */
};

static struct message next_event(struct log *log)
{
	struct tfrecord r;
	struct error e = { 0 };

	assert_int_equal(tfrecord_at(log->file.data, log->file.size, log->offset, &r, &e), 1);
	log->offset = r.next;
	struct message m = { r.data, r.data + r.size };
	struct field f;

	want(&m, 1, 1, &f);
	double seconds = as_double(f.bits);

	assert_true(seconds >= log->time && seconds > 1.6e9);
	log->time = seconds;
	return m;
}

/* The value of the next event, behind its tag. */
static struct message next_value(struct log *log, int64_t step, const char *tag)
{
	struct message m = next_event(log);
	struct field f, value;

	want(&m, 2, 0, &f);
	assert_int_equal((int64_t)f.bits, step);
	want(&m, 5, 2, &f);
	want_end(&m);
	want(&f.bytes, 1, 2, &value);
	want_end(&f.bytes);
	want_text(&value.bytes, 1, tag);
	return value.bytes;
}

static struct log open_log(const char *path)
{
	struct log log = { .offset = 0 };
	struct error e = { 0 };

	assert_int_equal(file_map(&log.file, path, &e), 0);
	struct message m = next_event(&log);
	want_text(&m, 3, "brain.Event:2");
	want_end(&m);
	return log;
}

static void close_log(struct log *log)
{
	assert_int_equal(log->offset, log->file.size);
	file_unmap(&log->file);
}

/* ---- the claims ------------------------------------------------------------------------------------- */

static struct events *open_events(char path[FILE_PATH])
{
	struct events *ev;
	struct error e = { 0 };

	assert_int_equal(events_open(&ev, directory, &e), 0);
	strcpy(path, events_path(ev));
	return ev;
}

static void the_file_has_the_name_that_tensorboard_looks_for(void **state)
{
	char path[FILE_PATH], host[256] = "", tail[300];
	struct events *ev = open_events(path);
	const char *name = strrchr(path, '/') + 1;

	(void)state;
	gethostname(host, sizeof host - 1);
	snprintf(tail, sizeof tail, ".%s.%d", host, (int)getpid());
	assert_int_equal(strncmp(name, "events.out.tfevents.", 20), 0);
	assert_int_equal(strspn(name + 20, "0123456789"), 10);
	assert_string_equal(name + 30, tail);
	events_close(ev);
	remove(path);
}

static void scalars_come_back_and_can_be_read_while_more_are_written(void **state)
{
	struct error e = { 0 };
	char path[FILE_PATH];
	struct events *ev = open_events(path);
	static const float values[] = { 0.25f, -1e30f, 1e-45f, INFINITY };
	static const int64_t steps[] = { 0, 127, 128, (int64_t)1 << 40 };

	(void)state;
	for (int written = 0; written < 4; written++) {
		struct field f;

		assert_int_equal(events_scalar(ev, written % 2 ? "loss/train" : "auroc", steps[written], values[written], &e), 0);
		struct log log = open_log(path);
		for (int i = 0; i <= written; i++) {
			struct message m = next_value(&log, steps[i], i % 2 ? "loss/train" : "auroc");

			want(&m, 2, 5, &f);
			assert_close(as_float((uint32_t)f.bits), values[i], 0);
			want_end(&m);
		}
		close_log(&log);
	}
	events_close(ev);
	remove(path);
}

static void a_record_can_carry_the_time_of_what_it_tells(void **state)
{
	struct error e = { 0 };
	char path[FILE_PATH];
	struct events *ev = open_events(path);

	(void)state;
	events_at(ev, 4e9 + 0.125);
	assert_int_equal(events_scalar(ev, "loss", 1, 1, &e), 0);
	events_close(ev);
	struct log log = open_log(path);

	next_value(&log, 1, "loss");
	assert_close(log.time, 4e9 + 0.125, 0);
	close_log(&log);
	remove(path);
}

static void an_image_keeps_its_bytes_and_shape(void **state)
{
	struct error e = { 0 };
	char path[FILE_PATH];
	struct events *ev = open_events(path);
	uint8_t png[300];
	static const uint64_t shape[] = { 224, 320, 3 };
	struct field f, g;

	(void)state;
	for (size_t i = 0; i < sizeof png; i++)
		png[i] = (uint8_t)(i * 7);
	assert_int_equal(events_image(ev, "map", 7, png, sizeof png, 320, 224, 3, &e), 0);
	events_close(ev);
	struct log log = open_log(path);
	struct message m = next_value(&log, 7, "map");

	want(&m, 4, 2, &f);
	want_end(&m);
	for (int i = 0; i < 3; i++) {
		want(&f.bytes, i + 1, 0, &g);
		assert_int_equal(g.bits, shape[i]);
	}
	want(&f.bytes, 4, 2, &g);
	assert_int_equal(g.bytes.end - g.bytes.p, sizeof png);
	assert_memory_equal(g.bytes.p, png, sizeof png);
	want_end(&f.bytes);
	close_log(&log);
	remove(path);
}

/* The counts by their definition: predicted means probability >= threshold. */
static void expect_counts(const float *row, size_t stride, int t, const float *logits, const uint8_t *positive, size_t n)
{
	double tp = 0, fp = 0, tn = 0, fn = 0;

	for (size_t i = 0; i < n; i++) {
		int predicted = (PR_THRESHOLDS - 1) / (1 + exp(-(double)logits[i])) >= t;

		*(positive[i] ? predicted ? &tp : &fn : predicted ? &fp : &tn) += 1;
	}
	assert_close(row[0 * stride], tp, 0);
	assert_close(row[1 * stride], fp, 0);
	assert_close(row[2 * stride], tn, 0);
	assert_close(row[3 * stride], fn, 0);
	assert_close(row[4 * stride], tp + fp > 0 ? tp / (tp + fp) : 0, 1e-7);
	assert_close(row[5 * stride], tp + fn > 0 ? tp / (tp + fn) : 0, 1e-7);
}

static void a_pr_curve_has_the_counts_of_every_threshold(void **state)
{
	enum { N = 500 };
	struct error e = { 0 };
	char path[FILE_PATH];
	struct events *ev = open_events(path);
	float logits[N], table[6 * PR_THRESHOLDS];
	uint8_t positive[N];
	struct field f, g;

	(void)state;
	for (int i = 0; i < N; i++) {
		positive[i] = i % 7 == 0;
		logits[i] = (float)(3 * sin(i * 1.7) + positive[i]);
	}
	logits[0] = 200, logits[1] = -200, logits[2] = 0; /* probabilities of exactly 1, nearly 0 and one half */
	assert_int_equal(events_pr_curve(ev, "Hernia", 3, logits, positive, N, &e), 0);
	events_close(ev);
	struct log log = open_log(path);
	struct message m = next_value(&log, 3, "Hernia");

	want(&m, 8, 2, &f);
	want(&f.bytes, 1, 0, &g);
	assert_int_equal(g.bits, 1);
	want(&f.bytes, 2, 2, &g);
	for (int d = 0; d < 2; d++) {
		struct field dim, size;

		want(&g.bytes, 2, 2, &dim);
		want(&dim.bytes, 1, 0, &size);
		assert_int_equal(size.bits, d ? PR_THRESHOLDS : 6);
		want_end(&dim.bytes);
	}
	want_end(&g.bytes);
	want(&f.bytes, 4, 2, &g);
	want_end(&f.bytes);
	assert_int_equal(g.bytes.end - g.bytes.p, sizeof table);
	memcpy(table, g.bytes.p, sizeof table);
	for (int t = 0; t < PR_THRESHOLDS; t++)
		expect_counts(table + t, PR_THRESHOLDS, t, logits, positive, N);

	want(&m, 9, 2, &f);
	want_end(&m);
	want(&f.bytes, 1, 2, &g);
	want_end(&f.bytes);
	want_text(&g.bytes, 1, "pr_curves");
	want(&g.bytes, 2, 2, &f);
	want_end(&g.bytes);
	want(&f.bytes, 2, 0, &g);
	assert_int_equal(g.bits, PR_THRESHOLDS);
	want_end(&f.bytes);
	close_log(&log);
	remove(path);
}

static void a_directory_that_cannot_be_made_is_named(void **state)
{
	struct error e = { 0 };
	struct events *ev;
	char nowhere[600];

	(void)state;
	snprintf(nowhere, sizeof nowhere, "%s/missing/deeper", directory);
	assert_int_equal(events_open(&ev, nowhere, &e), -EXIT_USAGE);
	assert_null(ev);
	assert_non_null(strstr(e.text, nowhere));
}

static void limit_files(rlim_t bytes)
{
	struct rlimit limit;

	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
	setrlimit(RLIMIT_FSIZE, &limit);
}

/* A full disk, and a file that is given up: the directory stays where it was there before. */
static void nothing_is_left_of_a_file_that_is_given_up(void **state)
{
	char path[FILE_PATH];

	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	directory_remove(directory);
	for (int there = 0; there < 2; there++) {
		struct error e = { 0 };
		struct events *ev;

		if (there)
			assert_int_equal(mkdir(directory, 0777), 0);
		limit_files(10); /* less than the first record */
		int rc = events_open(&ev, directory, &e);
		limit_files(RLIM_INFINITY);
		assert_int_equal(rc, -EXIT_INTERNAL);
		assert_non_null(strstr(e.text, ": cannot be written: File too large"));
		assert_int_equal(access(directory, F_OK), there ? 0 : -1);
		ev = open_events(path);
		events_discard(ev);
		assert_int_not_equal(access(path, F_OK), 0);
		assert_int_equal(rmdir(directory), there ? 0 : -1);
	}
	events_discard(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_file_has_the_name_that_tensorboard_looks_for),
		cmocka_unit_test(scalars_come_back_and_can_be_read_while_more_are_written),
		cmocka_unit_test(a_record_can_carry_the_time_of_what_it_tells),
		cmocka_unit_test(an_image_keeps_its_bytes_and_shape),
		cmocka_unit_test(a_pr_curve_has_the_counts_of_every_threshold),
		cmocka_unit_test(nothing_is_left_of_a_file_that_is_given_up),
		cmocka_unit_test(a_directory_that_cannot_be_made_is_named),
	};

	return cmocka_run_group_tests(tests, name_directory, remove_directory);
}

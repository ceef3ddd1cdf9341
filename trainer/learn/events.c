/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/events.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "data/example.h"
#include "files/crc32c.h"
#include "files/file.h"
#include "files/tfrecord.h"

struct events {
	int fd, made; /* made: the directory was not there before */
	char path[FILE_PATH];
	double time; /* of the next records; 0: now */
	struct bytes event, summary, value, part; /* messages under construction, reused */
};

/* ---- protobuf --------------------------------------------------------------------------------------- */

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static int put_varint(struct bytes *b, uint64_t v)
{
	uint8_t out[10];
	size_t n = 0;

	do {
		out[n++] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
	} while (v >>= 7);
	return bytes_append(b, out, n);
}

static int put_key(struct bytes *b, int field, enum wire wire)
{
	return put_varint(b, (uint64_t)field << 3 | (unsigned)wire);
}

static int put_int(struct bytes *b, int field, int64_t v)
{
	return put_key(b, field, WIRE_VARINT) || put_varint(b, (uint64_t)v) ? -1 : 0;
}

static int put_bytes(struct bytes *b, int field, const void *data, size_t size)
{
	return put_key(b, field, WIRE_BYTES) || put_varint(b, size) || (size && bytes_append(b, data, size)) ? -1 : 0;
}

static int put_text(struct bytes *b, int field, const char *text)
{
	return put_bytes(b, field, text, strlen(text));
}

static int put_double(struct bytes *b, int field, double v)
{
	uint64_t bits;
	uint8_t out[8];

	memcpy(&bits, &v, sizeof bits);
	for (int i = 0; i < 8; i++)
		out[i] = (uint8_t)(bits >> 8 * i);
	return put_key(b, field, WIRE_64) || bytes_append(b, out, sizeof out) ? -1 : 0;
}

static void float_bytes(uint8_t out[4], float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof bits);
	for (int i = 0; i < 4; i++)
		out[i] = (uint8_t)(bits >> 8 * i);
}

static int put_float(struct bytes *b, int field, float v)
{
	uint8_t out[4];

	float_bytes(out, v);
	return put_key(b, field, WIRE_32) || bytes_append(b, out, sizeof out) ? -1 : 0;
}

/* ---- the file --------------------------------------------------------------------------------------- */

static double event_time(const struct events *ev)
{
	struct timespec t;

	if (ev->time > 0)
		return ev->time;
	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void put_u32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

/* The frame and the event in one write, so that a reader meets whole records. */
static int append_record(struct events *ev, struct error *e)
{
	size_t size = ev->event.size, done = 0, total = size + TFRECORD_HEADER + TFRECORD_FOOTER;
	uint8_t *record = malloc(total);

	if (!record)
		return fail(e, EXIT_INTERNAL, "%s: no memory for a record of %zu bytes", ev->path, total);
	put_u32(record, (uint32_t)size);
	put_u32(record + 4, (uint32_t)((uint64_t)size >> 32));
	put_u32(record + 8, crc32c_mask(crc32c(0, record, 8)));
	memcpy(record + TFRECORD_HEADER, ev->event.data, size);
	put_u32(record + TFRECORD_HEADER + size, crc32c_mask(crc32c(0, ev->event.data, size)));
	while (done < total) {
		ssize_t n = write(ev->fd, record + done, total - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;
		done += (size_t)n;
	}
	free(record);
	return done == total ? 0 : fail(e, EXIT_INTERNAL, "%s: cannot be written: %s", ev->path, strerror(errno));
}

static int no_memory(const struct events *ev, struct error *e)
{
	return fail(e, EXIT_INTERNAL, "%s: no memory for a record", ev->path);
}

/* Event{1: wall_time, 3: file_version} */
static int append_version(struct events *ev, struct error *e)
{
	if (put_double(&ev->event, 1, event_time(ev)) || put_text(&ev->event, 3, "brain.Event:2"))
		return no_memory(ev, e);
	return append_record(ev, e);
}

/* Event{1: wall_time, 2: step, 5: Summary{1: Value}} around ev->value, which begins with {1: tag}. */
static int append_value(struct events *ev, int64_t step, struct error *e)
{
	ev->event.size = ev->summary.size = 0;
	if (put_bytes(&ev->summary, 1, ev->value.data, ev->value.size) || put_double(&ev->event, 1, event_time(ev)) || put_int(&ev->event, 2, step) ||
	    put_bytes(&ev->event, 5, ev->summary.data, ev->summary.size))
		return no_memory(ev, e);
	return append_record(ev, e);
}

static int begin_value(struct events *ev, const char *tag)
{
	ev->value.size = 0;
	return put_text(&ev->value, 1, tag);
}

int events_open(struct events **events, const char *directory, struct error *e)
{
	struct events *ev = calloc(1, sizeof *ev);
	char host[256] = "localhost";
	int rc;

	*events = NULL;
	if (!ev)
		return fail(e, EXIT_INTERNAL, "%s: no memory", directory);
	gethostname(host, sizeof host - 1);
	ev->fd = -1;
	rc = path_join(ev->path, e, "%s/events.out.tfevents.%010lld.%s.%d", directory, (long long)time(NULL), host, (int)getpid());
	if (!rc) {
		ev->made = access(directory, F_OK) != 0;
		rc = directory_ensure(directory, e);
		ev->made = ev->made && !rc;
	}
	if (!rc) {
		ev->fd = open(ev->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
		rc = ev->fd < 0 ? fail(e, EXIT_INTERNAL, "%s: cannot be written: %s", ev->path, strerror(errno)) : append_version(ev, e);
	}
	if (rc)
		events_discard(ev);
	else
		*events = ev;
	return rc;
}

int events_sync(struct events *ev, struct error *e)
{
	return fsync(ev->fd) ? fail(e, EXIT_INTERNAL, "%s: cannot be brought to disk: %s", ev->path, strerror(errno)) : 0;
}

void events_close(struct events *ev)
{
	if (!ev)
		return;
	if (ev->fd >= 0)
		close(ev->fd);
	free(ev->event.data);
	free(ev->summary.data);
	free(ev->value.data);
	free(ev->part.data);
	free(ev);
}

void events_discard(struct events *ev)
{
	if (ev && ev->fd >= 0)
		unlink(ev->path);
	if (ev && ev->made)
		rmdir(dirname(ev->path));
	events_close(ev);
}

void events_at(struct events *ev, double time)
{
	ev->time = time;
}

const char *events_path(const struct events *ev)
{
	return ev->path;
}

/* ---- what can be shown ------------------------------------------------------------------------------ */

/* Value{1: tag, 2: simple_value} */
int events_scalar(struct events *ev, const char *tag, int64_t step, float value, struct error *e)
{
	if (begin_value(ev, tag) || put_float(&ev->value, 2, value))
		return no_memory(ev, e);
	return append_value(ev, step, e);
}

/* Value{1: tag, 4: Image{1: height, 2: width, 3: colorspace, 4: encoded}} */
int events_image(struct events *ev, const char *tag, int64_t step, const void *encoded, size_t size, int width, int height, int channels,
		 struct error *e)
{
	ev->part.size = 0;
	if (put_int(&ev->part, 1, height) || put_int(&ev->part, 2, width) || put_int(&ev->part, 3, channels) ||
	    put_bytes(&ev->part, 4, encoded, size) || begin_value(ev, tag) || put_bytes(&ev->value, 4, ev->part.data, ev->part.size))
		return no_memory(ev, e);
	return append_value(ev, step, e);
}

enum { PR_ROWS = 6 }; /* true positives, false positives, true negatives, false negatives, precision, recall */

/* Row r of the tensor at threshold t / (PR_THRESHOLDS - 1): an image counts as predicted from its probability upwards. */
static void count_thresholds(float table[PR_ROWS][PR_THRESHOLDS], const float *logits, const uint8_t *positive, size_t n)
{
	uint64_t at[2][PR_THRESHOLDS] = { { 0 } }, total[2] = { 0 }, above[2] = { 0 };

	for (size_t i = 0; i < n; i++) {
		double p = 1 / (1 + exp(-(double)logits[i]));

		at[positive[i] != 0][(int)floor(p * (PR_THRESHOLDS - 1))]++;
		total[positive[i] != 0]++;
	}
	for (int t = PR_THRESHOLDS - 1; t >= 0; t--) {
		above[0] += at[0][t];
		above[1] += at[1][t];
		double tp = (double)above[1], fp = (double)above[0], all = (double)total[1];

		table[0][t] = (float)tp;
		table[1][t] = (float)fp;
		table[2][t] = (float)(total[0] - above[0]);
		table[3][t] = (float)(total[1] - above[1]);
		table[4][t] = (float)(tp + fp > 0 ? tp / (tp + fp) : 0);
		table[5][t] = (float)(all > 0 ? tp / all : 0);
	}
}

/* SummaryMetadata{1: PluginData{1: "pr_curves", 2: PrCurvePluginData{2: num_thresholds}}} */
static int put_pr_metadata(struct bytes *value)
{
	struct bytes content = { 0 }, plugin = { 0 }, metadata = { 0 };
	int rc = put_int(&content, 2, PR_THRESHOLDS) || put_text(&plugin, 1, "pr_curves") ||
		 put_bytes(&plugin, 2, content.data, content.size) || put_bytes(&metadata, 1, plugin.data, plugin.size) ||
		 put_bytes(value, 9, metadata.data, metadata.size);

	free(content.data);
	free(plugin.data);
	free(metadata.data);
	return rc ? -1 : 0;
}

/* TensorProto{1: DT_FLOAT, 2: TensorShapeProto{2: Dim{1: size}…}, 4: little-endian contents} */
static int put_tensor(struct events *ev, float table[PR_ROWS][PR_THRESHOLDS])
{
	struct bytes shape = { 0 };
	uint8_t content[PR_ROWS * PR_THRESHOLDS * 4];
	int rc = 0;

	for (int d = 0; d < 2 && !rc; d++) {
		struct bytes dim = { 0 };

		rc = put_int(&dim, 1, d ? PR_THRESHOLDS : PR_ROWS) || put_bytes(&shape, 2, dim.data, dim.size);
		free(dim.data);
	}
	for (int i = 0; i < PR_ROWS * PR_THRESHOLDS; i++)
		float_bytes(content + 4 * i, table[i / PR_THRESHOLDS][i % PR_THRESHOLDS]);
	ev->part.size = 0;
	rc = rc || put_int(&ev->part, 1, 1) || put_bytes(&ev->part, 2, shape.data, shape.size) ||
	     put_bytes(&ev->part, 4, content, sizeof content) || put_bytes(&ev->value, 8, ev->part.data, ev->part.size);
	free(shape.data);
	return rc ? -1 : 0;
}

int events_pr_curve(struct events *ev, const char *tag, int64_t step, const float *logits, const uint8_t *positive, size_t n,
		    struct error *e)
{
	float table[PR_ROWS][PR_THRESHOLDS];

	count_thresholds(table, logits, positive, n);
	if (begin_value(ev, tag) || put_tensor(ev, table) || put_pr_metadata(&ev->value))
		return no_memory(ev, e);
	return append_value(ev, step, e);
}

/* SPDX-License-Identifier: Apache-2.0
 * Threads that decode a block of records together; who calls is one of them. */
#ifndef DATA_DECODE_TEAM_H
#define DATA_DECODE_TEAM_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

/* One record of a TFRecord file, in mapped memory. */
struct record {
	const uint8_t *data;
	size_t size, number, offset; /* number and offset in the file at path */
	const char *path;
};

struct decode_job {
	const struct record *record;
	uint8_t *pixels; /* [size][size] */
	char *id;        /* [SAMPLE_ID] */
};

struct decode_team;

/* `threads` threads in all, the caller's included, for images of size x size. NULL: the reason is in *e. */
struct decode_team *decode_team_open(int threads, int size, struct error *e);

/* Does jobs [0, count). An error names file, record and byte; of several it is the lowest job's, whatever the threads do. */
int decode_team_run(struct decode_team *t, const struct decode_job *jobs, int count, struct error *e);

/* Images decoded so far; any thread may ask. */
uint64_t decode_team_images(const struct decode_team *t);

void decode_team_close(struct decode_team *t);

#endif

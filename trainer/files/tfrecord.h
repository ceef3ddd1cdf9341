/* SPDX-License-Identifier: Apache-2.0
 * TensorFlow's record files: u64 length, masked CRC-32C of the length, data, masked CRC-32C of the data; little-endian. */
#ifndef FILES_TFRECORD_H
#define FILES_TFRECORD_H

#include "files/file.h"

enum { TFRECORD_HEADER = 12, TFRECORD_FOOTER = 4, TFRECORD_MAX = 64 << 20 };

/* One record inside a mapped file. */
struct tfrecord {
	const uint8_t *data;
	size_t size;
	size_t next; /* offset of the record behind it */
};

/* Reads and verifies the record that begins at `offset` of a file's bytes. 1: *record is filled; 0: offset is the file's end;
 * -EXIT_DATA: the reason alone is in *why ("truncated (want 20, have 7)"). A pure function: nothing is allocated. */
int tfrecord_at(const uint8_t *file, size_t size, size_t offset, struct tfrecord *record, struct error *why);

/* A file of records being written; PATH appears when tfrecord_commit() returns 0. */
struct tfrecord_writer {
	struct output_file out;
	uint64_t records;
};

int tfrecord_create(struct tfrecord_writer *w, const char *path, struct error *e);
int tfrecord_append(struct tfrecord_writer *w, const void *data, size_t size, struct error *e);
int tfrecord_commit(struct tfrecord_writer *w, struct error *e);
void tfrecord_discard(struct tfrecord_writer *w);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Packed splits: SPLIT.cxp holds decoded pixels, to be mapped and read in any order at the cost of a copy. Little-endian:
 *
 *   0      "CXPACK1\n"
 *   8      u32 format version, u32 side, u64 images, u64 offset of the pixels (a multiple of 4096), u64 hash of the source,
 *          14 finding names of 24 bytes (NUL-padded), u32 split (1 train, 2 val, 3 test; 0 in old files), u32 CRC-32C of everything before it
 *   …      images entries of 32 bytes: id[16], u32 patient, u16 labels, u16 known, u32 CRC-32C of the pixels, u32 zero
 *   …      u32 CRC-32C of the entries
 *   pixels images * side * side bytes; then the file ends
 */
#ifndef DATA_PACKED_H
#define DATA_PACKED_H

#include "data/dataset.h"
#include "files/file.h"

enum { PACKED_ID = 16 /* bytes of an id, at most */ };

struct packed_writer {
	struct output_file out;
	int side;
	size_t images, written;
	uint8_t *entries;
	uint64_t source_hash;
	enum split split;
};

int packed_create(struct packed_writer *w, const char *path, enum split split, int side, size_t images, uint64_t source_hash, struct error *e);
int packed_append(struct packed_writer *w, const struct sample *sample, const uint8_t *pixels, struct error *e);
int packed_commit(struct packed_writer *w, struct error *e);
void packed_discard(struct packed_writer *w);

/* The header's and entries' CRCs and the file's length are checked when it is opened, an image's CRC when it is first read.
 * split, images, side and source_hash are what the manifest says. */
struct dataset;
int packed_open(struct dataset *d, const char *path, enum split split, size_t images, int side, uint64_t source_hash, struct error *e);

#endif

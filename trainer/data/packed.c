/* SPDX-License-Identifier: Apache-2.0 */
#include "data/packed.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/source.h"
#include "files/crc32c.h"
#include "utf8.h"

enum { PIECE = 400 /* images that are read together where files are: as in a TFRecord file */ };
enum { VERSION = 1, NAME = 24, ENTRY = 32, ALIGN = 4096 };
enum { AT_VERSION = 8, AT_SIDE = 12, AT_IMAGES = 16, AT_PIXELS = 24, AT_SOURCE = 32, AT_NAMES = 40, AT_SPLIT = AT_NAMES + FINDINGS * NAME,
       AT_CRC = AT_SPLIT + 4, HEADER = AT_CRC + 4 };
static const char MAGIC[] = "CXPACK1\n";

static void put(uint8_t *p, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get(const uint8_t *p, int bytes)
{
	uint64_t value = 0;

	for (int i = 0; i < bytes; i++)
		value |= (uint64_t)p[i] << 8 * i;
	return value;
}

static uint64_t pixels_at(uint64_t images)
{
	return (HEADER + images * ENTRY + 4 + ALIGN - 1) / ALIGN * ALIGN;
}

static void make_header(uint8_t header[HEADER], const struct packed_writer *w)
{
	memset(header, 0, HEADER);
	memcpy(header, MAGIC, 8);
	put(header + AT_VERSION, VERSION, 4);
	put(header + AT_SIDE, (uint64_t)w->side, 4);
	put(header + AT_IMAGES, w->images, 8);
	put(header + AT_PIXELS, pixels_at(w->images), 8);
	put(header + AT_SOURCE, w->source_hash, 8);
	for (int f = 0; f < FINDINGS; f++)
		memcpy(header + AT_NAMES + f * NAME, finding_names[f], strlen(finding_names[f]));
	put(header + AT_SPLIT, w->split + 1, 4);
	put(header + AT_CRC, crc32c(0, header, AT_CRC), 4);
}

int packed_create(struct packed_writer *w, const char *path, enum split split, int side, size_t images, uint64_t source_hash, struct error *e)
{
	static const uint8_t zeros[ALIGN];

	*w = (struct packed_writer){ .side = side, .images = images, .source_hash = source_hash, .split = split };
	w->entries = calloc(images + 1, ENTRY);
	if (!w->entries)
		return fail(e, EXIT_INTERNAL, "%s: no memory for %zu entries", path, images);
	int rc = output_open(&w->out, path, e);
	/* room for what is known at the end only: the images' CRCs */
	for (uint64_t left = pixels_at(images); !rc && left; left -= left < ALIGN ? left : ALIGN)
		rc = output_write(&w->out, zeros, left < ALIGN ? left : ALIGN, e);
	if (rc)
		packed_discard(w);
	return rc;
}

int packed_append(struct packed_writer *w, const struct sample *sample, const uint8_t *pixels, struct error *e)
{
	size_t bytes = (size_t)w->side * (size_t)w->side, length = strlen(sample->id);
	uint8_t *entry = w->entries + w->written * ENTRY;

	if (w->written == w->images || length > PACKED_ID)
		return fail(e, EXIT_INTERNAL, "%s: image %s does not fit", w->out.path, sample->id);
	memcpy(entry, sample->id, length);
	put(entry + 16, sample->patient, 4);
	put(entry + 20, sample->labels, 2);
	put(entry + 22, sample->known, 2);
	put(entry + 24, crc32c(0, pixels, bytes), 4);
	w->written++;
	return output_write(&w->out, pixels, bytes, e);
}

int packed_commit(struct packed_writer *w, struct error *e)
{
	uint8_t header[HEADER], crc[4];
	size_t entries = w->images * ENTRY;
	int rc = w->written == w->images ? output_flush(&w->out, e) : fail(e, EXIT_INTERNAL, "%s: %zu of %zu images", w->out.path, w->written, w->images);

	make_header(header, w);
	put(crc, crc32c(0, w->entries, entries), 4);
	if (!rc)
		rc = output_write_at(&w->out, header, HEADER, 0, e);
	if (!rc)
		rc = output_write_at(&w->out, w->entries, entries, HEADER, e);
	if (!rc)
		rc = output_write_at(&w->out, crc, 4, HEADER + entries, e);
	if (!rc)
		rc = output_commit(&w->out, e);
	packed_discard(w);
	return rc;
}

void packed_discard(struct packed_writer *w)
{
	output_discard(&w->out);
	free(w->entries);
	w->entries = NULL;
}

struct packed {
	struct mapped_file file;
	char path[FILE_PATH];
	const uint8_t *entries, *pixels;
	_Atomic uint8_t *verified; /* [images] */
};

static void close_packed(void *state)
{
	struct packed *p = state;

	file_unmap(&p->file);
	free((void *)p->verified);
	free(p);
}

static int read_packed(const struct dataset *d, size_t index, struct dataset_scratch *s, uint8_t *pixels, struct error *e)
{
	const struct packed *p = d->state;
	size_t bytes = (size_t)d->size * (size_t)d->size;

	(void)s;
	memcpy(pixels, p->pixels + index * bytes, bytes);
	if (atomic_load_explicit(&p->verified[index], memory_order_relaxed))
		return 0;
	if (crc32c(0, pixels, bytes) != get(p->entries + index * ENTRY + 24, 4))
		return fail(e, EXIT_DATA, "%s: record %zu at byte %zu: CRC mismatch in the pixels of %s", p->path, index,
			    (size_t)(p->pixels - p->file.data) + index * bytes, d->samples[index].id);
	atomic_store_explicit(&p->verified[index], 1, memory_order_relaxed);
	return 0;
}

static int fetch_piece(const struct dataset *d, size_t shard, struct error *e)
{
	const struct packed *p = d->state;
	uint64_t bytes = (uint64_t)d->size * (uint64_t)d->size, first = d->shard_first[shard];

	return file_fetch(p->path, (uint64_t)(p->pixels - p->file.data) + first * bytes, (d->shard_first[shard + 1] - first) * bytes, e);
}

static int make_pieces(struct dataset *d, struct error *e)
{
	d->shards = (d->count + PIECE - 1) / PIECE;
	d->shard_first = calloc(d->shards + 1, sizeof *d->shard_first);
	if (!d->shard_first)
		return fail(e, EXIT_INTERNAL, "no memory for %zu pieces", d->shards);
	for (size_t s = 0; s <= d->shards; s++)
		d->shard_first[s] = s < d->shards ? s * PIECE : d->count;
	d->stored = d->count * (uint64_t)d->size * (uint64_t)d->size;
	return 0;
}

static int check_header(const struct packed *p, enum split split, size_t images, int side, uint64_t source_hash, struct error *e)
{
	const uint8_t *h = p->file.data;

	if (p->file.size < HEADER)
		return fail(e, EXIT_DATA, "%s: truncated in its header (want %d, have %zu bytes)", p->path, HEADER, p->file.size);
	if (memcmp(h, MAGIC, 8) != 0)
		return fail(e, EXIT_DATA, "%s: byte 0: not a packed data set", p->path);
	if (crc32c(0, h, AT_CRC) != get(h + AT_CRC, 4))
		return fail(e, EXIT_DATA, "%s: byte 0: CRC mismatch in the header", p->path);
	if (get(h + AT_VERSION, 4) != VERSION)
		return fail(e, EXIT_DATA, "%s: format version %llu; this program reads %d: prepare the data set anew", p->path,
			    (unsigned long long)get(h + AT_VERSION, 4), VERSION);
	for (int f = 0; f < FINDINGS; f++)
		if (strncmp((const char *)h + AT_NAMES + f * NAME, finding_names[f], NAME) != 0)
			return fail(e, EXIT_DATA, "%s: finding %d is \"%.*s\", not \"%s\"", p->path, f, NAME, (const char *)h + AT_NAMES + f * NAME,
				    finding_names[f]);
	if (get(h + AT_IMAGES, 8) != images || get(h + AT_SIDE, 4) != (uint64_t)side || get(h + AT_SOURCE, 8) != source_hash)
		return fail(e, EXIT_DATA, "%s: not the file that the manifest describes: it comes from another preparation", p->path);
	if (get(h + AT_SPLIT, 4) != 0 && get(h + AT_SPLIT, 4) != split + 1u)
		return fail(e, EXIT_DATA, "%s: holds another split than %s: the file was renamed", p->path, split_names[split]);
	uint64_t want = pixels_at(images) + images * (uint64_t)side * (uint64_t)side;
	if (get(h + AT_PIXELS, 8) != pixels_at(images) || p->file.size != want)
		return fail(e, EXIT_DATA, "%s: truncated or too long (want %llu, have %zu bytes)", p->path, (unsigned long long)want, p->file.size);
	if (crc32c(0, h + HEADER, images * ENTRY) != get(h + HEADER + images * ENTRY, 4))
		return fail(e, EXIT_DATA, "%s: byte %d: CRC mismatch in the entries", p->path, HEADER);
	/* what lies between is zero: so a flipped bit anywhere in the file is found */
	for (uint64_t at = HEADER + images * ENTRY + 4; at < pixels_at(images); at++)
		if (h[at])
			return fail(e, EXIT_DATA, "%s: byte %llu: not zero between entries and pixels", p->path, (unsigned long long)at);
	return 0;
}

static int read_entries(struct dataset *d, const struct packed *p, struct error *e)
{
	for (size_t i = 0; i < d->count; i++) {
		const uint8_t *entry = p->entries + i * ENTRY;
		struct sample *s = &d->samples[i];
		memcpy(s->id, entry, PACKED_ID);
		s->patient = (uint32_t)get(entry + 16, 4);
		s->labels = (uint32_t)get(entry + 20, 2);
		s->known = (uint32_t)get(entry + 22, 2);
		if ((s->labels | s->known) >> FINDINGS || !s->id[0] || strpbrk(s->id, "\r\n") || !utf8_valid(s->id))
			return fail(e, EXIT_DATA, "%s: record %zu at byte %zu: labels %#x, known %#x, name \"%s\"", p->path, i, HEADER + i * ENTRY,
				    s->labels, s->known, s->id);
	}
	return 0;
}

int packed_open(struct dataset *d, const char *path, enum split split, size_t images, int side, uint64_t source_hash, struct error *e)
{
	struct packed *p = calloc(1, sizeof *p);

	if (!p)
		return fail(e, EXIT_INTERNAL, "no memory");
	d->state = p;
	d->close = close_packed;
	d->read = read_packed;
	d->fetch = fetch_piece;
	d->mapped = 1;
	if (path_join(p->path, e, "%s", path) || file_map(&p->file, path, e) || check_header(p, split, images, side, source_hash, e))
		return -e->code;
	p->entries = p->file.data + HEADER;
	p->pixels = p->file.data + pixels_at(images);
	d->count = images;
	d->samples = calloc(images + 1, sizeof *d->samples);
	p->verified = calloc(images + 1, sizeof *p->verified);
	if (!d->samples || !p->verified)
		return fail(e, EXIT_INTERNAL, "no memory for %zu samples", images);
	snprintf(d->describe, sizeof d->describe, "packed, mapped, %.1f MB", (double)p->file.size / 1e6);
	return read_entries(d, p, e) ? -e->code : make_pieces(d, e);
}

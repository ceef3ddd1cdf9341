/* SPDX-License-Identifier: Apache-2.0 */
#include "files/tfrecord.h"

#include <string.h>

#include "files/crc32c.h"

static uint32_t read_u32(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t read_u64(const uint8_t *p)
{
	return read_u32(p) | (uint64_t)read_u32(p + 4) << 32;
}

static void write_u32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

/* What a file that begins with no record may be. */
static const char *guess(const uint8_t *header, size_t offset)
{
	if (offset == 0 && memcmp(header, "\x1f\x8b", 2) == 0)
		return "gzip-compressed, as TensorFlow's option has it: unpack the file first";
	if (offset == 0 && memcmp(header, "version http", TFRECORD_HEADER) == 0)
		return "a Git LFS pointer: git lfs pull fetches the file";
	return "CRC mismatch in the record's length";
}

int tfrecord_at(const uint8_t *file, size_t size, size_t offset, struct tfrecord *record, struct error *why)
{
	if (offset == size)
		return 0;
	size_t left = size - offset;
	const uint8_t *p = file + offset;
	if (left < TFRECORD_HEADER)
		return fail(why, EXIT_DATA, "truncated in the record's header (want %d, have %zu bytes)", TFRECORD_HEADER, left);
	if (crc32c_mask(crc32c(0, p, 8)) != read_u32(p + 8))
		return fail(why, EXIT_DATA, "%s", guess(p, offset));
	uint64_t length = read_u64(p);
	if (length > TFRECORD_MAX)
		return fail(why, EXIT_DATA, "length of %llu bytes is beyond the limit of %d", (unsigned long long)length, TFRECORD_MAX);
	if (length + TFRECORD_FOOTER > left - TFRECORD_HEADER)
		return fail(why, EXIT_DATA, "truncated (want %llu, have %zu bytes)",
			    (unsigned long long)length + TFRECORD_HEADER + TFRECORD_FOOTER, left);
	p += TFRECORD_HEADER;
	if (crc32c_mask(crc32c(0, p, length)) != read_u32(p + length))
		return fail(why, EXIT_DATA, "CRC mismatch in the record's %llu bytes of data", (unsigned long long)length);
	*record = (struct tfrecord){ .data = p, .size = length, .next = offset + TFRECORD_HEADER + length + TFRECORD_FOOTER };
	return 1;
}

int tfrecord_create(struct tfrecord_writer *w, const char *path, struct error *e)
{
	w->records = 0;
	return output_open(&w->out, path, e);
}

int tfrecord_append(struct tfrecord_writer *w, const void *data, size_t size, struct error *e)
{
	uint8_t header[TFRECORD_HEADER], footer[TFRECORD_FOOTER];

	write_u32(header, (uint32_t)size);
	write_u32(header + 4, (uint32_t)((uint64_t)size >> 32));
	write_u32(header + 8, crc32c_mask(crc32c(0, header, 8)));
	write_u32(footer, crc32c_mask(crc32c(0, data, size)));
	if (output_write(&w->out, header, sizeof header, e) || output_write(&w->out, data, size, e) ||
	    output_write(&w->out, footer, sizeof footer, e))
		return -e->code;
	w->records++;
	return 0;
}

int tfrecord_commit(struct tfrecord_writer *w, struct error *e)
{
	return output_commit(&w->out, e);
}

void tfrecord_discard(struct tfrecord_writer *w)
{
	output_discard(&w->out);
}

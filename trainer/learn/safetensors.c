/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/crc32c.h"
#include "files/file.h"
#include "json.h"

static const struct {
	const char *name;
	size_t bytes;
} types[] = {
	[TENSOR_F64] = { "F64", 8 }, [TENSOR_F32] = { "F32", 4 }, [TENSOR_F16] = { "F16", 2 }, [TENSOR_BF16] = { "BF16", 2 },
	[TENSOR_I64] = { "I64", 8 }, [TENSOR_I32] = { "I32", 4 }, [TENSOR_U8] = { "U8", 1 },
};
enum { N_TYPES = sizeof types / sizeof types[0] };

static const uint64_t longest_header = 100000000; /* the limit of the reference implementation */
static const char checksum_note[] = "crc32c";      /* of every other note and of the data; eight hexadecimal digits */

struct safetensors {
	char *path;
	struct mapped_file file;
	cJSON *header;
	struct tensor *tensors; /* in the order of their data */
	int n;
};

size_t tensor_elements(const struct tensor *t)
{
	size_t n = 1;

	for (int i = 0; i < t->ndim; i++)
		n *= (size_t)t->shape[i];
	return n;
}

/* ---- writing ---------------------------------------------------------------------------------------- */

static uint32_t add_to_checksum(uint32_t crc, const char *key, const char *value)
{
	return crc32c(crc32c(crc, key, strlen(key) + 1), value, strlen(value) + 1);
}

static char *make_header(const struct tensor *tensors, int n, const struct tensor_note *notes, int n_notes)
{
	cJSON *root = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(root, "__metadata__");
	char checksum[9];
	uint32_t crc = 0;
	size_t at = 0;

	for (int i = 0; i < n_notes; i++) {
		cJSON_AddStringToObject(meta, notes[i].key, notes[i].value);
		crc = add_to_checksum(crc, notes[i].key, notes[i].value);
	}
	for (int i = 0; i < n; i++)
		crc = crc32c(crc, tensors[i].data, tensors[i].bytes);
	snprintf(checksum, sizeof checksum, "%08x", crc);
	cJSON_AddStringToObject(meta, checksum_note, checksum);
	for (int i = 0; i < n; i++) {
		cJSON *entry = cJSON_AddObjectToObject(root, tensors[i].name);
		cJSON *shape, *offsets;

		cJSON_AddStringToObject(entry, "dtype", types[tensors[i].type].name);
		shape = cJSON_AddArrayToObject(entry, "shape");
		for (int d = 0; d < tensors[i].ndim; d++)
			cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensors[i].shape[d]));
		offsets = cJSON_AddArrayToObject(entry, "data_offsets");
		cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)at));
		at += tensors[i].bytes;
		cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)at));
	}
	return json_finish(root, 0);
}

static int write_body(struct output_file *out, const char *header, const struct tensor *tensors, int n, struct error *e)
{
	size_t length = strlen(header), padding = (8 - length % 8) % 8;
	uint64_t padded = length + padding;

	if (output_write(out, &padded, 8, e) < 0 || output_write(out, header, length, e) < 0 || output_write(out, "        ", padding, e) < 0)
		return -e->code;
	for (int i = 0; i < n; i++)
		if (output_write(out, tensors[i].data, tensors[i].bytes, e) < 0)
			return -e->code;
	return output_commit(out, e);
}

int safetensors_write(const char *path, const struct tensor *tensors, int n, const struct tensor_note *notes, int n_notes, struct error *e)
{
	struct output_file out;
	char *header = make_header(tensors, n, notes, n_notes);

	if (!header)
		return fail(e, EXIT_INTERNAL, "%s: no memory for the header", path);
	if (output_open(&out, path, e) == 0) {
		if (write_body(&out, header, tensors, n, e) == 0)
			parent_sync(path, e);
		output_discard(&out);
	}
	cJSON_free(header);
	return e->code ? -e->code : 0;
}

/* ---- reading ---------------------------------------------------------------------------------------- */

/* A whole number of at most 2^53, which JSON's doubles carry exactly; -1: it is none. */
static int64_t whole_number(const cJSON *item)
{
	if (!cJSON_IsNumber(item) || item->valuedouble < 0 || item->valuedouble > 9007199254740992.0)
		return -1;
	int64_t v = (int64_t)item->valuedouble;
	return (double)v == item->valuedouble ? v : -1;
}

static int bad(const struct safetensors *f, const char *tensor, const char *what, struct error *e)
{
	return fail(e, EXIT_DATA, "%s: tensor %s: %s", f->path, tensor, what);
}

static int read_type(const struct safetensors *f, const char *name, struct tensor *t, struct error *e)
{
	for (int i = 0; i < N_TYPES; i++)
		if (strcmp(types[i].name, name) == 0) {
			t->type = (enum tensor_type)i;
			return 0;
		}
	return fail(e, EXIT_DATA, "%s: tensor %s: type %s is not supported", f->path, t->name, name);
}

static int read_shape(const struct safetensors *f, const cJSON *shape, struct tensor *t, struct error *e)
{
	const cJSON *d;
	uint64_t elements = 1;

	cJSON_ArrayForEach(d, shape) {
		int64_t size = whole_number(d);

		if (size < 0 || t->ndim == TENSOR_DIMS || (size && elements > (UINT64_C(1) << 50) / (uint64_t)size))
			return bad(f, t->name, "its shape is not usable", e);
		t->shape[t->ndim++] = size;
		elements *= (uint64_t)size;
	}
	t->bytes = elements * types[t->type].bytes;
	return 0;
}

static int read_entry(struct safetensors *f, const cJSON *entry, uint64_t data_begin, struct error *e)
{
	struct tensor *t = &f->tensors[f->n];
	const cJSON *type = cJSON_GetObjectItemCaseSensitive(entry, "dtype");
	const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape");
	const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");

	if (strlen(entry->string) >= sizeof t->name)
		return fail(e, EXIT_DATA, "%s: a tensor's name is longer than %zu characters: %.40s…", f->path, sizeof t->name - 1, entry->string);
	*t = (struct tensor){ 0 };
	strcpy(t->name, entry->string);
	if (!cJSON_IsString(type) || !cJSON_IsArray(shape) || !cJSON_IsArray(offsets) || cJSON_GetArraySize(entry) != 3 ||
	    cJSON_GetArraySize(offsets) != 2)
		return bad(f, t->name, "needs dtype, shape, data_offsets and nothing else", e);
	if (read_type(f, type->valuestring, t, e) || read_shape(f, shape, t, e))
		return -e->code;
	int64_t begin = whole_number(cJSON_GetArrayItem(offsets, 0)), end = whole_number(cJSON_GetArrayItem(offsets, 1));

	if (begin < 0 || end < begin || (uint64_t)end > f->file.size - data_begin)
		return bad(f, t->name, "its data_offsets lie outside the file: cut short, or damaged", e);
	if ((uint64_t)(end - begin) != t->bytes)
		return bad(f, t->name, "its data_offsets do not match its shape", e);
	t->data = (const char *)f->file.data + data_begin + begin;
	f->n++;
	return 0;
}

static int by_data(const void *a, const void *b)
{
	const struct tensor *x = a, *y = b;

	if (x->data != y->data)
		return x->data < y->data ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct tensor *const *)a)->name, (*(const struct tensor *const *)b)->name);
}

static int check_names(const struct safetensors *f, struct error *e)
{
	const struct tensor **names = malloc(((size_t)f->n + 1) * sizeof *names);
	int rc = 0;

	if (!names)
		return fail(e, EXIT_INTERNAL, "%s: no memory", f->path);
	for (int i = 0; i < f->n; i++)
		names[i] = &f->tensors[i];
	qsort(names, (size_t)f->n, sizeof *names, by_name);
	for (int i = 1; i < f->n && !rc; i++)
		if (strcmp(names[i - 1]->name, names[i]->name) == 0)
			rc = bad(f, names[i]->name, "comes twice", e);
	free(names);
	return rc;
}

static int check_cover(const struct safetensors *f, uint64_t data_begin, struct error *e)
{
	const char *at = (const char *)f->file.data + data_begin;

	for (int i = 0; i < f->n; i++) {
		if (f->tensors[i].data != at)
			return bad(f, f->tensors[i].name, f->tensors[i].data != at && (const char *)f->tensors[i].data < at ?
				   "overlaps the one before it" : "there is a hole before it", e);
		at += f->tensors[i].bytes;
	}
	if (at != (const char *)f->file.data + f->file.size)
		return fail(e, EXIT_DATA, "%s: %zu bytes after the last tensor", f->path, (size_t)((const char *)f->file.data + f->file.size - at));
	return 0;
}

static int check_notes(const struct safetensors *f, const cJSON *notes, struct error *e)
{
	const cJSON *note;

	if (!cJSON_IsObject(notes))
		return fail(e, EXIT_DATA, "%s: __metadata__ is not an object", f->path);
	cJSON_ArrayForEach(note, notes)
		if (!cJSON_IsString(note))
			return fail(e, EXIT_DATA, "%s: __metadata__: %s is not a string", f->path, note->string);
	return 0;
}

/* Files without the note (other programs') pass. */
static int check_sum(const struct safetensors *f, uint64_t data_begin, struct error *e)
{
	const char *noted = safetensors_note(f, checksum_note);
	const cJSON *note;
	char is[9];
	uint32_t crc = 0;

	if (!noted)
		return 0;
	cJSON_ArrayForEach(note, cJSON_GetObjectItemCaseSensitive(f->header, "__metadata__"))
		if (strcmp(note->string, checksum_note) != 0)
			crc = add_to_checksum(crc, note->string, note->valuestring);
	snprintf(is, sizeof is, "%08x", crc32c(crc, (const char *)f->file.data + data_begin, f->file.size - data_begin));
	if (strcmp(is, noted) != 0)
		return fail(e, EXIT_DATA, "%s: damaged, or saved again by another program: the CRC-32C of its notes and tensors is %s, not %s as it says (if it is right as it is, take \"%s\" out of its __metadata__)",
			    f->path, is, noted, checksum_note);
	return 0;
}

/* The length of what comes before every name, up to its first dot: of a model inside another one. 0: nothing does. */
static size_t common_part(const struct safetensors *f)
{
	const char *dot = f->n > 1 ? strchr(f->tensors[0].name, '.') : NULL;
	size_t length = dot ? (size_t)(dot + 1 - f->tensors[0].name) : 0;

	for (int i = 1; i < f->n; i++)
		if (strncmp(f->tensors[i].name, f->tensors[0].name, length) != 0)
			return 0;
	return length;
}

static void cut(char *at, size_t length)
{
	memmove(at, at + length, strlen(at + length) + 1);
}

/* A model may be inside others; early DenseNets of torchvision said ".norm.1."; a classifier with a sigmoid after it is the first of a sequence. */
static void modernise_names(struct safetensors *f)
{
	static const struct {
		const char *old;
		size_t at, length; /* what is left out of it */
	} spelled[] = { { ".norm.1.", 5, 1 }, { ".norm.2.", 5, 1 }, { ".conv.1.", 5, 1 }, { ".conv.2.", 5, 1 }, { "classifier.0.", 10, 2 } };
	size_t length;

	while ((length = common_part(f)) > 0)
		for (int i = 0; i < f->n; i++)
			cut(f->tensors[i].name, length);
	for (int i = 0; i < f->n; i++)
		for (size_t k = 0; k < sizeof spelled / sizeof spelled[0]; k++) {
			char *found = strstr(f->tensors[i].name, spelled[k].old);

			if (found)
				cut(found + spelled[k].at, spelled[k].length);
		}
}

static int read_header(struct safetensors *f, struct error *e)
{
	static const char pytorch[] = "a PyTorch file, not safetensors: in Python, safetensors.torch.save_file(model.state_dict(), NAME) writes one";
	static const struct {
		const char *begins, *is;
	} others[] = { { "PK\3\4", pytorch }, { "\x80\2", pytorch }, { "version ht", "a Git LFS pointer: git lfs pull fetches the file" },
		       { "<", "a web page, not safetensors: download it again" }, { "\x89HDF", "HDF5, as Keras writes, not safetensors" } };
	uint64_t length;
	const char *text = (const char *)f->file.data + 8, *end;
	const cJSON *entry;

	/* a header of 640 bytes, or so many times 65,536 more, has a pickle's first bytes */
	for (size_t i = 0; text[0] != '{' && i < sizeof others / sizeof others[0]; i++)
		if (memcmp(f->file.data, others[i].begins, strlen(others[i].begins)) == 0)
			return fail(e, EXIT_DATA, "%s: %s", f->path, others[i].is);
	memcpy(&length, f->file.data, 8);
	if (length <= longest_header && length > f->file.size - 8 && text[0] == '{')
		return fail(e, EXIT_DATA, "%s: cut short: it ends at byte %zu, within its header of %llu bytes", f->path, f->file.size, (unsigned long long)length);
	if (length > longest_header || length < 2 || text[0] != '{')
		return fail(e, EXIT_DATA, "%s: not a safetensors file (no header of %llu bytes at byte 8)", f->path, (unsigned long long)length);
	f->header = json_parse(text, length, 0, &end);
	if (!f->header && errno == ENOMEM)
		return fail(e, EXIT_INTERNAL, "%s: no memory for the header", f->path);
	if (!f->header)
		return fail(e, EXIT_DATA, "%s: the header is not JSON (byte %td)", f->path, end - text + 8);
	for (; end < text + length; end++)
		if (*end != ' ')
			return fail(e, EXIT_DATA, "%s: the header goes on after its JSON (byte %td)", f->path, end - text + 8);
	f->tensors = calloc((size_t)cJSON_GetArraySize(f->header) + 1, sizeof *f->tensors);
	if (!f->tensors)
		return fail(e, EXIT_INTERNAL, "%s: no memory", f->path);
	cJSON_ArrayForEach(entry, f->header) {
		int rc = strcmp(entry->string, "__metadata__") == 0 ? check_notes(f, entry, e) : read_entry(f, entry, 8 + length, e);

		if (rc)
			return rc;
	}
	qsort(f->tensors, (size_t)f->n, sizeof *f->tensors, by_data);
	modernise_names(f);
	return check_names(f, e) || check_cover(f, 8 + length, e) || check_sum(f, 8 + length, e) ? -e->code : 0;
}

int safetensors_open(struct safetensors **out, const char *path, struct error *e)
{
	struct safetensors *f = calloc(1, sizeof *f);

	*out = NULL;
	if (!f || !(f->path = strdup(path))) {
		free(f);
		return fail(e, EXIT_INTERNAL, "%s: no memory", path);
	}
	if (file_map(&f->file, path, e) == 0) {
		if (f->file.size < 10)
			fail(e, EXIT_DATA, "%s: not a safetensors file (%zu bytes)", path, f->file.size);
		else
			read_header(f, e);
	}
	if (e->code) {
		safetensors_close(f);
		return -e->code;
	}
	*out = f;
	return 0;
}

void safetensors_close(struct safetensors *f)
{
	if (!f)
		return;
	file_unmap(&f->file);
	cJSON_Delete(f->header);
	free(f->tensors);
	free(f->path);
	free(f);
}

int safetensors_count(const struct safetensors *f)
{
	return f->n;
}

const struct tensor *safetensors_at(const struct safetensors *f, int index)
{
	return &f->tensors[index];
}

const struct tensor *safetensors_find(const struct safetensors *f, const char *name)
{
	for (int i = 0; i < f->n; i++)
		if (strcmp(f->tensors[i].name, name) == 0)
			return &f->tensors[i];
	return NULL;
}

const char *safetensors_note(const struct safetensors *f, const char *key)
{
	const cJSON *notes = cJSON_GetObjectItemCaseSensitive(f->header, "__metadata__");

	return notes ? cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(notes, key)) : NULL;
}

/* ---- conversion ------------------------------------------------------------------------------------- */

static float from_bits(uint32_t bits)
{
	float v;

	memcpy(&v, &bits, 4);
	return v;
}

static float from_half(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;

	if (exponent == 31)
		return from_bits(sign | 0x7f800000 | mantissa << 13);
	if (exponent)
		return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
	float v = (float)mantissa / 16777216.0f; /* 2^-24 */
	return sign ? -v : v;
}

int tensor_to_float(const struct tensor *t, float *out)
{
	size_t n = tensor_elements(t);

	for (size_t i = 0; i < n; i++) {
		double wide;
		uint16_t narrow;

		switch (t->type) {
		case TENSOR_F64:
			memcpy(&wide, (const char *)t->data + 8 * i, 8);
			out[i] = (float)wide;
			break;
		case TENSOR_F32:
			memcpy(&out[i], (const char *)t->data + 4 * i, 4);
			break;
		case TENSOR_F16:
			memcpy(&narrow, (const char *)t->data + 2 * i, 2);
			out[i] = from_half(narrow);
			break;
		case TENSOR_BF16:
			memcpy(&narrow, (const char *)t->data + 2 * i, 2);
			out[i] = from_bits((uint32_t)narrow << 16);
			break;
		default:
			return -1;
		}
	}
	return 0;
}

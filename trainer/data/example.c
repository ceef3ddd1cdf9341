/* SPDX-License-Identifier: Apache-2.0 */
#include "data/example.h"

#include <stdlib.h>
#include <string.h>

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum kind { KIND_BYTES = 1, KIND_INT64 = 3 }; /* field of Feature */

struct cursor {
	const uint8_t *p, *end;
};

static struct cursor cursor_of(struct span s)
{
	return (struct cursor){ s.data, s.data + s.size };
}

static int read_varint(struct cursor *c, uint64_t *value, struct error *why)
{
	*value = 0;
	for (int shift = 0; shift < 64; shift += 7) {
		if (c->p == c->end)
			return fail(why, EXIT_DATA, "protobuf: number cut off");
		uint8_t byte = *c->p++;
		*value |= (uint64_t)(byte & 127) << shift;
		if (byte < 128)
			return 0;
	}
	return fail(why, EXIT_DATA, "protobuf: number longer than 10 bytes");
}

static int read_span(struct cursor *c, struct span *out, struct error *why)
{
	uint64_t length;

	if (read_varint(c, &length, why))
		return -EXIT_DATA;
	if (length > (uint64_t)(c->end - c->p))
		return fail(why, EXIT_DATA, "protobuf: a field of %llu bytes in a message with %zu left",
			    (unsigned long long)length, (size_t)(c->end - c->p));
	*out = (struct span){ c->p, length };
	c->p += length;
	return 0;
}

/* 1: a field; its value is a span for WIRE_BYTES, else *number. 0: end of the message. */
static int next_field(struct cursor *c, int *field, enum wire *wire, struct span *bytes, uint64_t *number, struct error *why)
{
	uint64_t tag;

	if (c->p == c->end)
		return 0;
	if (read_varint(c, &tag, why))
		return -EXIT_DATA;
	if (tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF)
		return fail(why, EXIT_DATA, "protobuf: no field has number %llu", (unsigned long long)(tag >> 3));
	*field = (int)(tag >> 3);
	*wire = (enum wire)(tag & 7);
	*bytes = (struct span){ 0 };
	*number = 0;
	int rc = 0;
	size_t fixed = *wire == WIRE_64 ? 8 : 4;
	switch (*wire) {
	case WIRE_VARINT:
		rc = read_varint(c, number, why);
		break;
	case WIRE_BYTES:
		rc = read_span(c, bytes, why);
		break;
	case WIRE_64:
	case WIRE_32:
		if ((size_t)(c->end - c->p) < fixed)
			return fail(why, EXIT_DATA, "protobuf: fixed-size number cut off");
		c->p += fixed;
		break;
	default:
		return fail(why, EXIT_DATA, "protobuf: wire type %d is not one", (int)*wire);
	}
	return rc ? rc : 1;
}

/* The only embedded message with this field number; others are passed over. *found.data stays NULL when there is none. */
static int only_message(struct span message, int wanted, const char *what, struct span *found, struct error *why)
{
	struct cursor c = cursor_of(message);
	struct span bytes;
	uint64_t number;
	enum wire wire = WIRE_BYTES;
	int field = 0, rc;

	*found = (struct span){ 0 };
	while ((rc = next_field(&c, &field, &wire, &bytes, &number, why)) > 0) {
		if (field != wanted)
			continue;
		if (wire != WIRE_BYTES)
			return fail(why, EXIT_DATA, "protobuf: %s has wire type %d, not a message", what, (int)wire);
		if (found->data)
			return fail(why, EXIT_DATA, "protobuf: %s comes twice", what);
		*found = bytes;
	}
	return rc;
}

/* All values of a BytesList; at most `room`. Returns their number. */
static int bytes_values(struct span list, struct span *values, int room, const char *key, struct error *why)
{
	struct cursor c = cursor_of(list);
	struct span bytes;
	uint64_t number;
	enum wire wire;
	int field, rc, n = 0;

	while ((rc = next_field(&c, &field, &wire, &bytes, &number, why)) > 0) {
		if (field != 1 || wire != WIRE_BYTES)
			return fail(why, EXIT_DATA, "%s: not a list of bytes", key);
		if (n == room)
			return fail(why, EXIT_DATA, "%s: more than %d values", key, room);
		values[n++] = bytes;
	}
	return rc ? rc : n;
}

/* All values of an Int64List, packed or one by one. */
static int int_values(struct span list, int64_t *values, int room, const char *key, struct error *why)
{
	struct cursor c = cursor_of(list);
	struct span bytes;
	uint64_t number;
	enum wire wire;
	int field, rc, n = 0;

	while ((rc = next_field(&c, &field, &wire, &bytes, &number, why)) > 0) {
		if (field != 1 || (wire != WIRE_BYTES && wire != WIRE_VARINT))
			return fail(why, EXIT_DATA, "%s: not a list of integers", key);
		struct cursor packed = wire == WIRE_BYTES ? cursor_of(bytes) : (struct cursor){ 0 };
		do {
			if (wire == WIRE_BYTES && packed.p == packed.end)
				break;
			if (wire == WIRE_BYTES && read_varint(&packed, &number, why))
				return -EXIT_DATA;
			if (n == room)
				return fail(why, EXIT_DATA, "%s: more than %d values", key, room);
			values[n++] = (int64_t)number;
		} while (wire == WIRE_BYTES);
	}
	return rc ? rc : n;
}

/* The keys this program reads: where they go in struct example. */
static const struct key {
	const char *name;
	enum kind kind;
	int room;              /* values */
	size_t values, number; /* offsets; number: of the count, 0 for exactly one value */
} keys[] = {
	{ "image/encoded", KIND_BYTES, 1, offsetof(struct example, encoded), 0 },
	{ "image/filename", KIND_BYTES, 1, offsetof(struct example, filename), 0 },
	{ "image/format", KIND_BYTES, 1, offsetof(struct example, format), 0 },
	{ "image/height", KIND_INT64, 1, offsetof(struct example, height), 0 },
	{ "image/width", KIND_INT64, 1, offsetof(struct example, width), 0 },
	{ "image/label", KIND_INT64, FINDINGS, offsetof(struct example, label), offsetof(struct example, n_label) },
	{ "label/known", KIND_INT64, FINDINGS, offsetof(struct example, known), offsetof(struct example, n_known) },
	{ "label/names", KIND_BYTES, FINDINGS, offsetof(struct example, name), offsetof(struct example, n_name) },
	{ "patient/id", KIND_INT64, 1, offsetof(struct example, patient), 0 },
};
enum { KEYS = sizeof keys / sizeof keys[0] };

static int key_index(struct span name)
{
	for (int k = 0; k < KEYS; k++)
		if (strlen(keys[k].name) == name.size && memcmp(keys[k].name, name.data, name.size) == 0)
			return k;
	return -1;
}

static int read_feature(const struct key *key, struct span feature, struct example *x, struct error *why)
{
	struct span list;
	int n;

	if (only_message(feature, key->kind, key->name, &list, why))
		return -EXIT_DATA;
	if (!list.data)
		return fail(why, EXIT_DATA, "%s: holds no %s%s", key->name, key->kind == KIND_BYTES ? "bytes" : "integers",
			    key->values == offsetof(struct example, patient) ? ": " PATIENT_WANTED : "");
	if (key->kind == KIND_BYTES)
		n = bytes_values(list, (struct span *)((char *)x + key->values), key->room, key->name, why);
	else
		n = int_values(list, (int64_t *)((char *)x + key->values), key->room, key->name, why);
	if (n < 0)
		return n;
	if (n != key->room)
		return fail(why, EXIT_DATA, "%s: %d value%s, not %d", key->name, n, n == 1 ? "" : "s", key->room);
	if (key->number)
		*(int *)((char *)x + key->number) = n;
	return 0;
}

/* One entry of the map: {1: key, 2: Feature}. */
static int read_entry(struct span entry, struct example *x, unsigned *seen, struct error *why)
{
	struct span name, feature;

	if (only_message(entry, 1, "a feature's key", &name, why) || only_message(entry, 2, "a feature's value", &feature, why))
		return -EXIT_DATA;
	if (!name.data)
		return fail(why, EXIT_DATA, "protobuf: a feature without a key");
	int k = key_index(name);
	if (k < 0)
		return 0;
	if (*seen & 1u << k)
		return fail(why, EXIT_DATA, "%s: comes twice", keys[k].name);
	*seen |= 1u << k;
	if (!feature.data)
		return fail(why, EXIT_DATA, "%s: has no value", keys[k].name);
	return read_feature(&keys[k], feature, x, why);
}

int example_parse(const uint8_t *data, size_t size, struct example *x, struct error *why)
{
	static const char *const needed[] = { "image/encoded", "image/label", "image/filename" };
	struct span features, bytes;
	uint64_t number;
	enum wire wire;
	int field, rc;
	unsigned seen = 0;

	*x = (struct example){ .height = -1, .width = -1, .patient = -1 };
	if (only_message((struct span){ data, size }, 1, "features", &features, why))
		return -EXIT_DATA;
	if (!features.data)
		return fail(why, EXIT_DATA, "not a tf.train.Example with features");
	struct cursor c = cursor_of(features);
	while ((rc = next_field(&c, &field, &wire, &bytes, &number, why)) > 0)
		if (field == 1) {
			if (wire != WIRE_BYTES)
				return fail(why, EXIT_DATA, "protobuf: a feature has wire type %d, not a message", (int)wire);
			if (read_entry(bytes, x, &seen, why))
				return -EXIT_DATA;
		}
	if (rc)
		return rc;
	for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
		if (!(seen & 1u << key_index((struct span){ (const uint8_t *)needed[i], strlen(needed[i]) })))
			return fail(why, EXIT_DATA, "%s: is not there", needed[i]);
	return 0;
}

int example_labels(const struct example *x, const int order[FINDINGS], uint32_t *labels, uint32_t *known, struct error *why)
{
	uint32_t named = 0;

	*labels = *known = 0;
	for (int i = 0; i < FINDINGS; i++) {
		int f = order ? order[i] : i;
		if (x->n_name) {
			int length = x->name[i].size < 64 ? (int)x->name[i].size : 64;
			f = finding_index((const char *)x->name[i].data, length);
			if (f < 0 || named & 1u << f)
				return fail(why, EXIT_DATA, "label/names: \"%.*s\" is %s", length, (const char *)x->name[i].data,
					    f < 0 ? "not a finding" : "there twice");
			named |= 1u << f;
		}
		if (x->label[i] != 0 && x->label[i] != 1)
			return fail(why, EXIT_DATA, "image/label: value %d is %lld, not 0 or 1%s", i, (long long)x->label[i],
				    x->label[i] == -1 ? ": one that is uncertain or not known is 0, and so is its label/known, or --mask=file:PATH names it" : "");
		if (x->n_known && x->known[i] != 0 && x->known[i] != 1)
			return fail(why, EXIT_DATA, "label/known: value %d is %lld, not 0 or 1", i, (long long)x->known[i]);
		*labels |= (uint32_t)x->label[i] << f;
		*known |= (uint32_t)(x->n_known ? x->known[i] : 1) << f;
	}
	return 0;
}

int bytes_append(struct bytes *b, const void *data, size_t size)
{
	if (b->room - b->size < size) {
		size_t room = (b->size + size) * 2 + 256;
		uint8_t *grown = realloc(b->data, room);
		if (!grown)
			return -1;
		b->data = grown;
		b->room = room;
	}
	if (size)
		memcpy(b->data + b->size, data, size);
	b->size += size;
	return 0;
}

enum { VARINT_MAX = 10, LABELS_MAX = FINDINGS * VARINT_MAX };

static size_t put_varint(uint8_t out[VARINT_MAX], uint64_t value)
{
	size_t n = 0;

	for (; value > 127; value >>= 7)
		out[n++] = (uint8_t)(value | 128);
	out[n++] = (uint8_t)value;
	return n;
}

static size_t varint_size(uint64_t value)
{
	uint8_t unused[VARINT_MAX];
	return put_varint(unused, value);
}

/* Bytes that tag, length and content of an embedded message or string take. */
static size_t message_size(size_t content)
{
	return 1 + varint_size(content) + content;
}

static int put_head(struct bytes *out, int field, size_t content)
{
	uint8_t head[1 + VARINT_MAX] = { (uint8_t)(field << 3 | WIRE_BYTES) };
	return bytes_append(out, head, 1 + put_varint(head + 1, content));
}

/* A map entry up to the content of its list. */
static int put_entry(struct bytes *out, const char *key, enum kind kind, size_t list)
{
	size_t feature = message_size(list);

	return put_head(out, 1, message_size(strlen(key)) + message_size(feature)) || put_head(out, 1, strlen(key)) ||
	       bytes_append(out, key, strlen(key)) || put_head(out, 2, feature) || put_head(out, kind, list);
}

static int put_bytes(struct bytes *out, const char *key, const struct span *values, int n)
{
	size_t list = 0;

	for (int i = 0; i < n; i++)
		list += message_size(values[i].size);
	int rc = put_entry(out, key, KIND_BYTES, list);
	for (int i = 0; i < n; i++)
		rc = rc || put_head(out, 1, values[i].size) || bytes_append(out, values[i].data, values[i].size);
	return rc;
}

static int put_ints(struct bytes *out, const char *key, const int64_t *values, int n)
{
	uint8_t packed[LABELS_MAX];
	size_t size = 0;

	for (int i = 0; i < n; i++)
		size += put_varint(packed + size, (uint64_t)values[i]);
	return put_entry(out, key, KIND_INT64, message_size(size)) || put_head(out, 1, size) || bytes_append(out, packed, size);
}

static int put_features(struct bytes *out, const struct example *x)
{
	for (int k = 0; k < KEYS; k++) {
		const void *values = (const char *)x + keys[k].values;
		int n = keys[k].number ? *(const int *)((const char *)x + keys[k].number) : 1;
		if (keys[k].kind == KIND_BYTES) {
			const struct span *spans = values;
			if (n && spans[0].data && put_bytes(out, keys[k].name, spans, n))
				return -1;
		} else {
			const int64_t *ints = values;
			if (n && ints[0] >= 0 && put_ints(out, keys[k].name, ints, n))
				return -1;
		}
	}
	return 0;
}

int example_write(struct bytes *out, const struct example *x)
{
	struct bytes features = { 0 };

	out->size = 0;
	int rc = put_features(&features, x) || put_head(out, 1, features.size) || bytes_append(out, features.data, features.size);
	free(features.data);
	return rc ? -1 : 0;
}

/* SPDX-License-Identifier: Apache-2.0
 * tf.train.Example as bytes: a parser that copies nothing and a writer. The wire format is protobuf's
 * (protobuf.dev/programming-guides/encoding): Example{1: Features{1: map<string, Feature{1: BytesList | 2: FloatList | 3: Int64List}>}}. */
#ifndef DATA_EXAMPLE_H
#define DATA_EXAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "data/findings.h"
#include "error.h"

struct span {
	const uint8_t *data; /* NULL: absent */
	size_t size;
};

#define PATIENT_WANTED "a patient's number is wanted, one int64 from 0 to 4294967295" /* for errors about patient/id */

/* What this program knows of an Example; spans point into the parsed bytes. */
struct example {
	struct span encoded;           /* image/encoded: a PNG or JPEG file */
	struct span filename;          /* image/filename */
	struct span format;            /* image/format: "png" or "jpeg" */
	int64_t label[FINDINGS];       /* image/label: 0 or 1 */
	int64_t known[FINDINGS];       /* label/known: 0 or 1 */
	struct span name[FINDINGS];    /* label/names: what each label stands for */
	int n_label, n_known, n_name;  /* 0: absent */
	int64_t height, width;         /* image/height, image/width; -1: absent */
	int64_t patient;               /* patient/id; -1: absent */
};

/* Parses `size` bytes. Unknown keys are passed over, known ones must have their type and number of values and come once;
 * image/encoded, image/label and image/filename must be there. -EXIT_DATA: the reason alone is in *why. */
int example_parse(const uint8_t *data, size_t size, struct example *x, struct error *why);

/* Labels as bits in this program's order: by label/names where present, else position i is finding order[i]
 * (NULL: i). Labels other than 0 and 1 are refused. */
int example_labels(const struct example *x, const int order[FINDINGS], uint32_t *labels, uint32_t *known, struct error *why);

/* Growing memory for writers; free(data) in the end. */
struct bytes {
	uint8_t *data;
	size_t size, room;
};
int bytes_append(struct bytes *b, const void *data, size_t size);

/* Serialises *x over the old content of *out; absent fields are left out. -1: no memory. */
int example_write(struct bytes *out, const struct example *x);

#endif

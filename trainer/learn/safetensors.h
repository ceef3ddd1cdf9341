/* SPDX-License-Identifier: Apache-2.0
 * safetensors files: 8 bytes of header length, a JSON header, the tensors without holes.
 * https://github.com/huggingface/safetensors#format */
#ifndef LEARN_SAFETENSORS_H
#define LEARN_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

enum { TENSOR_DIMS = 8 };

enum tensor_type { TENSOR_F64, TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_I64, TENSOR_I32, TENSOR_U8 };

struct tensor {
	char name[160];
	enum tensor_type type;
	int ndim;
	int64_t shape[TENSOR_DIMS];
	const void *data; /* little-endian */
	size_t bytes;     /* of data; the reader has checked it against type and shape */
};

struct tensor_note {
	const char *key, *value; /* an entry of __metadata__ */
};

/* Writes PATH under a temporary name, syncs it, renames it, syncs the directory: a reader sees the old
 * file or the new one, and a failure leaves nothing behind. A note "crc32c" is added: of the other notes and the data. */
int safetensors_write(const char *path, const struct tensor *tensors, int n, const struct tensor_note *notes, int n_notes, struct error *e);

struct safetensors;

/* Maps a file and checks all of it: length, header, types, shapes, that the tensors cover the data once and without holes,
 * that no name comes twice, and the checksum where one is noted. EXIT_DATA names what is wrong. What comes before every name up to
 * a dot ("module." of DistributedDataParallel, "_orig_mod." of torch.compile, "densenet121." of a model inside another one) is left out,
 * and torchvision's old names (norm.1) and those of a classifier with a sigmoid after it (classifier.0) are today's. */
int safetensors_open(struct safetensors **f, const char *path, struct error *e);
void safetensors_close(struct safetensors *f);

int safetensors_count(const struct safetensors *f);
const struct tensor *safetensors_at(const struct safetensors *f, int index);
const struct tensor *safetensors_find(const struct safetensors *f, const char *name); /* NULL: none */
const char *safetensors_note(const struct safetensors *f, const char *key);           /* NULL: none */

size_t tensor_elements(const struct tensor *t);
/* Elements as fp32; F64, F16 and BF16 are converted. -1 for integer types. */
int tensor_to_float(const struct tensor *t, float *out);

#endif

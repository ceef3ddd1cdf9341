/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=dataset_read: an image that was sound when training began cannot be read any more. */
#include "data/dataset.h"

enum { BAD_INDEX = 17 };

int __real_dataset_read(const struct dataset *d, size_t index, struct dataset_scratch *s, uint8_t *pixels, struct error *e);
int __wrap_dataset_read(const struct dataset *d, size_t index, struct dataset_scratch *s, uint8_t *pixels, struct error *e);

int __wrap_dataset_read(const struct dataset *d, size_t index, struct dataset_scratch *s, uint8_t *pixels, struct error *e)
{
	if (index == BAD_INDEX)
		return fail(e, EXIT_DATA, "train-00000: record 17 at byte 90112: CRC mismatch");
	return __real_dataset_read(d, index, s, pixels, e);
}

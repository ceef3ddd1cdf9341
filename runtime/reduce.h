/* SPDX-License-Identifier: Apache-2.0
 * Element-wise arithmetic of the CPU back end. Sums of f16 and bf16 run in f32 and are rounded once, at the end. */
#ifndef HVD_RUNTIME_REDUCE_H
#define HVD_RUNTIME_REDUCE_H

#include "hvd.h"

struct arithmetic {
	const char *name;   /* of the type */
	size_t size;        /* of an element */
	size_t running;     /* of an element of a running result */
	void (*load)(void *running, const void *element, size_t n);
	void (*fold)(void *running, const void *element, size_t n);
	/* divisor 1 unless the operation is HVD_AVG */
	void (*store)(void *element, const void *running, size_t n, int divisor);
};

/* narrow: running results of bf16 are bf16 themselves, rounded after every rank, so that they take 2 bytes on the way. */
const struct arithmetic *arithmetic(enum hvd_type type, enum hvd_op op, int narrow);
size_t type_size(enum hvd_type type);
const char *type_name(enum hvd_type type);

#endif

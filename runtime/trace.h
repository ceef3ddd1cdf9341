/* SPDX-License-Identifier: Apache-2.0
 * The trace of a rank: records of fixed size in a mapped file, which stays readable whatever ends the process. */
#ifndef HVD_RUNTIME_TRACE_H
#define HVD_RUNTIME_TRACE_H

#include <stdatomic.h>
#include <stdint.h>

#define TRACE_MAGIC "hvdtrc2"
#define TRACE_RECORDS (1u << 18) /* the last ones are kept */
#define TRACE_NAMES 64
#define TRACE_NAME_BYTES 32

enum trace_kind {
	TRACE_NONE,
	TRACE_READY,      /* a moment: the bucket's last gradient is there */
	TRACE_BUCKET,     /* its all-reduce, on the communication thread */
	TRACE_WAIT,       /* hvd_plan_finish(): communication that is not hidden */
	TRACE_COLLECTIVE, /* any other; index: enum op_kind, and OP_KINDS more where the program goes on meanwhile */
	TRACE_MARK,       /* the program's own; index: number of the name */
};

struct trace_record {
	uint64_t begin, end; /* nanoseconds of this node's monotonic clock */
	uint32_t step, index;
	uint32_t kind, bytes; /* bytes: 4 GiB and more are shown as 4 GiB - 1 */
};

struct trace_file {
	char magic[8], host[64];
	uint8_t world[16]; /* one for all its ranks, and another for every world */
	uint32_t rank, size;
	int64_t offset;  /* nanoseconds to add for rank 0's clock … */
	int64_t within;  /* … which is true within this */
	_Atomic uint64_t written; /* records so far */
	_Atomic uint32_t names;
	char name[TRACE_NAMES][TRACE_NAME_BYTES];
	struct trace_record record[TRACE_RECORDS];
};

struct hvd;

/* Collective. Without conf.trace nothing happens, and trace_add() costs a comparison. */
int trace_open(struct hvd *h);
void trace_close(struct hvd *h);
void trace_add(struct hvd *h, enum trace_kind kind, double begin, double end, uint32_t step, uint32_t index, uint64_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Messages on an authenticated link between two ranks: a fixed header, then the payload. */
#ifndef HVD_RUNTIME_WIRE_H
#define HVD_RUNTIME_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_PAYLOAD_MAX (8u << 20)

enum wire_kind {
	WIRE_DATA = 1,  /* for mesh_receive(), by tag */
	WIRE_BEAT = 2,  /* the sender lives; payload: struct activity */
	WIRE_FAULT = 3, /* the sender gives up, or names a lost rank */
	WIRE_BYE = 4,   /* the sender closes its handle: the end of the link that follows is no death */
};

struct wire_header {
	uint64_t tag;
	uint32_t bytes;
	uint16_t kind, carries_fd;
};

struct wire_reader {
	struct wire_header header;
	size_t have;      /* bytes of the message so far, header included */
	size_t room;      /* of payload, which serves one message after the other until it is given away */
	uint8_t *payload;
};

/* Takes up to n bytes. Returns how many were used, or -1 if they are no message of ours (or memory is out).
 * *complete: reader->header and reader->payload hold a message; wire_next() must be called before more bytes. */
long wire_take(struct wire_reader *reader, const void *bytes, size_t n, bool *complete);
/* Gives the payload to the caller (may be NULL when empty) and starts the next message. */
uint8_t *wire_next(struct wire_reader *reader);
/* Starts the next message. */
void wire_skip(struct wire_reader *reader);

#endif

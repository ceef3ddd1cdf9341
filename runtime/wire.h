/* SPDX-License-Identifier: Apache-2.0
 * Messages on an authenticated link between two ranks: a fixed header, with which a descriptor may come, then the payload. */
#ifndef HVD_RUNTIME_WIRE_H
#define HVD_RUNTIME_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_PAYLOAD_MAX (8u << 20)

enum wire_kind {
	WIRE_DATA = 1,  /* for mesh_receive(), by tag; what: the call that the sender is in */
	WIRE_BEAT = 2,  /* the sender lives; payload: struct activity */
	WIRE_FAULT = 3, /* the sender gives up, or names a lost rank */
	WIRE_BYE = 4,   /* the sender closes its handle: the end of the link that follows is no death */
};

struct wire_header {
	uint64_t tag;
	uint16_t kind, what; /* enum doing */
	uint32_t bytes;
};

struct wire_reader {
	struct wire_header header;
	size_t have;      /* bytes of the message so far, header included */
	size_t room;      /* of payload, which serves one message after the other until it is given away */
	uint8_t *payload;
	int fd;           /* that came with the message; -1: none */
};

/* Reads what has come at `from`, into place, up to the end of one message. 1: reader->header, payload and fd hold a message, after which
 * wire_next() or wire_skip() must be called; 0: it is not all there yet. -1: the end (errno 0), no message of ours (EPROTO; what follows is read as another),
 * or an error. */
int wire_read(struct wire_reader *reader, int from);
/* Gives payload (may be NULL when empty) and fd to the caller and starts the next message. */
uint8_t *wire_next(struct wire_reader *reader);
/* Starts the next message. */
void wire_skip(struct wire_reader *reader);
void wire_free(struct wire_reader *reader);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

static bool plausible(const struct wire_header *h)
{
	return h->kind >= WIRE_DATA && h->kind <= WIRE_BYE && h->bytes <= WIRE_PAYLOAD_MAX && h->carries_fd <= 1;
}

long wire_take(struct wire_reader *r, const void *bytes, size_t n, bool *complete)
{
	const uint8_t *p = bytes;
	size_t used = 0;
	*complete = false;
	if (r->have < sizeof r->header) {
		used = sizeof r->header - r->have < n ? sizeof r->header - r->have : n;
		memcpy((uint8_t *)&r->header + r->have, p, used);
		r->have += used;
		if (r->have < sizeof r->header)
			return (long)used;
		if (!plausible(&r->header))
			return -1;
		if (r->header.bytes > r->room) {
			free(r->payload);
			r->payload = malloc(r->header.bytes);
			r->room = r->payload ? r->header.bytes : 0;
			if (!r->payload)
				return -1;
		}
	}
	size_t got = r->have - sizeof r->header, left = r->header.bytes - got;
	size_t take = n - used < left ? n - used : left;
	if (take)
		memcpy(r->payload + got, p + used, take);
	r->have += take;
	*complete = take == left;
	return (long)(used + take);
}

uint8_t *wire_next(struct wire_reader *r)
{
	uint8_t *payload = r->payload;
	*r = (struct wire_reader){ .room = 0 };
	return payload;
}

void wire_skip(struct wire_reader *r)
{
	r->have = 0;
}

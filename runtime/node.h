/* SPDX-License-Identifier: Apache-2.0
 * The ranks of a node ask their first one for rank 0's card, so that one rank a node talks PMIx: loading and connecting to PMIx is most
 * of what a start costs. A socket with an abstract name, which the job step and the node give; only processes of the same user are
 * believed. It is a shortcut: whoever gets no answer in time asks PMIx itself. */
#ifndef HVD_RUNTIME_NODE_H
#define HVD_RUNTIME_NODE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CARD_BYTES_MAX 512

struct node {
	char name[108]; /* of the socket; empty: there is no such socket in this step */
	int listener;   /* the first rank's; -1: none */
	bool serving;
	pthread_t server;
	pthread_mutex_t lock;
	uint8_t card[CARD_BYTES_MAX];
	size_t bytes;
};

/* The first rank: others can ask from now on, and are answered once there is a card. Where the name is taken they find nobody, or
 * somebody else, and ask PMIx. */
void node_listen(struct node *n);
/* The first rank: the card to hand out from now on. */
void node_serve(struct node *n, const void *card, size_t bytes);
/* The others: false, and anything in card, if nobody of this user gives a card of that size until then. */
bool node_ask(const struct node *n, void *card, size_t bytes, double until);
void node_close(struct node *n);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Dell's "old approach" and "new approach" as sequence.h runs them: files read front to back, threads that hand
 * items on, a shuffle buffer of 500. */
#ifndef DATA_SEQUENCE_ARTICLE_H
#define DATA_SEQUENCE_ARTICLE_H

#include "data/manifest.h"
#include "data/sequence.h"

struct article;

/* *conf is SEQUENCE_OLD's or SEQUENCE_NEW's, *m its directory's manifest. */
int article_open(struct article **a, const struct sequence_conf *conf, const struct manifest *m, struct error *e);
int article_next(struct article *a, struct sequence_batch *b, struct error *e); /* as sequence_next() */
uint64_t article_decoded(const struct article *a);
void article_close(struct article *a);

#endif

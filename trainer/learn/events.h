/* SPDX-License-Identifier: Apache-2.0
 * TensorBoard's event files: DIR/events.out.tfevents.TIME.HOST.PID, TFRecords of tensorflow.Event messages (event.proto, summary.proto).
 * Every record goes to the file at once, so that a running training can be watched. One writer a process; not thread-safe. */
#ifndef LEARN_EVENTS_H
#define LEARN_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

enum { PR_THRESHOLDS = 201 }; /* what TensorBoard's own writer uses */

struct events;

/* Makes DIRECTORY where it is missing, and a new file in it with the version record that TensorBoard expects first. After an error neither is
 * left. */
int events_open(struct events **events, const char *directory, struct error *e);
void events_close(struct events *events);
/* Brings to disk what was appended; EXIT_INTERNAL where that fails, as a full file server may say no sooner. */
int events_sync(struct events *events, struct error *e);
/* Closes it and removes the file, and the directory that was made for it, where it is empty. */
void events_discard(struct events *events);
const char *events_path(const struct events *events);

/* Seconds since 1970 that the following records carry: what happened before, as a log tells it. 0: the time of now, as at first. */
void events_at(struct events *events, double time);

/* Each appends one record; tag: "loss/train". EXIT_INTERNAL when the file cannot be written. */
int events_scalar(struct events *events, const char *tag, int64_t step, float value, struct error *e);

/* A precision-recall curve of n images from logits, for the pr_curves plugin: counts at PR_THRESHOLDS probabilities from 0 to 1. */
int events_pr_curve(struct events *events, const char *tag, int64_t step, const float *logits, const uint8_t *positive, size_t n,
		    struct error *e);

/* A PNG or JPEG file of colour channels 1 (gray) or 3 (RGB). */
int events_image(struct events *events, const char *tag, int64_t step, const void *encoded, size_t size, int width, int height,
		 int channels, struct error *e);

#endif

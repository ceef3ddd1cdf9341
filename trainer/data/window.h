/* SPDX-License-Identifier: Apache-2.0
 * Shuffle windows, for storage that is slow at single records: an epoch's files come in a keyed order, a few at a time make a
 * window, and the images of a window come in a keyed order of their own. A window's files are read front to back before its
 * first image is wanted, one window ahead. Like the permutation of all images (data/order.h) the order depends on the seed,
 * the window's size and the files alone: not on ranks, threads or restarts. */
#ifndef DATA_WINDOW_H
#define DATA_WINDOW_H

#include "data/dataset.h"

struct windows;
struct window_cursor;

/* Windows of `files` files; a thread begins to read the one that holds `position`. d stays the caller's. */
int windows_open(struct windows **w, const struct dataset *d, uint64_t seed, int files, uint64_t position, struct error *e);

/* Nobody waits any more; before the threads that use it are joined. */
void windows_stop(struct windows *w);
void windows_close(struct windows *w);

/* What a thread remembers of the epoch it is in. NULL: no memory. */
struct window_cursor *window_cursor_new(const struct windows *w);
void window_cursor_free(struct window_cursor *c);

/* The sample at a position, and the number of its window, counted from the start of the stream. Nothing is read. */
uint64_t window_sample(const struct windows *w, struct window_cursor *c, uint64_t position, uint64_t *window);

/* Waits until a window's files have been read. Windows before it may then be given up: positions only rise. Errors of the reading
 * name the file. */
int windows_wait(struct windows *w, uint64_t window, struct error *e);

/* Of a data set's files and the images in each: an order of windows is the same only where this is. */
uint64_t window_layout(const struct dataset *d);

#endif

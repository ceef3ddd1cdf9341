/* SPDX-License-Identifier: Apache-2.0
 * Linked into a copy of chexnet with --wrap=synth_draw: the first built-in X-rays come like images from a slow disk, whatever the processor. */
#include <stdatomic.h>
#include <time.h>

#include "data/synth.h"

enum { SLOW = 64 };

void __real_synth_draw(const struct synth_conf *conf, const struct synth_case *c, float *work, uint8_t *pixels, struct synth_box *boxes, int *n_boxes);
void __wrap_synth_draw(const struct synth_conf *conf, const struct synth_case *c, float *work, uint8_t *pixels, struct synth_box *boxes, int *n_boxes);

void __wrap_synth_draw(const struct synth_conf *conf, const struct synth_case *c, float *work, uint8_t *pixels, struct synth_box *boxes, int *n_boxes)
{
	static atomic_int drawn;
	if (atomic_fetch_add(&drawn, 1) < SLOW)
		nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
	__real_synth_draw(conf, c, work, pixels, boxes, n_boxes);
}

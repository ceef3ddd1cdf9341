/* SPDX-License-Identifier: Apache-2.0
 * --resident: the training split is decoded once and stays in the GPU's memory; steps name its images by number. */
#include "commands/train.h"

#include <omp.h>
#include <stdlib.h>

#include "clock.h"
#include "commands/train_resident.h"

enum { CHUNK = 2048 }; /* images on their way at a time */

/* Images [first, first + n) into pixels, by all threads. */
static int read_chunk(const struct dataset *d, size_t first, size_t n, int threads, uint8_t *pixels, struct error *e)
{
	const size_t side = (size_t)dataset_image_size(d);
	size_t lowest = n;

#pragma omp parallel num_threads(threads)
	{
		struct dataset_scratch *s = dataset_scratch(d);

#pragma omp for schedule(dynamic, 16)
		for (size_t i = 0; i < n; i++) {
			struct error mine = { 0 };

			if (s && dataset_read(d, first + i, s, pixels + i * side * side, &mine) == 0)
				continue;
#pragma omp critical
			if (i < lowest) { /* the same error whatever the threads do */
				lowest = i;
				*e = mine.code ? mine : (struct error){ .code = EXIT_INTERNAL, .text = "no memory to decode images" };
			}
		}
		dataset_scratch_free(s);
	}
	return e->code ? -e->code : 0;
}

int train_keep_images(struct train *t, int threads, struct error *e)
{
	const size_t count = dataset_count(t->train), image = (size_t)dataset_image_size(t->train) * (size_t)dataset_image_size(t->train);
	uint8_t *pixels = malloc(CHUNK * image);
	double begin = now();

	if (!pixels)
		fail(e, EXIT_INTERNAL, "no memory for %d images", CHUNK);
	else if (engine_keep(t->model.engine, count, 0, NULL, 0) < 0) /* room for all, before any is read */
		model_fail(&t->model, e);
	for (size_t first = 0; first < count && !e->code; first += CHUNK) {
		size_t n = count - first < CHUNK ? count - first : CHUNK;

		if (read_chunk(t->train, first, n, threads, pixels, e) == 0 && engine_keep(t->model.engine, count, first, pixels, n) < 0)
			model_fail(&t->model, e);
	}
	free(pixels);
	if (!e->code)
		log_say(&t->log, "resident: %zu images, %.0f MiB, are on the GPU after %.1f s", count, (double)(count * image) / 1048576, now() - begin);
	return e->code ? -e->code : 0;
}

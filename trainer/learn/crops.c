/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/crops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOWS = 5 };

const char *const crops_choices[] = { "none", "ten", NULL };

static int forward(struct engine *engine, const struct engine_batch *batch, float *logits, float *features)
{
	uint64_t token;
	int rc = engine_forward(engine, batch, logits, features, &token);

	if (rc == 0)
		rc = engine_done(engine, token, 1);
	return rc < 0 ? rc : 0;
}

/* Probabilities and their complements apart, so that a mean near 1 keeps its digits; ±700 is where exp() ends. What is no finite number makes none. */
static void add(double sum[2], double logit)
{
	double z = isfinite(logit) ? fmin(fmax(logit, -700), 700) : NAN;

	sum[0] += 1 / (1 + exp(z));
	sum[1] += 1 / (1 + exp(-z));
}

int crops_forward(struct engine *engine, const struct engine_batch *batch, enum crops crops, int source_size, int image_size, int classes,
		  float *logits, float *features)
{
	int room = source_size - image_size, n = batch->count * classes;
	const int at[WINDOWS][2] = { { 0, 0 }, { room, 0 }, { 0, room }, { room, room }, { room / 2, room / 2 } };

	if (crops == CROPS_NONE)
		return forward(engine, batch, logits, features);
	struct augment *window = calloc((size_t)batch->count, sizeof *window);
	double (*sum)[2] = calloc((size_t)n, sizeof *sum);
	struct engine_batch cut = *batch;
	int rc = window && sum ? 0 : -EXIT_INTERNAL;

	cut.augment = window;
	for (int k = 0; k < 2 * WINDOWS && rc == 0; k++) {
		for (int i = 0; i < batch->count; i++)
			window[i] = (struct augment){ (int16_t)at[k / 2][0], (int16_t)at[k / 2][1], k & 1 };
		rc = forward(engine, &cut, logits, NULL);
		for (int i = 0; i < n && rc == 0; i++)
			add(sum[i], logits[i]);
	}
	if (rc == 0 && features)
		rc = forward(engine, batch, logits, features);
	for (int i = 0; i < n && rc == 0; i++)
		logits[i] = (float)(log(sum[i][1]) - log(sum[i][0]));
	free(window);
	free(sum);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 * Synthetic chest X-rays with learnable labels and a known ceiling. Nothing here looks like the disease it is named after:
 * each finding is a local texture of its own, at a random place in the lungs, with random phase and polarity and a mean of
 * zero, so that brightness tells nothing and a network has to see the texture.
 *
 *   label y   NIH prevalence (or scaled), independent between findings, correlated between images of one patient
 *   sign t    what is drawn: t = y but for label noise (a share of the positives trades places with negatives)
 *   image     anatomy(patient) seen under pose and exposure(image) + contrast * sum of signs + pixel noise
 *
 * Everything is keyed by (seed, patient, follow-up): images can be drawn in any order by any thread.
 *
 * The oracle. Given all that the generator knows but y and t, an image tells about y_f only through the likelihood ratio of
 * "sign f at its known place, phase and amplitude" against "no sign f" in pixel noise of known strength, and the posterior of
 * y_f rises with it. By Neyman and Pearson no score computed from the image has a higher expected AUROC than this ratio.
 * At contrast 0 the ratio is the same for all images and the oracle is 0.5. */
#ifndef DATA_SYNTH_H
#define DATA_SYNTH_H

#include <stddef.h>
#include <stdint.h>

#include "data/dataset.h"

struct synth_conf {
	uint64_t seed;
	size_t images;
	int size;                /* side of the squares, pixels */
	double contrast;         /* 0: labels cannot be seen; 1: signs of SYNTH_AMPLITUDE gray levels of 255 */
	double prevalence_scale; /* factor on NIH's prevalences */
	double prevalence_floor; /* and their least value */
	double label_noise;      /* share of the positives whose sign is missing; as many negatives have one */
	int leaky;               /* images, not patients, are divided between the splits: what a leak check must find */
};

enum { SYNTH_AMPLITUDE = 80, SYNTH_WORK = 2 };

/* What `chexnet` with no data trains on: a small DenseNet at 64 pixels learns it in about a minute on two cores. */
#define SYNTH_BUILTIN \
	{ .seed = 1, .images = 12000, .size = 64, .contrast = 1, .prevalence_scale = 1, .prevalence_floor = 0.1, .label_noise = 0.05 }

/* One image of the plan. */
struct synth_case {
	struct sample sample; /* id, patient, labels */
	uint32_t visible;     /* bit f: sign f is drawn */
	int follow_up;
};

/* Where a sign lies, in pixels; for box lists. */
struct synth_box {
	int finding;
	double x, y, width, height;
};

/* NIH's 112,120 labels, scaled as conf says; never above one half. */
void synth_prevalence(const struct synth_conf *conf, double prevalence[FINDINGS]);

/* The population's oracle for a sign that is always recognised: 1/2 + (sensitivity - false sign rate) / 2. */
double synth_ceiling(const struct synth_conf *conf, double prevalence);

/* Patients and labels of all images, patient by patient; to be freed. NULL: no memory. */
struct synth_case *synth_plan(const struct synth_conf *conf);

/* Draws one image: pixels [size][size]; boxes [FINDINGS] gets the places of the visible signs and *n_boxes their number, unless
 * NULL. work: [SYNTH_WORK][size][size] floats. */
void synth_draw(const struct synth_conf *conf, const struct synth_case *c, float *work, uint8_t *pixels, struct synth_box *boxes, int *n_boxes);

/* The oracle's view of one image: ratio [FINDINGS] gets the log likelihood ratios. */
void synth_oracle(const struct synth_conf *conf, const struct synth_case *c, float *work, float *ratio);

/* Where an image belongs: a fifth of the patients are for the test, one in twelve for validation. */
enum split synth_split(const struct synth_conf *conf, const struct synth_case *c);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Several models as one, and how much they disagree about each image: the same network trained on another order of the same
 * data moves single probabilities by large factors (Zech, Forde and Littman, arXiv 1912.03606). */
#ifndef LEARN_ENSEMBLE_H
#define LEARN_ENSEMBLE_H

#include "learn/checkpoint.h"
#include "learn/predictions.h"

enum ensemble_average { ENSEMBLE_PROBABILITIES, ENSEMBLE_LOGITS };

struct spread {
	double mean, sd;  /* of the members' probabilities, whatever is averaged; standard deviation with members - 1 */
	double low, high; /* their range */
};

struct spread_summary { /* of one finding, means over images */
	double sd;
	double variation; /* sd / mean: coefficient of variation */
	double log_range; /* ln(high / low) */
};

/* out: the average of k members (2 or more), in the first one's order, as logits, with the labels that all of them know and the patients that any of them names;
 * freed with predictions_free(), on errors too. spread: [n of the first][FINDINGS]. alone: [k][FINDINGS] AUROC of each member on the same labels as out's.
 * Paths are for the error line: EXIT_DATA when the members do not speak of the same images, patients and labels,
 * one has probabilities for logits, or all of another's logits. */
int ensemble_make(struct predictions *out, struct spread *spread, double (*alone)[FINDINGS], const struct predictions *members, const char *const *paths, int k,
		  enum ensemble_average average, struct error *e);

/* Whether two members come of the same weights, or of ensembles that share some; hash gets the first that they share. */
int ensemble_share_weights(const struct predictions *a, const struct predictions *b, char hash[WEIGHTS_HASH]);

struct spread_summary spread_summarise(const struct spread *spread, size_t n, int finding);

#endif

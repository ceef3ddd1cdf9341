/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/ensemble.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "learn/calibration_finding.h"
#include "utf8.h"

static double probability(double logit)
{
	return 1 / (1 + exp(-logit));
}

static double log_probability(double logit)
{
	return logit < 0 ? logit - log1p(exp(logit)) : -log1p(exp(-logit));
}

/* Of the members' probabilities, or with side -1 of their complements. */
static double log_of_sum(const float *logits, int k, int side)
{
	double greatest = -INFINITY, sum = 0;

	for (int m = 0; m < k; m++)
		greatest = fmax(greatest, log_probability(side * (double)logits[m]));
	for (int m = 0; m < k; m++)
		sum += exp(log_probability(side * (double)logits[m]) - greatest);
	return greatest + log(sum);
}

/* By logarithms, so that an average near 0 or 1 keeps its digits, and images that all members are sure of their order. */
static double logit_of_mean(const float *logits, int k)
{
	return log_of_sum(logits, k, 1) - log_of_sum(logits, k, -1);
}

static double mean_of_logits(const float *logits, int k)
{
	double sum = 0;

	for (int m = 0; m < k; m++)
		sum += logits[m];
	return sum / k;
}

static struct spread spread_of(const float *logits, int k)
{
	struct spread s = { .low = INFINITY };
	double square = 0;

	for (int m = 0; m < k; m++)
		s.mean += probability(logits[m]) / k;
	for (int m = 0; m < k; m++) {
		double p = probability(logits[m]);

		square += (p - s.mean) * (p - s.mean);
		s.low = fmin(s.low, p);
		s.high = fmax(s.high, p);
	}
	s.sd = sqrt(square / (k - 1));
	return s;
}

static void keep_if_equal(char *text, size_t room, const char *other, const char *otherwise)
{
	if (strcmp(text, other))
		snprintf(text, room, "%s", otherwise);
}

/* Of all members, or of none: who looks for weights among them must know all. */
static void list_weights(struct provenance *about, const struct predictions *members, int k)
{
	size_t used = 0, room = sizeof about->weights_hash;

	for (int m = 0; m < k; m++) {
		const char *hash = members[m].about.weights_hash;

		if (!*hash || used + strlen(hash) + 2 > room) {
			about->weights_hash[0] = '\0';
			return;
		}
		used += (size_t)snprintf(about->weights_hash + used, room - used, "%s%s", m ? "," : "", hash);
	}
}

static void describe(struct provenance *about, const struct predictions *members, const char *const *paths, int k)
{
	size_t used = (size_t)snprintf(about->checkpoint, sizeof about->checkpoint, "average of %d:", k);

	for (int m = 0; m < k; m++) {
		const struct provenance *x = &members[m].about;

		used = utf8_append(about->checkpoint, sizeof about->checkpoint, used, " ");
		used = utf8_append(about->checkpoint, sizeof about->checkpoint, used, *x->checkpoint ? x->checkpoint : paths[m]);
		keep_if_equal(about->model, sizeof about->model, x->model, "several");
		keep_if_equal(about->data, sizeof about->data, x->data, "");
		keep_if_equal(about->policy, sizeof about->policy, x->policy, "several");
		keep_if_equal(about->trained_on, sizeof about->trained_on, x->trained_on, "several");
		keep_if_equal(about->source, sizeof about->source, x->source, "");
		keep_if_equal(about->crops, sizeof about->crops, x->crops, "some members");
		keep_if_equal(about->pos_weight, sizeof about->pos_weight, x->pos_weight, "some members");
		keep_if_equal(about->order, sizeof about->order, x->order, "some members");
		keep_if_equal(about->split, sizeof about->split, x->split, "mixed");
		about->leaky |= x->leaky;
		/* one member that saw these patients is enough; one of which nobody knows is not nothing */
		if (about->leaked != x->leaked)
			about->leaked = about->leaked > 0 || x->leaked > 0 ? (about->leaked > x->leaked ? about->leaked : x->leaked) : -1;
	}
	list_weights(about, members, k);
	snprintf(about->version, sizeof about->version, "%s", HVD_VERSION);
}

/* row: [k][n], the row of each member that speaks of the first one's row i. */
static int match_members(size_t *row, const struct predictions *members, const char *const *paths, int k, struct error *e)
{
	size_t n = members[0].n;

	for (int m = 0; m < k; m++) {
		if (logits_like_probabilities(members[m].logits, members[m].n * FINDINGS))
			return fail(e, EXIT_DATA, "%s: every logit is between 0 and 1, as probabilities p are: write log(p / (1 - p)) in their place", paths[m]);
		long found = predictions_match(&members[0], &members[m], paths[0], paths[m], row + (size_t)m * n, e);

		if (found < 0)
			return -e->code;
		for (size_t i = 0; i < n; i++)
			if (row[(size_t)m * n + i] == PREDICTIONS_NONE)
				return fail(e, EXIT_DATA, "%s: image %s is missing; %s has it", paths[m], members[0].samples[i].id, paths[0]);
		if (members[m].n != n)
			return fail(e, EXIT_DATA, "%s has %zu images, %s has %zu: an ensemble needs the same", paths[m], members[m].n, paths[0], n);
	}
	return 0;
}

/* Whether two members say the same of every image. row as in match_members(). */
static int same_logits(const struct predictions *a, const size_t *row_a, const struct predictions *b, const size_t *row_b)
{
	size_t i = 0;

	while (i < a->n && memcmp(a->logits + row_a[i] * FINDINGS, b->logits + row_b[i] * FINDINGS, FINDINGS * sizeof *a->logits) == 0)
		i++;
	return a->n > 0 && i == a->n;
}

/* A copy under another name, or trainings with one seed: one model would weigh as two, and the spread would be too small. */
static int check_distinct(const size_t *row, const struct predictions *members, const char *const *paths, int k, struct error *e)
{
	size_t n = members[0].n;

	for (int m = 1; m < k; m++)
		for (int other = 0; other < m; other++)
			if (same_logits(&members[m], row + (size_t)m * n, &members[other], row + (size_t)other * n))
				return fail(e, EXIT_DATA, "%s: every logit is that of %s, and one model would count for two: leave it out, or train with another --seed", paths[m],
					    paths[other]);
	return 0;
}

int ensemble_share_weights(const struct predictions *a, const struct predictions *b, char hash[WEIGHTS_HASH])
{
	for (const char *at = a->about.weights_hash; *at; at += strcspn(at, ","), at += *at == ',') {
		if (strcspn(at, ",") != WEIGHTS_HASH - 1)
			continue;
		memcpy(hash, at, WEIGHTS_HASH - 1);
		hash[WEIGHTS_HASH - 1] = '\0';
		if (strstr(b->about.weights_hash, hash))
			return 1;
	}
	return 0;
}

/* Of the first member that names them; predictions_match() held all against member 0, which may name none. */
static int take_patients(struct predictions *out, const size_t *row, const struct predictions *members, const char *const *paths, int k, struct error *e)
{
	int first = 0;

	while (first < k - 1 && !members[first].has_patients)
		first++;
	out->has_patients = members[first].has_patients;
	for (size_t i = 0; i < out->n; i++) {
		const size_t at = row[(size_t)first * out->n + i];

		for (int m = first + 1; m < k; m++)
			if (predictions_agree(&members[first], at, &members[m], row[(size_t)m * out->n + i], paths[first], paths[m], e))
				return -e->code;
		out->samples[i].patient = members[first].samples[at].patient;
	}
	return 0;
}

static void average_members(struct predictions *out, struct spread *spread, const size_t *row, const struct predictions *members, int k, enum ensemble_average average, float *logits)
{
	for (size_t i = 0; i < out->n; i++)
		for (int f = 0; f < FINDINGS; f++) {
			for (int m = 0; m < k; m++)
				logits[m] = members[m].logits[row[(size_t)m * out->n + i] * FINDINGS + (size_t)f];
			out->logits[i * FINDINGS + (size_t)f] = (float)(average == ENSEMBLE_LOGITS ? mean_of_logits(logits, k) : logit_of_mean(logits, k));
			spread[i * FINDINGS + (size_t)f] = spread_of(logits, k);
		}
}

/* score, positive: room for out->n */
static double judge_alone(const struct predictions *out, const struct predictions *member, const size_t *row, int f, float *score, uint8_t *positive)
{
	size_t n = predictions_of(out, f, score, positive), at = 0;

	for (size_t i = 0; i < out->n; i++)
		if (out->samples[i].known >> f & 1)
			score[at++] = member->logits[row[i] * FINDINGS + (size_t)f];
	return auroc(score, positive, n);
}

int ensemble_make(struct predictions *out, struct spread *spread, double (*alone)[FINDINGS], const struct predictions *members, const char *const *paths, int k,
		  enum ensemble_average average, struct error *e)
{
	size_t n = members[0].n;
	size_t *row = malloc(((size_t)k * n + 1) * sizeof *row);
	float *logits = malloc(((size_t)k + n) * sizeof *logits);
	uint8_t *positive = malloc(n + 1);

	*out = (struct predictions){ .about = members[0].about, .n = n, .samples = malloc((n + 1) * sizeof *out->samples),
				     .logits = malloc((n * FINDINGS + 1) * sizeof *out->logits) };
	if (!row || !logits || !positive || !out->samples || !out->logits)
		fail(e, EXIT_INTERNAL, "no memory for %d members of %zu images", k, n);
	else
		match_members(row, members, paths, k, e);
	if (!e->code)
		check_distinct(row, members, paths, k, e);
	for (size_t i = 0; !e->code && i < n; i++) {
		out->samples[i] = members[0].samples[i];
		for (int m = 1; m < k; m++)
			out->samples[i].known &= members[m].samples[row[(size_t)m * n + i]].known;
	}
	if (!e->code && take_patients(out, row, members, paths, k, e) == 0) {
		average_members(out, spread, row, members, k, average, logits);
		for (int m = 0; m < k; m++)
			for (int f = 0; f < FINDINGS; f++) {
				alone[m][f] = judge_alone(out, &members[m], row + (size_t)m * n, f, logits, positive);
				if (alone[m][f] < 0)
					fail(e, EXIT_INTERNAL, "no memory for %zu images", n);
			}
		describe(&out->about, members, paths, k);
	}
	free(row);
	free(logits);
	free(positive);
	return e->code ? -e->code : 0;
}

struct spread_summary spread_summarise(const struct spread *spread, size_t n, int finding)
{
	struct spread_summary s = { 0, 0, 0 };

	for (size_t i = 0; i < n; i++) {
		const struct spread *x = &spread[i * FINDINGS + (size_t)finding];

		s.sd += x->sd / (double)n;
		s.variation += x->mean > 0 ? x->sd / x->mean / (double)n : 0;
		s.log_range += x->low > 0 ? log(x->high / x->low) / (double)n : 0;
	}
	return s;
}

/* SPDX-License-Identifier: Apache-2.0
 * Who the patients are and what they have. */
#include "data/synth.h"

#include <stdio.h>
#include <stdlib.h>

#include "data/random.h"

static const uint64_t SALT_PATIENT = 0x70617469656E74, SALT_SPLIT = 0x73706C6974;

/* Positives among NIH's 112,120 images (Data_Entry_2017_v2020.csv). */
static const int nih_positives[FINDINGS] = { 11559, 2776, 13317, 19894, 5782, 6331, 1431, 5302, 4667, 2303, 2516, 1686, 3385, 227 };
enum { NIH_IMAGES = 112120 };

/* How often a later image of a patient repeats the finding of the first instead of drawing a new one. */
static const double PERSISTENCE = 0.5;

void synth_prevalence(const struct synth_conf *conf, double prevalence[FINDINGS])
{
	for (int f = 0; f < FINDINGS; f++) {
		double p = conf->prevalence_scale * nih_positives[f] / NIH_IMAGES;
		p = p < conf->prevalence_floor ? conf->prevalence_floor : p;
		prevalence[f] = p > 0.5 ? 0.5 : p;
	}
}

/* Negatives that carry a sign, so that signs are as frequent as labels. */
static double false_sign_rate(const struct synth_conf *conf, double prevalence)
{
	return conf->label_noise * prevalence / (1 - prevalence);
}

double synth_ceiling(const struct synth_conf *conf, double prevalence)
{
	return conf->contrast == 0 ? 0.5 : 0.5 + 0.5 * (1 - conf->label_noise - false_sign_rate(conf, prevalence));
}

/* Images of a patient: one for most, up to eight. */
static int images_of(struct stream *s)
{
	int n = 1;

	while (n < 8 && stream_uniform(s) < 0.35)
		n++;
	return n;
}

struct synth_case *synth_plan(const struct synth_conf *conf)
{
	struct synth_case *cases = calloc(conf->images ? conf->images : 1, sizeof *cases);
	double prevalence[FINDINGS];
	uint64_t key = mix64(conf->seed ^ SALT_PATIENT);
	size_t n = 0;

	if (!cases)
		return NULL;
	synth_prevalence(conf, prevalence);
	for (uint32_t patient = 1; n < conf->images; patient++) {
		struct stream s = stream_open(key, patient);
		int images = images_of(&s);
		uint32_t first = 0;
		for (int k = 0; k < images && n < conf->images; k++) {
			struct synth_case *c = &cases[n++];
			c->follow_up = k;
			c->sample = (struct sample){ .patient = patient, .known = ALL_FINDINGS };
			snprintf(c->sample.id, sizeof c->sample.id, "%08u_%03d.png", patient, k);
			for (int f = 0; f < FINDINGS; f++) {
				int repeats = stream_uniform(&s) < PERSISTENCE, drawn = stream_uniform(&s) < prevalence[f];
				int label = k && repeats ? (int)(first >> f & 1) : drawn;
				double error = label ? conf->label_noise : false_sign_rate(conf, prevalence[f]);
				int wrong = stream_uniform(&s) < error;
				c->sample.labels |= (uint32_t)label << f;
				c->visible |= (uint32_t)(label ^ wrong) << f;
			}
			if (k == 0)
				first = c->sample.labels;
		}
	}
	return cases;
}

enum split synth_split(const struct synth_conf *conf, const struct synth_case *c)
{
	uint64_t who = conf->leaky ? (uint64_t)c->sample.patient << 16 | (uint64_t)c->follow_up : c->sample.patient;
	struct stream s = stream_open(mix64(conf->seed ^ SALT_SPLIT), who);
	double u = stream_uniform(&s);

	return u < 0.2 ? SPLIT_TEST : u < 0.28 ? SPLIT_VAL : SPLIT_TRAIN;
}

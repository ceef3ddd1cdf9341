/* SPDX-License-Identifier: Apache-2.0
 * Batch normalisation between the passes over a map: what comes of a channel's sums, whoever has added them up (bn_merge.h, bn_in_place.h). */
#ifndef CUDA_BN_CHANNEL_H
#define CUDA_BN_CHANNEL_H

#include "device.h"

/* ---- forward ---- */

/* A layer's scale and bias, from batch statistics (rstd) or running ones (variance). Training also adds the batch's
 * statistics to the slab's. */
struct bn_scale {
	const float *gamma, *beta, *mean, *rstd, *variance; /* variance NULL: use rstd */
	float *scale, *bias;                    /* [channels] */
	const float *square;                    /* E[x²] of the batch */
	float *slab_mean, *slab_square;         /* NULL in evaluation */
	float factor;                           /* 1 / micro-batches */
	float epsilon;
	int accumulate, channels;
};

/* What a channel's scale is made of, beside its statistics: asked for before they are there. */
struct gamma_beta {
	float gamma, beta;
};

DEVICE gamma_beta gamma_beta_of(const bn_scale &p, int c)
{
	return { p.gamma[c], p.beta[c] };
}

struct channel_scale {
	float scale, bias;
};

/* keeps: also writes them, and the statistics into the slab. */
DEVICE channel_scale scale_from(const bn_scale &p, int c, const gamma_beta &of, float mean, float rstd, float square, bool keeps)
{
	const float scale = of.gamma * rstd, bias = fmaf(-mean, scale, of.beta);
	if (keeps) {
		p.scale[c] = scale;
		p.bias[c] = bias;
	}
	if (keeps && p.slab_mean) {
		p.slab_mean[c] = (p.accumulate ? p.slab_mean[c] : 0) + p.factor * mean;
		p.slab_square[c] = (p.accumulate ? p.slab_square[c] : 0) + p.factor * square;
	}
	return { scale, bias };
}

/* Of a channel whose statistics are there. */
DEVICE void scale_channel(const bn_scale &p, int c)
{
	const float rstd = p.variance ? (float)inverse_root((double)p.variance[c] + p.epsilon) : p.rstd[c];
	scale_from(p, c, gamma_beta_of(p, c), p.mean[c], rstd, p.slab_mean ? p.square[c] : 0, true);
}

/* The statistics of a map's new channels, from partial sums, merged in double; then scale and bias of the normalisation that reads the
 * map next, which has the channels before and after them, too. */
struct bn_statistics {
	const float *partial;        /* [parts][2][stride], the first channels of each */
	float *mean, *rstd, *square; /* [channels] */
	double share;                /* 1 / pixels: nothing is divided while a kernel waits for its sums */
	float epsilon;
	int parts, channels, stride;
	bn_scale next;               /* its mean, rstd and square hold those above from place `from` on */
	int from;
};

/* Of new channel c, from its sum and its sum of squares. */
DEVICE channel_scale scale_merged(const bn_statistics &p, int c, const gamma_beta &of, double sum, double squares, bool keeps)
{
	const double mean = sum * p.share, mean_square = squares * p.share, variance = mean_square - mean * mean;
	const float square = (float)mean_square, rstd = (float)inverse_root((variance <= 0 ? 0 : variance) + p.epsilon);
	if (keeps) {
		p.mean[c] = (float)mean;
		p.square[c] = square;
		p.rstd[c] = rstd;
	}
	return scale_from(p.next, p.from + c, of, (float)mean, rstd, square, keeps);
}

/* ---- backward ---- */

/* dbeta and dgamma from partial sums: into the gradient slab, and towards the gradient of the map, a · g + b · x + c. A private normalisation has its
 * coefficients at once: dy = a · dz + b · y + c. A shared one adds its part to its map's (s1 += gamma · dbeta, s2 += gamma · dgamma), and then has those
 * for the channels [from, from + due) that no other layer reads any more, as dx = rstd · (g - (s1 + (x - mean) · rstd · s2) / pixels). */
struct bn_backward_sums {
	const float *partial;               /* [parts][2][channels] */
	const float *gamma, *mean, *rstd;
	float *grad_gamma, *grad_beta;      /* in the slab */
	float *s1, *s2;                     /* NULL: private */
	float *a, *b, *c;                   /* [channels]; shared: [due]; NULL: due_in_place() makes them (due_elsewhere) */
	const float *unscale;               /* 1 / loss scale; NULL: 1 */
	double share;                       /* 1 / pixels */
	float factor;                       /* of the slab's gradients: 1 / micro-batches */
	int accumulate, first, parts, channels;
	int from, due;
};

DEVICE void keep_gradients(const bn_backward_sums &p, int c, double beta, double gamma)
{
	const float factor = p.factor * (p.unscale ? *p.unscale : 1);
	p.grad_beta[c] = (p.accumulate ? p.grad_beta[c] : 0) + factor * (float)beta;
	p.grad_gamma[c] = (p.accumulate ? p.grad_gamma[c] : 0) + factor * (float)gamma;
}

struct channel_coefficients {
	float a, b, c;
};

/* Of a private normalisation's channel, from its two sums. */
DEVICE channel_coefficients private_coefficients(double share, float gamma_of, float mean, float rstd, double beta, double gamma)
{
	const double scale = (double)gamma_of * rstd, slope = gamma * rstd * share;
	return { (float)scale, (float)(-scale * slope), (float)(scale * (slope * mean - beta * share)) };
}

/* A map's sums for the shared normalisation's backward, with one layer's part. */
struct map_sums {
	float s1, s2;
};

DEVICE map_sums map_sums_with(float s1, float s2, float gamma_of, double beta, double gamma)
{
	return { s1 + gamma_of * (float)beta, s2 + gamma_of * (float)gamma };
}

/* Of a shared normalisation's channel that no other layer reads any more. */
DEVICE channel_coefficients due_coefficients(double share, float mean, float rstd, const map_sums &s)
{
	const double slope = (double)rstd * s.s2 * share;
	return { rstd, (float)(-rstd * slope), (float)(rstd * (slope * mean - s.s1 * share)) };
}

#endif

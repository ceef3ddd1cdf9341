/* SPDX-License-Identifier: Apache-2.0
 * The pictures: coordinates are fractions of the image's side, gray values fractions of white. */
#include <math.h>
#include <string.h>

#include "data/random.h"
#include "data/synth.h"

static const uint64_t SALT_ANATOMY = 0x616E61746F6D79, SALT_POSE = 0x706F7365, SALT_SIGN = 0x7369676E, SALT_NOISE = 0x6E6F697365;

/* What stays the same in all images of a patient. */
struct anatomy {
	float lung_width, lung_height, lung_apart, heart_width, rib_period, rib_phase, bone;
};

/* What changes from image to image. */
struct view {
	float dx, dy, scale, rotation_cos, rotation_sin, gamma, exposure, noise;
	float field[3][3]; /* slow variations of brightness: waves a side, phase, amplitude */
};

static struct anatomy anatomy_of(uint64_t seed, uint32_t patient)
{
	struct stream s = stream_open(mix64(seed ^ SALT_ANATOMY), patient);

	return (struct anatomy){
		.lung_width = (float)(0.17 + 0.015 * stream_normal(&s)),
		.lung_height = (float)(0.30 + 0.02 * stream_normal(&s)),
		.lung_apart = (float)(0.205 + 0.012 * stream_normal(&s)),
		.heart_width = (float)(0.12 + 0.015 * stream_normal(&s)),
		.rib_period = (float)(0.125 + 0.012 * stream_normal(&s)),
		.rib_phase = (float)stream_uniform(&s),
		.bone = (float)(0.05 + 0.03 * stream_uniform(&s)),
	};
}

static uint64_t image_name(const struct synth_case *c)
{
	return (uint64_t)c->sample.patient << 16 | (uint64_t)c->follow_up;
}

static struct view view_of(uint64_t seed, const struct synth_case *c)
{
	struct stream s = stream_open(mix64(seed ^ SALT_POSE), image_name(c));
	double rotation = 0.04 * stream_normal(&s);
	struct view v = {
		.dx = (float)(0.015 * stream_normal(&s)),
		.dy = (float)(0.015 * stream_normal(&s)),
		.scale = (float)(1 + 0.03 * stream_normal(&s)),
		.rotation_cos = (float)cos(rotation),
		.rotation_sin = (float)sin(rotation),
		.gamma = (float)(1 + 0.08 * stream_normal(&s)),
		.exposure = (float)(1 + 0.06 * stream_normal(&s)),
		.noise = (float)(0.015 + 0.01 * stream_uniform(&s)),
	};
	for (int k = 0; k < 3; k++) {
		v.field[k][0] = (float)(0.5 + 1.5 * stream_uniform(&s));
		v.field[k][1] = (float)(6.2832 * stream_uniform(&s));
		v.field[k][2] = (float)(0.02 * stream_normal(&s));
	}
	return v;
}

static float ellipse(float x, float y, float cx, float cy, float a, float b)
{
	float u = (x - cx) / a, v = (y - cy) / b;
	return u * u + v * v;
}

/* 1 inside, 0 outside, smooth over `width` below the ellipse's edge. */
static float inside(float e, float width)
{
	float t = (1 - e) / width;
	return t <= 0 ? 0 : t >= 1 ? 1 : t * t * (3 - 2 * t);
}

/* Gray value of the anatomy at a point of the body's own coordinates. */
static float tissue(const struct anatomy *a, float x, float y)
{
	float v = 0.10f + 0.58f * inside(ellipse(x, y, 0.5f, 0.62f, 0.46f, 0.62f), 0.15f);
	float left = inside(ellipse(x, y, 0.5f - a->lung_apart, 0.47f, a->lung_width, a->lung_height), 0.25f);
	float right = inside(ellipse(x, y, 0.5f + a->lung_apart, 0.47f, a->lung_width, a->lung_height), 0.25f);
	float lung = fmaxf(left, right);

	v -= 0.26f * lung;
	if (lung > 0) {
		float wave = 0.5f + 0.5f * cosf(6.2832f * ((y + 0.3f * (x - 0.5f) * (x - 0.5f)) / a->rib_period + a->rib_phase));
		v += a->bone * lung * wave * wave;
	}
	return v + 0.16f * inside(ellipse(x, y, 0.53f, 0.63f, a->heart_width, 0.15f), 0.3f) * (0.4f + 0.6f * lung);
}

/* The detector's curve, value to the power of gamma, from a table: powf() for every pixel took half of the drawing time. */
enum { CURVE = 512 };
static const float CURVE_END = 1.5f;

static void make_curve(float gamma, float curve[CURVE + 2])
{
	for (int i = 0; i < CURVE + 2; i++)
		curve[i] = powf((float)i * CURVE_END / CURVE, gamma);
}

static float bend(const float curve[CURVE + 2], float value)
{
	float at = fminf(fmaxf(value, 0), CURVE_END) * (CURVE / CURVE_END);
	int i = (int)at;
	return curve[i] + (at - (float)i) * (curve[i + 1] - curve[i]);
}

static float wave(const float field[3], int i, int size)
{
	return field[2] * sinf(6.2832f * field[0] * ((float)i + 0.5f) / (float)size + field[1]);
}

static void draw_anatomy(const struct anatomy *a, const struct view *v, int size, float *plane, float *row)
{
	float curve[CURVE + 2];

	make_curve(v->gamma, curve);
	for (int i = 0; i < size; i++)
		row[i] = wave(v->field[0], i, size) + wave(v->field[2], i, size);
	for (int j = 0; j < size; j++) {
		float field = wave(v->field[1], j, size);
		for (int i = 0; i < size; i++) {
			float px = ((float)i + 0.5f) / (float)size - 0.5f - v->dx, py = ((float)j + 0.5f) / (float)size - 0.5f - v->dy;
			float x = (v->rotation_cos * px - v->rotation_sin * py) / v->scale + 0.5f;
			float y = (v->rotation_sin * px + v->rotation_cos * py) / v->scale + 0.5f;
			plane[j * size + i] = bend(curve, (tissue(a, x, y) + row[i] + field) * v->exposure);
		}
	}
}

/* The textures. A mirrored image must keep its labels, so slanted ones lean to either side. */
enum texture { LINES, RINGS, MESH };

static const struct sign {
	enum texture texture;
	float angle;    /* of the lines, degrees from horizontal; either sign */
	float period;   /* fraction of the image's side */
	float low, high; /* vertical range within the lung, -1 apex … 1 base */
} signs[FINDINGS] = {
	[0] = { LINES, 0, 0.080f, -0.3f, 0.6f },    /* Atelectasis */
	[1] = { RINGS, 0, 0.115f, 0.0f, 0.5f },     /* Cardiomegaly */
	[2] = { LINES, 0, 0.056f, 0.2f, 0.6f },    /* Effusion */
	[3] = { LINES, 90, 0.080f, -0.6f, 0.6f },   /* Infiltration */
	[4] = { RINGS, 0, 0.080f, -0.6f, 0.6f },    /* Mass */
	[5] = { RINGS, 0, 0.056f, -0.6f, 0.6f },   /* Nodule */
	[6] = { LINES, 45, 0.080f, -0.4f, 0.6f },   /* Pneumonia */
	[7] = { LINES, 90, 0.056f, -0.6f, 0.0f },  /* Pneumothorax */
	[8] = { LINES, 45, 0.115f, -0.5f, 0.5f },   /* Consolidation */
	[9] = { LINES, 0, 0.115f, -0.4f, 0.6f },    /* Edema */
	[10] = { LINES, 90, 0.115f, -0.6f, 0.5f },  /* Emphysema */
	[11] = { MESH, 45, 0.066f, -0.3f, 0.6f },   /* Fibrosis */
	[12] = { LINES, 45, 0.056f, -0.5f, 0.5f }, /* Pleural_Thickening */
	[13] = { MESH, 0, 0.095f, 0.2f, 0.6f },     /* Hernia */
};

static const float WINDOW = 0.1f, REACH = 2.4f; /* standard deviation of the window a texture is seen through; cut off beyond */

/* One sign as it lies in one image. */
struct placed {
	float x, y;               /* centre, fractions of the side */
	float polarity, phase, phase2, cosine, sine, period;
	enum texture texture;
};

static struct placed place_sign(uint64_t seed, const struct synth_case *c, int f, const struct anatomy *a, const struct view *v)
{
	const struct sign *sign = &signs[f];
	struct stream s = stream_open(mix64(mix64(seed ^ SALT_SIGN) + (uint64_t)f), image_name(c));
	float side = stream_uniform(&s) < 0.5 ? -1 : 1;
	float bx = 0.5f + side * a->lung_apart + a->lung_width * 0.5f * (float)(2 * stream_uniform(&s) - 1);
	float by = 0.47f + a->lung_height * (sign->low + (sign->high - sign->low) * (float)stream_uniform(&s));
	float px = (bx - 0.5f) * v->scale, py = (by - 0.5f) * v->scale;
	double angle = (stream_uniform(&s) < 0.5 ? -1 : 1) * sign->angle * 0.0174533 + 0.06 * stream_normal(&s);

	return (struct placed){
		.x = v->rotation_cos * px + v->rotation_sin * py + 0.5f + v->dx,
		.y = -v->rotation_sin * px + v->rotation_cos * py + 0.5f + v->dy,
		.polarity = stream_uniform(&s) < 0.5 ? -1 : 1,
		.phase = (float)(6.2832 * stream_uniform(&s)),
		.phase2 = (float)(6.2832 * stream_uniform(&s)),
		.cosine = (float)cos(angle),
		.sine = (float)sin(angle),
		.period = sign->period * (float)(1 + 0.05 * stream_normal(&s)),
		.texture = sign->texture,
	};
}

static float texture_at(const struct placed *p, float u, float v)
{
	float along = p->cosine * u + p->sine * v, across = p->cosine * v - p->sine * u, turn = 6.2832f / p->period;

	switch (p->texture) {
	case LINES:
		return cosf(turn * across + p->phase);
	case RINGS:
		return cosf(turn * sqrtf(u * u + v * v) + p->phase);
	case MESH:
		return cosf(turn * across + p->phase) * cosf(turn * along + p->phase2);
	}
	return 0;
}

/* The pixels that a sign covers. */
struct area {
	int x0, y0, x1, y1;
};

static int clamp(int v, int low, int high)
{
	return v < low ? low : v > high ? high : v;
}

static struct area area_of(const struct placed *p, int size)
{
	float reach = REACH * WINDOW;

	return (struct area){
		.x0 = clamp((int)floorf((p->x - reach) * (float)size), 0, size),
		.x1 = clamp((int)ceilf((p->x + reach) * (float)size), 0, size),
		.y0 = clamp((int)floorf((p->y - reach) * (float)size), 0, size),
		.y1 = clamp((int)ceilf((p->y + reach) * (float)size), 0, size),
	};
}

static float window_at(float distance)
{
	return expf(-distance * distance / (2 * WINDOW * WINDOW));
}

/* A sign's values on its area, with a mean of zero: patch [y1 - y0][x1 - x0]; a row of windows comes first in `work`. */
static float *draw_sign(const struct placed *p, const struct area *r, int size, float *work)
{
	int width = r->x1 - r->x0;
	float *window = work, *patch = work + width;
	double sum = 0, weights = 0;

	for (int i = 0; i < width; i++)
		window[i] = window_at(((float)(r->x0 + i) + 0.5f) / (float)size - p->x);
	for (int j = r->y0; j < r->y1; j++) {
		float v = ((float)j + 0.5f) / (float)size - p->y, row = window_at(v), *out = patch + (j - r->y0) * width;
		for (int i = 0; i < width; i++) {
			float u = ((float)(r->x0 + i) + 0.5f) / (float)size - p->x;
			out[i] = row * window[i] * texture_at(p, u, v);
			sum += out[i];
			weights += row * window[i];
		}
	}
	float mean = (float)(sum / (weights + 1e-9));
	for (int j = r->y0; j < r->y1; j++) {
		float row = window_at(((float)j + 0.5f) / (float)size - p->y), *out = patch + (j - r->y0) * width;
		for (int i = 0; i < width; i++)
			out[i] = p->polarity * (out[i] - mean * row * window[i]);
	}
	return patch;
}

/* A standard normal deviate for a pixel, from the sum of four uniform 16-bit numbers. */
static float noise_at(uint64_t key, int pixel)
{
	uint64_t bits = mix64(key + (uint64_t)pixel);
	int sum = (int)(bits & 0xFFFF) + (int)(bits >> 16 & 0xFFFF) + (int)(bits >> 32 & 0xFFFF) + (int)(bits >> 48);
	return (float)(sum - 131070) * (1.7320508f / 65536);
}

static uint64_t noise_key(uint64_t seed, const struct synth_case *c)
{
	return mix64(mix64(seed ^ SALT_NOISE) ^ image_name(c));
}

static float amplitude_of(const struct synth_conf *conf)
{
	return (float)conf->contrast * SYNTH_AMPLITUDE / 255;
}

void synth_draw(const struct synth_conf *conf, const struct synth_case *c, float *work, uint8_t *pixels, struct synth_box *boxes, int *n_boxes)
{
	int size = conf->size;
	float *plane = work, *spare = work + size * size, amplitude = amplitude_of(conf);
	struct anatomy anatomy = anatomy_of(conf->seed, c->sample.patient);
	struct view view = view_of(conf->seed, c);
	uint64_t key = noise_key(conf->seed, c);

	draw_anatomy(&anatomy, &view, size, plane, spare);
	if (n_boxes)
		*n_boxes = 0;
	for (int f = 0; f < FINDINGS; f++) {
		if (!(c->visible >> f & 1))
			continue;
		struct placed sign = place_sign(conf->seed, c, f, &anatomy, &view);
		struct area r = area_of(&sign, size);
		const float *patch = draw_sign(&sign, &r, size, spare);
		for (int j = r.y0; j < r.y1; j++)
			for (int i = r.x0; i < r.x1; i++)
				plane[j * size + i] += amplitude * *patch++;
		if (n_boxes) {
			double side = 3 * WINDOW * size;
			boxes[(*n_boxes)++] = (struct synth_box){ f, sign.x * size - side / 2, sign.y * size - side / 2, side, side };
		}
	}
	for (int i = 0; i < size * size; i++)
		pixels[i] = (uint8_t)clamp((int)lrintf(255 * (plane[i] + view.noise * noise_at(key, i))), 0, 255);
}

/* Beyond this the posterior no longer depends on the ratio, only on the label noise. */
static const double CERTAIN = 20;

/* log p(x | sign) - log p(x | no sign) = (s . (x - background) - |s|^2 / 2) / variance, where x - background is the noise,
 * and the sign where it is drawn. */
void synth_oracle(const struct synth_conf *conf, const struct synth_case *c, float *work, float *ratio)
{
	struct anatomy anatomy = anatomy_of(conf->seed, c->sample.patient);
	struct view view = view_of(conf->seed, c);
	uint64_t key = noise_key(conf->seed, c);
	float amplitude = amplitude_of(conf);

	for (int f = 0; f < FINDINGS; f++) {
		struct placed sign = place_sign(conf->seed, c, f, &anatomy, &view);
		struct area r = area_of(&sign, conf->size);
		const float *patch = draw_sign(&sign, &r, conf->size, work);
		double energy = 0, match = 0, visible = c->visible >> f & 1;
		for (int j = r.y0; j < r.y1; j++)
			for (int i = r.x0; i < r.x1; i++) {
				float s = amplitude * *patch++;
				energy += s * s;
				match += s * (view.noise * noise_at(key, j * conf->size + i));
			}
		double log_ratio = (match + (visible - 0.5) * energy) / (view.noise * view.noise);
		ratio[f] = (float)fmax(-CERTAIN, fmin(CERTAIN, log_ratio));
	}
}

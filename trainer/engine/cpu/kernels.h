/* SPDX-License-Identifier: Apache-2.0
 * The CPU engine's inner loops. One source (kernels.inc, elementwise.inc) over a 16-lane vector, built as plain C,
 * for AVX2, AVX-512 and NEON; the table is chosen at run time by CPU features.
 *
 * Activations are NHWC: pixel after pixel, `stride` elements apart, so that a slice of a dense block's buffer is a view.
 * "Packed" means [c / 16][pixel][16] fp32, channels padded with zeros to a multiple of 16, planes `plane` floats apart:
 * the multiplications read it with one pointer and no tail.
 *
 * Nothing here depends on how work is divided among threads: sums run in the order of pixels. */
#ifndef CPU_KERNELS_H
#define CPU_KERNELS_H

#include <stddef.h>
#include <stdint.h>

enum { LANES = 16, TILE_ROWS = 14, PANEL = 2 * LANES };
enum storage { STORE_FP32, STORE_BF16, N_STORAGE };

static inline int round_up(int n, int multiple)
{
	return (n + multiple - 1) / multiple * multiple;
}

/* Batch normalisation of one layer, a float a channel. */
struct bn_vectors {
	float *scale, *shift;     /* y = relu(x * scale + shift): gamma / deviation and beta - mean * scale */
	float *inverse, *offset;  /* normalised x = x * inverse + offset: 1 / deviation and -mean / deviation */
	const float *gamma;
};

/* fp32 gradients: channel c of pixel p is at data[c / 16 * plane + p * stride + c % 16]. NHWC has plane 16; packed ones stride 16. */
struct grads {
	float *data;
	ptrdiff_t stride, plane;
};

/* Sums of a stretch of pixels around its first pixel: variance without cancellation in one pass. */
struct moments {
	float *shift, *sum, *square; /* [channels]: first pixel, sum of x - shift, sum of (x - shift)² */
};

struct adam_step {
	float beta1, beta2, decay;
	float rate;        /* lr / (1 - beta1^t) */
	float correction;  /* 1 / sqrt(1 - beta2^t) */
	float epsilon;
};

struct cpu_kernels {
	const char *name;

	/* c[r][j] = sum over taps t, blocks k, lanes i of a[tap[t] + k * plane + r * 16 + i] * b[((t * blocks + k) * 16 + i) * width + j]
	 * for r < rows <= 14 and j < width (16 or 32). a is packed. Products are summed by 128, and these sums after that: one chain of
	 * a thousand would round three times as much. */
	void (*multiply)(int rows, int width, int taps, const ptrdiff_t *tap, int blocks, ptrdiff_t plane, const float *a,
	                 const float *b, float *c, ptrdiff_t c_stride);
	/* c[i][j] += sum over pixels p of a[p * 16 + i] * b[p * b_stride + (j / 16) * b_plane + j % 16] for i < 16 and j < width. */
	void (*outer)(int pixels, int width, const float *a, const float *b, ptrdiff_t b_stride, ptrdiff_t b_plane, float *c, ptrdiff_t c_stride);

	/* Packs gradients (fp32) as they are. */
	void (*pack)(int pixels, int channels, const float *x, ptrdiff_t stride, float *out, ptrdiff_t plane);
	void (*adam)(size_t count, const float *g, float *w, float *m, float *v, const struct adam_step *step);
	void (*sgd)(size_t count, const float *g, float *w, float *m, float lr, float momentum, float decay);

	struct {
		/* relu(bn(x)), packed. */
		void (*pack_bn)(int pixels, int channels, const void *x, ptrdiff_t stride, const struct bn_vectors *bn, float *out, ptrdiff_t plane);
		/* Mean of relu(bn(x)) over 2 x 2 pixels, packed; `pixels` outputs of one row, image rows `row` elements apart. */
		void (*pack_bn_pool)(int pixels, int channels, const void *x, ptrdiff_t stride, ptrdiff_t row, const struct bn_vectors *bn, float *out,
		                     ptrdiff_t plane);
		/* Stores results of multiply and adds the stored values to *m, whose shift is set first where `first`; m NULL: stores only. */
		void (*finish)(int pixels, int channels, const float *src, ptrdiff_t src_stride, void *dst, ptrdiff_t stride, const struct moments *m,
		               int first);
		/* g = dy where relu(bn(x)) > 0, else 0; sum += g; dot += g * normalised x; out (+)= g * factor; packed = relu(bn(x)), packed,
		 * where it is not NULL: who needs the gradient of x needs that of the weights too, and this reads x once for both. */
		void (*bn_backward)(int pixels, int channels, const float *dy, ptrdiff_t dy_stride, const void *x, ptrdiff_t stride,
		                    const struct bn_vectors *bn, const float *factor, int accumulate, struct grads out, float *sum, float *dot,
		                    float *packed, ptrdiff_t plane);
		/* The same behind a mean over 2 x 2: dy and packed have half as many pixels a row; two rows of x and out, x_row and out_row
		 * elements apart. */
		void (*bn_backward_pool)(int pixels, int channels, const float *dy, ptrdiff_t dy_stride, const void *x, ptrdiff_t stride,
		                         ptrdiff_t x_row, const struct bn_vectors *bn, const float *factor, float *out, ptrdiff_t out_stride,
		                         ptrdiff_t out_row, float *sum, float *dot, float *packed, ptrdiff_t plane);
		/* to = g * a + x * b + c, channel by channel; `to` may be g. */
		void (*correct)(int pixels, int channels, struct grads g, const void *x, ptrdiff_t stride, const float *a, const float *b, const float *c,
		                struct grads to);
		/* The sums of bn_backward behind a BN without ReLU: sum += dy; dot += dy * normalised x. */
		void (*bn_sums)(int pixels, int channels, const float *dy, ptrdiff_t dy_stride, const void *x, ptrdiff_t stride, const struct bn_vectors *bn,
		                float *sum, float *dot);
		/* out = relu(bn(x) + shortcut_bn(shortcut)), no ReLU inside. */
		void (*join)(int pixels, int channels, const void *x, ptrdiff_t stride, const struct bn_vectors *bn, const void *shortcut,
		             ptrdiff_t shortcut_stride, const struct bn_vectors *shortcut_bn, void *out, ptrdiff_t out_stride);
		/* out[c] = mean of relu(bn(x)) over pixels. */
		void (*average)(int pixels, int channels, const void *x, ptrdiff_t stride, const struct bn_vectors *bn, float *out);
		/* One output row of a 3 x 3 maximum with step 2 over relu(bn(x)) [h][h]: out as finish() takes it, tap number of the
		 * maximum or 255 where it is 0. */
		void (*maxpool)(int h, int row, int channels, const void *x, ptrdiff_t stride, const struct bn_vectors *bn, float *out,
		                ptrdiff_t out_stride, uint8_t *tap);
		/* One input row of its backward: g = sum of dy over the windows that took this pixel; sum and dot as in bn_backward. */
		void (*unpool)(int h, int row, int channels, const float *dy, ptrdiff_t dy_stride, const uint8_t *tap, const void *x, ptrdiff_t stride,
		               const struct bn_vectors *bn, float *out, ptrdiff_t out_stride, float *sum, float *dot);
		/* To fp32. */
		void (*load)(size_t count, const void *from, float *to);
		/* to += from. */
		void (*add)(size_t count, const void *from, void *to);
	} at[N_STORAGE];
};

extern const struct cpu_kernels cpu_kernels_portable, cpu_kernels_avx2, cpu_kernels_avx512, cpu_kernels_neon;

/* The best table for this machine. */
const struct cpu_kernels *cpu_kernels_best(void);

static inline size_t storage_size(enum storage s)
{
	return s == STORE_FP32 ? sizeof(float) : sizeof(uint16_t);
}

#endif

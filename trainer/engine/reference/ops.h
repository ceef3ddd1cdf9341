/* SPDX-License-Identifier: Apache-2.0
 * Every operation of a network on plain [n][c][h][w] arrays, straight from its definition. Included through fp32.h and
 * fp64.h, which choose the type. Gradients are added to dx, dw, dgamma and dbeta. */

/* l: an OP_CONV layer; w: [c_out][c_in][k][k]. */
void NAME(conv_forward)(const struct net_layer *l, int n, const REAL *x, const REAL *w, REAL *y);
void NAME(conv_backward_data)(const struct net_layer *l, int n, const REAL *dy, const REAL *w, REAL *dx);
void NAME(conv_backward_weights)(const struct net_layer *l, int n, const REAL *x, const REAL *dy, REAL *dw);

/* Mean and biased variance of each channel over images and pixels. */
void NAME(bn_statistics)(int n, int c, int pixels, const REAL *x, REAL *mean, REAL *var);
/* y = (x - mean) / sqrt(var + 1e-5) * gamma + beta, then ReLU where relu != 0. */
void NAME(bn_apply)(int n, int c, int pixels, int relu, const REAL *x, const REAL *mean, const REAL *var, const REAL *gamma,
                    const REAL *beta, REAL *y);
/* y: what bn_apply wrote (its zeros are the ReLU's mask). */
void NAME(bn_backward)(int n, int c, int pixels, int relu, const REAL *x, const REAL *y, const REAL *mean, const REAL *var,
                       const REAL *gamma, const REAL *dy, REAL *dx, REAL *dgamma, REAL *dbeta);

void NAME(relu_forward)(size_t count, const REAL *x, REAL *y);
void NAME(relu_backward)(size_t count, const REAL *y, const REAL *dy, REAL *dx);

/* l: OP_MAXPOOL, OP_AVGPOOL or OP_GLOBAL_AVGPOOL. The first of equal maxima takes the gradient, as in PyTorch. */
void NAME(pool_forward)(const struct net_layer *l, int n, const REAL *x, REAL *y);
void NAME(pool_backward)(const struct net_layer *l, int n, const REAL *x, const REAL *dy, REAL *dx);

/* w: [outputs][inputs] */
void NAME(linear_forward)(int n, int inputs, int outputs, const REAL *x, const REAL *w, const REAL *bias, REAL *y);
void NAME(linear_backward)(int n, int inputs, int outputs, const REAL *x, const REAL *w, const REAL *dy, REAL *dx, REAL *dw, REAL *dbias);

/* Loss of a batch (engine.h defines it) and its gradient by the logits. */
double NAME(loss)(const struct engine_conf *conf, const struct engine_batch *batch, const REAL *logits, REAL *dlogits);

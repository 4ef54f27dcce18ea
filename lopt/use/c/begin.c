/* @theta@: a learned optimizer, rule and weights, in C99.
 *
 * Type and options: @options@
 * Version of lopt that made the weights: @version@.
 * SPDX-License-Identifier: Apache-2.0 (the rule; the weights have the licence of @theta@)
 *
 * It needs the C library's math functions and no memory but what it is given. Include it in one
 * file of a program, or compile it by itself; other files then define LOPT_DECLARE before they
 * include it. It is C++, too. For two such files in one program, define LOPT_API as static before
 * each is included, in files of their own.
 *
 *   static const lopt_shape shapes[] = {{2, {8, 4}}, {1, {4}}};  weights [in, out] and biases
 *   static float p[8 * 4 + 4], g[8 * 4 + 4];                     all parameters, their gradients
 *   static float state[LOPT_STATE_2(8, 4) + LOPT_STATE_1(4)];    the sum over all tensors
 *   static float scratch[LOPT_MAX(LOPT_SCRATCH_2(8, 4), LOPT_SCRATCH_1(4))];  the largest
 *
 *   lopt_init(shapes, 2, state);
 *   for (step = 0; step < num_steps; ++step) {
 *     ... g becomes the gradient of the loss at p ...
 *     status = lopt_step(shapes, 2, step, num_steps, p, g, state, scratch);
 *   }
 *
 * Tensors that lie apart take a call each, with count 1 and a state of their own; they may share
 * scratch.
 */
#ifdef LOPT_EXPORTED
#if (LOPT_EXPORTED + 0) != LOPT_IDENTITY
#error "two exported optimizers in one source file: include each in a file of its own"
#endif
#else
#define LOPT_EXPORTED LOPT_IDENTITY /* of its options and weights */

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef LOPT_API
#define LOPT_API
#endif

/* A factor of every step, and a weight decay as in AdamW: the options lr and weight_decay of lopt's
 * other optimizers. */
#ifndef LOPT_LR
#define LOPT_LR 1.0f
#endif
#ifndef LOPT_WEIGHT_DECAY
#define LOPT_WEIGHT_DECAY 0.0f
#endif

/* A tensor has 0 to 4 axes of at least one element each; the last moves fastest. Matrices are [in,
 * out], kernels of convolutions [height, width, in, out]. */
typedef struct {
  int32_t axes;
  int32_t sizes[4];
} lopt_shape;

/* What lopt_init and lopt_step return. After any but LOPT_OK nothing has changed. */
enum {
  LOPT_OK = 0,
  LOPT_BAD_SHAPE = 1,   /* a tensor has more than 4 axes, or one without elements */
  LOPT_BAD_STEP = 2,    /* step is negative, or the rule needs num_steps and step is not below it */
  LOPT_BAD_GRADIENT = 3 /* a gradient is not finite */
};

#define LOPT_MAX(a, b) ((a) > (b) ? (a) : (b))
#define LOPT_MIN(a, b) ((a) < (b) ? (a) : (b))

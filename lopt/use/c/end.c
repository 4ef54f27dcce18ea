/* Floats of the state of a tensor, and of scratch, by its shape: _1 of a vector, _2 of a matrix and
 * so on. A tensor without axes counts as a vector of one element. */
#define LOPT_OF_1(macro, a) macro(a, a, 0, 0)
#define LOPT_OF_4(macro, a, b, c, d)                                                             \
  macro((size_t)(a) * (b) * (c) * (d), (size_t)(a) * (b) * (c) * (d) / LOPT_LARGEST(a, b, c, d), \
        (size_t)(a) * (b) * (c) * (d) / LOPT_SECOND(a, b, c, d),                                 \
        LOPT_MIN((size_t)(a) * (b) * (c), (size_t)(d)))
#define LOPT_LARGEST(a, b, c, d) LOPT_MAX(LOPT_MAX(a, b), LOPT_MAX(c, d))
#define LOPT_SECOND(a, b, c, d) \
  LOPT_MAX(LOPT_MAX(LOPT_MIN(a, b), LOPT_MIN(c, d)), LOPT_MIN(LOPT_MAX(a, b), LOPT_MAX(c, d)))
#define LOPT_STATE_1(a) LOPT_OF_1(LOPT_RULE_STATE, a)
#define LOPT_STATE_2(a, b) LOPT_STATE_4(1, 1, a, b)
#define LOPT_STATE_3(a, b, c) LOPT_STATE_4(1, a, b, c)
#define LOPT_STATE_4(a, b, c, d) LOPT_OF_4(LOPT_RULE_STATE, a, b, c, d)
#define LOPT_SCRATCH_1(a) ((size_t)(a) + LOPT_OF_1(LOPT_RULE_SCRATCH, a))
#define LOPT_SCRATCH_2(a, b) LOPT_SCRATCH_4(1, 1, a, b)
#define LOPT_SCRATCH_3(a, b, c) LOPT_SCRATCH_4(1, a, b, c)
#define LOPT_SCRATCH_4(a, b, c, d) \
  ((size_t)(a) * (b) * (c) * (d) + LOPT_OF_4(LOPT_RULE_SCRATCH, a, b, c, d))

/* Begins the state of `count` tensors of these shapes: the sum of their LOPT_STATE_n floats. */
LOPT_API int lopt_init(const lopt_shape* shapes, int32_t count, float* state);

/* One step: params and gradients have the tensors one after the other. `step` counts the steps that
 * the state has seen, 0 at the first, and num_steps is the length of the training, which is read
 * where LOPT_NEEDS_NUM_STEPS is 1. scratch: the largest LOPT_SCRATCH_n of the tensors. */
LOPT_API int lopt_step(const lopt_shape* shapes, int32_t count, int64_t step, int64_t num_steps,
                       float* params, const float* gradients, float* state, float* scratch);

#ifndef LOPT_DECLARE
/* Fills in the sizes. Returns whether the shape is good. */
static int lopt_measure(const lopt_shape* shape, lopt_tensor* x) {
  size_t largest = 1, second = 1, last;
  int a;
  if (shape->axes < 0 || shape->axes > 4) return 0;
  x->shape = shape;
  x->n = 1;
  for (a = 0; a < (int)shape->axes; ++a) {
    const size_t size = (size_t)shape->sizes[a];
    if (shape->sizes[a] < 1) return 0;
    x->n *= size;
    if (size >= largest) {
      second = largest;
      largest = size;
    } else if (size > second) {
      second = size;
    }
  }
  x->rows = x->n;
  x->columns = x->side = 0;
  if (shape->axes >= 2) {
    last = (size_t)shape->sizes[shape->axes - 1];
    x->rows = x->n / largest;
    x->columns = x->n / second;
    x->side = LOPT_MIN(x->n / last, last);
  }
  return 1;
}

LOPT_API int lopt_init(const lopt_shape* shapes, int32_t count, float* state) {
  int32_t k;
  lopt_tensor x;
  for (k = 0; k < count; ++k) {
    if (!lopt_measure(&shapes[k], &x)) return LOPT_BAD_SHAPE;
  }
  for (k = 0; k < count; ++k) {
    size_t i, size;
    lopt_measure(&shapes[k], &x);
    size = LOPT_RULE_STATE(x.n, x.rows, x.columns, x.side);
    for (i = 0; i < size; ++i) *state++ = 0.0f;
  }
  return LOPT_OK;
}

LOPT_API int lopt_step(const lopt_shape* shapes, int32_t count, int64_t step, int64_t num_steps,
                       float* params, const float* gradients, float* state, float* scratch) {
  const float* g = gradients;
  lopt_tensor x;
  size_t i;
  int32_t k;
  if (step < 0 || (LOPT_NEEDS_NUM_STEPS && step >= num_steps)) return LOPT_BAD_STEP;
  for (k = 0; k < count; ++k) {
    if (!lopt_measure(&shapes[k], &x)) return LOPT_BAD_SHAPE;
    for (i = 0; i < x.n; ++i) {
      if (!isfinite(*g++)) return LOPT_BAD_GRADIENT;
    }
  }
  for (k = 0; k < count; ++k) {
    lopt_measure(&shapes[k], &x);
    x.p = params;
    x.g = gradients;
    x.step = scratch;
    LOPT_RULE_STEP(&x, step, num_steps, state, scratch + x.n);
    if ((LOPT_WEIGHT_DECAY) > 0) {
      /* 0.2: the root of the mean square of AdamW's steps beside its learning rate, about. */
      double squares = 0;
      float part;
      for (i = 0; i < x.n; ++i) squares += (double)x.step[i] * x.step[i];
      part = (float)((LOPT_WEIGHT_DECAY) / 0.2 * sqrt(squares / (double)x.n));
      for (i = 0; i < x.n; ++i) x.step[i] += part * params[i];
    }
    for (i = 0; i < x.n; ++i) params[i] -= x.step[i] * (float)(LOPT_LR);
    params += x.n;
    gradients += x.n;
    state += LOPT_RULE_STATE(x.n, x.rows, x.columns, x.side);
  }
  return LOPT_OK;
}
#endif /* LOPT_DECLARE */

#ifdef __cplusplus
}
#endif
#endif /* LOPT_EXPORTED */

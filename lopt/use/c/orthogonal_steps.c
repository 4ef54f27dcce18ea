/* OrthogonalSteps: a step s of two axes or more, as a matrix of its last axis and all others,
 * becomes |s| y / |y|, where y is s / |s| after five Newton-Schulz iterations. */
#define LOPT_ORTHOGONAL_STATE(n, rows, columns, side) \
  LOPT_ORTHOGONAL_OF_STATE(n, rows, columns, side)
#define LOPT_ORTHOGONAL_SCRATCH(n, rows, columns, side)        \
  LOPT_MAX(LOPT_ORTHOGONAL_OF_SCRATCH(n, rows, columns, side), \
           (size_t)(side) * (2 * (size_t)(side) + 1))

#ifndef LOPT_DECLARE
/* y <- 3.4445 y + (-4.775 a + 2.0315 a a) y with a = y y^T. Vectors of `side` numbers `apart` lie
 * side by side in y, so many as `length`, `next` between them. scratch: [side (2 side + 1)]. */
static void lopt_newton_schulz(float* y, size_t side, size_t apart, size_t length, size_t next,
                               float* scratch) {
  float* a = scratch;
  float* b = a + side * side;
  float* moved = b + side * side;
  size_t i, j, k;
  for (i = 0; i < side; ++i) {
    for (j = 0; j <= i; ++j) {
      const float* u = y + i * apart;
      const float* v = y + j * apart;
      float sum = 0.0f;
      for (k = 0; k < length; ++k) sum += u[k * next] * v[k * next];
      a[i * side + j] = a[j * side + i] = sum;
    }
  }
  for (i = 0; i < side; ++i) {
    for (j = 0; j <= i; ++j) {
      float sum = 0.0f;
      for (k = 0; k < side; ++k) sum += a[i * side + k] * a[j * side + k];
      b[i * side + j] = b[j * side + i] = -4.775f * a[i * side + j] + 2.0315f * sum;
    }
  }
  for (k = 0; k < length; ++k) {
    float* v = y + k * next;
    for (i = 0; i < side; ++i) {
      float sum = 3.4445f * v[i * apart];
      for (j = 0; j < side; ++j) sum += b[i * side + j] * v[j * apart];
      moved[i] = sum;
    }
    for (i = 0; i < side; ++i) v[i * apart] = moved[i];
  }
}

static double lopt_norm(const float* x, size_t n) {
  double sum = 0;
  size_t i;
  for (i = 0; i < n; ++i) sum += (double)x[i] * x[i];
  return sqrt(sum);
}

static void lopt_orthogonal_step(const lopt_tensor* x, int64_t step, int64_t num_steps,
                                 float* state, float* scratch) {
  float* s = x->step;
  double size;
  size_t i;
  int iteration;
  LOPT_ORTHOGONAL_OF_STEP(x, step, num_steps, state, scratch);
  if (x->side == 0) return;
  /* The step as the parameters make it. */
  for (i = 0; i < x->n; ++i) {
    const float next = x->p[i] - s[i];
    s[i] = lopt_flushed(x->p[i] - next);
  }
  size = lopt_norm(s, x->n);
  if (size == 0) return;
  for (i = 0; i < x->n; ++i) s[i] = (float)(s[i] / size);
  for (iteration = 0; iteration < 5; ++iteration) {
    const size_t columns = (size_t)x->shape->sizes[x->shape->axes - 1];
    const size_t rows = x->n / columns;
    if (rows > columns) {
      lopt_newton_schulz(s, columns, 1, rows, columns, scratch);
    } else {
      lopt_newton_schulz(s, rows, columns, columns, 1, scratch);
    }
  }
  size /= lopt_norm(s, x->n);
  for (i = 0; i < x->n; ++i) s[i] = (float)(size * s[i]);
}
#endif

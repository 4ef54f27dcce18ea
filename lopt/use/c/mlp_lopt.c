/* MLPLOpt: a network maps the gradient, the parameter, six momenta of the gradient, each divided by
 * its root mean square over the tensor, and the time to a step. */
#define LOPT_MLP_STATE(n, rows, columns, side) (6 * (size_t)(n))
#define LOPT_MLP_SCRATCH(n, rows, columns, side) LOPT_NETWORK_SCRATCH

#ifndef LOPT_DECLARE
/* What multiplies a tensor's steps. sums: of the squares of the features before they are
 * normalised. */
static double lopt_mlp_multiplier(size_t n, const double* sums, int64_t step, int64_t num_steps) {
  double multiplier = LOPT_STEP_MULT * lopt_schedule_factor(&lopt_mlp_schedule, step, num_steps);
#if LOPT_RELATIVE_STEP
  {
    /* The slowest decay as a float has it. */
    const double gradient = sqrt(sums[0]) * (1 - pow((double)0.9999f, (double)(step + 1)));
    const double slowest = sqrt(sums[7]);
    if (gradient == 0) return 0;
    if (gradient < slowest) multiplier *= gradient / slowest;
  }
#endif
#if LOPT_RELATIVE_TO_PARAMETER
  multiplier *= fmax(sqrt(sums[1] / (double)n), 1e-3);
#endif
  (void)n;
  (void)sums;
  return multiplier;
}

/* x^2, or 0 in place of one that is no normal float. */
static double lopt_normal_square(float x) {
  const double square = (double)x * x;
  return square < (double)1.17549435e-38f ? 0.0 : square;
}

/* state: six momenta of each element, [n, 6]. */
static void lopt_mlp_step(const lopt_tensor* x, int64_t step, int64_t num_steps, float* state,
                          float* scratch) {
  static const float decays[6] = {0.1f, 0.5f, 0.9f, 0.99f, 0.999f, 0.9999f};
  float* bias = scratch;
  float* a = bias + LOPT_HIDDEN_SIZE;
  float* b = a + LOPT_HIDDEN_SIZE;
  double sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  float scales[8], features[8];
  float multiplier;
  size_t i, k;
  for (i = 0; i < x->n; ++i) {
    float* m = state + 6 * i;
    sums[0] += lopt_normal_square(x->g[i]);
    sums[1] += lopt_normal_square(x->p[i]);
    for (k = 0; k < 6; ++k) {
      m[k] = lopt_flushed(decays[k] * m[k] + (1.0f - decays[k]) * x->g[i]);
      sums[2 + k] += lopt_normal_square(m[k]);
    }
  }
  for (k = 0; k < 8; ++k) scales[k] = lopt_normalizer(LOPT_NORMALIZER_EPSILON, sums[k], x->n);
  multiplier = (float)lopt_mlp_multiplier(x->n, sums, step, num_steps);
  lopt_time_bias(step, num_steps, bias);
  for (i = 0; i < x->n; ++i) {
    features[0] = x->g[i] * scales[0];
    features[1] = x->p[i] * scales[1];
    for (k = 0; k < 6; ++k) features[2 + k] = state[6 * i + k] * scales[2 + k];
    x->step[i] = lopt_network(features, bias, a, b) * multiplier;
  }
}
#endif

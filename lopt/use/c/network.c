/* The network: LOPT_FEATURES inputs of an element, then those of the time; hidden layers with ReLU;
 * two outputs. */
#define LOPT_TIMES (11 + 2 * LOPT_PROGRESS)
#define LOPT_NETWORK_SCRATCH (3 * (size_t)LOPT_HIDDEN_SIZE)

#ifndef LOPT_DECLARE
/* y <- y + x row. */
static void lopt_add_row(float x, const float* row, float* y) {
  int j;
  for (j = 0; j < LOPT_HIDDEN_SIZE; ++j) y[j] += x * row[j];
}

/* The first layer's bias with the part of the time, which is the same for all elements,
 * [LOPT_HIDDEN_SIZE]. */
static void lopt_time_bias(int64_t step, int64_t num_steps, float* bias) {
  static const float scales[11] = {1.0f,    3.0f,    10.0f,    30.0f,    100.0f,   300.0f,
                                   1000.0f, 3000.0f, 10000.0f, 30000.0f, 100000.0f};
  const float* w = lopt_weights + LOPT_FEATURES * LOPT_HIDDEN_SIZE;
  const float* b = w + LOPT_TIMES * LOPT_HIDDEN_SIZE;
  int j, k;
  for (j = 0; j < LOPT_HIDDEN_SIZE; ++j) bias[j] = b[j];
  for (k = 0; k < 11; ++k) {
    lopt_add_row(tanhf((float)step / scales[k] - 1.0f), w + k * LOPT_HIDDEN_SIZE, bias);
  }
#if LOPT_PROGRESS
  lopt_add_row((float)((double)step / (double)num_steps), w + 11 * LOPT_HIDDEN_SIZE, bias);
  lopt_add_row((float)(log((double)num_steps) / 10), w + 12 * LOPT_HIDDEN_SIZE, bias);
#else
  (void)num_steps;
#endif
}

/* The step, before its factors, of an element with these features. a, b: [LOPT_HIDDEN_SIZE] each.
 */
static float lopt_network(const float* features, const float* bias, float* a, float* b) {
  const float* w = lopt_weights;
  float outputs[2];
  int i, j, layer;
  for (j = 0; j < LOPT_HIDDEN_SIZE; ++j) a[j] = bias[j];
  for (i = 0; i < LOPT_FEATURES; ++i) {
    lopt_add_row(features[i], w, a);
    w += LOPT_HIDDEN_SIZE;
  }
  w += (LOPT_TIMES + 1) * LOPT_HIDDEN_SIZE;
  for (layer = 1; layer < LOPT_HIDDEN_LAYERS; ++layer) {
    float* swapped = a;
    for (j = 0; j < LOPT_HIDDEN_SIZE; ++j) b[j] = w[LOPT_HIDDEN_SIZE * LOPT_HIDDEN_SIZE + j];
    for (i = 0; i < LOPT_HIDDEN_SIZE; ++i) {
      if (a[i] > 0.0f) lopt_add_row(a[i], w, b);
      w += LOPT_HIDDEN_SIZE;
    }
    w += LOPT_HIDDEN_SIZE;
    a = b;
    b = swapped;
  }
  outputs[0] = w[2 * LOPT_HIDDEN_SIZE];
  outputs[1] = w[2 * LOPT_HIDDEN_SIZE + 1];
  for (i = 0; i < LOPT_HIDDEN_SIZE; ++i) {
    if (a[i] > 0.0f) {
      outputs[0] += a[i] * w[2 * i];
      outputs[1] += a[i] * w[2 * i + 1];
    }
  }
  return outputs[0] * expf(outputs[1] * LOPT_EXP_MULT);
}

/* What a feature is multiplied by, given the sum of its squares over a tensor of n elements. */
static float lopt_normalizer(double epsilon, double sum, size_t n) {
  return (float)(1 / sqrt(epsilon + sum / (double)n));
}
#endif

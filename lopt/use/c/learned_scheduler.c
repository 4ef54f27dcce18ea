/* LearnedScheduler: of another rule's steps only the directions are kept. A small network, which
 * sees how the training of a tensor goes, says how large the step is and how much the tensor
 * decays. */
#define LOPT_SCHEDULER_STATE(n, rows, columns, side) \
  (LOPT_SCHEDULER_OF_STATE(n, rows, columns, side) + (size_t)(n) + 5)
#define LOPT_SCHEDULER_SCRATCH(n, rows, columns, side) \
  LOPT_SCHEDULER_OF_SCRATCH(n, rows, columns, side)

#ifndef LOPT_DECLARE
static double lopt_dot(const float* x, const float* y, size_t n) {
  double sum = 0;
  size_t i;
  for (i = 0; i < n; ++i) sum += (double)x[i] * y[i];
  return sum;
}

static double lopt_cosine(double xy, double xx, double yy) {
  return xx > 0 && yy > 0 ? xy / sqrt(xx) / sqrt(yy) : 0;
}

/* Updates the means, [5], and forms the network's features, [11]. step2: the sum of the squares of
 * x->step. */
static void lopt_scheduler_features(const lopt_tensor* x, int64_t step, int64_t num_steps,
                                    const float* last, float* means, double step2, double* f) {
  static const double decays[5] = {0.9, 0.99, 0.9, 0.999, 0.9};
  const double n = (double)x->n;
  const double t = (double)step;
  const double steps = (double)num_steps;
  const double columns = x->shape->axes > 0 ? (double)x->shape->sizes[x->shape->axes - 1] : 1.0;
  const double gradient2 = lopt_dot(x->g, x->g, x->n);
  double values[5], m[5];
  int i;
  values[0] = lopt_cosine(lopt_dot(x->g, last, x->n), gradient2, lopt_dot(last, last, x->n));
  values[1] = values[0];
  values[2] = lopt_cosine(step2 > 0 ? lopt_dot(x->g, x->step, x->n) : 0, gradient2, step2);
  values[3] = fmin(gradient2 / n, 1e30);
  values[4] = values[3];
  for (i = 0; i < 5; ++i) {
    means[i] = lopt_flushed((float)(decays[i] * means[i] + (1 - decays[i]) * values[i]));
    m[i] = means[i] / (1 - pow(decays[i], t + 1));
  }
  f[0] = 2 * t / steps - 1;
  f[1] = (log(steps) - 5.5) / 2;
  f[2] = exp(-t / 10);
  f[3] = 3 * m[0];
  f[4] = 5 * m[1];
  f[5] = 3 * m[2] - 1;
  f[6] = m[3] > 0 && m[4] > 0 ? fmin(fmax(log(m[4] / m[3]) / 2, -20.0), 3.0) : -20.0;
  f[7] = (log(fmax(lopt_dot(x->p, x->p, x->n) / n, 1e-8)) / 2 + 2) / 2;
  f[8] = (log(n / columns) - 3) / 2;
  f[9] = (log(columns) - 3) / 2;
  f[10] = x->shape->axes >= 2 ? 1.0 : -1.0;
}

/* outputs: [2]. */
static void lopt_scheduler_network(const double* f, double* outputs) {
  const float* v = lopt_scheduler_theta;
  const float* d = v + 11 * LOPT_SCHEDULER_HIDDEN_SIZE;
  const float* w = d + LOPT_SCHEDULER_HIDDEN_SIZE;
  const float* b = w + 2 * (11 + LOPT_SCHEDULER_HIDDEN_SIZE);
  int i, j;
  outputs[0] = b[0];
  outputs[1] = b[1];
  for (j = 0; j < 11 + LOPT_SCHEDULER_HIDDEN_SIZE; ++j) {
    double x;
    if (j < 11) {
      x = f[j];
    } else {
      x = d[j - 11];
      for (i = 0; i < 11; ++i) x += f[i] * v[i * LOPT_SCHEDULER_HIDDEN_SIZE + j - 11];
      x = tanh(x);
    }
    outputs[0] += x * w[2 * j];
    outputs[1] += x * w[2 * j + 1];
  }
}

/* state: the other rule's, the last step [n], the means [5]. */
static void lopt_scheduler_step(const lopt_tensor* x, int64_t step, int64_t num_steps, float* state,
                                float* scratch) {
  float* last = state + LOPT_SCHEDULER_OF_STATE(x->n, x->rows, x->columns, x->side);
  float* s = x->step;
  const double factor = lopt_schedule_factor(&lopt_scheduler_schedule, step, num_steps);
  double f[11], outputs[2];
  double step2, longest, wanted, exact;
  float scale, decay, next;
  int wide;
  size_t i;
  LOPT_SCHEDULER_OF_STEP(x, step, num_steps, state, scratch);
  /* The step as the parameters make it. */
  for (i = 0; i < x->n; ++i) {
    next = x->p[i] - s[i];
    s[i] = lopt_flushed(x->p[i] - next);
  }
  step2 = lopt_dot(s, s, x->n);
  if (!isfinite(step2)) {
    /* A step that is too large for float: the parameters show it, the state stays finite. */
    lopt_scheduler_features(x, step, num_steps, last, last + x->n, 0, f);
    for (i = 0; i < x->n; ++i) last[i] = 0.0f;
    return;
  }
  lopt_scheduler_features(x, step, num_steps, last, last + x->n, step2, f);
  lopt_scheduler_network(f, outputs);
  longest = x->shape->axes > 0 ? (double)x->shape->sizes[x->shape->axes - 1] : 1.0;
  longest = fmax(longest, (double)x->n / longest);
  wanted = LOPT_STEP_SIZE * factor * exp(fmin(outputs[0], 10.0)) / sqrt(longest);
  exact = step2 > 0 ? wanted / sqrt(step2 / (double)x->n) : 0;
  scale = (float)exact;
  /* Steps so small or so large that a float does not hold their factor. */
  wide = exact > 0 && !isnormal(scale);
  decay = (float)fmin(1.0, LOPT_SCHEDULER_WEIGHT_DECAY * factor * exp(fmin(2 * outputs[1], 10.0)));
  for (i = 0; i < x->n; ++i) {
    last[i] = lopt_flushed(wide ? (float)(exact * s[i]) : scale * s[i]);
    next = (x->p[i] - last[i]) - decay * x->p[i];
    s[i] = x->p[i] - next;
  }
}
#endif

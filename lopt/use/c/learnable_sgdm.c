/* LearnableSGDM: b <- g + (1 - exp(theta[1])) b, step = exp(theta[0]) b. */
#define LOPT_SGDM_STATE(n, rows, columns, side) ((size_t)(n))
#define LOPT_SGDM_SCRATCH(n, rows, columns, side) ((size_t)0)

#ifndef LOPT_DECLARE
static void lopt_sgdm_step(const lopt_tensor* x, int64_t step, int64_t num_steps, float* state,
                           float* scratch) {
  const float momentum = 1.0f - expf(lopt_sgdm_theta[1]);
  const float rate = (float)(expf(lopt_sgdm_theta[0]) *
                             lopt_schedule_factor(&lopt_sgdm_schedule, step, num_steps));
  size_t i;
  (void)scratch;
  for (i = 0; i < x->n; ++i) {
    state[i] = lopt_flushed(momentum * state[i] + x->g[i]);
    x->step[i] = rate * state[i];
  }
}
#endif

#ifndef LOPT_DECLARE
enum { LOPT_CONSTANT, LOPT_LINEAR, LOPT_COSINE, LOPT_WARMUP, LOPT_WARMUP_COSINE, LOPT_PIECEWISE };
typedef struct {
  int type;
  double warmup_steps;
  double warmup_fraction;
  double start_scale;
  int rises_at_once;
  double total_steps; /* 0: num_steps */
  double final_scale;
  int num_boundaries;
  double boundaries[LOPT_MAX_BOUNDARIES];
  double scales[LOPT_MAX_BOUNDARIES + 1];
} lopt_schedule;

/* What multiplies a step. */
static double lopt_schedule_factor(const lopt_schedule* s, int64_t step, int64_t num_steps) {
  const double t = (double)step;
  const double total = s->total_steps > 0 ? s->total_steps : (double)num_steps;
  const double rise = s->warmup_steps + s->warmup_fraction * total;
  double done;
  int i;
  if (s->type == LOPT_CONSTANT) return 1;
  if (s->type == LOPT_PIECEWISE) {
    double scale = s->scales[0];
    for (i = 0; i < s->num_boundaries; ++i) {
      if (t >= s->boundaries[i]) scale = s->scales[i + 1];
    }
    return scale;
  }
  if (t < rise) {
    return s->start_scale + (1 - s->start_scale) * fmin(1.0, (s->rises_at_once ? t + 1 : t) / rise);
  }
  if (s->type == LOPT_WARMUP) return 1;
  done = fmin(1.0, (t - rise) / (total - rise));
  if (s->type == LOPT_LINEAR) return 1 - done;
  return s->final_scale + (1 - s->final_scale) * 0.5 * (1 + cos(3.141592653589793 * done));
}
#endif

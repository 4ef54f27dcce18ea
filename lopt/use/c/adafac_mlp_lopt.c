/* AdafacMLPLOpt: as MLPLOpt, of momenta, means of squares and second moments that are kept as the
 * product of rows and columns, as in Adafactor. */
#define LOPT_ADAFAC_STATE(n, rows, columns, side) \
  ((LOPT_MOMENTA + LOPT_SQUARES) * (size_t)(n) +  \
   LOPT_MOMENTA * ((size_t)(rows) + (size_t)(columns)))
#define LOPT_ADAFAC_SCRATCH(n, rows, columns, side) \
  (LOPT_NETWORK_SCRATCH + (LOPT_MOMENTA + 1) * ((size_t)(rows) + (size_t)(columns)))

#ifndef LOPT_DECLARE
/* An axis of a tensor. */
typedef struct {
  size_t size;
  size_t after; /* elements between neighbours along it */
} lopt_axis;

/* A tensor's state and what is formed of it. A tensor of fewer than two axes has its second moments
 * in row. */
typedef struct {
  const lopt_tensor* x;
  float* m;   /* [n, LOPT_MOMENTA] */
  float* r;   /* [n, LOPT_SQUARES] */
  float* row; /* [rows, LOPT_MOMENTA] */
  float* col; /* [columns, LOPT_MOMENTA] */
  lopt_axis largest;
  lopt_axis second;    /* in the tensor */
  size_t second_after; /* in row, which lacks the largest axis */
  float* row_factors;  /* as row */
  float* col_factors;  /* as col */
} lopt_adafac;

/* Where element i is once the axis is averaged away. */
static size_t lopt_without(size_t i, const lopt_axis* axis) {
  return i / (axis->size * axis->after) * axis->after + i % axis->after;
}

/* The two largest axes; of equal ones the later counts as larger. */
static void lopt_adafac_axes(lopt_adafac* s) {
  const int32_t* sizes = s->x->shape->sizes;
  const int axes = (int)s->x->shape->axes;
  int largest = sizes[0] > sizes[1] ? 0 : 1;
  int second = 1 - largest;
  int a;
  for (a = 2; a < axes; ++a) {
    if (sizes[a] >= sizes[largest]) {
      second = largest;
      largest = a;
    } else if (sizes[a] >= sizes[second]) {
      second = a;
    }
  }
  s->largest.size = (size_t)sizes[largest];
  s->second.size = (size_t)sizes[second];
  s->largest.after = s->second.after = 1;
  for (a = largest + 1; a < axes; ++a) s->largest.after *= (size_t)sizes[a];
  for (a = second + 1; a < axes; ++a) s->second.after *= (size_t)sizes[a];
  s->second_after = largest > second ? s->second.after / s->largest.size : s->second.after;
}

static float lopt_rsqrt(float x) { return 1.0f / sqrtf(x); }
static float lopt_floored_rsqrt(float x) { return lopt_rsqrt(LOPT_MAX(x, 1e-9f)); }
static float lopt_square(float g) { return LOPT_MIN(g * g, 1e30f); }

static void lopt_decay(float decay, float value, float* average) {
  *average = lopt_flushed(decay * *average + (1.0f - decay) * value);
}

/* Updates the second moments of a tensor of two axes or more and forms its factors. means: [rows +
 * columns]. */
static void lopt_adafac_factors(lopt_adafac* s, float* means) {
  const lopt_tensor* x = s->x;
  float* row_means = means;
  float* col_means = means + x->rows;
  const size_t block = s->second.size * s->second_after;
  size_t i, begin, j;
  size_t k;
  for (i = 0; i < x->rows + x->columns; ++i) means[i] = 0.0f;
  for (i = 0; i < x->n; ++i) {
    const float square = lopt_square(x->g[i]) + 1e-30f;
    row_means[lopt_without(i, &s->largest)] += square;
    col_means[lopt_without(i, &s->second)] += square;
  }
  for (k = 0; k < LOPT_MOMENTA; ++k) {
    for (i = 0; i < x->rows; ++i) {
      lopt_decay(lopt_moment_decays[k], row_means[i] / (float)s->largest.size,
                 &s->row[i * LOPT_MOMENTA + k]);
    }
    for (i = 0; i < x->columns; ++i) {
      float* v = &s->col[i * LOPT_MOMENTA + k];
      lopt_decay(lopt_moment_decays[k], col_means[i] / (float)s->second.size, v);
      s->col_factors[i * LOPT_MOMENTA + k] = lopt_floored_rsqrt(*v);
    }
    for (begin = 0; begin < x->rows; begin += block) {
      for (j = 0; j < s->second_after; ++j) {
        float sum = 0.0f;
        for (i = begin + j; i < begin + block; i += s->second_after) {
          sum += s->row[i * LOPT_MOMENTA + k];
        }
        for (i = begin + j; i < begin + block; i += s->second_after) {
          s->row_factors[i * LOPT_MOMENTA + k] = lopt_floored_rsqrt(
              s->row[i * LOPT_MOMENTA + k] / (sum / (float)s->second.size + 1e-9f));
        }
      }
    }
  }
}

/* The features of element i before they are normalised. */
static void lopt_adafac_features(const lopt_adafac* s, size_t i, float* f) {
  const float g = s->x->g[i];
  const float* m = s->m + i * LOPT_MOMENTA;
  const float* r = s->r + i * LOPT_SQUARES;
  const int matrix = s->x->columns > 0;
  const size_t at_row = matrix ? lopt_without(i, &s->largest) * LOPT_MOMENTA : i * LOPT_MOMENTA;
  const size_t at_col = matrix ? lopt_without(i, &s->second) * LOPT_MOMENTA : 0;
  size_t k;
  *f++ = g;
  *f++ = s->x->p[i];
  for (k = 0; k < LOPT_MOMENTA; ++k) *f++ = m[k];
  for (k = 0; k < LOPT_SQUARES; ++k) *f++ = r[k];
  for (k = 0; k < LOPT_MOMENTA; ++k) {
    *f++ = m[k] * lopt_rsqrt(r[LOPT_SQUARES == 1 ? 0 : k] + 1e-6f);
  }
  for (k = 0; k < LOPT_SQUARES; ++k) *f++ = lopt_rsqrt(r[k] + 1e-6f);
  for (k = 0; k < LOPT_MOMENTA; ++k) {
    const float row = s->row[at_row + k];
    const float col = matrix ? s->col[at_col + k] : row;
    const float factor = matrix ? s->row_factors[at_row + k] * s->col_factors[at_col + k] : 0.0f;
    f[0] = g * (matrix ? factor : lopt_floored_rsqrt(row + 1e-9f));
    f[LOPT_MOMENTA] = row;
    f[2 * LOPT_MOMENTA] = col;
    f[3 * LOPT_MOMENTA] = lopt_rsqrt(row + 1e-8f);
    f[4 * LOPT_MOMENTA] = lopt_rsqrt(col + 1e-8f);
    f[5 * LOPT_MOMENTA] = m[k] * (matrix ? factor : lopt_rsqrt(row + 1e-6f));
    ++f;
  }
}

static void lopt_adafac_step(const lopt_tensor* x, int64_t step, int64_t num_steps, float* state,
                             float* scratch) {
  const size_t moments = LOPT_MOMENTA * (x->rows + x->columns);
  float* bias = scratch + moments + x->rows + x->columns;
  float* a = bias + LOPT_HIDDEN_SIZE;
  float* b = a + LOPT_HIDDEN_SIZE;
  double sums[LOPT_FEATURES];
  float features[LOPT_FEATURES];
  lopt_adafac s;
  size_t i;
  size_t k;
  s.x = x;
  s.m = state;
  s.r = s.m + LOPT_MOMENTA * x->n;
  s.row = s.r + LOPT_SQUARES * x->n;
  s.col = s.row + LOPT_MOMENTA * x->rows;
  s.row_factors = scratch;
  s.col_factors = scratch + LOPT_MOMENTA * x->rows;
  if (x->columns > 0) {
    lopt_adafac_axes(&s);
    lopt_adafac_factors(&s, scratch + moments);
  }
  for (k = 0; k < LOPT_FEATURES; ++k) sums[k] = 0;
  for (i = 0; i < x->n; ++i) {
    const float square = lopt_square(x->g[i]);
    for (k = 0; k < LOPT_MOMENTA; ++k) {
      lopt_decay(lopt_momentum_decays[k], x->g[i], &s.m[i * LOPT_MOMENTA + k]);
    }
    for (k = 0; k < LOPT_SQUARES; ++k) {
      lopt_decay(lopt_square_decays[k], square, &s.r[i * LOPT_SQUARES + k]);
    }
    for (k = 0; k < LOPT_MOMENTA && x->columns == 0; ++k) {
      lopt_decay(lopt_moment_decays[k], square + 1e-30f, &s.row[i * LOPT_MOMENTA + k]);
    }
    lopt_adafac_features(&s, i, features);
    for (k = 0; k < LOPT_FEATURES; ++k) sums[k] += (double)features[k] * features[k];
  }
  lopt_time_bias(step, num_steps, bias);
  for (i = 0; i < x->n; ++i) {
    lopt_adafac_features(&s, i, features);
    for (k = 0; k < LOPT_FEATURES; ++k) features[k] *= lopt_normalizer(1e-5, sums[k], x->n);
    x->step[i] = lopt_network(features, bias, a, b) * LOPT_STEP_MULT;
  }
}
#endif

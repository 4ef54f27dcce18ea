#ifndef LOPT_DECLARE
/* A tensor of an update. */
typedef struct {
  const lopt_shape* shape;
  size_t n;       /* elements */
  size_t rows;    /* of two axes or more: elements without the largest axis; else n */
  size_t columns; /* elements without the second largest axis; else 0 */
  size_t side;    /* of the matrix of its last axis and all others, the shorter; else 0 */
  const float* p;
  const float* g;
  float* step; /* [n] what a rule writes: p - step is the new p */
} lopt_tensor;

/* x, or 0 in place of a denormal number. */
static float lopt_flushed(float x) { return fabsf(x) < 1.17549435e-38f ? 0.0f : x; }
#endif

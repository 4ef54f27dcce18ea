/* A network of 33 weights learns to hold a pendulum upright, as a program of a robot would: without
 * an allocation, with gradients written out by hand and an optimizer that lopt has exported:
 *   lopt export recommended --format c --out recommended.c
 * It is trained through a model of the pendulum, and fails unless it holds it upright then. */
#include <stdio.h>

#include "recommended.c"

#define HIDDEN 8
#define STARTS 8
#define TIMES 40
#define TRAINING 300
static const float kInterval = 0.05f; /* s */
static const float kGravity = 9.81f;  /* over length, 1/s^2 */
static const float kTorque = 12.0f;   /* the largest */

/* Weights [in, out] and biases, one tensor after the other. */
enum {
  W = 0,
  B = W + 2 * HIDDEN,
  V = B + HIDDEN,
  C = V + HIDDEN,
  WEIGHTS = C + 1,
};
static const lopt_shape kShapes[] = {{2, {2, HIDDEN}}, {1, {HIDDEN}}, {2, {HIDDEN, 1}}, {1, {1}}};
static float weights[WEIGHTS], gradient[WEIGHTS];
static float state[LOPT_STATE_2(2, HIDDEN) + LOPT_STATE_1(HIDDEN) + LOPT_STATE_2(HIDDEN, 1) +
                   LOPT_STATE_1(1)];
/* As large as the largest; those of the others are smaller. */
static float scratch[LOPT_MAX(LOPT_SCRATCH_2(2, HIDDEN), LOPT_SCRATCH_2(HIDDEN, 1))];

/* The pendulum at one time: its angle from upright and angular velocity, what the network makes of
 * them, and the torque. */
typedef struct {
  float angle, velocity, hidden[HIDDEN], torque;
} moment;
static moment run[TIMES + 1];

static void act(moment* m) {
  float out = weights[C];
  int j;
  for (j = 0; j < HIDDEN; ++j) {
    m->hidden[j] =
        tanhf(weights[W + j] * m->angle + weights[W + HIDDEN + j] * m->velocity + weights[B + j]);
    out += weights[V + j] * m->hidden[j];
  }
  m->torque = kTorque * tanhf(out);
}

static void move(const moment* m, moment* next) {
  next->velocity = m->velocity + kInterval * (kGravity * sinf(m->angle) + m->torque);
  next->angle = m->angle + kInterval * next->velocity;
}

/* Runs the pendulum from an angle. Returns the cost, the mean of angle^2 + velocity^2 / 10 +
 * torque^2 / 1000. */
static float cost_from(float angle) {
  float cost = 0;
  int t;
  run[0].angle = angle;
  run[0].velocity = 0;
  for (t = 0; t < TIMES; ++t) {
    moment* next = &run[t + 1];
    act(&run[t]);
    move(&run[t], next);
    cost += next->angle * next->angle + 0.1f * next->velocity * next->velocity +
            1e-3f * run[t].torque * run[t].torque;
  }
  return cost / TIMES;
}

/* Adds the gradient of the last run's cost, backwards in time. */
static void add_gradient(void) {
  float d_angle = 0, d_velocity = 0; /* of the cost by those of time t + 1 */
  int t, j;
  for (t = TIMES - 1; t >= 0; --t) {
    const moment* m = &run[t];
    float d_torque, d_out;
    d_angle += 2 * run[t + 1].angle / TIMES;
    d_velocity += 0.2f * run[t + 1].velocity / TIMES + kInterval * d_angle;
    d_torque = kInterval * d_velocity + 2e-3f * m->torque / TIMES;
    d_angle += kInterval * kGravity * cosf(m->angle) * d_velocity;
    d_out = d_torque * (kTorque - m->torque * m->torque / kTorque);
    gradient[C] += d_out;
    for (j = 0; j < HIDDEN; ++j) {
      const float d_sum = d_out * weights[V + j] * (1 - m->hidden[j] * m->hidden[j]);
      gradient[V + j] += d_out * m->hidden[j];
      gradient[B + j] += d_sum;
      gradient[W + j] += d_sum * m->angle;
      gradient[W + HIDDEN + j] += d_sum * m->velocity;
      d_angle += d_sum * weights[W + j];
      d_velocity += d_sum * weights[W + HIDDEN + j];
    }
  }
}

/* The mean cost over the starts, from -0.7 to 0.7 radians, and its gradient. */
static float evaluate(void) {
  float cost = 0;
  int k;
  for (k = 0; k < WEIGHTS; ++k) gradient[k] = 0;
  for (k = 0; k < STARTS; ++k) {
    cost += cost_from(-0.7f + 0.2f * (float)k) / STARTS;
    add_gradient();
  }
  for (k = 0; k < WEIGHTS; ++k) gradient[k] /= STARTS;
  return cost;
}

int main(void) {
  uint32_t random = 1;
  float first, last = 0;
  int k;
  for (k = 0; k < WEIGHTS; ++k) {
    random = random * 1664525u + 1013904223u;
    weights[k] = (float)(random >> 8) / 16777216.0f - 0.5f;
  }

  /* The gradient that is written out is that of the cost. */
  evaluate();
  for (k = 0; k < WEIGHTS; ++k) {
    const float weight = weights[k], slope = gradient[k];
    float above, below;
    weights[k] = weight + 1e-3f;
    above = evaluate();
    weights[k] = weight - 1e-3f;
    below = evaluate();
    weights[k] = weight;
    if (!(fabsf((above - below) / 2e-3f - slope) <= 0.02f * (1 + fabsf(slope)))) {
      printf("weight %d: the gradient is %g, by differences %g\n", k, slope,
             (above - below) / 2e-3f);
      return 1;
    }
  }

  first = evaluate();
  lopt_init(kShapes, 4, state);
  for (k = 0; k < TRAINING; ++k) {
    int status;
    last = evaluate();
    status = lopt_step(kShapes, 4, k, TRAINING, weights, gradient, state, scratch);
    if (status != LOPT_OK) {
      printf("step %d: lopt_step returned %d\n", k, status);
      return 1;
    }
    if (k % 50 == 0) printf("step %d: cost %g\n", k, last);
  }
  last = evaluate();
  cost_from(0.6f);
  printf("cost %g, before the training %g\n", last, first);
  printf("from 0.6 radians it is at %g after %g s\n", run[TIMES].angle, TIMES * kInterval);
  if (!(last < 0.06f && fabsf(run[TIMES].angle) < 0.02f)) {
    printf("wanted a cost below 0.06 and an angle below 0.02\n");
    return 1;
  }
  return 0;
}

#pragma once

#include <cmath>

#include "lopt/base/options.h"
#include "lopt/tasks/task_family.h"

struct RosenbrockOptions {
  int64_t dim = 2;
  void Visit(lopt::FieldVisitor& v) {
    v.Field("dim", &dim, lopt::AtLeast(2), "Numbers that are trained.");
  }
};

// The sum over i of (10 (x[i + 1] - x[i]^2))^2 + (1 - x[i])^2 (Rosenbrock 1960), from x ~ N(0, I).
class Rosenbrock : public lopt::TaskFamily {
 public:
  explicit Rosenbrock(const RosenbrockOptions& options)
      : TaskFamily(
            {.params = lopt::Layout({{"x", {lopt::CheckOptions("Rosenbrock", options).dim}}}),
             .aux = lopt::Layout({{"distance", lopt::Shape()}})}) {}

 private:
  void DoInit(std::span<const float>, lopt::Key key, std::span<float> x,
              std::span<float>) const override {
    Normal(key, x);
  }
  void DoEvaluate(const lopt::TaskEvaluation& e, lopt::Workspace&) const override {
    const int64_t dim = params_layout().size();
    std::ranges::fill(e.gradients, 0.0F);
    for (int64_t row = 0; row < e.rows; ++row) {
      const float* x = e.params.data() + row * dim;
      float loss = 0;
      for (int64_t i = 0; i + 1 < dim; ++i) {
        const float valley = x[i + 1] - x[i] * x[i];
        loss += 100 * valley * valley + (1 - x[i]) * (1 - x[i]);
        if (e.gradients.empty()) continue;
        float* gradient = e.gradients.data() + row * dim;
        gradient[i] += -400 * x[i] * valley - 2 * (1 - x[i]);
        gradient[i + 1] += 200 * valley;
      }
      e.losses[row] = loss;
      if (!e.aux.empty()) e.aux[row] = std::abs(x[dim - 1] - 1);  // to the minimum, all ones
    }
  }
};

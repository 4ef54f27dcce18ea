#include "lopt/tasks/quadratic/quadratic.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lopt/base/options.h"

namespace lopt {
namespace {

// Purposes of a key.
enum : uint64_t { kCenter = 0, kScale = 1 };

// The sum of term(i) over i in [0, n), in kLanes partial sums: a fixed order that vectorises.
template <class Term>
float Sum(int64_t n, const Term& term) {
  constexpr int64_t kLanes = 8;
  std::array<float, kLanes> partial{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) partial[lane] += term(i + lane);
  }
  for (int64_t lane = 0; i + lane < n; ++lane) partial[lane] += term(i + lane);
  return ((partial[0] + partial[4]) + (partial[2] + partial[6])) +
         ((partial[1] + partial[5]) + (partial[3] + partial[7]));
}

}  // namespace

void QuadraticOptions::Visit(FieldVisitor& v) {
  v.Field("dim", &dim, Between(1, 1e8), "Number of parameters.");
}

void NoisyQuadraticOptions::Visit(FieldVisitor& v) {
  v.Field("dim", &dim, Between(1, 1e8), "Number of parameters.");
  v.Field("cov", &cov, AtLeast(0), "Size of the noise in the gradient, relative to x.");
}

QuadraticBase::QuadraticBase(int64_t dim, Layout config, Gradients gradients)
    : TaskFamily(
          {.config = std::move(config), .params = Layout({{"x", {dim}}}), .gradients = gradients}) {
}

void QuadraticBase::DoInit(std::span<const float>, Key key, std::span<float> params,
                           std::span<float>) const {
  Normal(key, params);
}

QuadraticTask::QuadraticTask(const QuadraticOptions& options)
    : QuadraticBase(CheckOptions("QuadraticTask", options).dim, Layout()) {}

void QuadraticTask::DoEvaluate(const TaskEvaluation& e, Workspace&) const {
  const int64_t dim = params_layout().size();
  for (int64_t row = 0; row < e.rows; ++row) {
    const float* x = e.params.data() + row * dim;
    e.losses[row] = Sum(dim, [x](int64_t i) { return x[i] * x[i]; });
    if (e.gradients.empty()) continue;
    float* gradient = e.gradients.data() + row * dim;
    for (int64_t i = 0; i < dim; ++i) gradient[i] = 2 * x[i];
  }
}

FixedDimQuadraticFamily::FixedDimQuadraticFamily(const QuadraticOptions& options)
    : QuadraticBase(options.dim,
                    Layout({{"target", {CheckOptions("FixedDimQuadraticFamily", options).dim}}})) {}

void FixedDimQuadraticFamily::DoSample(Key key, std::span<float> config) const {
  Normal(key, config);
}

void FixedDimQuadraticFamily::DoEvaluate(const TaskEvaluation& e, Workspace&) const {
  const int64_t dim = params_layout().size();
  for (int64_t row = 0; row < e.rows; ++row) {
    const float* x = e.params.data() + row * dim;
    const float* target = e.config.data() + row * dim;
    e.losses[row] = Sum(dim, [x, target](int64_t i) {
      const float difference = x[i] - target[i];
      return difference * difference;
    });
    if (e.gradients.empty()) continue;
    float* gradient = e.gradients.data() + row * dim;
    for (int64_t i = 0; i < dim; ++i) gradient[i] = 2 * (x[i] - target[i]);
  }
}

NoisyQuadraticFamily::NoisyQuadraticFamily(const NoisyQuadraticOptions& options)
    : QuadraticBase(options.dim,
                    Layout({{"center", {CheckOptions("NoisyQuadraticFamily", options).dim}},
                            {"scale", {options.dim}}}),
                    options.cov > 0 ? Gradients::kNoisy : Gradients::kOfLoss),
      cov_(static_cast<float>(options.cov)) {}

void NoisyQuadraticFamily::DoSample(Key key, std::span<float> config) const {
  const int64_t dim = params_layout().size();
  Normal(FoldIn(key, kCenter), config.first(dim));
  Uniform(FoldIn(key, kScale), config.last(dim));
  for (float& scale : config.last(dim)) scale *= 25;
}

void NoisyQuadraticFamily::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  const int64_t dim = params_layout().size();
  const Workspace::Frame frame(scratch);
  const std::span<float> noise = scratch.Take<float>(dim);
  for (int64_t row = 0; row < e.rows; ++row) {
    const float* x = e.params.data() + row * dim;
    const float* center = e.config.data() + 2 * row * dim;
    const float* scale = center + dim;
    e.losses[row] = Sum(dim, [=](int64_t i) {
      const float difference = scale[i] * (x[i] - center[i]);
      return difference * difference;
    });
    if (e.gradients.empty()) continue;
    float* gradient = e.gradients.data() + row * dim;
    Normal(e.keys[row], noise);
    for (int64_t i = 0; i < dim; ++i) {
      gradient[i] = 2 * scale[i] * scale[i] * (x[i] - center[i]) + cov_ * noise[i] * x[i];
    }
  }
}

LogQuadraticTask::LogQuadraticTask(const QuadraticOptions& options)
    : QuadraticBase(CheckOptions("LogQuadraticTask", options).dim, Layout()) {}

void LogQuadraticTask::DoEvaluate(const TaskEvaluation& e, Workspace&) const {
  const int64_t dim = params_layout().size();
  for (int64_t row = 0; row < e.rows; ++row) {
    const float* x = e.params.data() + row * dim;
    const float sum = Sum(dim, [x](int64_t i) { return x[i] * x[i]; });
    e.losses[row] = std::log(sum);
    if (e.gradients.empty()) continue;
    float* gradient = e.gradients.data() + row * dim;
    for (int64_t i = 0; i < dim; ++i) gradient[i] = 2 * x[i] / sum;
  }
}

}  // namespace lopt

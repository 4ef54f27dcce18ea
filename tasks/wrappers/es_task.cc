#include "lopt/tasks/wrappers/es_task.h"

#include <algorithm>

#include "lopt/base/error.h"
#include "lopt/base/options.h"

namespace lopt {
namespace {

TaskParts WithLosses(TaskParts parts, const ESTaskOptions& options) {
  CheckOptions("ESTask", options);
  parts.flops *= kLossShare * static_cast<double>(2 * options.pairs + 1);
  parts.gradients = std::max(parts.gradients, Gradients::kNoisy);
  return parts;
}

// Each row of `rows` [n, ...] `times` times.
template <class T>
std::span<T> Repeated(std::span<const T> rows, int64_t n, int64_t times, Workspace& scratch) {
  const int64_t size = std::ssize(rows) / n;
  const std::span<T> repeated = scratch.Take<T>(times * std::ssize(rows));
  for (int64_t i = 0; i < n * times; ++i) {
    std::ranges::copy(rows.subspan(i / times * size, size), repeated.begin() + i * size);
  }
  return repeated;
}

}  // namespace

void ESTaskOptions::Visit(FieldVisitor& v) {
  v.Field("std", &std, Above(0), "Standard deviation of the perturbations.");
  v.Field("pairs", &pairs, Between(1, 100000), "Antithetic pairs of one gradient.");
}

ESTask::ESTask(const std::shared_ptr<const TaskFamily>& task, const ESTaskOptions& options)
    : TaskWrapper(task, WithLosses(PartsOf(*task), options)), options_(options) {}

void ESTask::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  if (!e.gradients.empty()) {
    Require(!e.keys.empty(), "ESTask: gradients are wanted, but there are no keys");
    const Workspace::Frame frame(scratch);
    const int64_t size = params_layout().size();
    const int64_t replicas = 2 * options_.pairs;
    const std::span<float> noise = scratch.Take<float>(e.rows * options_.pairs * size);
    const std::span<float> params = Repeated(e.params, e.rows, replicas, scratch);
    const auto std = static_cast<float>(options_.std);
    for (int64_t pair = 0; pair < e.rows * options_.pairs; ++pair) {
      const std::span<float> eps = noise.subspan(pair * size, size);
      Normal(FoldIn(OwnKey(e.keys[pair / options_.pairs]),
                    static_cast<uint64_t>(pair % options_.pairs)),
             eps);
      float* const plus = params.data() + 2 * pair * size;
      float* const minus = plus + size;
      for (int64_t i = 0; i < size; ++i) {
        plus[i] += std * eps[i];
        minus[i] -= std * eps[i];
      }
    }
    const std::span<float> losses = scratch.Take<float>(e.rows * replicas);
    EvaluateTask(
        {.rows = e.rows * replicas,
         .config = Repeated(e.config, e.rows, replicas, scratch),
         .params = params,
         .model_state = Repeated(std::span<const float>(e.model_state), e.rows, replicas, scratch),
         .split = e.split,
         .keys = Repeated(e.keys, e.rows, replicas, scratch),
         .steps = Repeated(e.steps, e.rows, replicas, scratch),
         .examples = Repeated(e.examples, e.rows, replicas, scratch),
         .shares = {.parts = Repeated(e.shares.parts, e.rows, replicas, scratch)},
         .losses = losses},
        scratch);
    std::ranges::fill(e.gradients, 0.0F);
    for (int64_t pair = 0; pair < e.rows * options_.pairs; ++pair) {
      const double difference = double{losses[2 * pair]} - double{losses[2 * pair + 1]};
      const auto weight =
          static_cast<float>(difference / (2 * options_.std) / static_cast<double>(options_.pairs));
      const float* const eps = noise.data() + pair * size;
      float* const gradient = e.gradients.data() + pair / options_.pairs * size;
      for (int64_t i = 0; i < size; ++i) gradient[i] += weight * eps[i];
    }
  }
  TaskEvaluation at_params = e;
  at_params.gradients = {};
  EvaluateTask(at_params, scratch);
}

}  // namespace lopt

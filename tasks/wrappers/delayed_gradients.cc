#include "lopt/tasks/wrappers/delayed_gradients.h"

#include <algorithm>

#include "lopt/base/error.h"
#include "lopt/base/options.h"

namespace lopt {
namespace {

Layout HistoryLayout(const DelayedGradientsOptions& options, const Layout& params) {
  CheckOptions("DelayedGradients", options);
  return Layout({{"history", {options.delay + 1, params.size()}}, {"position", Shape()}});
}

TaskParts WithSecondLoss(TaskParts parts) {
  parts.flops += kLossShare * parts.flops;
  return parts;
}

}  // namespace

void DelayedGradientsOptions::Visit(FieldVisitor& v) {
  v.Field("delay", &delay, Between(0, 1e6), "Steps between the params and their gradient.");
}

DelayedGradients::DelayedGradients(const std::shared_ptr<const TaskFamily>& task,
                                   const DelayedGradientsOptions& options)
    : TaskWrapper(
          task, WithSecondLoss(PartsOf(*task, {}, HistoryLayout(options, task->params_layout())))),
      delay_(options.delay) {}

void DelayedGradients::DoInit(std::span<const float> config, Key key, std::span<float> params,
                              std::span<float> model_state) const {
  TaskWrapper::DoInit(config, key, params, model_state);
  const std::span<float> own = OwnModelState(model_state, 0);
  std::ranges::fill(own, 0.0F);
  own.back() = -1;
}

std::span<const float> DelayedGradients::Step(std::span<const float> params,
                                              std::span<float> own) const {
  const int64_t size = std::ssize(params);
  const auto entry = [&](int64_t position) { return own.subspan(position * size, size); };
  // It may come from a file.
  Require(own.back() >= -1 && own.back() <= static_cast<float>(delay_),
          "DelayedGradients: the model state has position {}, wanted -1 to {}", own.back(), delay_);
  const auto latest = static_cast<int64_t>(own.back());
  if (latest < 0) {
    for (int64_t i = 1; i <= delay_; ++i) std::ranges::copy(params, entry(i).begin());
  }
  const int64_t position = (latest + 1) % (delay_ + 1);
  std::ranges::copy(params, entry(position).begin());
  own.back() = static_cast<float>(position);
  return entry((position + 1) % (delay_ + 1));
}

void DelayedGradients::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  if (e.split != Split::kTrain) return EvaluateTask(e, scratch);
  const Workspace::Frame frame(scratch);
  const int64_t size = params_layout().size();
  const std::span<float> delayed = scratch.Take<float>(e.rows * size);
  for (int64_t row = 0; row < e.rows; ++row) {
    std::ranges::copy(Step(e.params.subspan(row * size, size), OwnModelState(e.model_state, row)),
                      delayed.begin() + row * size);
  }
  if (!e.gradients.empty()) {
    TaskEvaluation gradients = OfTask(e, scratch);
    const std::span<float> discarded = scratch.Take<float>(std::ssize(gradients.model_state));
    std::ranges::copy(gradients.model_state, discarded.begin());
    gradients.model_state = discarded;
    gradients.params = delayed;
    gradients.aux = {};
    gradients.shares.records = {};
    task().Evaluate(gradients, scratch);
  }
  TaskEvaluation losses = e;
  losses.gradients = {};
  EvaluateTask(losses, scratch);
}

}  // namespace lopt

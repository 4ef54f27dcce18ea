#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "lopt/base/key.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// The number of the next task from a key of a batch.
inline float NotedDraw(Key key) {
  float draw = 0;
  Uniform(FoldIn(key, 7), {&draw, 1});
  return draw;
}

// x^2 / 2 from x = 1, whose aux outputs are the inner step of the batch and a number drawn with its
// key, under these names.
class NotingTask : public TaskFamily {
 public:
  explicit NotingTask(std::string step = "step", std::string draw = "draw",
                      int64_t preferred_rows = 1)
      : TaskFamily({.params = Layout({{"x", Shape{}}}),
                    .aux = Layout({{std::move(step), {}}, {std::move(draw), {}}})}),
        preferred_rows_(preferred_rows) {}
  int64_t PreferredRows() const override { return preferred_rows_; }

 private:
  void DoInit(std::span<const float>, Key, std::span<float> params,
              std::span<float>) const override {
    params[0] = 1;
  }
  void DoEvaluate(const TaskEvaluation& e, Workspace&) const override {
    for (int64_t r = 0; r < e.rows; ++r) {
      e.losses[r] = e.params[r] * e.params[r] / 2;
      if (!e.gradients.empty()) e.gradients[r] = e.params[r];
      if (e.aux.empty()) continue;
      e.aux[2 * r] = e.steps.empty() ? 0 : static_cast<float>(e.steps[r].step);
      e.aux[2 * r + 1] = NotedDraw(e.keys[r]);
    }
  }

  int64_t preferred_rows_;
};

// x <- x - theta g, which notes the number of its updates, and keeps one that it does not note.
class NotingSgd : public LearnedOptimizer {
 public:
  explicit NotingSgd(std::string noted = "noted/updates", Shape shape = {})
      : LearnedOptimizer(Layout({{"rate", {1}}})), noted_(std::move(noted)), shape_(shape) {}

 private:
  class Rule : public UpdateRule {
   public:
    Rule(const Layout& params, Layout state, float rate)
        : UpdateRule(params, std::move(state)), rate_(rate) {}

   private:
    void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                  std::span<float> state, Workspace&) const override {
      for (size_t i = 0; i < params.size(); ++i) params[i] -= rate_ * gradient[i];
      state[0] = -1;
      state[1] = static_cast<float>(info.step + 1);
    }

    float rate_;
  };

  void DoInitTheta(Key, std::span<float> theta) const override { theta[0] = 0.05F; }
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override {
    return std::make_unique<Rule>(params, Layout({{"own", {}}, {noted_, shape_}}), theta[0]);
  }

  std::string noted_;
  Shape shape_;
};

}  // namespace lopt

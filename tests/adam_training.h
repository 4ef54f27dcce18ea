#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/base/workspace.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// Plain Adam with the learning rate falling to 0 as a cosine over the second half, on batches of
// the train split or, where these are given, of 100 of the rows [first, last).
class AdamTraining {
 public:
  using Range = std::pair<int32_t, int32_t>;
  AdamTraining(const TaskFamily& task, double learning_rate, Key key,
               std::optional<Range> rows = std::nullopt)
      : task_(task),
        learning_rate_(learning_rate),
        key_(key),
        rows_(rows),
        batch_(rows ? 100 : 0),
        params_(task.params_layout().size()),
        gradient_(params_.size()),
        m_(params_.size()),
        v_(params_.size()) {
    task.Init({}, FoldIn(key, 0), params_, {});
  }

  // The mean loss of steps [first, last).
  double Train(int first, int last, int total) {
    double sum = 0;
    for (int step = first; step < last; ++step) {
      const Key key = FoldIn(FoldIn(key_, 1), static_cast<uint64_t>(step));
      if (rows_) Randint(key, rows_->first, rows_->second, batch_);
      sum += Loss({.keys = {&key, 1}, .examples = batch_, .gradients = gradient_});
      const double late = std::max(0.0, 2.0 * step / total - 1);
      const double rate = learning_rate_ * 0.5 * (1 + std::cos(3.14159265 * late));
      const double m_scale = 1 / (1 - std::pow(0.9, step + 1));
      const double v_scale = 1 / (1 - std::pow(0.999, step + 1));
      for (size_t i = 0; i < params_.size(); ++i) {
        m_[i] = 0.9 * m_[i] + 0.1 * gradient_[i];
        v_[i] = 0.999 * v_[i] + 0.001 * gradient_[i] * gradient_[i];
        params_[i] -=
            static_cast<float>(rate * m_scale * m_[i] / (std::sqrt(v_scale * v_[i]) + 1e-8));
      }
    }
    return sum / (last - first);
  }

  double Accuracy(Split split) {
    const auto [first, last] = task_.ExampleRange(split);
    std::vector<int32_t> examples(last - first);
    std::iota(examples.begin(), examples.end(), first);
    float accuracy = 0;
    Loss({.split = split, .examples = examples, .aux = {&accuracy, 1}});
    return accuracy;
  }

  const std::vector<float>& params() const { return params_; }

 private:
  double Loss(TaskEvaluation evaluation) {
    float loss = 0;
    evaluation.params = params_;
    evaluation.losses = {&loss, 1};
    task_.Evaluate(evaluation, scratch_);
    return loss;
  }

  const TaskFamily& task_;
  double learning_rate_;
  Key key_;
  std::optional<Range> rows_;
  std::vector<int32_t> batch_;
  std::vector<float> params_;
  std::vector<float> gradient_;
  std::vector<double> m_;
  std::vector<double> v_;
  Workspace scratch_;
};

}  // namespace lopt

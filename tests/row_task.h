#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/tasks/task_family.h"

namespace lopt {

// Shows which rows of its data set an evaluation is about: the loss is their mean, aux output b the
// b-th of them. Splits: rows [0, train), then one row for each other split.
class RowTask : public TaskFamily {
 public:
  RowTask(int64_t train, int64_t batch_size, Sampling sampling, int64_t preferred_rows = 1)
      : TaskFamily({.params = Layout({{"x", Shape{}}}),
                    .aux = Aux(batch_size),
                    .data = {.splits = {{0, train},
                                        {train, train + 1},
                                        {train + 1, train + 2},
                                        {train + 2, train + 3}},
                             .batch_size = batch_size,
                             .sampling = sampling}}),
        preferred_rows_(preferred_rows) {}

  int64_t PreferredRows() const override { return preferred_rows_; }

 private:
  static Layout Aux(int64_t batch_size) {
    std::vector<std::pair<std::string, Shape>> entries;
    for (int64_t b = 0; b < batch_size; ++b) entries.push_back({"row" + std::to_string(b), {}});
    return Layout(std::move(entries));
  }

  void DoInit(std::span<const float>, Key, std::span<float> params,
              std::span<float>) const override {
    params[0] = 0;
  }

  void DoEvaluate(const TaskEvaluation& e, Workspace&) const override {
    const auto examples = static_cast<int64_t>(e.examples.size()) / e.rows;
    for (int64_t r = 0; r < e.rows; ++r) {
      float sum = 0;
      for (int64_t b = 0; b < examples; ++b) {
        const auto row = static_cast<float>(e.examples[r * examples + b]);
        sum += row;
        if (!e.aux.empty()) e.aux[r * examples + b] = row;
      }
      e.losses[r] = sum / static_cast<float>(examples);
      if (!e.gradients.empty()) e.gradients[r] = 0;
    }
  }

  int64_t preferred_rows_;
};

}  // namespace lopt

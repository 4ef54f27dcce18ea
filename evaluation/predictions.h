#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/workspace.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// What a trained classifier makes of all n rows of a split, in the order of the data; K classes.
struct Predictions {
  int64_t classes = 0;               // K
  double loss = 0;                   // the mean, raw
  std::vector<int32_t> labels = {};  // [n], the right classes
  std::vector<float> logits = {};    // [n, K], finite

  int64_t rows() const { return std::ssize(labels); }
  // The class of a row's largest logit, the first of equals.
  int32_t Class(int64_t row) const;
  // Softmax of a row's logits, [K].
  std::vector<double> Probabilities(int64_t row) const;
  // Rows whose class is their label.
  int64_t Right() const;
  // How many rows of a label have a class: [label][class], K x K.
  std::vector<std::vector<int64_t>> Confusion() const;
};

// The types of tasks that have classes to predict, besides those that make tasks of other types.
std::span<const char* const> TypesWithClasses();

// The predictions of a task with this config [C], params [P] and model state [M]. The rows of train
// are taken like those of other splits: as they are, and with running statistics. `who` is the task
// in messages. Throws Error if the family has no classes, the split no rows, or a logit is not
// finite.
Predictions Predict(const std::string& who, const TaskFamily& task, std::span<const float> config,
                    std::span<const float> params, std::span<const float> model_state, Split split,
                    Workspace& scratch);

// The features [n, F] of these rows of the data set, taken likewise: what the last layer, a linear
// one, makes the logits of. `who` is the task in messages. Throws Error if the family has no
// classes or its last two params are not the weights and the bias of such a layer.
std::vector<float> LastFeatures(const std::string& who, const TaskFamily& task,
                                std::span<const float> config, std::span<const float> params,
                                std::span<const float> model_state,
                                std::span<const int32_t> examples, Workspace& scratch);

// The pictures of these rows of the data set (TaskFamily::Show), taken likewise.
std::vector<Pictures> ShowRows(const TaskFamily& task, std::span<const float> config,
                               std::span<const float> params, std::span<const float> model_state,
                               std::span<const int32_t> examples, Workspace& scratch);

}  // namespace lopt

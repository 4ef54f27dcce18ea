#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lopt/base/fields.h"
#include "lopt/tasks/image/image_mlp_problem.h"
#include "lopt/tasks/table/table_data.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

struct TableMlpOptions {
  TableOptions table = {};
  int64_t batch_size = 128;
  Sampling sampling = Sampling::kReplacement;
  std::vector<int64_t> hidden = {32};
  Activation activation = Activation::kRelu;
  Norm norm = Norm::kNone;
  double init_scale = 1;
  void Visit(FieldVisitor& v);
};

// A multilayer perceptron on a drawn table (TableData), with the layers and names of ImageMLP,
// and its initial params, weights times init_scale. Regression has the mean over examples and
// outputs of (target - output)^2 as its loss and no aux; with classes the loss is the mean softmax
// cross-entropy, and aux is "accuracy". Losses are cut to 100 times that of a network that says the
// same for every row: 1 + noise^2, or ln(classes). So an optimizer that lets a network learn its
// rows by heart is told how bad that is. No config.
class TableMlp : public TaskFamily {
 public:
  // Throws Error as CheckOptions does and if the table has other options.
  TableMlp(const TableMlpOptions& options, std::shared_ptr<const TableData> data);

 private:
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;
  // Of one row.
  void EvaluateRow(const TaskEvaluation& evaluation, Workspace& scratch) const;

  std::shared_ptr<const TableData> data_;
  MlpShape shape_;
  Activation activation_;
  float init_scale_;
};

}  // namespace lopt

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
  void Visit(FieldVisitor& v);
};

// A multilayer perceptron on a drawn table (TableData), with the layers, names and initial params
// of ImageMLP. Regression has the mean over examples and outputs of (target - output)^2 as its
// loss, cut to [0, 3 (1 + noise^2)], and no aux; with classes the loss is the mean softmax
// cross-entropy, cut to [0, 1.5 ln(classes)], and aux is "accuracy". No config.
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
};

}  // namespace lopt

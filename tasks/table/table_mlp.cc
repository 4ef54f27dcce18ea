#include "lopt/tasks/table/table_mlp.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/tasks/batch_rows.h"
#include "lopt/tasks/image/image_mlp_kernel.h"
#include "lopt/tasks/image/mlp_parts.h"
#include "lopt/tasks/image/squared_error_kernel.h"
#include "lopt/tasks/layers/network_init.h"
#include "lopt/tasks/table/drawn_columns.h"

namespace lopt {
namespace {

MlpShape TableMlpShape(const TableMlpOptions& options, const TableData& data) {
  return MakeMlpShape(data.features(), options.hidden, data.outputs(), options.norm);
}

TaskParts TableMlpParts(const TableMlpOptions& options, const TableData& data) {
  CheckOptions("TableMLP", options);
  Require(data.options() == options.table, "TableMLP: the table was drawn with other options");
  const MlpShape shape = TableMlpShape(options, data);
  TaskParts parts{.params = MlpLayout(shape),
                  .model_state = MlpStatistics(shape),
                  .classes = data.classes(),
                  .flops = MlpFlops(shape) * static_cast<double>(options.batch_size)};
  if (data.classes() > 0) parts.aux = Layout({{"accuracy", Shape{}}});
  parts.normalizer_maximum =
      kMostLossOfRows * (data.classes() > 0 ? std::log(static_cast<double>(data.classes()))
                                            : 1 + options.table.noise * options.table.noise);
  parts.data = RowsInBatches(data, options.batch_size, options.sampling);
  return parts;
}

}  // namespace

void TableMlpOptions::Visit(FieldVisitor& v) {
  table.Visit(v);
  v.Field("batch_size", &batch_size, Between(1, 1000000), "Examples a step.");
  VisitSampling(v, &sampling);
  v.Field("hidden", &hidden, Between(1, 100000), "Units of each hidden layer.");
  v.Choice("activation", &activation, kActivations, "The function between layers.");
  VisitNorm(v, &norm);
  v.Field("init_scale", &init_scale, Between(1e-6, 1e6),
          "Factor of the initial weights. Small ones make the product of two layers start near 0, "
          "as embeddings do.");
}

TableMlp::TableMlp(const TableMlpOptions& options, std::shared_ptr<const TableData> data)
    : TaskFamily(TableMlpParts(options, *data)),
      data_(std::move(data)),
      shape_(TableMlpShape(options, *data_)),
      activation_(options.activation),
      init_scale_(static_cast<float>(options.init_scale)) {}

void TableMlp::DoInit(std::span<const float>, Key key, std::span<float> params,
                      std::span<float> model_state) const {
  InitMlpStatistics(model_state_layout(), model_state);
  InitNetwork(params_layout(), key, params);
  for (const LayoutEntry& entry : params_layout().entries()) {
    if (entry.shape.size() < 2) continue;
    for (float& w :
         params.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.size))) {
      w *= init_scale_;
    }
  }
}

void TableMlp::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  for (int64_t row = 0; row < e.rows; ++row) EvaluateRow(RowOf(e, row), scratch);
}

void TableMlp::EvaluateRow(const TaskEvaluation& e, Workspace& scratch) const {
  const MlpEvaluation evaluation{.activation = activation_,
                                 .params = e.params,
                                 .statistics = e.model_state,
                                 .train = e.split == Split::kTrain,
                                 .batch = {.images = data_->rows(),
                                           .stride = data_->stride(),
                                           .labels = data_->labels(),
                                           .examples = e.examples},
                                 .targets = {.at = data_->targets_at(), .sigmoid = false},
                                 .gradient = e.gradients,
                                 .logits = e.answers.logits};
  if (data_->classes() == 0) {
    e.losses[0] = SquaredErrorLoss(shape_, evaluation, scratch);
    return;
  }
  const ClassifierResult result = MlpLoss(shape_, evaluation, scratch);
  e.losses[0] = result.loss;
  if (!e.aux.empty()) {
    e.aux[0] = static_cast<float>(result.correct) / static_cast<float>(e.examples.size());
  }
  std::ranges::transform(e.examples.first(e.answers.labels.size()), e.answers.labels.begin(),
                         [&](int32_t example) { return data_->labels()[example]; });
}

}  // namespace lopt

#include "lopt/torch/recurrent_cell.h"
#include "lopt/torch/task_type.h"
#ifdef LOPT_LIBTORCH
#include <cmath>
#include <numbers>

#include "lopt/torch/recurrent.h"
#endif

namespace lopt {
namespace {

struct SequenceRegressionOptions {
  RecurrentCell cell = RecurrentCell::kLstm;
  int64_t hidden = 32;
  int64_t steps = 10;
  void Visit(FieldVisitor& v) {
    v.Choice("cell", &cell, kRecurrentCells, "The recurrent layer.");
    v.Field("hidden", &hidden, Between(1, 100000), "Units of the layer.");
    v.Field("steps", &steps, Between(2, 100000),
            "Points of a window, which is half a period: the first and the last are its ends.");
  }
};

#ifdef LOPT_LIBTORCH

// The model state: what the layer carries from the windows before, and how many these were.
TorchStart StartRegression(const SequenceRegressionOptions& options, Key key) {
  NamedTensors params =
      RecurrentInit(options.cell, FoldIn(key, 0), "recurrent/", 1, options.hidden);
  const double bound = 1 / std::sqrt(static_cast<double>(options.hidden));
  const torch::Tensor last = (2 * UniformTensor(FoldIn(key, 1), {options.hidden + 1}) - 1) * bound;
  params.emplace_back("out/w", last.narrow(0, 0, options.hidden).unsqueeze(1));
  params.emplace_back("out/b", last.narrow(0, options.hidden, 1));
  NamedTensors state;
  for (size_t i = 0; i < RecurrentStates(options.cell); ++i) {
    state.emplace_back(i == 0 ? "h" : "c", torch::zeros({options.hidden}));
  }
  state.emplace_back("window", torch::zeros({}));
  return {std::move(params), std::move(state)};
}

TorchLoss RegressionLoss(const SequenceRegressionOptions& options, const TorchEvaluation& e) {
  const torch::Tensor& window = e.model_state.back();
  const torch::Tensor phases =
      (torch::linspace(0, 1, options.steps, window.options().dtype(torch::kFloat64)) +
       window.unsqueeze(1)) *
      std::numbers::pi;  // [n, steps], doubles for late windows
  const torch::Tensor x = torch::sin(phases).to(torch::kFloat32).view({-1, 1, options.steps, 1});
  const torch::Tensor y = torch::cos(phases).to(torch::kFloat32).unsqueeze(2);
  RecurrentState state(e.model_state.begin(), e.model_state.end() - 1);
  for (torch::Tensor& tensor : state) tensor = tensor.unsqueeze(1);
  const RecurrentOutput layer = RunRecurrent(
      options.cell, x, torch::ArrayRef(e.params).slice(0, kRecurrentWeights), std::move(state));
  const torch::Tensor& w = e.params[kRecurrentWeights];
  const torch::Tensor& b = e.params[kRecurrentWeights + 1];
  const torch::Tensor predicted = torch::baddbmm(b.unsqueeze(1), layer.outputs.squeeze(1), w);
  std::vector<torch::Tensor> model_state;
  for (const torch::Tensor& tensor : layer.state) model_state.push_back(tensor.squeeze(1));
  model_state.push_back(window + 1);
  return {(predicted - y).square().mean({1, 2}), {}, std::move(model_state)};
}

std::shared_ptr<const TaskFamily> MakeSequenceRegression(const SequenceRegressionOptions& options,
                                                         const TaskResources&) {
  const double forward = RecurrentFlops(options.cell, 1, options.steps, 1, options.hidden) +
                         2.0 * static_cast<double>(options.steps * options.hidden);
  return std::make_shared<TorchTaskFamily>(
      [=](Key key, const torch::Tensor&) { return StartRegression(options, key); },
      [=](const TorchEvaluation& e) { return RegressionLoss(options, e); },
      TaskParts{.normalizer_maximum = 2, .flops = 3 * forward});
}

#endif

}  // namespace
}  // namespace lopt

LOPT_TORCH_TASK(sequence_regression, SequenceRegressionOptions, "TorchSequenceRegression",
                "A recurrent network follows cos(t), given sin(t) window after window; needs the "
                "torch module.",
                MakeSequenceRegression)

#pragma once

#include <memory>

#include "lopt/tasks/task_resources.h"
#include "lopt/torch/torch_task.h"

namespace lopt {

// Torch tasks that use what the built-in ones do not: a model state, data other than images, rows
// one by one.

// 100 points of 3 coordinates whose means are about (1, -2, 3), split 70/10/10/10.
struct Points {
  static constexpr int64_t kCount = 100;
  torch::Tensor values;  // [100, 3]
};

inline std::shared_ptr<const Points> GetPoints(const TaskResources& resources) {
  return resources.Get<Points>("points", [] {
    return std::make_shared<Points>(Points{NormalTensor(KeyFromSeed(11), {Points::kCount, 3}) +
                                           torch::tensor({1.F, -2.F, 3.F})});
  });
}

// Batch normalisation of points x: the mean over a batch, on the train split, or the running mean,
// on the others, is taken off, and loss = mean over the batch of (w (x - mean) - 1)^2. The model
// state is the running mean, 0.75 of the old and 0.25 of the batch's. Aux "mean": that of all of
// the batch's coordinates.
inline std::shared_ptr<const TorchTaskFamily> NormalizedPoints(const TaskResources& resources) {
  const auto init = [](Key key, const torch::Tensor&) -> TorchStart {
    return {{{"w", NormalTensor(key, {3, 1})}}, {{"mean", torch::zeros({3})}}};
  };
  const auto loss = [points = GetPoints(resources)](const TorchEvaluation& e) -> TorchLoss {
    const torch::Tensor x =
        points->values.index_select(0, e.examples.flatten()).view({e.examples.size(0), -1, 3});
    const torch::Tensor batch_mean = x.mean(1);
    const torch::Tensor mean = e.split == Split::kTrain ? batch_mean : e.model_state[0];
    const torch::Tensor errors = torch::matmul(x - mean.unsqueeze(1), e.params[0]) - 1;
    return {errors.square().mean({1, 2}),
            batch_mean.mean(1, /*keepdim=*/true),
            {0.75 * e.model_state[0] + 0.25 * batch_mean}};
  };
  return std::make_shared<TorchTaskFamily>(
      init, loss,
      TaskParts{.aux = Layout({{"mean", Shape{}}}),
                .data = {.splits = {{0, 70}, {70, 80}, {80, 90}, {90, 100}}, .batch_size = 16}});
}

// A recurrence over 5 inputs drawn from the key, h <- tanh(x w + h u), from h = 0; loss = |h - c|^2
// with c of the config. Written for one replica; the model state counts the evaluations that train.
class Recurrence : public TorchTaskFamily {
 public:
  Recurrence()
      : TorchTaskFamily(Start, Loss,
                        {.config = Layout({{"c", {2}}}), .aux = Layout({{"h0", {}}, {"h1", {}}})},
                        TorchRows::kOneByOne) {}

 private:
  static TorchStart Start(Key key, const torch::Tensor& config) {
    return {{{"w", NormalTensor(FoldIn(key, 0), {3, 2})},
             {"u", NormalTensor(FoldIn(key, 1), {2, 2}) + config[0]}},
            {{"count", torch::zeros({})}}};
  }
  static TorchLoss Loss(const TorchEvaluation& e) {
    const torch::Tensor x = UniformTensor(e.keys[0], {5, 3});
    torch::Tensor h = torch::zeros({2});
    for (int64_t t = 0; t < 5; ++t) {
      h = torch::tanh(torch::matmul(x[t], e.params[0]) + torch::matmul(h, e.params[1]));
    }
    return {(h - e.config).square().sum(), h.detach(), {e.model_state[0] + 1}};
  }
  void DoSample(Key key, std::span<float> config) const override { Normal(key, config); }
};

}  // namespace lopt

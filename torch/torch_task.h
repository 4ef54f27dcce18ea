#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/key.h"
#include "tasks/task_family.h"

namespace lopt {

// Tensors with the names they get in the params layout, in its order.
using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// The data of n replicas.
struct TorchBatch {
  Split split = Split::kTrain;
  std::span<const Key> keys;  // [n]: equal keys, equal data; empty where `examples` is given
  torch::Tensor examples;     // int64 [n, E]: instead, these rows of the data set; or undefined
  bool aux_wanted = false;    // whether TorchLoss::aux is read
};

// What a loss function returns; a tensor of losses converts to it.
struct TorchLoss {
  TorchLoss(torch::Tensor losses, torch::Tensor aux = {})
      : losses(std::move(losses)), aux(std::move(aux)) {}
  torch::Tensor losses;  // [n]
  torch::Tensor aux;     // [n, A], or undefined where not wanted
};

// A family of tasks written with torch tensors. Its user gives two functions, which must be
// thread-safe, must not use torch's own generators (only keys, see below) and must not change their
// arguments:
// - init(key, config [C]) draws the params of one task. Names and shapes are those that it returns
//   for a config of zeros; they make up the params layout. All are float32.
// - loss(params, config [n, C], batch) gives the losses of n replicas; params[t] is [n, shape of
//   tensor t]. Replica i's loss may depend on row i of the arguments alone. Gradients come from
//   autograd.
// Draws of configs, the data set's ranges and the normalizer are added by overriding them as in any
// TaskFamily. Torch runs on the calling thread alone: making a family sets torch's number of
// threads to 1. What the functions throw as a torch error is thrown as Error.
class TorchTaskFamily : public TaskFamily {
 public:
  using InitFunction = std::function<NamedTensors(Key key, const torch::Tensor& config)>;
  using LossFunction =
      std::function<TorchLoss(const std::vector<torch::Tensor>& params, const torch::Tensor& config,
                              const TorchBatch& batch)>;
  TorchTaskFamily(InitFunction init, LossFunction loss, const Layout& config = {}, Layout aux = {});

  int64_t PreferredRows() const override { return kAllRows; }

 private:
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  InitFunction init_;
  LossFunction loss_;
};

// Tensors whose numbers are functions of a key alone, those of base/key.h: float32 and, for
// RandintTensor, int64 in [low, high).
torch::Tensor UniformTensor(Key key, torch::IntArrayRef shape);
torch::Tensor NormalTensor(Key key, torch::IntArrayRef shape);
torch::Tensor RandintTensor(Key key, int32_t low, int32_t high, torch::IntArrayRef shape);
// The same with one more dimension in front, [n, shape]: row i is that of keys[i].
torch::Tensor UniformTensor(std::span<const Key> keys, torch::IntArrayRef shape);
torch::Tensor NormalTensor(std::span<const Key> keys, torch::IntArrayRef shape);
torch::Tensor RandintTensor(std::span<const Key> keys, int32_t low, int32_t high,
                            torch::IntArrayRef shape);

}  // namespace lopt

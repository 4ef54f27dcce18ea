#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lopt/base/layout.h"
#include "lopt/lopt/celo2/celo2.h"
#include "lopt/lopt/network/factored.h"

namespace lopt {

// The shape of a tensor that the network of Celo2 steps: matrices of its last two axes, one after
// the other.
struct Celo2Tensor {
  explicit Celo2Tensor(const Shape& shape);

  int64_t size() const { return matrices * rows * columns; }
  int64_t features() const { return factored ? Celo2Base::kFeatures : Celo2Base::kFewFeatures; }

  int64_t matrices = 1;
  int64_t rows = 1;                       // 1 for a tensor of less than two dimensions
  int64_t columns = 1;                    // neighbours
  std::optional<FactoredShape> factored;  // of two dimensions or more
};

// The parts of the state of such a tensor.
struct Celo2State {
  Celo2State(const Celo2Tensor& tensor, std::span<float> state);

  std::span<float> m[Celo2Base::kMomenta];
  std::span<float> r;
  // The second moments; without two dimensions v is in `row`, and `col` is empty.
  std::span<float> row[Celo2Base::kMomenta];
  std::span<float> col[Celo2Base::kMomenta];
};

// A tensor of the params, where it and its state are, and what steps it.
struct Celo2Place {
  int64_t offset;
  int64_t size;
  int64_t state_offset;
  int64_t state_size;
  std::optional<Celo2Tensor> learned;  // else Adam's
};

// Of the params of a layout, and of the state that they have.
std::vector<Celo2Place> Celo2Places(const Celo2Options& options, const Layout& params,
                                    const Layout& state);

// What an update's Celo2Rates take of the options.
Celo2StepOptions StepOptionsOf(const Celo2Options& options);

// Which tensor Celo2 steps how, and Adam; how the network steps a tensor is a subclass' work.
class Celo2Rule : public UpdateRule {
 protected:
  Celo2Rule(const Celo2Options& options, const Layout& params);

 private:
  // One step of a tensor that the network steps and that has elements:
  // p <- p - learning_rate (step + weight_decay p).
  virtual void StepLearned(const Celo2Tensor& tensor, float learning_rate, float weight_decay,
                           std::span<const float> gradient, std::span<float> params,
                           std::span<float> state, Workspace& scratch) const = 0;

  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const final;

  Celo2StepOptions options_;
  std::vector<Celo2Place> places_;
};

}  // namespace lopt

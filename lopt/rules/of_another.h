#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

// An optimizer that is made of another one, and wants to be told what that one wants to be told.
// Theta is the other's unless a subclass says otherwise.
class OfAnotherOptimizer : public LearnedOptimizer {
 public:
  bool sees_shapes() const override { return optimizer_->sees_shapes(); }
  bool needs_loss() const override { return optimizer_->needs_loss(); }
  int64_t run_state_size() const override { return optimizer_->run_state_size(); }
  Precision precision() const override { return optimizer_->precision(); }

 protected:
  OfAnotherOptimizer(std::shared_ptr<const LearnedOptimizer> optimizer, Layout theta,
                     std::string needs_num_steps)
      : LearnedOptimizer(std::move(theta), std::move(needs_num_steps)),
        optimizer_(std::move(optimizer)) {}

  const LearnedOptimizer& optimizer() const { return *optimizer_; }

 private:
  void DoInitTheta(Key key, std::span<float> theta) const override {
    std::ranges::copy(optimizer_->InitTheta(key), theta.begin());
  }

  std::shared_ptr<const LearnedOptimizer> optimizer_;
};

}  // namespace lopt

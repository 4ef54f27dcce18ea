#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "lopt/mlp_lopt.h"

namespace lopt {

// What the options of MLPLOpt make of one update beside its network; both implementations ask it.
class MlpLoptStep {
 public:
  MlpLoptStep(const MLPLOptOptions& options, const StepInfo& info);

  float time() const { return time_; }  // t
  float exp_mult() const { return exp_mult_; }
  float normalizer_epsilon() const { return normalizer_epsilon_; }
  // The features of progress; none without the option.
  std::span<const float> progress() const { return {progress_.data(), progress_size_}; }
  // What o0 exp(o1 exp_mult) is multiplied by in a tensor of `size` elements. `sums`: of the
  // squares of each of its kNormalized features before they are normalised.
  float Multiplier(int64_t size, const float* sums) const;

 private:
  float time_;
  float exp_mult_;
  float normalizer_epsilon_;
  std::array<float, MLPLOpt::kProgress> progress_ = {};
  size_t progress_size_ = 0;
  float step_mult_;  // the schedule's factor included
  bool relative_step_;
  bool relative_to_parameter_;
  double correction_ = 1;  // 1 - d^(t + 1) of the slowest momentum's decay d
};

}  // namespace lopt

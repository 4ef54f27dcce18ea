#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/safetensors.h"
#include "lopt/learner/experiment.h"
#include "lopt/learner/job/messages.h"

namespace lopt {

// The message for which the learner awaits a gradient.
struct AwaitedGradient {
  int64_t first_window = 0;
  int64_t windows = 0;
  int64_t outer_step = 0;
  uint64_t theta_size = 0;
};

// What the answers of one logical worker must be like, whoever works for it. All that such a
// process says about its work is checked here before anything uses it; what passes cannot make the
// learner fail. Numbers of gradients and states are believed.
class AnswerRules {
 public:
  // The arrays of a worker's states, named as in its part of a file (learner/run/worker_files.h),
  // with their type and shape.
  using Outline = std::map<std::string, std::pair<DType, Shape>>;
  // How large what it sends may be.
  struct Sizes {
    uint64_t theta = 0;   // D
    uint64_t states = 0;  // the bytes of a file with its states
  };

  // `weights`: of the estimators, where the worker runs them. `apart`: whether it sends the
  // gradient of each estimator by itself (Weighting::kEqualNorm). `data`: Experiment::data.
  // `states` is not null, and is of a file as large as `sizes` says.
  AnswerRules(int64_t worker, std::vector<std::optional<double>> weights, bool apart,
              std::string data, std::shared_ptr<const Outline> states, const Sizes& sizes)
      : worker_(worker),
        weights_(std::move(weights)),
        apart_(apart),
        data_(std::move(data)),
        states_(std::move(states)),
        sizes_(sizes) {}

  int64_t worker() const { return worker_; }
  // The most bytes that an answer may have which keeps to the rules.
  size_t MostBytes() const;

  // The following throw Error if the answer is damaged or none of this worker's.

  void CheckReady(std::span<const std::byte> bytes) const;
  void CheckGradient(std::span<const std::byte> bytes, const AwaitedGradient& awaited) const;
  // An answer to a request that asks for no states.
  void CheckNothingSaved(std::span<const std::byte> bytes) const;
  // The bytes of the file with the worker's states that the answer holds. The worker must have run
  // so many windows.
  std::vector<std::byte> TakeStates(std::span<const std::byte> bytes, int64_t windows) const;
  // The windows that the worker has run, of a file with its states.
  int64_t ReadStates(std::span<const std::byte> file) const;

 private:
  void CheckReport(const EstimatorReport& report, const std::optional<double>& weight,
                   uint64_t theta_size) const;

  int64_t worker_;
  std::vector<std::optional<double>> weights_;
  bool apart_;
  std::string data_;
  std::shared_ptr<const Outline> states_;
  Sizes sizes_;
};

// Those of each logical worker. Makes the outlines of workers' states, one for all workers that run
// the same estimators, on the pool around the call.
std::vector<AnswerRules> RulesOf(const Experiment& experiment);

}  // namespace lopt

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/registry.h"

namespace lopt {

class LearningRateSchedule;

// What the config of every optimizer of theta has. The gradient is clipped by value, then by global
// norm (where these are given), and the learning rate is scaled by the schedule, before the
// optimizer's own rule.
struct ThetaOptOptions {
  double learning_rate = 1e-3;
  Config schedule = Config::Parse(R"({"type": "Constant"})", "the default schedule");
  std::optional<double> clip_by_value;        // each element to [-c, c]
  std::optional<double> clip_by_global_norm;  // the whole gradient to norm <= c

  void Visit(FieldVisitor& v);
};

// An optimizer of theta ("theta_opt", the outer or meta optimizer). Immutable, thread-safe; its
// state is passed in. Elements are computed in float64 and kept in float32, on every instruction
// set alike.
class ThetaOpt {
 public:
  virtual ~ThetaOpt() = default;
  ThetaOpt(const ThetaOpt&) = delete;
  ThetaOpt& operator=(const ThetaOpt&) = delete;

  // The state before the first update of D numbers: "count" (int64 scalar, updates so far) and rows
  // [D] of zeros.
  NamedArrays InitState(int64_t size) const;
  // One update in place. Throws Error if sizes disagree or the state is not one of this optimizer.
  void Update(std::span<const float> gradient, std::span<float> theta, NamedArrays* state) const;
  // The learning rate that the next update of a theta with this state has.
  double LearningRate(const NamedArrays& state) const;

 protected:
  // `rows`: the names of the state's rows. Throws Error as CheckOptions does.
  ThetaOpt(const ThetaOptOptions& options, std::vector<std::string> rows);

 private:
  // `gradient` is clipped; `count` >= 1 is the number of updates with this one; `rows` are the
  // state's rows in the order of their names' list.
  virtual void DoUpdate(double learning_rate, int64_t count, std::span<const double> gradient,
                        std::span<float> theta, std::span<const std::span<float>> rows) const = 0;

  ThetaOptOptions options_;
  std::shared_ptr<const LearningRateSchedule> schedule_;
  std::vector<std::string> rows_;
};

// Adam, AdamW, SGD, SGDM.
Registry<ThetaOpt>& ThetaOptRegistry();

// The config of an optimizer of theta for a run of `updates` updates: what its schedule leaves open
// is filled in (ResolveSchedule).
Config ResolveThetaOpt(const Config& theta_opt, int64_t updates);

}  // namespace lopt

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/estimators/inner_problem.h"

namespace lopt {

// A deterministic inner problem written by hand: a few float64 numbers that each inner step
// advances under theta. Known answers about estimators are tested with it; it has nothing to do
// with tasks and optimizers. All episodes have the same length.
class ToyProblem : public InnerProblem {
 public:
  struct Dynamics {
    int64_t theta_size = 1;
    std::vector<double> start;  // the state at an episode's start
    int64_t length = 0;         // inner steps of an episode; 0: it never ends
    // Advances `state` by inner step `step` of the episode; returns that step's loss.
    std::function<double(std::span<const double> theta, std::span<double> state, int64_t step)>
        advance;
    std::string noted = {};  // what the losses are noted as; empty: not
  };

  explicit ToyProblem(Dynamics dynamics)
      : InnerProblem(Layout({{"theta", {dynamics.theta_size}}})), dynamics_(std::move(dynamics)) {}

  bool EpisodesEnd() const override { return dynamics_.length > 0; }

 private:
  UnrollState DoStart(const ThetaRows& theta, const OuterState&, std::span<const Key>,
                      std::optional<int64_t> horizon) const override {
    const int64_t replicas = theta.rows;
    const auto size = std::ssize(dynamics_.start);
    UnrollState state;
    Array numbers(DType::kFloat64, {replicas, size});
    for (int64_t b = 0; b < replicas; ++b) {
      std::ranges::copy(dynamics_.start, numbers.As<double>().begin() + b * size);
    }
    state.Set("state", std::move(numbers));
    state.Set("step", Array(DType::kInt64, {replicas}));
    Array restarts(DType::kInt64, {replicas});
    std::ranges::fill(restarts.As<int64_t>(), horizon ? 0 : 1);
    state.Set("restarts", std::move(restarts));
    Array length(DType::kInt64, {replicas});
    std::ranges::fill(length.As<int64_t>(), horizon.value_or(dynamics_.length));
    state.Set("length", std::move(length));
    return state;
  }

  void DoRun(const Window& window) const override {
    const auto size = std::ssize(dynamics_.start);
    const auto numbers = window.state->At("state").As<double>();
    const auto step = window.state->At("step").As<int64_t>();
    const auto restarts = window.state->At("restarts").As<int64_t>();
    const auto length = window.state->At("length").As<int64_t>();
    UnrollTrace& trace = *window.trace;
    for (int64_t b = 0; b < window.theta.rows; ++b) {
      WindowStep at{.inner_step = step[b]};
      std::vector<double> weights = Weights(window.theta, b, at);
      const auto own = numbers.subspan(b * size, size);
      for (int64_t k = 0; k < window.steps; ++k) {
        trace.iteration(k, b) = step[b];
        trace.loss(k, b) = dynamics_.advance(weights, own, step[b]);
        trace.non_finite(k, b) = !std::isfinite(trace.loss(k, b));
        ++step[b];
        trace.is_last(k, b) = step[b] == length[b];
        if (trace.is_last(k, b) && restarts[b] == 1) {
          std::ranges::copy(dynamics_.start, own.begin());
          step[b] = 0;
          ++at.restarts;
        }
        at.inner_step = step[b];
        if (window.theta.ChangesAt(step[b])) weights = Weights(window.theta, b, at);
      }
    }
    if (!dynamics_.noted.empty()) {
      trace.noted.push_back({dynamics_.noted, trace.loss.cast<float>()});
    }
  }

  void DoMetaLoss(const ThetaRows& theta, std::span<const Key>, const UnrollState& state,
                  std::span<double> loss) const override {
    const auto size = std::ssize(dynamics_.start);
    for (int64_t b = 0; b < theta.rows; ++b) {
      const std::vector<double> weights = Weights(theta, b, {});
      std::vector<double> own(size);
      std::ranges::copy(state.At("state").As<double>().subspan(b * size, size), own.begin());
      loss[b] = dynamics_.advance(weights, own, state.At("step").As<int64_t>()[b]);
    }
  }

  static std::vector<double> Weights(const ThetaRows& theta, int64_t row, const WindowStep& at) {
    std::vector<float> numbers(theta.theta.size());
    theta.Row(row, at, numbers);
    return {numbers.begin(), numbers.end()};
  }

  Dynamics dynamics_;
};

// Mean and standard error of numbers as they come.
struct Statistics {
  int64_t count = 0;
  double sum = 0;
  double sum_of_squares = 0;

  void Add(double value) {
    ++count;
    sum += value;
    sum_of_squares += value * value;
  }
  double Mean() const { return sum / static_cast<double>(count); }
  double Variance() const { return sum_of_squares / static_cast<double>(count) - Mean() * Mean(); }
  double StandardError() const { return std::sqrt(Variance() / static_cast<double>(count)); }
};

}  // namespace lopt

#include "estimators/inner_problem.h"

#include <algorithm>

#include "base/error.h"

namespace lopt {
namespace {

int64_t Replicas(const UnrollState& state) {
  int64_t replicas = -1;
  for (const auto& [name, array] : state) {
    Require(!array.shape().empty(), "unroll state: '{}' has no replica dimension", name);
    Require(replicas < 0 || array.shape()[0] == replicas,
            "unroll state: '{}' has {} replicas, other arrays have {}", name, array.shape()[0],
            replicas);
    replicas = array.shape()[0];
  }
  Require(replicas >= 0, "unroll state: it has no arrays");
  return replicas;
}

// An array with `rows` rows in place of the ones of `like`.
Array WithRows(const Array& like, int64_t rows) {
  Shape shape = like.shape();
  shape[0] = rows;
  return Array(like.dtype(), std::move(shape));
}

}  // namespace

void ThetaRows::Row(int64_t row, std::span<float> out) const {
  Require(out.size() == theta.size(), "theta row: room for {} numbers, theta has {}", out.size(),
          theta.size());
  if (perturbations.empty()) {
    std::ranges::copy(theta, out.begin());
    return;
  }
  const int64_t pairs = rows / 2;
  const float sign = row < pairs ? 1.0F : -1.0F;
  const auto perturbation =
      perturbations.subspan(static_cast<size_t>(row % pairs) * theta.size(), theta.size());
  for (size_t i = 0; i < theta.size(); ++i) {
    out[i] = theta[i] + sign * perturbation[i];
  }
}

UnrollState StackTwice(const UnrollState& state) {
  const int64_t replicas = Replicas(state);
  UnrollState stacked;
  for (const auto& [name, array] : state) {
    Array twice = WithRows(array, 2 * replicas);
    const auto half = twice.bytes().size() / 2;
    std::ranges::copy(array.bytes(), twice.bytes().begin());
    std::ranges::copy(array.bytes(), twice.bytes().subspan(half).begin());
    stacked.Set(name, std::move(twice));
  }
  return stacked;
}

UnrollState TakeRows(const UnrollState& state, int64_t first, int64_t rows) {
  const int64_t replicas = Replicas(state);
  Require(first >= 0 && rows > 0 && first + rows <= replicas,
          "unroll state: rows [{}, {}) of {} replicas", first, first + rows, replicas);
  UnrollState taken;
  for (const auto& [name, array] : state) {
    Array part = WithRows(array, rows);
    const size_t row_bytes = array.bytes().size() / static_cast<size_t>(replicas);
    std::ranges::copy(array.bytes().subspan(static_cast<size_t>(first) * row_bytes,
                                            static_cast<size_t>(rows) * row_bytes),
                      part.bytes().begin());
    taken.Set(name, std::move(part));
  }
  return taken;
}

void UnrollTrace::Resize(int64_t steps, int64_t replicas) {
  loss.resize(steps, replicas);
  is_last.resize(steps, replicas);
  non_finite.resize(steps, replicas);
  iteration.resize(steps, replicas);
}

UnrollState InnerProblem::Start(int64_t replicas, const OuterState& outer, Key key,
                                std::optional<int64_t> horizon) const {
  Require(replicas >= 1, "inner problem: {} replicas to start, wanted at least 1", replicas);
  Require(!horizon || *horizon >= 1, "inner problem: a horizon of {} steps, wanted at least 1",
          horizon.value_or(0));
  return DoStart(replicas, outer, key, horizon);
}

void InnerProblem::Run(const ThetaRows& theta, const OuterState& outer, int64_t steps,
                       std::span<const Key> keys, UnrollState* state, UnrollTrace* trace) const {
  Require(steps >= 1, "inner problem: {} inner steps to run, wanted at least 1", steps);
  CheckRows(theta, keys, *state);
  trace->Resize(steps, theta.rows);
  DoRun(theta, outer, steps, keys, state, trace);
}

void InnerProblem::MetaLoss(const ThetaRows& theta, std::span<const Key> keys,
                            const UnrollState& state, std::span<double> loss) const {
  CheckRows(theta, keys, state);
  Require(std::ssize(loss) == theta.rows, "inner problem: room for {} losses of {} replicas",
          loss.size(), theta.rows);
  DoMetaLoss(theta, keys, state, loss);
}

void InnerProblem::CheckRows(const ThetaRows& theta, std::span<const Key> keys,
                             const UnrollState& state) const {
  Require(std::ssize(theta.theta) == theta_layout_.size(),
          "inner problem: theta has {} numbers, wanted {}", theta.theta.size(),
          theta_layout_.size());
  Require(theta.perturbations.empty() ||
              2 * std::ssize(theta.perturbations) == theta.rows * std::ssize(theta.theta),
          "inner problem: {} numbers of perturbations for {} antithetic rows of theta [{}]",
          theta.perturbations.size(), theta.rows, theta.theta.size());
  Require(std::ssize(keys) == theta.rows, "inner problem: {} keys for {} rows of theta",
          keys.size(), theta.rows);
  const int64_t replicas = Replicas(state);
  Require(replicas == theta.rows, "inner problem: {} replicas for {} rows of theta", replicas,
          theta.rows);
}

}  // namespace lopt

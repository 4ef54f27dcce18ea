#include "lopt/estimators/inner_problem.h"

#include "lopt/base/device.h"
#include "lopt/base/error.h"

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

}  // namespace

UnrollState TakeRows(const UnrollState& state, int64_t first, int64_t rows) {
  const int64_t replicas = Replicas(state);
  Require(first >= 0 && rows > 0 && first + rows <= replicas,
          "unroll state: rows [{}, {}) of {} replicas", first, first + rows, replicas);
  UnrollState taken;
  for (const auto& [name, array] : state) {
    Shape shape = array.shape();
    shape[0] = rows;
    const Buffer& all = array.buffer();
    Array part(array.dtype(), std::move(shape), all.memory());
    const size_t row_bytes = all.size() / static_cast<size_t>(replicas);
    part.buffer().CopyFrom(all, static_cast<size_t>(first) * row_bytes, 0,
                           static_cast<size_t>(rows) * row_bytes);
    taken.Set(name, std::move(part));
  }
  return taken;
}

UnrollState Twice(const UnrollState& state) {
  UnrollState both;
  for (const auto& [name, array] : state) {
    Shape shape = array.shape();
    shape[0] *= 2;
    const Buffer& once = array.buffer();
    Array twice(array.dtype(), std::move(shape), once.memory());
    twice.buffer().CopyFrom(once, 0, 0, once.size());
    twice.buffer().CopyFrom(once, 0, once.size(), once.size());
    both.Set(name, std::move(twice));
  }
  return both;
}

void UnrollTrace::Resize(int64_t steps, int64_t replicas) {
  loss.resize(steps, replicas);
  is_last.resize(steps, replicas);
  non_finite.resize(steps, replicas);
  iteration.resize(steps, replicas);
  noted.clear();
}

const Memory& InnerProblem::memory() const {
  return device() == nullptr ? HostMemory() : device()->memory();
}

UnrollState InnerProblem::Start(const ThetaRows& theta, const OuterState& outer,
                                std::span<const Key> keys, std::optional<int64_t> horizon) const {
  CheckRows(theta, keys);
  Require(!horizon || *horizon >= 1, "inner problem: a horizon of {} steps, wanted at least 1",
          horizon.value_or(0));
  return DoStart(theta, outer, keys, horizon);
}

void InnerProblem::Run(const Window& window) const {
  Require(window.steps >= 1, "inner problem: {} inner steps to run, wanted at least 1",
          window.steps);
  Require(window.state != nullptr && window.trace != nullptr,
          "inner problem: a window without a state or a trace");
  CheckRows(window.theta, window.keys);
  CheckReplicas(*window.state, window.theta.rows);
  window.trace->Resize(window.steps, window.theta.rows);
  DoRun(window);
  for (const auto& [name, values] : window.trace->noted) {
    Require(name.find('/') != std::string::npos && values.rows() == window.steps &&
                values.cols() == window.theta.rows,
            "inner problem: it notes '{}' [{}, {}]; wanted a name GROUP/NAME, as no other metric "
            "of a window has, and [{}, {}] values",
            name, values.rows(), values.cols(), window.steps, window.theta.rows);
  }
}

void InnerProblem::MetaLoss(const ThetaRows& theta, std::span<const Key> keys,
                            const UnrollState& state, std::span<double> loss) const {
  CheckRows(theta, keys);
  CheckReplicas(state, theta.rows);
  Require(std::ssize(loss) == theta.rows, "inner problem: room for {} losses of {} replicas",
          loss.size(), theta.rows);
  DoMetaLoss(theta, keys, state, loss);
}

void InnerProblem::CheckRows(const ThetaRows& theta, std::span<const Key> keys) const {
  Require(theta.rows >= 1, "inner problem: {} rows of theta, wanted at least 1", theta.rows);
  Require(std::ssize(theta.theta) == theta_layout_.size(),
          "inner problem: theta has {} numbers, wanted {}", theta.theta.size(),
          theta_layout_.size());
  if (theta.perturbations != nullptr) {
    const Perturbations& perturbations = *theta.perturbations;
    Require(perturbations.dimension() == theta_layout_.size() &&
                2 * perturbations.pairs() == theta.rows,
            "inner problem: perturbations of {} pairs, {} numbers each, for {} antithetic rows of "
            "theta [{}]",
            perturbations.pairs(), perturbations.dimension(), theta.rows, theta.theta.size());
  }
  Require(std::ssize(keys) == theta.rows, "inner problem: {} keys for {} rows of theta",
          keys.size(), theta.rows);
}

void InnerProblem::CheckReplicas(const UnrollState& state, int64_t rows) const {
  const int64_t replicas = Replicas(state);
  Require(replicas == rows, "inner problem: {} replicas for {} rows of theta", replicas, rows);
}

}  // namespace lopt

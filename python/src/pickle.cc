#include "lopt/python/src/pickle.h"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <span>
#include <tuple>
#include <vector>

#include "lopt/base/safetensors.h"
#include "lopt/learner/job/wire.h"

namespace lopt::python {

namespace nb = nanobind;

namespace {

nb::bytes BytesOf(std::span<const std::byte> bytes) {
  return nb::bytes(bytes.data(), bytes.size());
}

std::span<const std::byte> SpanOf(const nb::bytes& bytes) {
  return {static_cast<const std::byte*>(bytes.data()), bytes.size()};
}

nb::bytes SaveArrays(const NamedArrays& arrays) {
  ArrayFile file;
  for (const auto& [name, array] : arrays) file.arrays.Set(name, array.To(HostMemory()));
  return BytesOf(SerializeArrayFile(file));
}

NamedArrays LoadArrays(const nb::bytes& saved) {
  return ParseArrayFile(SpanOf(saved), "a pickle").arrays;
}

}  // namespace

nb::object Save(Key key) { return nb::cast(uint64_t{key.hi} << 32 | key.lo); }

void Load(nb::handle saved, Key* key) { *key = KeyFromSeed(nb::cast<uint64_t>(saved)); }

nb::object Save(const Keys& keys) { return nb::cast(keys.keys); }

void Load(nb::handle saved, Keys* keys) { keys->keys = nb::cast<std::vector<Key>>(saved); }

nb::object Save(const WorkerWeights& weights) { return BytesOf(ToWire(weights)); }

void Load(nb::handle saved, WorkerWeights* weights) {
  *weights = FromWire<WorkerWeights>(SpanOf(nb::cast<nb::bytes>(saved)));
}

nb::object Save(const AggregatedGradient& gradient) { return BytesOf(ToWire(gradient)); }

void Load(nb::handle saved, AggregatedGradient* gradient) {
  *gradient = FromWire<AggregatedGradient>(SpanOf(nb::cast<nb::bytes>(saved)));
}

nb::object Save(const WorkerState& state) {
  nb::list estimators;
  for (const EstimatorState& estimator : state.estimators) estimators.append(SaveArrays(estimator));
  return nb::make_tuple(state.windows, estimators);
}

void Load(nb::handle saved, WorkerState* state) {
  const auto [windows, estimators] = nb::cast<std::tuple<int64_t, nb::list>>(saved);
  state->windows = windows;
  for (const nb::handle estimator : estimators) {
    state->estimators.push_back(LoadArrays(nb::cast<nb::bytes>(estimator)));
  }
}

nb::object Save(const LearnerState& state) {
  return nb::make_tuple(state.outer_step, state.skipped_updates, BytesOf(ToWire(state.theta)),
                        SaveArrays(state.theta_opt), SaveArrays(state.norms));
}

void Load(nb::handle saved, LearnerState* state) {
  const auto [outer_step, skipped_updates, theta, theta_opt, norms] =
      nb::cast<std::tuple<int64_t, int64_t, nb::bytes, nb::bytes, nb::bytes>>(saved);
  state->outer_step = outer_step;
  state->skipped_updates = skipped_updates;
  state->theta = FromWire<Eigen::VectorXf>(SpanOf(theta));
  state->theta_opt = LoadArrays(theta_opt);
  state->norms = LoadArrays(norms);
}

nb::object Save(const SingleMachineState& state) {
  nb::list workers;
  for (const WorkerState& worker : state.workers) workers.append(Save(worker));
  return nb::make_tuple(Save(state.run.learner), BytesOf(ToWire(state.run.totals)),
                        SaveArrays(state.run.ledger.ToArrays()), workers);
}

void Load(nb::handle saved, SingleMachineState* state) {
  const auto [learner, totals, ledger, workers] =
      nb::cast<std::tuple<nb::object, nb::bytes, nb::bytes, nb::list>>(saved);
  Load(learner, &state->run.learner);
  state->run.totals = FromWire<std::vector<StepCounts>>(SpanOf(totals));
  state->run.ledger = Ledger::FromArrays(LoadArrays(ledger));
  for (const nb::handle worker : workers) Load(worker, &state->workers.emplace_back());
}

}  // namespace lopt::python

#include "lopt/learner/elastic/answer_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "lopt/base/error.h"
#include "lopt/base/utf8.h"
#include "lopt/learner/elastic/frame_parts.h"
#include "lopt/learner/run/worker_files.h"
#include "lopt/tasks/data/data_checksums.h"

namespace lopt {
namespace {

// Sums of so many steps of a run do not overflow.
constexpr int64_t kMostSteps = int64_t{1} << 40;
constexpr size_t kMostDiagnostics = 10000;
constexpr size_t kMostNameBytes = 200;
// A name, the steps and a number.
constexpr size_t kMostDiagnosticBytes = kMostNameBytes + 40;

uint64_t SizeOf(const Eigen::VectorXf& row) { return static_cast<uint64_t>(row.size()); }

void CheckCounts(const StepCounts& counts) {
  Require(counts.inner_steps >= 0 && counts.non_finite >= 0 && counts.episodes_ended >= 0,
          "it counts less than no steps");
  Require(counts.inner_steps <= kMostSteps && counts.episodes_ended <= kMostSteps &&
              counts.non_finite <= counts.inner_steps,
          "it counts {} inner steps, {} of them not finite, and {} ends of episodes",
          counts.inner_steps, counts.non_finite, counts.episodes_ended);
}

void CheckNoSum(const PartialSum& partial) {
  Require(partial.gradients == 0 && partial.sum.size() == 0,
          "it sends a sum of {} gradients, of {} numbers; a process that works for one worker adds "
          "nothing up",
          partial.gradients, partial.sum.size());
}

void CheckDiagnostics(const Diagnostics& diagnostics) {
  Require(diagnostics.size() <= kMostDiagnostics,
          "it sends {} diagnostics of one estimator; there may be {}", diagnostics.size(),
          kMostDiagnostics);
  for (const auto& [diagnostic, value] : diagnostics) {
    Require(!diagnostic.name.empty() && diagnostic.name.size() <= kMostNameBytes &&
                IsPlainText(diagnostic.name),
            "it names a diagnostic '{}'; wanted are 1 to {} bytes of plain text in UTF-8",
            PlainText(diagnostic.name), kMostNameBytes);
    if (diagnostic.steps) {
      const auto [first, last] = *diagnostic.steps;
      Require(first >= 0 && first <= last, "it sends a diagnostic of the inner steps {} to {}",
              first, last);
    }
  }
}

}  // namespace

size_t AnswerRules::MostBytes() const {
  // With numbers for what has another size from answer to answer.
  WorkerGradient gradient;
  gradient.gradient.estimators.resize(weights_.size());
  size_t bytes = ToWire(std::vector{gradient}).size();
  bytes += sizes_.theta * sizeof(float);
  for (const auto& weight : weights_) {
    if (weight) {
      bytes += apart_ ? sizes_.theta * sizeof(float) : 0;
      bytes += kMostDiagnostics * kMostDiagnosticBytes;
    }
  }
  const SavedFile file{.file = {.name = WorkersFileName({.first = worker_, .count = 1})}};
  const size_t saved = ToWire(std::vector{file}).size() + sizes_.states;
  return std::max({bytes, saved, data_.size() + sizeof(uint64_t), kPartBytes});
}

void AnswerRules::CheckReady(std::span<const std::byte> bytes) const {
  RequireSameDataOn("it", FromWire<std::string>(bytes), "the learner", data_);
}

void AnswerRules::CheckGradient(std::span<const std::byte> bytes,
                                const AwaitedGradient& awaited) const {
  const auto gradients = FromWire<std::vector<WorkerGradient>>(bytes);
  Require(gradients.size() == 1, "it sends {} gradients for one worker", gradients.size());
  const WorkerGradient& got = gradients[0];
  const AggregatedGradient& gradient = got.gradient;
  Require(got.worker == worker_, "it sends a gradient of worker {}, which is not its", got.worker);
  Require(got.first_window == awaited.first_window && got.windows == awaited.windows,
          "it sends a gradient of {} windows from {} on, {} from {} on were asked for", got.windows,
          got.first_window, awaited.windows, awaited.first_window);
  Require(gradient.outer_step == awaited.outer_step,
          "it sends a gradient of outer step {}, {} was asked for", gradient.outer_step,
          awaited.outer_step);
  Require(SizeOf(gradient.gradient) == awaited.theta_size,
          "it sends a gradient of {} numbers for {} weights", gradient.gradient.size(),
          awaited.theta_size);
  CheckNoSum(gradient.partial);
  CheckCounts(gradient.counts);
  Require(gradient.estimators.size() == weights_.size(),
          "it reports on {} estimators, the config has {}", gradient.estimators.size(),
          weights_.size());
  StepCounts counts;
  for (size_t e = 0; e < weights_.size(); ++e) {
    CheckReport(gradient.estimators[e], weights_[e], awaited.theta_size);
    counts += gradient.estimators[e].counts;
  }
  Require(gradient.counts == counts, "it counts other steps than its estimators together");
}

void AnswerRules::CheckReport(const EstimatorReport& report, const std::optional<double>& weight,
                              uint64_t theta_size) const {
  CheckCounts(report.counts);
  CheckNoSum(report.partial);
  CheckDiagnostics(report.metrics);
  Require(weight || (report.counts == StepCounts() && report.metrics.empty()),
          "it reports on an estimator that the worker does not run");
  const uint64_t size = apart_ && weight ? theta_size : 0;
  Require(SizeOf(report.gradient) == size,
          "it sends an estimator's gradient of {} numbers, {} were asked for",
          report.gradient.size(), size);
  const double wanted = apart_ ? weight.value_or(0) : 0;
  Require(report.weight == wanted, "it sends an estimator's weight of {}, that is {}",
          report.weight, wanted);
}

void AnswerRules::CheckNothingSaved(std::span<const std::byte> bytes) const {
  const auto files = FromWire<std::vector<SavedFile>>(bytes);
  Require(files.empty(), "it sends {} files, none was asked for", files.size());
}

std::vector<std::byte> AnswerRules::TakeStates(std::span<const std::byte> bytes,
                                               int64_t windows) const {
  auto files = FromWire<std::vector<SavedFile>>(bytes);
  const std::string name = WorkersFileName({.first = worker_, .count = 1});
  Require(files.size() == 1 && files[0].file.name == name, "it does not send the one file {}",
          name);
  const int64_t got = ReadStates(files[0].bytes);
  Require(got == windows, "its states have run {} windows, not {}", got, windows);
  return std::move(files[0].bytes);
}

int64_t AnswerRules::ReadStates(std::span<const std::byte> bytes) const {
  ArrayFile file = ParseArrayFile(bytes, "a worker's states");
  const std::string prefix = fmt::format("{}/", worker_);
  Outline outline;
  for (const auto& [name, array] : file.arrays) {
    Require(name.starts_with(prefix), "a worker's states: there is an array of another worker");
    outline[name.substr(prefix.size())] = {array.dtype(), array.shape()};
  }
  Require(outline == *states_ && file.metadata.empty(),
          "the states of worker {} have other arrays or shapes than its estimators make", worker_);
  return UnpackWorkers(std::move(file), {.first = worker_, .count = 1}, 0)[0].windows;
}

namespace {

// What workers send that run the same estimators.
struct Outlined {
  std::shared_ptr<const AnswerRules::Outline> states;
  AnswerRules::Sizes sizes;
};

// The number of a worker is part of the names in its file; the one with the longest is given.
Outlined OutlineOf(const WorkerWeights& weights, const LogicalWorker& worker, int64_t longest) {
  const WorkerState state = OutlineWorkerState(weights, worker.estimators, worker.key);
  AnswerRules::Outline outline;
  outline["windows"] = {DType::kInt64, {}};
  for (size_t e = 0; e < state.estimators.size(); ++e) {
    for (const auto& [name, array] : state.estimators[e]) {
      outline[fmt::format("estimators/{}/{}", e, name)] = {array.dtype(), array.shape()};
    }
  }
  Outlined outlined{.states = std::make_shared<AnswerRules::Outline>(std::move(outline)),
                    .sizes = {.theta = SizeOf(weights.theta)}};
  PackWorkers(longest, std::span(&state, 1),
              [&](const WorkerBlock&, const std::vector<std::byte>& bytes) {
                outlined.sizes.states = bytes.size();
              });
  return outlined;
}

}  // namespace

std::vector<AnswerRules> RulesOf(const Experiment& experiment) {
  const WorkerWeights weights =
      experiment.learner.GetStateForWorker(experiment.learner.Init(ThetaKey(experiment.run_key)));
  std::map<std::vector<bool>, Outlined> outlines;  // by which estimators are run
  std::vector<AnswerRules> rules;
  for (const LogicalWorker& worker : experiment.workers) {
    std::vector<bool> runs;
    std::vector<std::optional<double>> estimator_weights;
    for (const auto& estimator : worker.estimators) {
      runs.push_back(estimator != nullptr);
      estimator_weights.push_back(estimator ? std::optional(estimator->weight) : std::nullopt);
    }
    Outlined& outlined = outlines[runs];
    if (!outlined.states) {
      outlined = OutlineOf(weights, worker, std::ssize(experiment.workers) - 1);
    }
    rules.emplace_back(std::ssize(rules), std::move(estimator_weights),
                       experiment.config.weighting == Weighting::kEqualNorm, experiment.data,
                       outlined.states, outlined.sizes);
  }
  return rules;
}

}  // namespace lopt

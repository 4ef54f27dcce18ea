#include "lopt/learner/job/worker_role.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/parallel.h"
#include "lopt/base/progress.h"
#include "lopt/learner/run/checkpoint_files.h"
#include "lopt/learner/run/worker_files.h"

namespace lopt {

WorkerRole::WorkerRole(const Experiment* experiment, WorkerBlock block,
                       std::function<void(std::string_view)> on_event, Background* background,
                       std::function<void(int kind, std::vector<std::byte>)> answer)
    : experiment_(experiment),
      block_(block),
      on_event_(std::move(on_event)),
      background_(background),
      answer_(std::move(answer)),
      states_(static_cast<size_t>(block.count)) {}

void WorkerRole::Handle(const Message& message) {
  switch (message.kind) {
    case kBegin:
      Begin(FromWire<WorkerWeights>(message.bytes));
      break;
    case kState:
      TakeStates(FromWire<WorkersFile>(message.bytes));
      break;
    case kGo:
      Go(FromWire<std::string>(message.bytes));
      break;
    case kWeights:
      TakeWeights(FromWire<WorkerWeights>(message.bytes));
      break;
    case kSave:
      Save(FromWire<SaveRequest>(message.bytes));
      break;
    default:
      Fail("a worker got a message of kind {}, which is not for it", message.kind);
  }
}

void WorkerRole::Begin(const WorkerWeights& weights) {
  background_->Post(
      [this, weights] {
        ParallelFor(block_.count, [&](int64_t i) {
          const LogicalWorker& worker = experiment_->workers[static_cast<size_t>(block_.first + i)];
          states_[static_cast<size_t>(i)] = InitWorkerState(weights, worker.estimators, worker.key);
          NoteProgress();
        });
      },
      [this] { answer_(kReady, ToWire(experiment_->data)); });
}

void WorkerRole::TakeStates(WorkersFile file) {
  auto shared = std::make_shared<WorkersFile>(std::move(file));
  background_->Post(
      [this, shared] {
        Require(shared->first >= block_.first &&
                    shared->first + shared->count <= block_.first + block_.count,
                "the states of workers {} to {} came to a rank that has workers {} to {}",
                shared->first, shared->first + shared->count - 1, block_.first,
                block_.first + block_.count - 1);
        std::ranges::move(
            UnpackWorkers(ParseArrayFile(shared->bytes, "a message with workers' states"),
                          {.first = shared->first, .count = shared->count},
                          experiment_->estimators.size()),
            states_.begin() + (shared->first - block_.first));
      },
      [] {});
}

void WorkerRole::Go(const std::string& directory) {
  background_->Post(
      [this, directory] {
        if (!directory.empty()) {
          states_ =
              ReadWorkers(directory, block_.first, block_.count, experiment_->estimators.size());
        }
      },
      [this] { answer_(kReady, ToWire(experiment_->data)); });
}

void WorkerRole::TakeWeights(WorkerWeights weights) {
  updates_ = weights.outer.outer_step;
  const auto shared = std::make_shared<const WorkerWeights>(std::move(weights));
  const auto gradients = std::make_shared<std::vector<std::byte>>();
  background_->Post([this, gradients, shared] { *gradients = ToWire(Compute(*shared)); },
                    [this, gradients] { answer_(kGradients, std::move(*gradients)); });
}

std::vector<WorkerGradient> WorkerRole::Compute(const WorkerWeights& weights) {
  const int64_t windows = experiment_->config.windows_per_update;
  std::vector<AggregatedGradient> to_put(static_cast<size_t>(block_.count));
  std::vector<WorkerGradient> gradients(to_put.size());
  ParallelFor(block_.count, [&](int64_t i) {
    const auto index = static_cast<size_t>(i);
    const int64_t worker = block_.first + i;
    const LogicalWorker& logical = experiment_->workers[static_cast<size_t>(worker)];
    gradients[index] = {
        .worker = worker, .first_window = states_[index].windows, .windows = windows};
    to_put[index] = GradientWorkerCompute(weights, logical.estimators, windows, logical.key,
                                          &states_[index], experiment_->config.weighting);
    NoteProgress();
  });
  if (experiment_->config.gradient_sum == GradientSum::kTree) {
    AddUpNodes(block_.first, experiment_->config.workers, to_put);
  }
  for (size_t i = 0; i < to_put.size(); ++i) gradients[i].gradient = std::move(to_put[i]);
  return gradients;
}

void WorkerRole::Save(const SaveRequest& request) {
  saving_ = true;
  auto saved = std::make_shared<std::vector<std::byte>>();
  background_->Post([this, saved, request] { *saved = ToWire(WriteStates(request)); },
                    [this, saved] {
                      saving_ = false;
                      answer_(kSaved, std::move(*saved));
                    });
}

std::vector<SavedFile> WorkerRole::WriteStates(const SaveRequest& request) const {
  std::vector<SavedFile> saved;
  if (request.what == SaveRequest::What::kNothing) {
    return saved;
  }
  PackWorkers(block_.first, states_, [&](const WorkerBlock& range, std::vector<std::byte> bytes) {
    const std::string name = WorkersFileName(range);
    if (request.what == SaveRequest::What::kSend) {
      saved.push_back({.file = {.name = name}, .bytes = std::move(bytes)});
      return;
    }
    if (on_event_) {
      on_event_(fmt::format("checkpoint:{}:workers:{}", request.outer_step, range.first));
    }
    saved.push_back({.file = WriteCheckpointFile(request.directory, name, bytes), .bytes = {}});
  });
  return saved;
}

}  // namespace lopt

// What a worker process that cannot be trusted answers to an elastic learner.
#include <memory>

#include "lopt/base/safetensors.h"
#include "lopt/learner/elastic/rank_log.h"
#include "lopt/learner/gradient_learner.h"
#include "lopt/learner/job/messages.h"
#include "lopt/learner/run/worker_files.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

constexpr int64_t kWorker = 1;

// A rank that was told to begin, given weights and asked for its states.
RankLog ToldLog() {
  RankLog log(2);
  const AnswerRules::Outline states = {{"windows", {DType::kInt64, {}}}};
  log.Know({kWorker,
            {1.0},
            false,
            "",
            std::make_shared<const AnswerRules::Outline>(states),
            {.theta = 3, .states = 1000}});
  const WorkerWeights weights{.theta = Eigen::VectorXf::Constant(3, 0.5F), .outer = {}};
  log.Add(kBegin, MakeBody(ToWire(weights)));
  log.Add(kWeights, MakeBody(ToWire(weights)));
  log.AddSnapshot();
  while (log.Tell()) {
  }
  return log;
}

// Answers in turn: a byte with its kind, then what it says.
constexpr size_t kAnswers = 4;

void TakeAnswers(std::string_view input) {
  RankLog log = ToldLog();
  for (const std::string& answer : SplitParts(input, kAnswers)) {
    if (answer.empty()) continue;
    const auto bytes = AsBytes(answer).subspan(1);
    log.Take(answer[0], {bytes.begin(), bytes.end()});
    log.Owes();
  }
}

std::vector<std::string> AnswerSeeds() {
  const auto answer = [](MessageKind kind, const auto& message) {
    return static_cast<char>(kind) + AsText(ToWire(message));
  };
  WorkerGradient gradient{.worker = kWorker, .first_window = 0, .windows = 2};
  gradient.gradient.gradient = Eigen::VectorXf::Zero(3);
  gradient.gradient.estimators.resize(1);
  gradient.gradient.estimators[0].metrics["loss"] = 1;
  std::vector<SavedFile> saved;
  PackWorkers(kWorker, std::vector{WorkerState{.windows = 2, .estimators = {{}}}},
              [&](const WorkerBlock& block, std::vector<std::byte> bytes) {
                saved.push_back({.file = {.name = WorkersFileName(block), .bytes = bytes.size()},
                                 .bytes = std::move(bytes)});
              });
  return {JoinParts({answer(kReady, std::string()), answer(kGradients, std::vector{gradient}),
                     answer(kSaved, saved), ""})};
}

const AddFuzzTarget rank_log_target({"learner_rank_log", TakeAnswers, AnswerSeeds});

}  // namespace
}  // namespace lopt

#include "tasks/task_family.h"

#include "base/error.h"

namespace lopt {
namespace {

void RequireSize(const char* what, size_t got, int64_t wanted) {
  Require(static_cast<int64_t>(got) == wanted, "TaskFamily: {} has {} numbers, wanted {}", what,
          got, wanted);
}

void RequireSizeOrEmpty(const char* what, size_t got, int64_t wanted) {
  Require(got == 0 || static_cast<int64_t>(got) == wanted,
          "TaskFamily: {} has {} numbers, wanted {} or none", what, got, wanted);
}

}  // namespace

std::string_view ToString(Split split) {
  switch (split) {
    case Split::kTrain:
      return "train";
    case Split::kInnerValid:
      return "inner_valid";
    case Split::kOuterValid:
      return "outer_valid";
    case Split::kTest:
      return "test";
  }
  Fail("There is no split number {}", static_cast<int>(split));
}

Split SplitFromString(std::string_view name) {
  for (const Split split : kSplits) {
    if (ToString(split) == name) return split;
  }
  Fail("There is no split '{}'. Choices: train, inner_valid, outer_valid, test", name);
}

void TaskFamily::Sample(Key key, std::span<float> config) const {
  RequireSize("config", config.size(), layouts_.config.size());
  DoSample(key, config);
}

void TaskFamily::Init(std::span<const float> config, Key key, std::span<float> params,
                      std::span<float> model_state) const {
  RequireSize("config", config.size(), layouts_.config.size());
  RequireSize("params", params.size(), layouts_.params.size());
  RequireSize("model_state", model_state.size(), layouts_.model_state.size());
  DoInit(config, key, params, model_state);
}

void TaskFamily::Evaluate(const TaskEvaluation& e, Workspace& scratch) const {
  Require(e.rows >= 1, "TaskFamily: {} rows to evaluate, wanted at least 1", e.rows);
  RequireSize("config", e.config.size(), e.rows * layouts_.config.size());
  RequireSize("params", e.params.size(), e.rows * layouts_.params.size());
  RequireSize("model_state", e.model_state.size(), e.rows * layouts_.model_state.size());
  RequireSize("losses", e.losses.size(), e.rows);
  RequireSizeOrEmpty("gradients", e.gradients.size(), e.rows * layouts_.params.size());
  RequireSizeOrEmpty("aux", e.aux.size(), e.rows * layouts_.aux.size());
  if (e.examples.empty()) {
    RequireSize("keys", e.keys.size(), e.rows);
  } else {
    Require(ExampleRange(Split::kTrain).second > 0,
            "TaskFamily: examples are given, but this family has no data set");
    Require(static_cast<int64_t>(e.examples.size()) % e.rows == 0,
            "TaskFamily: {} examples cannot be shared out evenly to {} rows", e.examples.size(),
            e.rows);
  }
  DoEvaluate(e, scratch);
}

double TaskFamily::Normalize(std::span<const float>, double loss) const { return loss; }

std::pair<int64_t, int64_t> TaskFamily::ExampleRange(Split) const { return {0, 0}; }

void TaskFamily::DoSample(Key, std::span<float>) const {}

}  // namespace lopt

#include "lopt/tasks/task_family.h"

#include <algorithm>
#include <cmath>

#include "lopt/base/denormals.h"
#include "lopt/base/device.h"
#include "lopt/base/error.h"
#include "lopt/tasks/batch_rows.h"

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

// The rows of every replica's batch, [n, batch size].
void DrawExamples(const DataRows& data, const TaskEvaluation& e, Workspace& scratch,
                  std::span<int32_t> examples) {
  for (int64_t row = 0; row < e.rows; ++row) {
    const EpisodeStep at = e.steps.empty() ? EpisodeStep{e.keys[row]} : e.steps[row];
    DrawBatch(data, e.split, e.keys[row], at, scratch,
              examples.subspan(row * data.batch_size, data.batch_size));
  }
}

void CheckExamples(const DataRows& data, const TaskEvaluation& e) {
  Require(data.batch_size > 0, "TaskFamily: examples are given, but this family has no data set");
  Require(static_cast<int64_t>(e.examples.size()) % e.rows == 0,
          "TaskFamily: {} examples cannot be shared out evenly to {} rows", e.examples.size(),
          e.rows);
  int64_t count = 0;
  for (const auto& [first, last] : data.splits) count = std::max(count, last);
  for (const int32_t example : e.examples) {
    Require(example >= 0 && example < count, "TaskFamily: there is no example {} among {}", example,
            count);
  }
}

// Numbers of BatchShares::records, 0 where there is nothing to learn.
int64_t CheckedRecords(const std::optional<ProbeRecords>& records, const TaskEvaluation& e) {
  const int64_t count = e.shares.parts.empty() ? 1 : e.shares.parts[0].count;
  for (const BatchPart& part : e.shares.parts) {
    Require(part.index >= 0 && part.index < part.count && part.count == count,
            "TaskFamily: there is no part {} of {} of a batch that has {}", part.index, part.count,
            count);
  }
  Require(records || count == 1, "TaskFamily: the {} parts of a batch cannot share its probes",
          count);
  const ProbeRecords all = records.value_or(ProbeRecords());
  Require(all.probes % count == 0, "TaskFamily: {} parts of a batch cannot share {} probes evenly",
          count, all.probes);
  return e.split == Split::kTrain ? e.rows * (all.probes / count) * all.size : 0;
}

void CheckAnswerSizes(int64_t classes, const TaskEvaluation& e) {
  if (e.answers.logits.empty() && e.answers.labels.empty()) return;
  Require(classes > 0, "TaskFamily: logits are wanted, but this family has no classes");
  Require(e.device == nullptr, "TaskFamily: logits are given on the host alone");
  RequireSize("labels", e.answers.labels.size(), std::ssize(e.examples));
  RequireSize("logits", e.answers.logits.size(), std::ssize(e.examples) * classes);
}

}  // namespace

std::string_view ToString(Split split) { return NameOf("split", split, kSplitNames); }

TaskEvaluation RowOf(const TaskEvaluation& e, int64_t row) {
  const auto of = [&](auto values) {
    const size_t size = values.size() / static_cast<size_t>(e.rows);
    return values.subspan(static_cast<size_t>(row) * size, size);
  };
  return {.rows = 1,
          .config = of(e.config),
          .params = of(e.params),
          .model_state = of(e.model_state),
          .split = e.split,
          .keys = of(e.keys),
          .steps = of(e.steps),
          .examples = of(e.examples),
          .shares = {of(e.shares.parts), of(e.shares.records)},
          .losses = of(e.losses),
          .gradients = of(e.gradients),
          .aux = of(e.aux),
          .answers = {of(e.answers.logits), of(e.answers.labels)},
          .device = e.device};
}

void TaskFamily::Sample(Key key, std::span<float> config) const {
  RequireSize("config", config.size(), parts_.config.size());
  DoSample(key, config);
}

void TaskFamily::Init(std::span<const float> config, Key key, std::span<float> params,
                      std::span<float> model_state) const {
  RequireSize("config", config.size(), parts_.config.size());
  RequireSize("params", params.size(), parts_.params.size());
  RequireSize("model_state", model_state.size(), parts_.model_state.size());
  DoInit(config, key, params, model_state);
}

void TaskFamily::CheckInputs(const TaskEvaluation& e) const {
  Require(e.rows >= 1, "TaskFamily: {} rows to evaluate, wanted at least 1", e.rows);
  RequireSize("config", e.config.size(), e.rows * parts_.config.size());
  RequireSize("params", e.params.size(), e.rows * parts_.params.size());
  RequireSize("model_state", e.model_state.size(), e.rows * parts_.model_state.size());
  RequireSizeOrEmpty("steps", e.steps.size(), e.rows);
  RequireSizeOrEmpty("parts", e.shares.parts.size(), e.rows);
  if (e.examples.empty()) {
    RequireSize("keys", e.keys.size(), e.rows);
  } else {
    RequireSizeOrEmpty("keys", e.keys.size(), e.rows);
    CheckExamples(parts_.data, e);
  }
}

std::span<const int32_t> TaskFamily::Examples(const TaskEvaluation& e, Workspace& scratch) const {
  if (!e.examples.empty() || parts_.data.batch_size == 0) return e.examples;
  const auto examples = scratch.Take<int32_t>(e.rows * parts_.data.batch_size);
  DrawExamples(parts_.data, e, scratch, examples);
  return examples;
}

void TaskFamily::Evaluate(const TaskEvaluation& e, Workspace& scratch) const {
  CheckInputs(e);
  RequireSize("losses", e.losses.size(), e.rows);
  RequireSizeOrEmpty("gradients", e.gradients.size(), e.rows * parts_.params.size());
  RequireSizeOrEmpty("aux", e.aux.size(), e.rows * parts_.aux.size());
  RequireSizeOrEmpty("records", e.shares.records.size(), CheckedRecords(parts_.records, e));
  if (e.device != nullptr) {
    Require(EvaluatesOn(*e.device), "TaskFamily: this family makes no evaluations on the device {}",
            e.device->name());
  }
  const Workspace::Frame frame(scratch);
  TaskEvaluation with_examples = e;
  with_examples.examples = Examples(e, scratch);
  CheckAnswerSizes(parts_.classes, with_examples);
  const FlushDenormals flush;
  DoEvaluate(with_examples, scratch);
}

void TaskFamily::Learn(std::span<const float> config, std::span<const float> records,
                       std::span<float> model_state, Workspace& scratch) const {
  Require(parts_.records.has_value(), "TaskFamily: the parts of a batch cannot share its probes");
  RequireSize("config", config.size(), parts_.config.size());
  RequireSize("records", records.size(), parts_.records->probes * parts_.records->size);
  RequireSize("model_state", model_state.size(), parts_.model_state.size());
  if (!records.empty()) DoLearn(config, records, model_state, scratch);
}

std::vector<Pictures> TaskFamily::Show(const TaskEvaluation& e, Workspace& scratch) const {
  CheckInputs(e);
  Require(e.rows == 1, "TaskFamily: {} rows to show, wanted 1", e.rows);
  Require(e.device == nullptr, "TaskFamily: pictures are made on the host alone");
  const Workspace::Frame frame(scratch);
  TaskEvaluation with_examples = e;
  with_examples.examples = Examples(e, scratch);
  return DoShow(with_examples, scratch);
}

double TaskFamily::Normalize(std::span<const float>, double loss) const {
  const std::optional<double> maximum = parts_.normalizer_maximum;
  if (!maximum) return loss;
  return std::isfinite(loss) ? std::clamp(loss, 0.0, *maximum) : *maximum;
}

bool TaskFamily::EvaluatesOn(const Device&) const { return false; }

void TaskFamily::DoSample(Key, std::span<float>) const {}

void TaskFamily::DoLearn(std::span<const float>, std::span<const float>, std::span<float>,
                         Workspace&) const {}

std::vector<Pictures> TaskFamily::DoShow(const TaskEvaluation&, Workspace&) const { return {}; }

}  // namespace lopt

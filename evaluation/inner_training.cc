#include "evaluation/inner_training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "base/error.h"

namespace lopt {
namespace {

using Clock = std::chrono::steady_clock;

// What a training's key is folded with, for each purpose.
enum TrainingDraw : uint64_t {
  kTaskDraw = 0,
  kParamsDraw = 1,
  kDataDraw = 2,
  kUpdateDraw = 3,
  kJudgeDraw = 4,
};

// The place of "accuracy" among the aux outputs.
std::optional<int64_t> AccuracyIndex(const TaskFamily& task) {
  for (const LayoutEntry& entry : task.aux_layout().entries()) {
    if (entry.name == "accuracy") return entry.offset;
  }
  return std::nullopt;
}

}  // namespace

SplitScore JudgeOnSplit(const TaskFamily& task, std::span<const float> config,
                        std::span<const float> params, std::span<const float> model_state,
                        Split split, Key key, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const auto [first, last] = task.ExampleRange(split);
  const std::span<int32_t> examples = scratch.Take<int32_t>(last - first);
  std::iota(examples.begin(), examples.end(), static_cast<int32_t>(first));
  const std::span<float> discarded = scratch.Take<float>(std::ssize(model_state));
  std::ranges::copy(model_state, discarded.begin());
  const std::span<float> aux = scratch.Take<float>(task.aux_layout().size());
  SplitScore score;
  task.Evaluate({.config = config,
                 .params = params,
                 .model_state = discarded,
                 .split = split,
                 .keys = {&key, 1},
                 .examples = examples,
                 .losses = {&score.loss, 1},
                 .aux = aux},
                scratch);
  const auto accuracy = AccuracyIndex(task);
  score.accuracy = accuracy ? aux[*accuracy] : std::numeric_limits<float>::quiet_NaN();
  return score;
}

TrainingCurve TrainTask(const TaskFamily& task, const UpdateRule& rule,
                        std::span<const int64_t> judge_at, Split judge_split,
                        const TrainingSource& source, Workspace& scratch) {
  Require(!judge_at.empty() && judge_at.front() >= 1 &&
              std::ranges::adjacent_find(judge_at, std::greater_equal()) == judge_at.end(),
          "training: the numbers of steps to judge after must be positive and ascending");
  const int64_t steps = judge_at.back();
  Require(std::ssize(source.examples) % steps == 0,
          "training: {} examples cannot be shared out evenly to {} steps", source.examples.size(),
          steps);
  const int64_t batch = std::ssize(source.examples) / steps;
  const Key key = source.key;
  const auto accuracy = AccuracyIndex(task);

  const Workspace::Frame frame(scratch);
  const std::span<float> config = scratch.Take<float>(task.config_layout().size());
  const std::span<float> params = scratch.Take<float>(task.params_layout().size());
  const std::span<float> model_state = scratch.Take<float>(task.model_state_layout().size());
  const std::span<float> state = scratch.Take<float>(rule.state_layout().size());
  const std::span<float> gradient = scratch.Take<float>(task.params_layout().size());
  const std::span<float> aux = scratch.Take<float>(accuracy ? task.aux_layout().size() : 0);
  task.Sample(FoldIn(key, kTaskDraw), config);
  task.Init(config, FoldIn(key, kParamsDraw), params, model_state);
  if (!source.params.empty()) {
    Require(source.params.size() == params.size(), "training: {} initial params for a task of {}",
            source.params.size(), params.size());
    std::ranges::copy(source.params, params.begin());
  }
  rule.InitState({.num_steps = steps}, params, state);

  const Key data_key = FoldIn(key, kDataDraw);
  const Key update_key = FoldIn(key, kUpdateDraw);
  TrainingCurve curve;
  curve.train_loss.resize(static_cast<size_t>(steps));
  curve.train_accuracy.resize(accuracy ? static_cast<size_t>(steps) : 0);
  Clock::time_point start = Clock::now();
  for (int64_t step = 0; step < steps; ++step) {
    const auto at = static_cast<size_t>(step);
    const Key step_key = FoldIn(data_key, static_cast<uint64_t>(step));
    task.Evaluate({.config = config,
                   .params = params,
                   .model_state = model_state,
                   .split = Split::kTrain,
                   .keys = {&step_key, 1},
                   .examples = source.examples.subspan(step * batch, batch),
                   .losses = {&curve.train_loss[at], 1},
                   .gradients = gradient,
                   .aux = aux},
                  scratch);
    if (accuracy) curve.train_accuracy[at] = aux[*accuracy];
    rule.Update({.step = step,
                 .num_steps = steps,
                 .loss = curve.train_loss[at],
                 .key = FoldIn(update_key, static_cast<uint64_t>(step))},
                gradient, params, state, scratch);
    if (step + 1 == judge_at[curve.judged.size()]) {
      const Clock::time_point pause = Clock::now();
      curve.seconds += std::chrono::duration<double>(pause - start).count();
      curve.judged.push_back(JudgeOnSplit(task, config, params, model_state, judge_split,
                                          FoldIn(key, kJudgeDraw), scratch));
      start = Clock::now();
    }
  }
  curve.params.assign(params.begin(), params.end());
  return curve;
}

}  // namespace lopt

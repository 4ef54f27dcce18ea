#include "lopt/evaluation/inner_training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/progress.h"
#include "lopt/evaluation/training_draw.h"

namespace lopt {
namespace {

using Clock = std::chrono::steady_clock;

// The place of "accuracy" among the aux outputs.
std::optional<int64_t> AccuracyIndex(const TaskFamily& task) {
  for (const LayoutEntry& entry : task.aux_layout().entries()) {
    if (entry.name == "accuracy") return entry.offset;
  }
  return std::nullopt;
}

// Scratch memory for [n, size] numbers.
template <class T>
class Rows {
 public:
  Rows(int64_t n, int64_t size, Workspace& scratch)
      : size_(size), all_(scratch.Take<T>(n * size)) {}

  std::span<T> all() const { return all_; }
  std::span<T> operator[](int64_t row) const { return all_.subspan(row * size_, size_); }

 private:
  int64_t size_;
  std::span<T> all_;
};

// Examples of each step of each source; 0 if none are given.
int64_t BatchGiven(std::span<const TrainingSource> sources, int64_t steps) {
  const size_t given = sources.front().examples.size();
  for (const TrainingSource& source : sources) {
    Require(source.examples.size() == given,
            "training: one source has {} examples, another {}; wanted as many of all", given,
            source.examples.size());
  }
  Require(static_cast<int64_t>(given) % steps == 0,
          "training: {} examples cannot be shared out evenly to {} steps", given, steps);
  return static_cast<int64_t>(given) / steps;
}

// Trainings of one rule that make each step together.
class Trainings {
 public:
  Trainings(const TaskFamily& task, const UpdateRule& rule, int64_t steps,
            std::span<const TrainingSource> sources, Workspace& scratch)
      : task_(task),
        rule_(rule),
        steps_(steps),
        sources_(sources),
        scratch_(scratch),
        accuracy_(AccuracyIndex(task)),
        batch_(BatchGiven(sources, steps)),
        config_(rows(), task.config_layout().size(), scratch),
        params_(rows(), task.params_layout().size(), scratch),
        model_state_(rows(), task.model_state_layout().size(), scratch),
        state_(rows(), rule.state_layout().size(), scratch),
        gradients_(rows(), task.params_layout().size(), scratch),
        aux_(rows(), accuracy_ ? task.aux_layout().size() : 0, scratch),
        examples_(rows(), batch_, scratch),
        losses_(scratch.Take<float>(rows())),
        data_keys_(scratch.Take<Key>(rows())),
        step_keys_(scratch.Take<Key>(rows())),
        batches_(scratch.Take<EpisodeStep>(rows())),
        curves_(sources.size()) {
    for (int64_t r = 0; r < rows(); ++r) Start(r);
  }

  void Step(int64_t step) {
    const auto number = static_cast<uint64_t>(step);
    for (int64_t r = 0; r < rows(); ++r) {
      step_keys_[r] = FoldIn(data_keys_[r], number);
      batches_[r] = {FoldIn(sources_[r].key, TrainingDraw::kOrder), step};
      std::ranges::copy(sources_[r].examples.subspan(step * batch_, batch_), examples_[r].begin());
    }
    task_.Evaluate({.rows = rows(),
                    .config = config_.all(),
                    .params = params_.all(),
                    .model_state = model_state_.all(),
                    .split = Split::kTrain,
                    .keys = batch_ > 0 ? std::span<const Key>() : step_keys_,
                    .steps = batches_,
                    .examples = examples_.all(),
                    .losses = losses_,
                    .gradients = gradients_.all(),
                    .aux = aux_.all()},
                   scratch_);
    for (int64_t r = 0; r < rows(); ++r) {
      curves_[r].train_loss[step] = losses_[r];
      if (accuracy_) curves_[r].train_accuracy[step] = aux_[r][*accuracy_];
      rule_.Update({.step = step, .num_steps = steps_, .loss = losses_[r]}, gradients_[r],
                   params_[r], state_[r], scratch_);
    }
    NoteProgress();
  }

  void Judge(Split split) {
    for (int64_t r = 0; r < rows(); ++r) {
      curves_[r].judged.push_back(JudgeOnSplit(task_, config_[r], EvalParams(r), model_state_[r],
                                               split, FoldIn(sources_[r].key, TrainingDraw::kJudge),
                                               scratch_));
    }
  }

  // `seconds`: of all steps of all trainings.
  std::vector<TrainingCurve> Curves(double seconds) {
    for (int64_t r = 0; r < rows(); ++r) {
      curves_[r].seconds = seconds / static_cast<double>(rows());
      curves_[r].config.assign(config_[r].begin(), config_[r].end());
      const std::span<const float> params = EvalParams(r);
      curves_[r].params.assign(params.begin(), params.end());
      curves_[r].model_state.assign(model_state_[r].begin(), model_state_[r].end());
    }
    return std::move(curves_);
  }

 private:
  int64_t rows() const { return std::ssize(sources_); }
  std::span<const float> EvalParams(int64_t r) const {
    return rule_.EvalParams(params_[r], state_[r]);
  }

  void Start(int64_t r) {
    const TrainingSource& source = sources_[r];
    task_.Sample(FoldIn(source.key, TrainingDraw::kTask), config_[r]);
    task_.Init(config_[r], FoldIn(source.key, TrainingDraw::kParams), params_[r], model_state_[r]);
    if (!source.params.empty()) {
      Require(source.params.size() == params_[r].size(),
              "training: {} initial params for a task of {}", source.params.size(),
              params_[r].size());
      std::ranges::copy(source.params, params_[r].begin());
    }
    rule_.InitState({.num_steps = steps_}, params_[r], state_[r]);
    data_keys_[r] = FoldIn(source.key, TrainingDraw::kData);
    curves_[r].train_loss.resize(static_cast<size_t>(steps_));
    curves_[r].train_accuracy.resize(accuracy_ ? static_cast<size_t>(steps_) : 0);
  }

  const TaskFamily& task_;
  const UpdateRule& rule_;
  const int64_t steps_;
  const std::span<const TrainingSource> sources_;
  Workspace& scratch_;
  const std::optional<int64_t> accuracy_;
  const int64_t batch_;  // examples given for each step; 0: drawn
  // A row for each source.
  const Rows<float> config_;
  const Rows<float> params_;
  const Rows<float> model_state_;
  const Rows<float> state_;
  const Rows<float> gradients_;
  const Rows<float> aux_;
  const Rows<int32_t> examples_;
  const std::span<float> losses_;
  const std::span<Key> data_keys_;
  const std::span<Key> step_keys_;
  const std::span<EpisodeStep> batches_;
  std::vector<TrainingCurve> curves_;
};

}  // namespace

SplitScore JudgeOnSplit(const TaskFamily& task, std::span<const float> config,
                        std::span<const float> params, std::span<const float> model_state,
                        Split split, Key key, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const auto [first, last] = task.ExampleRange(split);
  const std::span<int32_t> examples = scratch.Take<int32_t>(last - first);
  std::iota(examples.begin(), examples.end(), static_cast<int32_t>(first));
  const bool is_trained_on = split == Split::kTrain && !examples.empty();
  return JudgeExamples(task, config, params, model_state, is_trained_on ? Split::kTest : split,
                       examples, key, scratch);
}

SplitScore JudgeExamples(const TaskFamily& task, std::span<const float> config,
                         std::span<const float> params, std::span<const float> model_state,
                         Split split, std::span<const int32_t> examples, Key key,
                         Workspace& scratch, const Answers& answers) {
  const Workspace::Frame frame(scratch);
  const std::span<float> discarded = scratch.Take<float>(std::ssize(model_state));
  const std::span<float> aux = scratch.Take<float>(task.aux_layout().size());
  const auto accuracy = AccuracyIndex(task);
  const int64_t count = std::ssize(examples);
  const int64_t parts = std::min(kSplitParts, count);
  SplitScore score;
  double loss_sum = 0;
  double accuracy_sum = 0;
  // Without examples there is one evaluation, of what the key draws.
  for (int64_t part = 0; part < std::max<int64_t>(parts, 1); ++part) {
    const int64_t begin = parts == 0 ? 0 : part * count / parts;
    const int64_t end = parts == 0 ? 0 : (part + 1) * count / parts;
    std::ranges::copy(model_state, discarded.begin());
    float loss = 0;
    const auto part_of = [&](auto values) {
      const int64_t size = std::ssize(values) / std::max<int64_t>(count, 1);
      return values.subspan(begin * size, (end - begin) * size);
    };
    task.Evaluate(
        {.config = config,
         .params = params,
         .model_state = discarded,
         .split = split,
         .keys = {&key, 1},
         .examples = examples.subspan(begin, end - begin),
         .losses = {&loss, 1},
         .aux = aux,
         .answers = {.logits = part_of(answers.logits), .labels = part_of(answers.labels)}},
        scratch);
    const double weight =
        parts == 0 ? 1 : static_cast<double>(end - begin) / static_cast<double>(count);
    loss_sum += weight * double{loss};
    if (accuracy) accuracy_sum += weight * double{aux[*accuracy]};
    if (parts > 0) score.part_losses.push_back(loss);
    NoteProgress();
  }
  score.loss = static_cast<float>(loss_sum);
  score.accuracy =
      accuracy ? static_cast<float>(accuracy_sum) : std::numeric_limits<float>::quiet_NaN();
  return score;
}

std::vector<TrainingCurve> TrainTasks(const TaskFamily& task, const UpdateRule& rule,
                                      std::span<const int64_t> judge_at, Split judge_split,
                                      std::span<const TrainingSource> sources, Workspace& scratch,
                                      const std::atomic<bool>* stop) {
  Require(!judge_at.empty() && judge_at.front() >= 1 &&
              std::ranges::adjacent_find(judge_at, std::greater_equal()) == judge_at.end(),
          "training: the numbers of steps to judge after must be positive and ascending");
  const Workspace::Frame frame(scratch);
  Trainings trainings(task, rule, judge_at.back(), sources, scratch);
  double seconds = 0;
  int64_t step = 0;
  for (const int64_t end : judge_at) {
    const Clock::time_point start = Clock::now();
    for (; step < end; ++step) {
      if (stop != nullptr && *stop) return {};
      trainings.Step(step);
    }
    seconds += std::chrono::duration<double>(Clock::now() - start).count();
    trainings.Judge(judge_split);
  }
  return trainings.Curves(seconds);
}

TrainingCurve TrainTask(const TaskFamily& task, const UpdateRule& rule,
                        std::span<const int64_t> judge_at, Split judge_split,
                        const TrainingSource& source, Workspace& scratch) {
  return std::move(TrainTasks(task, rule, judge_at, judge_split, {&source, 1}, scratch)[0]);
}

}  // namespace lopt

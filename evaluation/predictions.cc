#include "lopt/evaluation/predictions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/evaluation/inner_training.h"

namespace lopt {
namespace {

constexpr const char* kTypesWithClasses[] = {
    "ImageMLP",     "ImageConv", "ParametricImageMLP", "TorchImageMLP", "TorchImageConv",
    "TorchRowLSTM", "TorchSTN"};

// How rows are evaluated, whichever split they are of: only on train does a family augment them.
constexpr Split kAsTheyAre = Split::kTest;

void RequireRows(const std::string& who, const TaskFamily& task, Split split) {
  std::vector<std::string_view> filled;
  for (const Split other : kSplits) {
    const auto [first, last] = task.ExampleRange(other);
    if (first < last) filled.push_back(ToString(other));
  }
  const auto [first, last] = task.ExampleRange(split);
  Require(first < last, "{}: its data have no rows in the split {}; those with rows: {}", who,
          ToString(split), filled.empty() ? "none" : fmt::format("{}", fmt::join(filled, ", ")));
}

// What has come out is a prediction for every row.
void CheckPredictions(const std::string& who, const Predictions& p) {
  for (int64_t row = 0; row < p.rows(); ++row) {
    Require(p.labels[row] >= 0 && p.labels[row] < p.classes,
            "{}: row {} has the label {}, wanted one of {} classes", who, row, p.labels[row],
            p.classes);
    for (const float logit : std::span(p.logits).subspan(row * p.classes, p.classes)) {
      Require(std::isfinite(logit),
              "{}: row {} has a logit of {}, so the model predicts nothing; has its training "
              "diverged?",
              who, row, logit);
    }
  }
}

}  // namespace

int32_t Predictions::Class(int64_t row) const {
  const auto scores = std::span(logits).subspan(row * classes, classes);
  return static_cast<int32_t>(std::ranges::max_element(scores) - scores.begin());
}

std::vector<double> Predictions::Probabilities(int64_t row) const {
  const auto scores = std::span(logits).subspan(row * classes, classes);
  std::vector<double> shares(scores.begin(), scores.end());
  const double largest = *std::ranges::max_element(shares);
  double sum = 0;
  for (double& share : shares) sum += share = std::exp(share - largest);
  for (double& share : shares) share /= sum;
  return shares;
}

int64_t Predictions::Right() const {
  int64_t right = 0;
  for (int64_t row = 0; row < rows(); ++row) right += Class(row) == labels[row] ? 1 : 0;
  return right;
}

std::vector<std::vector<int64_t>> Predictions::Confusion() const {
  std::vector counts(classes, std::vector<int64_t>(classes));
  for (int64_t row = 0; row < rows(); ++row) ++counts[labels[row]][Class(row)];
  return counts;
}

Predictions Predict(const std::string& who, const TaskFamily& task, std::span<const float> config,
                    std::span<const float> params, std::span<const float> model_state, Split split,
                    Workspace& scratch) {
  const int64_t classes = task.parts().classes;
  Require(classes > 0,
          "{}: the task has no classes to predict; those that have are {}, and tasks over one of "
          "them",
          who, fmt::join(kTypesWithClasses, ", "));
  RequireRows(who, task, split);
  const auto [first, last] = task.ExampleRange(split);
  std::vector<int32_t> examples(static_cast<size_t>(last - first));
  std::iota(examples.begin(), examples.end(), static_cast<int32_t>(first));
  Predictions predictions{.classes = classes,
                          .labels = std::vector<int32_t>(examples.size()),
                          .logits = std::vector<float>(examples.size() * classes)};
  const Key unused;  // what a split other than train draws is its examples, which are given
  predictions.loss =
      JudgeExamples(task, config, params, model_state, kAsTheyAre, examples, unused, scratch,
                    {.logits = predictions.logits, .labels = predictions.labels})
          .loss;
  CheckPredictions(who, predictions);
  return predictions;
}

std::vector<Pictures> ShowRows(const TaskFamily& task, std::span<const float> config,
                               std::span<const float> params, std::span<const float> model_state,
                               std::span<const int32_t> examples, Workspace& scratch) {
  std::vector<float> state(model_state.begin(), model_state.end());
  const Key unused;
  return task.Show({.config = config,
                    .params = params,
                    .model_state = state,
                    .split = kAsTheyAre,
                    .keys = {&unused, 1},
                    .examples = examples},
                   scratch);
}

std::span<const char* const> TypesWithClasses() { return kTypesWithClasses; }

}  // namespace lopt

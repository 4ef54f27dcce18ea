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

// The last only with its option `classes`.
constexpr const char* kTypesWithClasses[] = {
    "ImageMLP",     "ImageConv", "ParametricImageMLP", "TorchImageMLP", "TorchImageConv",
    "TorchRowLSTM", "TorchSTN",  "ImageTransformer",   "TableMLP"};

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

void RequireClasses(const std::string& who, const TaskFamily& task) {
  Require(task.parts().classes > 0,
          "{}: the task has no classes to predict; those that have are {} with the option classes, "
          "and tasks over one of them",
          who, fmt::join(TypesWithClasses(), ", "));
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

// Where the params have the weights of F features for K classes, and the bias.
struct ReadOut {
  int64_t features;  // F
  int64_t weights;   // the first of them
  int64_t bias;      // likewise
  int64_t feature_stride;
  int64_t class_stride;

  int64_t Weight(int64_t feature, int64_t c) const {
    return weights + feature * feature_stride + c * class_stride;
  }
};

// As [F, K] and as [K, F], whichever the shape of the weights allows.
std::vector<ReadOut> PossibleReadOuts(const Layout& params, int64_t classes) {
  const auto& entries = params.entries();
  if (entries.size() < 2) return {};
  const LayoutEntry& w = entries[entries.size() - 2];
  const LayoutEntry& b = entries.back();
  if (b.shape != Shape{classes} || w.shape.size() != 2) return {};
  std::vector<ReadOut> found;
  if (w.shape[1] == classes) found.push_back({w.shape[0], w.offset, b.offset, classes, 1});
  if (w.shape[0] == classes) found.push_back({w.shape[1], w.offset, b.offset, 1, w.shape[1]});
  return found;
}

// A trained model and some of the data's rows.
struct ModelOnRows {
  const TaskFamily& task;
  std::span<const float> config;
  std::span<const float> model_state;
  std::span<const int32_t> examples;
  Workspace& scratch;

  // [n, K]
  std::vector<float> Logits(std::span<const float> params) const {
    const Key unused;
    std::vector<float> logits(examples.size() * task.parts().classes);
    std::vector<int32_t> labels(examples.size());
    JudgeExamples(task, config, params, model_state, kAsTheyAre, examples, unused, scratch,
                  {.logits = logits, .labels = labels});
    return logits;
  }
};

// The features [n, F] if the params are read so: with weights of 1 for one feature each and no bias
// the logits are K of them, to the bit.
std::vector<float> FeaturesOf(const ModelOnRows& model, const ReadOut& layer,
                              std::span<const float> params) {
  const int64_t classes = model.task.parts().classes;
  const int64_t rows = std::ssize(model.examples);
  std::vector<float> features(rows * layer.features);
  for (int64_t first = 0; first < layer.features; first += classes) {
    std::vector<float> copies(params.begin(), params.end());
    std::fill_n(copies.begin() + layer.weights, layer.features * classes, 0.0F);
    std::fill_n(copies.begin() + layer.bias, classes, 0.0F);
    const int64_t count = std::min(classes, layer.features - first);
    for (int64_t c = 0; c < count; ++c) copies[layer.Weight(first + c, c)] = 1;
    const std::vector<float> logits = model.Logits(copies);
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(logits.begin() + row * classes, count,
                  features.begin() + row * layer.features + first);
    }
  }
  return features;
}

// Whether these features give these logits, but for the rounding of sums in float32.
bool GiveLogits(const ReadOut& layer, std::span<const float> params,
                std::span<const float> features, std::span<const float> logits, int64_t classes) {
  constexpr double kRoundingOfSums = 1e-4;
  for (int64_t i = 0; i < std::ssize(logits); ++i) {
    const int64_t row = i / classes;
    const int64_t c = i % classes;
    double sum = params[layer.bias + c];
    double size = std::abs(sum);
    for (int64_t f = 0; f < layer.features; ++f) {
      const double term =
          double{params[layer.Weight(f, c)]} * double{features[row * layer.features + f]};
      sum += term;
      size += std::abs(term);
    }
    if (!(std::abs(sum - logits[i]) <= kRoundingOfSums * size)) return false;
  }
  return true;
}

}  // namespace

std::span<const char* const> TypesWithClasses() { return kTypesWithClasses; }

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
  RequireClasses(who, task);
  const int64_t classes = task.parts().classes;
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

std::vector<float> LastFeatures(const std::string& who, const TaskFamily& task,
                                std::span<const float> config, std::span<const float> params,
                                std::span<const float> model_state,
                                std::span<const int32_t> examples, Workspace& scratch) {
  RequireClasses(who, task);
  const int64_t classes = task.parts().classes;
  const ModelOnRows model{task, config, model_state, examples, scratch};
  const std::vector<float> logits = model.Logits(params);
  for (const ReadOut& layer : PossibleReadOuts(task.params_layout(), classes)) {
    std::vector<float> features = FeaturesOf(model, layer, params);
    if (GiveLogits(layer, params, features, logits, classes)) return features;
  }
  Fail(
      "{}: its logits have no features: wanted as the last two params the weights and the bias of "
      "a linear layer that gives them",
      who);
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

}  // namespace lopt

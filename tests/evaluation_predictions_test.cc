#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lopt/evaluation/predictions.h"
#include "lopt/tasks/image/image_mlp.h"
#include "lopt/tasks/quadratic/quadratic.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/torch/torch_module.h"
#include "lopt/tasks/wrappers/task_wrapper.h"
#include "tests/contracts/build.h"
#include "tests/csv_digits.h"
#include "tests/error_of.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

using Counts = std::vector<std::vector<int64_t>>;

TEST_CASE("Classes, probabilities and confusion are those of known logits") {
  const float quarter = std::log(3.0F);  // e^0 : e^ln 3 is 1/4 : 3/4
  const Predictions p{.classes = 3,
                      .labels = {0, 0, 1, 2, 2},
                      .logits = {5, 1, 1,        // 0, as it should be
                                 0, 2, 1,        // 1 in place of 0
                                 1, 1, 0,        // 0, the first of equals, in place of 1
                                 -7, -8, -6.5F,  // 2
                                 -100, 0, quarter}};
  CHECK(p.Confusion() == Counts{{1, 1, 0}, {1, 0, 0}, {0, 0, 2}});
  CHECK(p.Right() == 3);
  const std::vector<double> shares = p.Probabilities(4);
  CHECK(shares[0] < 1e-40);
  CHECK(shares[1] == doctest::Approx(0.25).epsilon(1e-7));
  CHECK(shares[2] == doctest::Approx(0.75).epsilon(1e-7));
}

// A linear classifier of images of 2 x 2 with 5 classes.
struct LinearClassifier {
  explicit LinearClassifier(const std::string& directory) {
    const TaskResources resources(directory);
    ImageMlpOptions options{.hidden = {}};
    options.images.data = ImageSource::kCsv;
    options.images.image_size = 0;
    data = GetImages(options.images, resources);
    task = std::make_shared<ImageMlp>(options, data);
    params.resize(static_cast<size_t>(task->params_layout().size()));
  }
  Predictions On(Split split) const {
    Workspace scratch;
    return Predict("it", *task, {}, params, {}, split, scratch);
  }

  std::shared_ptr<const ImageData> data;
  std::shared_ptr<const ImageMlp> task;
  std::vector<float> params;  // w [4, 5], b [5]
};

TEST_CASE("A hand-made classifier gives its logits on every row of every split, in order") {
  const TempDirectory directory;
  WriteCsvDigits(directory.path(), 1);
  LinearClassifier model(directory.path());
  for (size_t i = 0; i < 20; ++i) model.params[i] = static_cast<float>(i % 7) - 3;
  for (size_t c = 0; c < 5; ++c) model.params[20 + c] = 0.5F * static_cast<float>(c);
  for (const Split split : kSplits) {
    const Predictions p = model.On(split);
    const auto [first, last] = model.data->range(split);
    REQUIRE(p.rows() == last - first);
    double loss = 0;
    for (int64_t row = 0; row < p.rows(); ++row) {
      const float* const image = model.data->images() + (first + row) * model.data->stride();
      CHECK(p.labels[row] == model.data->labels()[first + row]);
      double sum = 0;
      for (int64_t c = 0; c < 5; ++c) {
        double logit = model.params[20 + c];
        for (int64_t i = 0; i < 4; ++i) logit += double{image[i]} * model.params[5 * i + c];
        CHECK(p.logits[5 * row + c] == doctest::Approx(logit).epsilon(1e-6));
        sum += std::exp(logit);
      }
      loss += std::log(sum) - p.logits[5 * row + p.labels[row]];
    }
    CHECK(p.loss == doctest::Approx(loss / static_cast<double>(p.rows())).epsilon(1e-6));
  }
}

TEST_CASE("A classifier without weights gives every row the class of its largest bias") {
  const TempDirectory directory;
  WriteCsvDigits(directory.path(), 1);
  LinearClassifier model(directory.path());
  model.params[20 + 3] = std::log(6.0F);  // shares 0.1, 0.1, 0.1, 0.6, 0.1
  const Predictions p = model.On(Split::kTest);
  const Counts counts = p.Confusion();
  for (int64_t label = 0; label < 5; ++label) {
    CHECK(counts[label][3] == std::ranges::count(p.labels, label));
    CHECK(std::ranges::count(counts[label], 0) >= 4);
  }
  CHECK(p.Right() == std::ranges::count(p.labels, 3));
  CHECK(p.Probabilities(0)[3] == doctest::Approx(0.6).epsilon(1e-6));
  CHECK(p.Probabilities(0)[4] == doctest::Approx(0.1).epsilon(1e-6));
}

TEST_CASE("The features of a classifier without hidden layers are its inputs, to the bit") {
  const TempDirectory directory;
  WriteCsvDigits(directory.path(), 1);
  LinearClassifier model(directory.path());
  for (size_t i = 0; i < 25; ++i) model.params[i] = static_cast<float>(i % 7) - 3;
  Workspace scratch;
  const std::vector<int32_t> examples = {41, 3, 59};
  const std::vector<float> features =
      LastFeatures("it", *model.task, {}, model.params, {}, examples, scratch);
  std::vector<float> images;
  for (const int32_t example : examples) {
    const float* const image = model.data->images() + example * model.data->stride();
    images.insert(images.end(), image, image + 4);
  }
  CHECK(features == images);
}

using Tensors = std::vector<std::pair<std::string, Shape>>;

// Two classes, whose logits are `scale` times the outputs of a linear layer [K, F] of three
// features, the example's number and 1 and 2, and the bias; `extra` more params are last.
class ScaledFamily : public TaskFamily {
 public:
  explicit ScaledFamily(float scale, const Tensors& extra = {})
      : TaskFamily({.params = Params(extra),
                    .data = {.splits = {{0, 5}, {5, 7}, {7, 8}, {8, 9}}, .batch_size = 2},
                    .classes = 2}),
        scale_(scale) {}

 private:
  static Layout Params(const Tensors& extra) {
    Tensors tensors = {{"w", {2, 3}}, {"b", {2}}};
    tensors.insert(tensors.end(), extra.begin(), extra.end());
    return Layout(tensors);
  }
  void DoInit(std::span<const float>, Key, std::span<float>, std::span<float>) const override {}
  void DoEvaluate(const TaskEvaluation& e, Workspace&) const override {
    for (size_t i = 0; i < e.examples.size() && !e.answers.logits.empty(); ++i) {
      const float features[] = {static_cast<float>(e.examples[i]), 1, 2};
      for (size_t c = 0; c < 2; ++c) {
        float logit = e.params[6 + c];
        for (size_t f = 0; f < 3; ++f) logit += e.params[3 * c + f] * features[f];
        e.answers.logits[2 * i + c] = scale_ * logit;
      }
      e.answers.labels[i] = 0;
    }
    e.losses[0] = 1;
  }
  float scale_;
};

TEST_CASE(
    "Features are those of a last linear layer of any orientation, or an error says why not") {
  Workspace scratch;
  const std::vector<float> params = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<int32_t> examples = {4, 8};
  const auto features = [&](const ScaledFamily& family) {
    const auto size = static_cast<size_t>(family.params_layout().size());
    return LastFeatures("it", family, {}, std::span(params).first(size), {}, examples, scratch);
  };
  CHECK(features(ScaledFamily(1)) == std::vector<float>{4, 1, 2, 8, 1, 2});
  const std::string none =
      "it: its logits have no features: wanted as the last two params the weights and the bias of "
      "a linear layer that gives them";
  CHECK(ErrorOf([&] { features(ScaledFamily(2)); }) == none);
  CHECK(ErrorOf([&] { features(ScaledFamily(1, {{"last", {1}}})); }) == none);
  const FixedDimQuadraticFamily quadratic({.dim = 2});
  CHECK(ErrorOf([&] {
          LastFeatures("it", quadratic, std::span(params).first(2), std::span(params).first(2), {},
                       {}, scratch);
        }).find("it: the task has no classes to predict") == 0);
}

TEST_CASE("Rows of train are taken as they are, and with running statistics") {
  const auto task = TaskRegistry().Make(
      Config::Parse(R"({"type": "ImageMLP", "image_size": 4, "hidden": [3], "norm": "batch",
                        "data": "glyphs", "augment": {"type": "Drawn", "permute": 1}})",
                    "test"),
      TaskResources(""));
  std::vector<float> config(static_cast<size_t>(task->config_layout().size()));
  std::vector<float> params(static_cast<size_t>(task->params_layout().size()));
  std::vector<float> state(static_cast<size_t>(task->model_state_layout().size()));
  task->Sample(KeyFromSeed(1), config);
  task->Init(config, KeyFromSeed(2), params, state);
  Workspace scratch;
  const auto evaluate = [&](Split split) {
    const auto row = static_cast<int32_t>(task->ExampleRange(Split::kTrain).first);
    const Key key = KeyFromSeed(3);
    std::vector<float> logits(static_cast<size_t>(task->parts().classes));
    int32_t label = 0;
    float loss = 0;
    std::vector<float> changed = state;
    task->Evaluate({.config = config,
                    .params = params,
                    .model_state = changed,
                    .split = split,
                    .keys = {&key, 1},
                    .examples = {&row, 1},
                    .losses = {&loss, 1},
                    .answers = {.logits = logits, .labels = {&label, 1}}},
                   scratch);
    return logits;
  };
  const std::vector<float> before = state;
  const Predictions p = Predict("it", *task, config, params, state, Split::kTrain, scratch);
  const std::vector<float> first(p.logits.begin(), p.logits.begin() + p.classes);
  CHECK(state == before);
  CHECK(first == evaluate(Split::kTest));
  CHECK(first != evaluate(Split::kTrain));
}

TEST_CASE("Tasks without classes, splits without rows and logits that are not numbers are errors") {
  Workspace scratch;
  const FixedDimQuadraticFamily quadratic({.dim = 2});
  const std::vector<float> params(2);
  CHECK(ErrorOf([&] { Predict("runs/x", quadratic, params, params, {}, Split::kTest, scratch); }) ==
        "runs/x: the task has no classes to predict; those that have are ImageMLP, ImageConv, "
        "ParametricImageMLP, TorchImageMLP, TorchImageConv, TorchRowLSTM, TorchSTN, "
        "ImageTransformer, TableMLP with "
        "the option classes, and tasks over one of them");

  class NoTest : public TaskFamily {
   public:
    NoTest()
        : TaskFamily({.params = Layout({{"w", {1}}}),
                      .data = {.splits = {{0, 5}, {5, 7}, {7, 7}, {7, 7}}, .batch_size = 2},
                      .classes = 2}) {}

   private:
    void DoInit(std::span<const float>, Key, std::span<float>, std::span<float>) const override {}
    void DoEvaluate(const TaskEvaluation& e, Workspace&) const override {
      for (float& logit : e.answers.logits) logit = e.params[0];
      std::ranges::fill(e.answers.labels, static_cast<int32_t>(e.params[0]));
      e.losses[0] = 1;
    }
  };
  const NoTest family;
  const auto error = [&](float param, Split split) {
    return ErrorOf([&] { Predict("it", family, {}, {&param, 1}, {}, split, scratch); });
  };
  CHECK(error(1, Split::kTest) ==
        "it: its data have no rows in the split test; those with rows: train, inner_valid");
  CHECK(error(1, Split::kTrain) == "no error");
  CHECK(error(2, Split::kTrain) == "it: row 0 has the label 2, wanted one of 2 classes");
  CHECK(error(INFINITY, Split::kTrain).find("it: row 0 has ") == 0);
}

TEST_CASE("Logits are wanted with labels, in full and on the host") {
  const TempDirectory directory;
  WriteCsvDigits(directory.path(), 1);
  const LinearClassifier model(directory.path());
  const auto error = [&](size_t logits, size_t labels) {
    std::vector<float> scores(logits);
    std::vector<int32_t> right(labels);
    const std::vector<int32_t> examples = {0, 1};
    float loss = 0;
    Workspace scratch;
    return ErrorOf([&] {
      model.task->Evaluate({.params = model.params,
                            .split = Split::kTest,
                            .examples = examples,
                            .losses = {&loss, 1},
                            .answers = {.logits = scores, .labels = right}},
                           scratch);
    });
  };
  CHECK(error(10, 2) == "no error");
  CHECK(error(10, 0) == "TaskFamily: labels has 0 numbers, wanted 2");
  CHECK(error(0, 2) == "TaskFamily: logits has 0 numbers, wanted 10");
  CHECK(error(9, 2) == "TaskFamily: logits has 9 numbers, wanted 10");
}

TEST_CASE("The types that are named as those with classes are all that have them") {
  std::set<std::string> with_classes;
  for (const auto& built : contracts::EveryTask()) {
    const bool is_of_others = dynamic_cast<const FamilyOverFamilies*>(built.made.get()) != nullptr;
    if (built.made->parts().classes > 0 && !is_of_others) with_classes.insert(built.config.Type());
  }
  std::set<std::string> named;
  for (const std::string type : TypesWithClasses()) {
    if (FindModule(kTorchModule) || !type.starts_with("Torch")) named.insert(type);
  }
  CHECK(named == with_classes);
}

}  // namespace
}  // namespace lopt

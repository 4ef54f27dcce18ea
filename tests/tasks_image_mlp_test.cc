#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/error.h"
#include "lopt/base/safetensors.h"
#include "lopt/tasks/image/image_mlp.h"
#include "lopt/tasks/image/image_mlp_kernel.h"
#include "lopt/tasks/registry.h"
#include "tests/farthest.h"
#include "tests/golden_dir.h"
#include "tests/image_rows.h"
#include "tests/mnist_dir.h"
#include "tests/reference/image_mlp_reference.h"

namespace lopt {
namespace {

std::shared_ptr<const ImageData> Drawn(int64_t size) {
  return GetImages({.image_size = size}, TaskResources(""));
}

// A data set of given rows: features are those of a square image, and every row is its own.
std::shared_ptr<const ImageData> DataOf(int64_t size, const std::vector<uint8_t>& pixels,
                                        const std::vector<uint8_t>& labels) {
  const auto count = static_cast<int64_t>(labels.size());
  RawImages raw{.count = count,
                .height = size,
                .width = size,
                .pixels = pixels,
                .labels = labels,
                .splits = {}};
  raw.splits[0] = {0, count};
  return std::make_shared<ImageData>(raw, size);
}

struct Evaluated {
  float loss = 0;
  float accuracy = 0;
  std::vector<float> gradient;
};

Evaluated EvaluateRows(const ImageMlp& task, std::span<const float> params,
                       std::span<const int32_t> examples) {
  Evaluated out;
  out.gradient.resize(params.size());
  Workspace scratch;
  TaskEvaluation evaluation;
  evaluation.params = params;
  evaluation.examples = examples;
  evaluation.losses = {&out.loss, 1};
  evaluation.gradients = out.gradient;
  evaluation.aux = {&out.accuracy, 1};
  task.Evaluate(evaluation, scratch);
  return out;
}

Evaluated EvaluateKey(const ImageMlp& task, std::span<const float> params, Split split, Key key) {
  Evaluated out;
  out.gradient.resize(params.size());
  Workspace scratch;
  TaskEvaluation evaluation;
  evaluation.params = params;
  evaluation.split = split;
  evaluation.keys = {&key, 1};
  evaluation.losses = {&out.loss, 1};
  evaluation.gradients = out.gradient;
  evaluation.aux = {&out.accuracy, 1};
  task.Evaluate(evaluation, scratch);
  return out;
}

std::vector<float> InitialParams(const ImageMlp& task, uint64_t seed) {
  std::vector<float> params(task.params_layout().size());
  task.Init({}, KeyFromSeed(seed), params, {});
  return params;
}

std::vector<int32_t> Rows(int32_t first, int32_t count) {
  std::vector<int32_t> rows(count);
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

double Norm(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}

TEST_CASE("The 8 x 8 MLP with 32 hidden units has 2410 weights, named layer by layer") {
  const ImageMlp task({}, Drawn(8));
  CHECK(task.params_layout().size() == 2410);
  const auto& entries = task.params_layout().entries();
  REQUIRE(entries.size() == 4);
  CHECK(entries[0].name == "mlp/linear_0/w");
  CHECK(entries[0].shape == Shape{64, 32});
  CHECK(entries[1].name == "mlp/linear_0/b");
  CHECK(entries[1].shape == Shape{32});
  CHECK(entries[2].name == "mlp/linear_1/w");
  CHECK(entries[2].shape == Shape{32, 10});
  CHECK(entries[3].name == "mlp/linear_1/b");
  CHECK(entries[3].shape == Shape{10});
  CHECK(task.aux_layout().entries()[0].name == "accuracy");
  CHECK(ImageMlp({.hidden = {}}, Drawn(8)).params_layout().size() == 650);
  CHECK(ImageMlp({.images = {.image_size = 28}, .hidden = {128, 128}}, Drawn(28))
            .params_layout()
            .size() == 118282);
}

TEST_CASE("Norms have a scale and an offset for each unit, and batch norm running statistics") {
  const ImageMlp layer({.hidden = {5, 3}, .norm = Norm::kLayer}, Drawn(8));
  CHECK(layer.params_layout().size() == 65 * 5 + 6 * 3 + 4 * 10 + 2 * (5 + 3));
  CHECK(layer.params_layout().Find("mlp/layer_norm_1/offset").shape == Shape{3});
  CHECK(layer.model_state_layout().size() == 0);
  const ImageMlp batch({.hidden = {5, 3}, .norm = Norm::kBatch}, Drawn(8));
  CHECK(batch.params_layout().Find("mlp/batch_norm_0/scale").shape == Shape{5});
  CHECK(batch.model_state_layout().size() == 16);
  std::vector<float> params(batch.params_layout().size());
  std::vector<float> state(16);
  batch.Init({}, KeyFromSeed(1), params, state);
  CHECK(params[batch.params_layout().Find("mlp/batch_norm_1/scale").offset] == 1);
  CHECK(params[batch.params_layout().Find("mlp/batch_norm_1/offset").offset] == 0);
  CHECK(state[batch.model_state_layout().Find("mlp/batch_norm_1/mean").offset] == 0);
  CHECK(state[batch.model_state_layout().Find("mlp/batch_norm_1/variance").offset] == 1);
}

TEST_CASE("Weights start truncated normal over the root of the fan-in, biases at zero") {
  const ImageMlp task({.images = {.image_size = 4}, .hidden = {60000}}, Drawn(4));
  const std::vector<float> params = InitialParams(task, 1);
  const LayoutEntry& w = task.params_layout().Find("mlp/linear_0/w");
  const std::span<const float> weights = std::span(params).subspan(w.offset, w.size);
  REQUIRE(w.size == 960000);
  CHECK(Norm(weights) / std::sqrt(static_cast<double>(w.size)) ==
        doctest::Approx(0.8796256610342398 / 4).epsilon(0.003));
  CHECK(*std::max_element(weights.begin(), weights.end()) <= 0.5f);
  CHECK(*std::max_element(weights.begin(), weights.end()) > 0.49f);
  CHECK(*std::min_element(weights.begin(), weights.end()) >= -0.5f);
  const double mean = std::accumulate(weights.begin(), weights.end(), 0.0) / 960000;
  CHECK(std::abs(mean) < 4 * 0.22 / std::sqrt(960000));
  const LayoutEntry& b = task.params_layout().Find("mlp/linear_0/b");
  CHECK(Norm(std::span(params).subspan(b.offset, b.size)) == 0);
  CHECK(InitialParams(task, 1) == params);
  CHECK(InitialParams(task, 2) != params);
}

constexpr int64_t kDigitWeights = 2410;

MlpShape DigitShape() { return {.sizes = {64, 32, 10}}; }

TEST_CASE("Loss and gradient of the 64-32-10 MLP on a formula batch are the known ones") {
  std::vector<float> images(128 * 64);
  std::vector<uint8_t> labels(128);
  for (int b = 0; b < 128; ++b) {
    labels[b] = static_cast<uint8_t>(7 * b % 10);
    for (int i = 0; i < 64; ++i) {
      images[64 * b + i] =
          static_cast<float>(0.5 + 0.5 * std::sin(0.37 * b + 0.11 * i * (1 + b % 5)));
    }
  }
  std::vector<float> params(kDigitWeights);
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j < 32; ++j) {
      params[32 * i + j] = static_cast<float>(std::sin(1 + 0.7 * i + 1.3 * j) / 8);
    }
  }
  for (int i = 0; i < 32; ++i) {
    for (int j = 0; j < 10; ++j) {
      params[2080 + 10 * i + j] =
          static_cast<float>(std::sin(3.1 + 0.7 * i + 1.3 * j) / std::sqrt(32.0));
    }
  }
  const ImageRows rows(64, images, labels);
  std::vector<float> gradients(kDigitWeights);
  const MlpEvaluation evaluation{.params = params, .batch = rows.batch(), .gradient = gradients};
  Workspace scratch;
  ClassifierResult out{};
  SUBCASE("plain loops") { out = MlpLossReference(DigitShape(), evaluation, scratch); }
  SUBCASE("kernel") { out = MlpLoss(DigitShape(), evaluation, scratch); }
  const std::span<const float> gradient = gradients;
  CHECK(out.loss == doctest::Approx(2.296112614361851).epsilon(1e-6));
  CHECK(Norm(gradient.subspan(0, 2048)) == doctest::Approx(0.25041775505).epsilon(1e-6));
  CHECK(Norm(gradient.subspan(2048, 32)) == doctest::Approx(0.02793398495).epsilon(1e-6));
  CHECK(Norm(gradient.subspan(2080, 320)) == doctest::Approx(0.06733280787).epsilon(1e-6));
  CHECK(Norm(gradient.subspan(2400, 10)) == doctest::Approx(0.01328675224).epsilon(1e-6));
  const auto sum = [&](int64_t first, int64_t n) {
    return std::accumulate(gradient.begin() + first, gradient.begin() + first + n, 0.0);
  };
  CHECK(sum(0, 2048) == doctest::Approx(-0.31302878742).epsilon(1e-5));
  CHECK(sum(2048, 32) == doctest::Approx(-0.00973624428).epsilon(1e-5));
}

TEST_CASE("The first loss and gradient on digits are those of the golden trace") {
  const NamedArrays golden =
      ReadArrayFile(GoldenPath("image_mlp_inner_training.safetensors")).arrays;
  const std::span<const int32_t> label = golden.At("label0").As<int32_t>();
  const ImageRows rows(64, golden.At("image0").As<float>(),
                       std::vector<uint8_t>(label.begin(), label.end()));
  const ImageMlp task({}, Drawn(8));
  std::vector<float> params(kDigitWeights);
  std::vector<float> wanted(kDigitWeights);
  std::vector<float> gradient(kDigitWeights);
  RowFromArrays(task.params_layout(), golden, "param0/", params);
  RowFromArrays(task.params_layout(), golden, "gradient0/", wanted);
  const MlpEvaluation evaluation{.params = params, .batch = rows.batch(), .gradient = gradient};
  Workspace scratch;
  ClassifierResult out{};
  SUBCASE("plain loops") { out = MlpLossReference(DigitShape(), evaluation, scratch); }
  SUBCASE("kernel") { out = MlpLoss(DigitShape(), evaluation, scratch); }
  CHECK(out.loss == doctest::Approx(golden.At("loss").As<float>()[0]).epsilon(1e-6));
  CHECK(FarthestOfLargest(gradient, wanted) < 1e-6);
}

TEST_CASE("Gradients agree with finite differences for several layers and activations") {
  const auto data = Drawn(3);
  const std::vector<int32_t> rows = Rows(40, 21);
  for (const auto& [activation, name] : kActivations) {
    // The gradient of the sign is not its derivative; the kinks of the leaky ReLU are sharp.
    if (activation == Activation::kSign || activation == Activation::kLeakyRelu) continue;
    CAPTURE(name);
    for (const std::vector<int64_t>& hidden :
         {std::vector<int64_t>{}, std::vector<int64_t>{5}, std::vector<int64_t>{7, 4, 17}}) {
      const ImageMlp task({.images = {.image_size = 3}, .hidden = hidden, .activation = activation},
                          data);
      const std::vector<float> params = InitialParams(task, 6);
      const Evaluated at = EvaluateRows(task, params, rows);
      for (size_t i = 0; i < params.size(); i += 3) {
        std::vector<float> up = params;
        std::vector<float> down = params;
        up[i] += 1e-3f;
        down[i] -= 1e-3f;
        const double difference = (static_cast<double>(EvaluateRows(task, up, rows).loss) -
                                   EvaluateRows(task, down, rows).loss) /
                                  (static_cast<double>(up[i]) - down[i]);
        CHECK(at.gradient[i] == doctest::Approx(difference).epsilon(1e-3).scale(0.5));
      }
    }
  }
}

// The names of torch's binary_mlp trace, whose weights are [out, in], in the order of the params.
std::vector<float> BinaryMlpRow(const NamedArrays& golden, const std::string& prefix) {
  std::vector<float> row;
  for (const std::string layer : {"l0", "l1"}) {
    const Array& weight = golden.At(prefix + layer + ".weight");
    const auto w = weight.As<float>();
    const int64_t out = weight.shape()[0];
    const int64_t in = weight.shape()[1];
    for (int64_t i = 0; i < in; ++i) {
      for (int64_t o = 0; o < out; ++o) row.push_back(w[o * in + i]);
    }
    const auto b = golden.At(prefix + layer + ".bias").As<float>();
    row.insert(row.end(), b.begin(), b.end());
  }
  return row;
}

TEST_CASE("Twelve steps of SGD on a network of signs are those of the golden trace") {
  if (SkipsWithoutMnist()) return;
  const NamedArrays golden = ReadArrayFile(GoldenPath("torch_tasks.safetensors")).arrays;
  const ImageMlpOptions options{.images = {.image_size = 28, .data = ImageSource::kIdx},
                                .activation = Activation::kSign};
  const ImageMlp task(options, GetImages(options.images, TaskResources(MnistDir())));
  std::vector<float> params = BinaryMlpRow(golden, "binary_mlp/param0/");
  const std::vector<float> gradient = BinaryMlpRow(golden, "binary_mlp/gradient0/");
  const auto index = golden.At("binary_mlp/index").As<int32_t>();
  const auto losses = golden.At("binary_mlp/loss").As<float>();
  for (int64_t step = 0; step < 12; ++step) {
    const Evaluated at = EvaluateRows(task, params, index.subspan(step * 16, 16));
    CHECK(at.loss == doctest::Approx(losses[step]).epsilon(1e-5));
    for (size_t i = 0; i < params.size(); ++i) {
      if (step == 0) CHECK(std::abs(at.gradient[i] - gradient[i]) < 1e-6);
      params[i] -= 0.05f * at.gradient[i];
    }
  }
}

TEST_CASE("Losses that are not finite and too large ones become 1.5 ln 10, negative ones 0") {
  const ImageMlp task({}, Drawn(8));
  constexpr double kInf = std::numeric_limits<double>::infinity();
  CHECK(*task.NormalizerMaximum() == doctest::Approx(3.4538776).epsilon(1e-6));
  for (const double loss : {std::nan(""), kInf, -kInf, 100.0}) {
    CHECK(task.Normalize({}, loss) == doctest::Approx(3.4538776).epsilon(1e-6));
  }
  CHECK(task.Normalize({}, -1) == 0);
  CHECK(task.Normalize({}, 2.5) == 2.5);
}

TEST_CASE("Equal keys name equal data, and other keys or splits other data") {
  const ImageMlp task({}, Drawn(8));
  const std::vector<float> params = InitialParams(task, 1);
  const Evaluated a = EvaluateKey(task, params, Split::kTrain, KeyFromSeed(1));
  const Evaluated same = EvaluateKey(task, params, Split::kTrain, KeyFromSeed(1));
  CHECK(a.loss == same.loss);
  CHECK(a.gradient == same.gradient);
  CHECK(a.loss != EvaluateKey(task, params, Split::kTrain, KeyFromSeed(2)).loss);
  CHECK(a.loss != EvaluateKey(task, params, Split::kTest, KeyFromSeed(1)).loss);
}

TEST_CASE("A batch is drawn from its split with replacement") {
  // Labels name the split a row is in, and the only image value is 0, so the loss shows the labels.
  std::vector<uint8_t> labels(40);
  RawImages raw{.count = 40,
                .height = 1,
                .width = 1,
                .pixels = std::vector<uint8_t>(40),
                .labels = {},
                .splits = {{0, 10}, {10, 20}, {20, 30}, {30, 40}}};
  for (uint8_t i = 0; i < 40; ++i) labels[i] = i / 10;
  raw.labels = labels;
  const ImageMlp task({.images = {.image_size = 1, .batch_size = 50}, .hidden = {}},
                      std::make_shared<ImageData>(raw, 1));
  for (const Split split : kSplits) {
    std::vector<float> params(task.params_layout().size());
    params[4 + static_cast<size_t>(split)] = 50;
    CHECK(EvaluateKey(task, params, split, KeyFromSeed(3)).loss < 1e-6f);
    CHECK(EvaluateKey(task, params, split, KeyFromSeed(3)).accuracy == 1);
  }
}

TEST_CASE("Accuracy is the fraction of examples whose label has the largest logit") {
  const auto data = DataOf(1, {0, 0, 0, 0}, {0, 1, 2, 2});
  const ImageMlp task({.images = {.image_size = 1}, .hidden = {}}, data);
  const std::vector<int32_t> rows = Rows(0, 4);
  CHECK(EvaluateRows(task, std::vector<float>{0, 0, 0, 0, 0, 1}, rows).accuracy == 0.5f);
  CHECK(EvaluateRows(task, std::vector<float>{0, 0, 0, 0, 1, 0}, rows).accuracy == 0.25f);
  CHECK(EvaluateRows(task, std::vector<float>{0, 0, 0, 0, 0, 0}, rows).accuracy == 0.25f);
  CHECK(EvaluateRows(task, std::vector<float>{0, 0, 0, NAN, 0, 0}, rows).accuracy == 0);
}

TEST_CASE("The loss of a whole split is the mean over its examples") {
  const ImageMlp task({}, Drawn(8));
  const std::vector<float> params = InitialParams(task, 1);
  const auto [first, last] = task.ExampleRange(Split::kTest);
  const auto count = static_cast<int32_t>(last - first);
  CHECK(count == 10000);
  const Evaluated whole = EvaluateRows(task, params, Rows(static_cast<int32_t>(first), count));
  double loss = 0;
  double accuracy = 0;
  for (int32_t i = 0; i < count; i += 100) {
    const Evaluated part = EvaluateRows(task, params, Rows(static_cast<int32_t>(first) + i, 100));
    loss += part.loss / 100.0;
    accuracy += part.accuracy / 100.0;
  }
  CHECK(whole.loss == doctest::Approx(loss).epsilon(1e-6));
  CHECK(whole.accuracy == doctest::Approx(accuracy).epsilon(1e-6));
}

TEST_CASE("NaN in a weight reaches the loss and is not lost in a ReLU") {
  const ImageMlp task({}, Drawn(8));
  std::vector<float> params = InitialParams(task, 1);
  params[2048] = NAN;  // the first hidden bias
  const Evaluated out = EvaluateRows(task, params, Rows(0, 128));
  CHECK(std::isnan(out.loss));
  CHECK(out.accuracy == 0);
  CHECK(std::isnan(out.gradient[2400]));
}

TEST_CASE("Wrong options and examples are errors") {
  CHECK_THROWS_WITH_AS(ImageMlp({.images = {.image_size = 4}}, Drawn(8)),
                       "image task: images of 8 x 8, wanted image_size 4", Error);
  CHECK_THROWS_WITH_AS(ImageMlp({.activation = static_cast<Activation>(11)}, Drawn(8)),
                       "ImageMLP: activation must be one of relu, tanh, relu6, selu, cos, sin, "
                       "sigmoid, silu, gelu, leaky_relu, sign, got number 11",
                       Error);
  CHECK_THROWS_WITH_AS(ImageMlp({.hidden = {3, 0}}, Drawn(8)),
                       "ImageMLP: hidden[1] must be in [1, 100000], got 0", Error);
  CHECK_THROWS_WITH_AS(ImageMlp({.images = {.batch_size = 0}}, Drawn(8)),
                       "ImageMLP: batch_size must be in [1, 1000000], got 0", Error);
  const ImageMlp task({}, Drawn(8));
  const std::vector<float> params = InitialParams(task, 1);
  CHECK_THROWS_WITH_AS(EvaluateRows(task, params, Rows(18990, 11)),
                       "TaskFamily: there is no example 19000 among 19000", Error);
  CHECK_THROWS_WITH_AS(EvaluateRows(task, params, std::vector<int32_t>{-1}),
                       "TaskFamily: there is no example -1 among 19000", Error);
}

TEST_CASE("The registry makes the built-in families from their configs") {
  const TaskResources resources("");
  const auto make = [&](const std::string& text) {
    return TaskRegistry().Make(Config::Parse(text, "test"), resources);
  };
  CHECK(make(R"({"type": "ImageMLP"})")->params_layout().size() == 2410);
  CHECK(make(R"({"type": "ImageMLP", "image_size": 4, "hidden": [5, 3], "activation": "tanh"})")
            ->params_layout()
            .size() == 17 * 5 + 6 * 3 + 40);
  CHECK(make(R"({"type": "FixedDimQuadraticFamily", "dim": 7})")->config_layout().size() == 7);
  CHECK(make(R"({"type": "QuadraticTask"})")->params_layout().size() == 10);
  CHECK(make(R"({"type": "LogQuadraticTask"})")->params_layout().size() == 10);
  CHECK(make(R"({"type": "NoisyQuadraticFamily", "cov": 0.1})")->config_layout().size() == 20);
  CHECK_FALSE(resources.data_dir_used());
  CHECK_THROWS_AS(make(R"({"type": "ImageMLP", "data": "idx"})"), Error);
  CHECK_THROWS_AS(make(R"({"type": "ImageMLP", "hidden": [0]})"), Error);
}

}  // namespace
}  // namespace lopt

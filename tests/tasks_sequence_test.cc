// Transformers and LSTMs, against traces of torch.nn.TransformerEncoderLayer (norm_first, gelu with
// approximate="tanh") and of torch.nn.LSTM with embeddings, a LayerNorm and a Linear around them,
// in float64, whose params are float32: golden/torch_sequences.safetensors.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/key.h"
#include "lopt/base/safetensors.h"
#include "lopt/base/workspace.h"
#include "lopt/tasks/sequence/byte_lstm.h"
#include "lopt/tasks/sequence/byte_transformer.h"
#include "lopt/tasks/sequence/image_transformer.h"
#include "tests/error_of.h"
#include "tests/farthest.h"
#include "tests/golden_dir.h"
#include "tests/on_every_isa.h"

namespace lopt {
namespace {

const NamedArrays& Golden() {
  static const ArrayFile file = ReadArrayFile(GoldenPath("torch_sequences.safetensors"));
  return file.arrays;
}

std::vector<float> Floats(const std::string& name) {
  const auto values = Golden().At(name).As<float>();
  return {values.begin(), values.end()};
}

std::shared_ptr<const TextData> GoldenText() {
  const auto bytes = Golden().At("gpt/text").As<uint8_t>();
  return std::make_shared<TextData>(std::vector<uint8_t>(bytes.begin(), bytes.end()));
}

ByteTransformer Gpt() {
  return {{.text = {.length = 7, .batch_size = 5}, .model = {.width = 12, .layers = 2, .heads = 3}},
          GoldenText()};
}

ImageTransformer Vit(int64_t patch = 2, int64_t layers = 2) {
  const auto pixels = Golden().At("vit/images").As<uint8_t>();
  const auto labels = Golden().At("vit/labels").As<uint8_t>();
  RawImages raw{.count = 20,
                .height = 4,
                .width = 6,
                .channels = 3,
                .pixels = {pixels.begin(), pixels.end()},
                .labels = {labels.begin(), labels.end()}};
  SplitOneSet(raw.count, raw.splits);
  return {{.images = {.image_size = 0, .channels = 3, .batch_size = 7},
           .patch = patch,
           .model = {.width = 12, .layers = layers, .heads = 2}},
          std::make_shared<ImageData>(raw, 0)};
}

struct Evaluated {
  double loss;
  std::vector<float> gradient;
  std::vector<float> logits;
};

Evaluated Evaluate(const TaskFamily& task, const std::vector<float>& params,
                   std::span<const int32_t> examples, int64_t classes = 0) {
  Workspace scratch;
  float loss = 0;
  Evaluated out{.loss = 0,
                .gradient = std::vector<float>(params.size(), 9),
                .logits = std::vector<float>(examples.size() * static_cast<size_t>(classes))};
  std::vector<int32_t> labels(classes == 0 ? 0 : examples.size());
  task.Evaluate({.params = params,
                 .examples = examples,
                 .losses = {&loss, 1},
                 .gradients = out.gradient,
                 .answers = {.logits = out.logits, .labels = labels}},
                scratch);
  out.loss = double{loss};
  return out;
}

// The gradients' largest distance, in units of the largest slope of their tensor.
double WorstSlope(const Layout& layout, const std::vector<float>& gradient,
                  std::span<const double> wanted) {
  REQUIRE_EQ(gradient.size(), wanted.size());
  double worst = 0;
  for (const LayoutEntry& entry : layout.entries()) {
    const auto slopes = wanted.subspan(entry.offset, entry.size);
    CAPTURE(entry.name);
    CHECK(Farthest(slopes, std::vector<double>(slopes.size())) > 1e-4);
    worst = Farther(
        worst, FarthestOfLargest(std::span(gradient).subspan(entry.offset, entry.size), slopes));
  }
  return worst;
}

// Sums of some dozens of float32 numbers, in a chain of some dozens of layers.
constexpr double kRounding = 2e-5;

TEST_CASE("A transformer of bytes is PyTorch's, on every instruction set") {
  const ByteTransformer task = Gpt();
  OnEveryIsa([&] {
    const Evaluated out =
        Evaluate(task, Floats("gpt/params"), Golden().At("gpt/examples").As<int32_t>());
    CHECK(out.loss == doctest::Approx(Golden().At("gpt/loss").As<double>()[0]).epsilon(1e-6));
    CHECK(WorstSlope(task.params_layout(), out.gradient, Golden().At("gpt/gradient").As<double>()) <
          kRounding);
  });
}

TEST_CASE("An LSTM of bytes is PyTorch's, on every instruction set") {
  const ByteLstm task({.text = {.length = 7, .batch_size = 5}, .width = 10, .layers = 2},
                      GoldenText());
  OnEveryIsa([&] {
    const Evaluated out =
        Evaluate(task, Floats("lstm/params"), Golden().At("gpt/examples").As<int32_t>());
    CHECK(out.loss == doctest::Approx(Golden().At("lstm/loss").As<double>()[0]).epsilon(1e-6));
    CHECK(WorstSlope(task.params_layout(), out.gradient,
                     Golden().At("lstm/gradient").As<double>()) < kRounding);
  });
}

TEST_CASE("A transformer of patches is PyTorch's, on every instruction set") {
  const ImageTransformer task = Vit();
  OnEveryIsa([&] {
    const Evaluated out =
        Evaluate(task, Floats("vit/params"), Golden().At("vit/examples").As<int32_t>(), 4);
    CHECK(out.loss == doctest::Approx(Golden().At("vit/loss").As<double>()[0]).epsilon(1e-6));
    CHECK(WorstSlope(task.params_layout(), out.gradient, Golden().At("vit/gradient").As<double>()) <
          kRounding);
    const auto logits = Golden().At("vit/logits").As<double>();
    for (size_t i = 0; i < out.logits.size(); ++i) {
      CHECK(double{out.logits[i]} == doctest::Approx(logits[i]).epsilon(1e-5));
    }
  });
}

// The mean over examples of their own losses and gradients.
Evaluated OneByOne(const TaskFamily& task, const std::vector<float>& params,
                   const std::vector<int32_t>& examples) {
  Evaluated mean{.loss = 0, .gradient = std::vector<float>(params.size()), .logits = {}};
  const auto share = 1 / static_cast<double>(examples.size());
  std::vector<double> sum(params.size());
  for (const int32_t example : examples) {
    const Evaluated one = Evaluate(task, params, std::vector{example});
    mean.loss += share * one.loss;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += share * double{one.gradient[i]};
  }
  std::ranges::transform(sum, mean.gradient.begin(),
                         [](double x) { return static_cast<float>(x); });
  return mean;
}

void CheckLikeOneByOne(const TaskFamily& task, const std::vector<int32_t>& examples) {
  std::vector<float> params(static_cast<size_t>(task.params_layout().size()));
  task.Init({}, KeyFromSeed(2), params, {});
  const Evaluated out = Evaluate(task, params, examples);
  const Evaluated wanted = OneByOne(task, params, examples);
  CHECK(out.loss == doctest::Approx(wanted.loss).epsilon(1e-5));
  const std::vector<double> slopes(wanted.gradient.begin(), wanted.gradient.end());
  CHECK(WorstSlope(task.params_layout(), out.gradient, slopes) < kRounding);
}

std::vector<uint8_t> DrawnBytes(int64_t count) {
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < count; ++i) {
    bytes.push_back(static_cast<uint8_t>(Randint(FoldIn(KeyFromSeed(5), i), 0, 256)));
  }
  return bytes;
}

TEST_CASE("A batch of several parts has the mean of its sequences' gradients") {
  // 40 windows of 19 bytes are four parts, of which the last has one window.
  const ByteTransformer bytes(
      {.text = {.length = 19}, .model = {.width = 36, .layers = 1, .heads = 3}},
      std::make_shared<TextData>(DrawnBytes(2000)));
  std::vector<int32_t> examples;
  for (int32_t i = 0; i < 40; ++i) examples.push_back(i);
  CheckLikeOneByOne(bytes, examples);
  // 70 windows are two parts.
  const ByteLstm recurrent({.text = {.length = 5}, .width = 37, .layers = 2},
                           std::make_shared<TextData>(DrawnBytes(2000)));
  std::vector<int32_t> more = examples;
  for (int32_t i = 40; i < 70; ++i) more.push_back(i);
  CheckLikeOneByOne(recurrent, more);
  // 90 images of 6 patches are three parts.
  const ImageTransformer images = Vit();
  for (int32_t i = 0; i < 90; ++i) examples.push_back(i % 20);
  CheckLikeOneByOne(images, {examples.begin() + 40, examples.end()});
  CheckLikeOneByOne(Vit(2, 0), {1, 2, 3});
  // Six sequences are no whole tile of a step's product, and their steps are whole panels.
  const ByteLstm few({.text = {.length = 32}, .width = 5},
                     std::make_shared<TextData>(DrawnBytes(3000)));
  CheckLikeOneByOne(few, {0, 1, 2, 3, 4, 5});
}

// The loss and the gradient of the initial params are those of the scalar kernels, whose panels
// have two columns.
void CheckAcrossIsas(const TaskFamily& task, const std::vector<int32_t>& examples) {
  std::vector<float> params(static_cast<size_t>(task.params_layout().size()));
  task.Init({}, KeyFromSeed(2), params, {});
  const std::string pinned = CurrentIsa();
  PinIsa(SupportedIsas().back());
  const Evaluated wanted = Evaluate(task, params, examples);
  const std::vector<double> slopes(wanted.gradient.begin(), wanted.gradient.end());
  OnEveryIsa([&] {
    const Evaluated out = Evaluate(task, params, examples);
    CHECK(out.loss == doctest::Approx(wanted.loss).epsilon(1e-6));
    CHECK(WorstSlope(task.params_layout(), out.gradient, slopes) < kRounding);
  });
  PinIsa(pinned);
}

TEST_CASE("Heads and gates that lie across panels have the same gradients everywhere") {
  const auto text = std::make_shared<TextData>(DrawnBytes(2000));
  // 4 heads of 11 numbers; 33 places are more than two vectors of AVX-512.
  CheckAcrossIsas(
      ByteTransformer({.text = {.length = 33}, .model = {.width = 44, .layers = 1, .heads = 4}},
                      text),
      {3, 0, 8});
  CheckAcrossIsas(ByteLstm({.text = {.length = 9}, .width = 37, .layers = 2}, text),
                  {3, 0, 8, 1, 1, 20, 5, 4, 30, 7, 2});
}

TEST_CASE("A transformer whose last layer is 0 knows nothing, and its accuracy counts bytes") {
  const std::vector<uint8_t> text(200, 0);
  const ByteTransformer task({.text = {.length = 4, .batch_size = 2}, .model = {.width = 8}},
                             std::make_shared<TextData>(text));
  std::vector<float> params(static_cast<size_t>(task.params_layout().size()));
  task.Init({}, KeyFromSeed(1), params, {});
  const LayoutEntry& last = task.params_layout().entries().end()[-2];
  REQUIRE_EQ(last.name, "logits/w");
  std::fill(params.begin() + last.offset, params.end(), 0.0F);
  Workspace scratch;
  float loss = 0, accuracy = 0;
  const std::vector<int32_t> examples = {0, 1};
  const TaskEvaluation evaluation{
      .params = params, .examples = examples, .losses = {&loss, 1}, .aux = {&accuracy, 1}};
  task.Evaluate(evaluation, scratch);
  CHECK(loss == doctest::Approx(std::log(256.0)));
  CHECK(accuracy == 1.0F);  // of equal logits the first counts, that of the byte 0
  params.back() = 1;
  task.Evaluate(evaluation, scratch);
  CHECK(accuracy == 0.0F);
  CHECK(loss == doctest::Approx(std::log(255 + std::exp(1.0))));
}

TEST_CASE("Logits and accuracy of several parts are those of single sequences") {
  const ImageTransformer images = Vit();
  const std::vector<float> params = Floats("vit/params");
  std::vector<int32_t> examples;
  for (int32_t i = 0; i < 90; ++i) examples.push_back((7 * i) % 20);
  const Evaluated all = Evaluate(images, params, examples, 4);
  for (size_t i = 0; i < examples.size(); ++i) {
    const Evaluated one = Evaluate(images, params, std::vector{examples[i]}, 4);
    for (size_t c = 0; c < 4; ++c) {
      CHECK(double{all.logits[4 * i + c]} == doctest::Approx(one.logits[c]).epsilon(1e-5));
    }
  }
  // Bytes that are all the same are known with a bias alone.
  const ByteLstm bytes({.text = {.length = 3}, .width = 4},
                       std::make_shared<TextData>(std::vector<uint8_t>(3000, 'a')));
  std::vector<float> knows(static_cast<size_t>(bytes.params_layout().size()), 0);
  knows[knows.size() - 256 + 'a'] = 20;
  Workspace scratch;
  float loss = 1, accuracy = 0;
  examples.resize(70);
  bytes.Evaluate(
      {.params = knows, .examples = examples, .losses = {&loss, 1}, .aux = {&accuracy, 1}},
      scratch);
  CHECK(accuracy == 1.0F);
  CHECK(double{loss} < 1e-5);
  knows.back() = 30;
  bytes.Evaluate(
      {.params = knows, .examples = examples, .losses = {&loss, 1}, .aux = {&accuracy, 1}},
      scratch);
  CHECK(accuracy == 0.0F);
  CHECK(double{loss} == doctest::Approx(10 + std::log1p(std::exp(-10.0))));
}

TEST_CASE("Initial params are drawn as documented") {
  const ByteTransformer task(
      {.text = {.length = 50}, .model = {.width = 64, .layers = 2, .embedding_std = .02}},
      std::make_shared<TextData>(DrawnBytes(2000)));
  std::vector<float> params(static_cast<size_t>(task.params_layout().size()));
  task.Init({}, KeyFromSeed(1), params, {});
  for (const LayoutEntry& entry : task.params_layout().entries()) {
    CAPTURE(entry.name);
    double mean = 0, square = 0;
    for (int64_t i = 0; i < entry.size; ++i) {
      const double value = double{params[static_cast<size_t>(entry.offset + i)]};
      mean += value / static_cast<double>(entry.size);
      square += value * value / static_cast<double>(entry.size);
    }
    if (entry.shape.size() == 1) {
      CHECK(square == (entry.name.ends_with("/scale") ? 1.0 : 0.0));
      continue;
    }
    // A normal distribution that is cut off at two deviations has .880 of its deviation.
    const bool embeds = entry.name == "embedding" || entry.name == "place";
    const double wanted = embeds ? .02 : .8796 / std::sqrt(static_cast<double>(entry.shape[0]));
    // Within five standard deviations.
    const double few = 5 / std::sqrt(static_cast<double>(entry.size));
    CHECK(std::sqrt(square) == doctest::Approx(wanted).epsilon(few));
    CHECK(std::abs(mean) < few * wanted);
  }
}

// The loss after 200 steps of gradient descent on a text that repeats "baca": what comes after an a
// is known by what was before it.
double LossOfRepetition(const TaskFamily& task, float learning_rate) {
  std::vector<float> params(static_cast<size_t>(task.params_layout().size()));
  task.Init({}, KeyFromSeed(1), params, {});
  const std::vector<int32_t> examples = {0, 1, 2, 3, 4, 5, 6, 7};
  double loss = 0;
  for (int64_t step = 0; step < 200; ++step) {
    const Evaluated out = Evaluate(task, params, examples);
    for (size_t i = 0; i < params.size(); ++i) params[i] -= learning_rate * out.gradient[i];
    loss = out.loss;
  }
  return loss;
}

TEST_CASE("Gradient descent learns a text that repeats itself, by looking two bytes back") {
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < 400; ++i) bytes.push_back(static_cast<uint8_t>("baca"[i % 4]));
  const auto text = std::make_shared<TextData>(bytes);
  const TextOptions options{.length = 7, .batch_size = 8};
  // Half of the windows of 7 bytes begin with an a, behind which b or c is as likely: nobody can
  // know, and the least loss is ln 2 / 14.
  const double least = std::log(2.0) / 14;
  const double attention = LossOfRepetition(
      ByteTransformer({.text = options, .model = {.width = 16, .layers = 1}}, text), .1F);
  CHECK(attention > least - .001);
  CHECK(attention < least + .02);
  const double recurrent =
      LossOfRepetition(ByteLstm({.text = options, .width = 16, .layers = 1}, text), 2);
  CHECK(recurrent > least - .001);
  CHECK(recurrent < least + .02);
}

TEST_CASE("A picture of windows has a line for each, from the byte before it on") {
  const TextData text(std::vector<uint8_t>{0, 127, 0, 127, 127, 0, 0, 127});
  const std::vector<int64_t> starts = {0, 3};
  const std::vector<int32_t> examples = {1, 0, 1};
  const Pictures picture = PictureOfWindows(text, starts, 2, examples);
  CHECK(picture.height == 3);
  CHECK(picture.width == 3);
  CHECK(picture.pixels == std::vector<float>{1, 1, 0, 0, 1, 0, 1, 1, 0});
}

TEST_CASE("Wrong sizes are errors") {
  const auto text = std::make_shared<TextData>(DrawnBytes(20000));
  const auto error = [&](const ByteTransformerOptions& options) {
    return ErrorOf([&] { ByteTransformer(options, text); });
  };
  CHECK(error({.model = {.width = 10, .heads = 3}}) ==
        "ByteTransformer: width must be a multiple of heads, got width 10 and heads 3");
  CHECK(error({.text = {.length = 1025}}) ==
        "ByteTransformer: length must be at most 1024, got 1025");
  CHECK(error({.model = {.width = 10000, .layers = 1, .heads = 1}})
            .find("wanted at most 268435456") != std::string::npos);
  CHECK(error({.model = {.layers = -1}}).find("layers") != std::string::npos);
  CHECK(error({.text = {.length = 1000}, .model = {.width = 0}}).find("width") !=
        std::string::npos);
  CHECK(ErrorOf([&] { ByteLstm({.width = 10000, .layers = 1}, text); }) ==
        "ByteLSTM: width 10000 and layers 1 make 805200256 params, wanted at most 268435456");
  CHECK(ErrorOf([&] { ByteLstm({.text = {.length = 2000}}, text); }) ==
        "ByteLSTM: length must be at most 1024, got 2000");
  const std::string scratch = "numbers of scratch memory, wanted at most 268435456";
  CHECK(error({.text = {.length = 1024}, .model = {.width = 32, .layers = 1000, .heads = 32}})
            .find(scratch) != std::string::npos);
  // A place of one sequence takes a whole vector.
  CHECK(error({.text = {.length = 1}, .model = {.width = 16, .layers = 1000, .heads = 16}})
            .find(scratch) != std::string::npos);
  CHECK(ErrorOf([&] { ByteLstm({.width = 150, .layers = 1000}, text); }).find(scratch) !=
        std::string::npos);
  RawImages large{.count = 10, .height = 64, .width = 64, .channels = 1};
  large.pixels.resize(40960);
  large.labels = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1};
  SplitOneSet(large.count, large.splits);
  CHECK(ErrorOf([&] {
          ImageTransformer({.images = {.image_size = 0}, .patch = 1},
                           std::make_shared<ImageData>(large, 0));
        }) ==
        "ImageTransformer: patch 1 cuts images of 64 x 64 into 4096 patches, wanted at most "
        "1024");
  CHECK(
      ErrorOf([] { Vit(3); }) ==
      "ImageTransformer: patch must divide the images' height and width, got patch 3 and images of "
      "4 x 6");
}

}  // namespace
}  // namespace lopt

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/base/options.h"
#include "lopt/base/safetensors.h"
#include "lopt/tasks/image/image_conv.h"
#include "lopt/tasks/image/image_conv_kernel.h"
#include "lopt/tasks/registry.h"
#include "tests/farthest.h"
#include "tests/golden_dir.h"
#include "tests/image_rows.h"
#include "tests/mnist_dir.h"
#include "tests/reference/image_conv_reference.h"

namespace lopt {
namespace {

struct Net {
  int64_t height, width, channels;
  std::vector<int64_t> filters, strides, kernel;
  Pool pool = Pool::kNone;
  ConvHead head = ConvHead::kMean;
};

ConvShape ShapeOf(const Net& net) {
  ConvShape shape{.head = net.head, .classes = 7};
  int64_t height = net.height, width = net.width, channels = net.channels;
  for (size_t l = 0; l < net.filters.size(); ++l) {
    shape.layers.push_back({.rows = {height, net.kernel[0], net.strides[l]},
                            .columns = {width, net.kernel[1], net.strides[l]},
                            .channels = channels,
                            .filters = net.filters[l],
                            .pool = net.pool});
    height = shape.layers.back().pooled_height();
    width = shape.layers.back().pooled_width();
    channels = net.filters[l];
  }
  return shape;
}

struct ConvProblem {
  ConvShape shape;
  Activation activation;
  std::vector<float> params;
  ImageRows rows;

  ConvEvaluation Evaluation(std::span<float> gradient) const {
    return {
        .activation = activation, .params = params, .batch = rows.batch(), .gradient = gradient};
  }
};

ConvProblem MakeConvProblem(const Net& net, Activation activation, int64_t examples) {
  const ConvShape shape = ShapeOf(net);
  const int64_t features = net.height * net.width * net.channels;
  const Key key = FoldIn(KeyFromSeed(static_cast<uint64_t>(features)), examples);
  std::vector<float> images(examples * features);
  Uniform(FoldIn(key, 0), images);
  std::vector<int32_t> labels(examples);
  Randint(FoldIn(key, 1), 0, 7, labels);
  std::vector<float> params;
  const auto add = [&](int64_t n, int64_t fan_in) {
    std::vector<float> more(n);
    Normal(FoldIn(key, 2 + params.size()), more);
    for (float& x : more) x /= std::sqrt(static_cast<float>(fan_in));
    params.insert(params.end(), more.begin(), more.end());
  };
  for (const ConvLayer& layer : shape.layers) {
    add(layer.weights(), layer.window());
    add(layer.filters, 4);
  }
  add(shape.features() * 7, shape.features());
  add(7, 1);
  return {shape, activation, params,
          ImageRows(features, images, std::vector<uint8_t>(labels.begin(), labels.end()))};
}

void CheckAgainstReference(const ConvProblem& problem) {
  std::vector<float> wanted(problem.params.size());
  Workspace scratch;
  const ClassifierResult reference =
      ConvLossReference(problem.shape, problem.Evaluation(wanted), scratch);
  float scale = 0;
  for (const float g : wanted) scale = std::max(scale, std::abs(g));
  const std::vector<std::string> isas = SupportedIsas();
  for (const std::string& isa : isas) {
    CAPTURE(isa);
    PinIsa(isa);
    std::vector<float> gradient(problem.params.size(), NAN);
    const ClassifierResult got = ConvLoss(problem.shape, problem.Evaluation(gradient), scratch);
    CHECK(std::abs(got.loss - reference.loss) < 2e-6f * (1 + reference.loss));
    CHECK(got.correct == reference.correct);
    CHECK(Farthest(gradient, wanted) <= 2e-6f * scale);
    const ClassifierResult without = ConvLoss(problem.shape, problem.Evaluation({}), scratch);
    CHECK(without.loss == got.loss);
    CHECK(without.correct == got.correct);
  }
  PinIsa(isas.front());
}

TEST_CASE("The zeros of SAME padding are those of its definition, one more behind than before") {
  struct Case {
    int64_t size, kernel, stride, outputs, low, high;
  };
  for (const Case& c : std::vector<Case>{{8, 3, 2, 4, 0, 1},
                                         {8, 3, 1, 8, 1, 1},
                                         {7, 3, 2, 4, 1, 1},
                                         {28, 5, 1, 28, 2, 2},
                                         {28, 5, 2, 14, 1, 2},
                                         {9, 3, 3, 3, 0, 0},
                                         {10, 3, 3, 4, 1, 1},
                                         {5, 4, 1, 5, 1, 2},
                                         {6, 1, 2, 3, 0, 0},
                                         {2, 7, 1, 2, 3, 3},
                                         {1, 3, 2, 1, 1, 1}}) {
    const SameWindow window{c.size, c.kernel, c.stride};
    CAPTURE(c.size);
    CAPTURE(c.kernel);
    CAPTURE(c.stride);
    CHECK(window.outputs() == c.outputs);
    CHECK(window.low() == c.low);
    CHECK(window.padded() - c.size - window.low() == c.high);
  }
}

TEST_CASE("The kernel agrees with the plain loops for images, kernels and strides of any size") {
  for (const Net& net : std::vector<Net>{{8, 8, 3, {16, 32}, {2, 1}, {3, 3}},
                                         {16, 16, 3, {32, 64, 64}, {2, 1, 1}, {3, 3}},
                                         {7, 5, 1, {5}, {1}, {3, 3}},
                                         {7, 5, 2, {3, 33, 17}, {1, 2, 1}, {3, 2}},
                                         {9, 10, 3, {6, 7}, {3, 3}, {3, 3}},
                                         {6, 6, 1, {4, 8}, {1, 3}, {2, 2}},
                                         {3, 2, 2, {5, 6}, {1, 1}, {7, 5}},
                                         {40, 1, 1, {9, 20}, {2, 2}, {5, 1}},
                                         {5, 5, 1, {3, 70}, {2, 2}, {1, 1}}}) {
    for (const ConvHead head : {ConvHead::kMean, ConvHead::kFlatten}) {
      for (const int64_t examples : {1, 19}) {
        Net with = net;
        with.head = head;
        CAPTURE(net.height);
        CAPTURE(net.width);
        CAPTURE(examples);
        CAPTURE(static_cast<int>(head));
        CheckAgainstReference(MakeConvProblem(with, Activation::kRelu, examples));
      }
    }
  }
}

TEST_CASE("The kernel agrees with the plain loops for every pooling and activation") {
  for (const Named<Pool>& pool : kPools) {
    for (const Named<Activation>& activation : kActivations) {
      CAPTURE(pool.name);
      CAPTURE(activation.name);
      const Net even{8, 8, 1, {6, 18}, {1, 1}, {3, 3}, pool.value, ConvHead::kFlatten};
      CheckAgainstReference(MakeConvProblem(even, activation.value, 9));
      const Net odd{9, 7, 2, {17, 5}, {1, 1}, {3, 3}, pool.value, ConvHead::kMean};
      CheckAgainstReference(MakeConvProblem(odd, activation.value, 5));
      const Net line{11, 1, 1, {4, 5}, {1, 1}, {5, 1}, pool.value, ConvHead::kMean};
      CheckAgainstReference(MakeConvProblem(line, activation.value, 5));
    }
  }
}

TEST_CASE("A batch that takes several passes gives the mean over all of it") {
  const Net small{4, 4, 1, {3}, {1}, {3, 3}};
  for (const int64_t examples : {256, 300, 513}) {
    CheckAgainstReference(MakeConvProblem(small, Activation::kRelu, examples));
  }
  const Net large{28, 28, 1, {16, 32}, {1, 1}, {5, 5}, Pool::kMax, ConvHead::kFlatten};
  CheckAgainstReference(MakeConvProblem(large, Activation::kRelu, 21));
}

std::shared_ptr<const ImageData> Drawn(int64_t size, int64_t channels) {
  return GetImages({.image_size = size, .channels = channels}, TaskResources(""));
}

TEST_CASE("The field's networks have its numbers of weights, named as haiku names them") {
  const ImageConv small({.images = {.channels = 3}}, Drawn(8, 3));
  CHECK(small.params_layout().size() == 5418);
  const auto& entries = small.params_layout().entries();
  REQUIRE(entries.size() == 6);
  CHECK(entries[0].name == "conv2_d/w");
  CHECK(entries[0].shape == Shape{3, 3, 3, 16});
  CHECK(entries[1].name == "conv2_d/b");
  CHECK(entries[2].name == "conv2_d_1/w");
  CHECK(entries[2].shape == Shape{3, 3, 16, 32});
  CHECK(entries[4].name == "linear/w");
  CHECK(entries[4].shape == Shape{32, 10});
  const ImageConv large({.images = {.image_size = 16, .channels = 3}, .channels = {32, 64, 64}},
                        Drawn(16, 3));
  CHECK(large.params_layout().size() == 56970);
  CHECK(*large.NormalizerMaximum() == doctest::Approx(1.5 * std::log(10.0)));
  CHECK(ImageConv({.images = {.image_size = 28},
                   .channels = {16, 32},
                   .strides = {1},
                   .kernel = {5, 5},
                   .pool = Pool::kMax,
                   .head = ConvHead::kFlatten},
                  Drawn(28, 0))
            .params_layout()
            .size() == 28938);
}

TEST_CASE("Gradients agree with finite differences") {
  for (const Pool pool : {Pool::kNone, Pool::kAverage, Pool::kMax}) {
    const Net net{5, 4, 2, {3, 4}, {2, 1}, {3, 3}, pool, ConvHead::kFlatten};
    const ConvProblem problem = MakeConvProblem(net, Activation::kTanh, 6);
    std::vector<float> gradient(problem.params.size());
    Workspace scratch;
    ConvLoss(problem.shape, problem.Evaluation(gradient), scratch);
    ConvProblem moved = problem;
    for (size_t i = 0; i < gradient.size(); ++i) {
      const auto loss = [&](float change) {
        moved.params[i] = problem.params[i] + change;
        return double{ConvLoss(moved.shape, moved.Evaluation({}), scratch).loss};
      };
      const double difference = (loss(2e-3f) - loss(-2e-3f)) / 4e-3;
      moved.params[i] = problem.params[i];
      CHECK(gradient[i] == doctest::Approx(difference).epsilon(1e-3).scale(0.5));
    }
  }
}

// The names of torch's cnn trace, weights [out, in, height, width] and [out, in] with in =
// (channel, height, width), in the order of the params.
std::vector<float> CnnRow(const NamedArrays& golden, const std::string& prefix) {
  std::vector<float> row;
  const auto bias = [&](const std::string& name) {
    const auto b = golden.At(prefix + name + ".bias").As<float>();
    row.insert(row.end(), b.begin(), b.end());
  };
  for (const std::string name : {"conv1.0", "conv2.0"}) {
    const Array& weight = golden.At(prefix + name + ".weight");
    const int64_t out = weight.shape()[0], in = weight.shape()[1];
    for (int64_t tap = 0; tap < 25; ++tap) {
      for (int64_t i = 0; i < in; ++i) {
        for (int64_t o = 0; o < out; ++o)
          row.push_back(weight.As<float>()[(o * in + i) * 25 + tap]);
      }
    }
    bias(name);
  }
  const auto w = golden.At(prefix + "out.weight").As<float>();
  for (int64_t position = 0; position < 49; ++position) {
    for (int64_t c = 0; c < 32; ++c) {
      for (int64_t o = 0; o < 10; ++o) row.push_back(w[o * 1568 + c * 49 + position]);
    }
  }
  bias("out");
  return row;
}

TEST_CASE("Twelve steps of SGD on the 5 x 5 digit network are those of the golden trace") {
  if (SkipsWithoutMnist()) return;
  const NamedArrays golden = ReadArrayFile(GoldenPath("torch_tasks.safetensors")).arrays;
  const ImageConvOptions options{.images = {.image_size = 28, .data = ImageSource::kIdx},
                                 .channels = {16, 32},
                                 .strides = {1},
                                 .kernel = {5, 5},
                                 .pool = Pool::kMax,
                                 .head = ConvHead::kFlatten};
  const ImageConv task(options, GetImages(options.images, TaskResources(MnistDir())));
  std::vector<float> params = CnnRow(golden, "cnn/param0/");
  const std::vector<float> wanted = CnnRow(golden, "cnn/gradient0/");
  const auto index = golden.At("cnn/index").As<int32_t>();
  const auto losses = golden.At("cnn/loss").As<float>();
  std::vector<float> gradient(params.size());
  Workspace scratch;
  for (int64_t step = 0; step < 12; ++step) {
    float loss = 0;
    task.Evaluate({.params = params,
                   .examples = index.subspan(step * 16, 16),
                   .losses = {&loss, 1},
                   .gradients = gradient},
                  scratch);
    CHECK(loss == doctest::Approx(losses[step]).epsilon(1e-5));
    float worst = 0;
    for (size_t i = 0; i < params.size(); ++i) {
      if (step == 0) worst = Farther(worst, std::abs(gradient[i] - wanted[i]));
      params[i] -= 0.05f * gradient[i];
    }
    CHECK(worst < 1e-6);
  }
  for (const LayoutEntry& entry : task.params_layout().entries()) {
    double square = 0;
    for (int64_t i = 0; i < entry.size; ++i) {
      square += double{params[entry.offset + i]} * params[entry.offset + i];
    }
    const std::string name = entry.name.starts_with("linear")      ? "out"
                             : entry.name.starts_with("conv2_d_1") ? "conv2.0"
                                                                   : "conv1.0";
    const std::string tensor = entry.name.ends_with("w") ? ".weight" : ".bias";
    CHECK(
        std::sqrt(square) ==
        doctest::Approx(golden.At("cnn/norm_end/" + name + tensor).As<double>()[0]).epsilon(1e-5));
  }
}

TEST_CASE("Wrong options are errors") {
  const auto data = Drawn(8, 0);
  CHECK_THROWS_WITH_AS(ImageConv({.channels = {}}, data),
                       "ImageConv: channels is empty, wanted at least one layer", Error);
  CHECK_THROWS_WITH_AS(ImageConv({.strides = {}}, data),
                       "ImageConv: 0 strides for 2 layers, wanted one for each or fewer, of which "
                       "the last holds for the rest",
                       Error);
  CHECK_THROWS_WITH_AS(ImageConv({.channels = {4}, .strides = {2, 1}}, data),
                       "ImageConv: 2 strides for 1 layers, wanted one for each or fewer, of which "
                       "the last holds for the rest",
                       Error);
  CHECK_THROWS_WITH_AS(ImageConv({.kernel = {3}}, data),
                       "ImageConv: 1 sizes of the kernel, wanted [height, width]", Error);
  CHECK_THROWS_WITH_AS(ImageConv({.pool = static_cast<Pool>(3)}, data),
                       "ImageConv: pool must be one of none, max, average, got number 3", Error);
  CHECK_THROWS_WITH_AS(ImageConv({.images = {.channels = 3}}, data),
                       "image task: images of 1 channels, wanted 3", Error);
}

}  // namespace
}  // namespace lopt

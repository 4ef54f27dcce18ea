#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "lopt/base/device.h"
#include "lopt/base/permutation.h"
#include "lopt/tasks/device_tasks.h"
#include "lopt/tasks/image/image_mlp.h"
#include "tests/error_of.h"
#include "tests/farthest.h"
#include "tests/host_replica.h"
#include "tests/reference/image_mlp_reference.h"

namespace lopt {
namespace {

constexpr Key kKey = {1, 2};
constexpr Key kOrder = {3, 4};

// Rows of noise, a tenth of them for each split but train's.
std::shared_ptr<const ImageData> Noise(int64_t size, int64_t classes, int64_t count = 400) {
  RawImages raw{.count = count,
                .height = size,
                .width = size,
                .pixels = {},
                .labels = {},
                .splits = {{0, count * 7 / 10},
                           {count * 7 / 10, count * 8 / 10},
                           {count * 8 / 10, count * 9 / 10},
                           {count * 9 / 10, count}}};
  std::vector<int32_t> words(static_cast<size_t>(count * size * size));
  Randint(KeyFromSeed(7), 0, 256, words);
  raw.pixels.assign(words.begin(), words.end());
  for (int64_t i = 0; i < count; ++i) raw.labels.push_back(static_cast<uint8_t>(i * 13 % classes));
  return std::make_shared<ImageData>(raw, size);
}

struct Problem {
  int64_t size = 8;
  int64_t classes = 10;
  std::vector<int64_t> hidden = {32};
  int64_t batch = 128;
  Activation activation = Activation::kTanh;
  Sampling sampling = Sampling::kReplacement;
};

ReferenceImageMlp MakeTask(const Problem& of) {
  return ReferenceImageMlp(
      {.images = {.image_size = of.size, .batch_size = of.batch, .sampling = of.sampling},
       .hidden = of.hidden,
       .activation = of.activation},
      Noise(of.size, of.classes));
}

// Weights as they start, and biases that are not zero.
std::vector<float> Params(const ImageMlp& task) {
  std::vector<float> params(static_cast<size_t>(task.params_layout().size()));
  std::vector<float> noise(params.size());
  task.Init({}, KeyFromSeed(1), params, {});
  Normal(KeyFromSeed(2), noise);
  for (size_t i = 0; i < params.size(); ++i) params[i] += 0.1f * noise[i];
  return params;
}

struct Outputs {
  float loss = 0;
  float accuracy = 0;
  std::vector<float> gradient;
  bool operator==(const Outputs&) const = default;
};

struct At {
  Split split = Split::kTrain;
  int64_t step = 0;
};

Outputs OnHost(const ImageMlp& task, std::span<const float> params, const At& at = {}) {
  Outputs out;
  out.gradient.resize(params.size());
  const EpisodeStep step{.order = kOrder, .step = at.step};
  Workspace scratch;
  task.Evaluate({.params = params,
                 .split = at.split,
                 .keys = {&kKey, 1},
                 .steps = {&step, 1},
                 .losses = {&out.loss, 1},
                 .gradients = out.gradient,
                 .aux = {&out.accuracy, 1}},
                scratch);
  return out;
}

struct Run {
  int threads = 256;
  bool resident = true;
  ThreadOrder order = ThreadOrder::kForward;
};

DeviceEvaluation EvaluationAt(const At& at) {
  return {.config = nullptr,
          .split = static_cast<int>(at.split),
          .key = kKey,
          .order = kOrder,
          .step = at.step,
          .gradient = true};
}

constexpr int64_t kRoom = 26 * 1024;

Outputs OnBlock(const ImageMlp& task, std::span<const float> params, const Run& run = {},
                const At& at = {}) {
  DeviceConstants constants(FindDevice("emulated")->memory());
  const ImageMlpDevice::Args args = *ImageMlpArgs(task, kRoom, &constants);
  HostReplica host(params, {.scratch = ImageMlpDevice::ScratchFloats(args, run.threads)},
                   run.resident);
  const Block block(run.threads, nullptr, run.order);
  ImageMlpDevice::Evaluate(block, args, EvaluationAt(at), host.replica());
  return {*host.replica().loss, *host.replica().aux, host.gradient()};
}

// NaN is as near to NaN as can be, and to nothing else.
void CheckNear(const Outputs& wanted, const Outputs& got) {
  CHECK(std::isnan(got.loss) == std::isnan(wanted.loss));
  if (!std::isnan(wanted.loss)) CHECK(got.loss == doctest::Approx(wanted.loss).epsilon(1e-5));
  CHECK(got.accuracy == wanted.accuracy);
  float largest = 0;
  float apart = 0;
  for (size_t i = 0; i < wanted.gradient.size(); ++i) {
    if (std::isnan(wanted.gradient[i]) && std::isnan(got.gradient[i])) continue;
    largest = std::max(largest, std::abs(wanted.gradient[i]));
    apart = Farther(apart, std::abs(got.gradient[i] - wanted.gradient[i]));
  }
  CHECK(apart <= 1e-5f * largest);
}

std::string Name(const std::vector<int64_t>& sizes) {
  std::string name;
  for (const int64_t size : sizes) name += std::to_string(size) + " ";
  return name;
}

TEST_CASE("Loss, accuracy and gradient of an image MLP on a device are those of the oracle") {
  const Problem shapes[] = {{},
                            {.batch = 1},
                            {.batch = 127},
                            {.batch = 129},
                            {.size = 1, .classes = 2, .hidden = {1}, .batch = 1},
                            {.size = 1, .classes = 1, .hidden = {}, .batch = 3},
                            {.size = 3, .classes = 7, .hidden = {}, .batch = 21},
                            {.size = 5, .classes = 3, .hidden = {3}, .batch = 130},
                            {.size = 8, .classes = 10, .hidden = {33, 3}},
                            {.size = 4, .classes = 33, .hidden = {100, 1, 32}, .batch = 64},
                            {.size = 2, .classes = 4, .hidden = {3, 32, 5, 7}, .batch = 10},
                            // In chunks.
                            {.batch = 350},
                            {.size = 9, .classes = 10, .hidden = {100}, .batch = 333},
                            // Weights in panels.
                            {.size = 17, .classes = 10, .hidden = {203}, .batch = 129},
                            {.size = 12, .classes = 201, .hidden = {300, 180}, .batch = 30}};
  for (const Problem& shape : shapes) {
    CAPTURE(shape.size);
    CAPTURE(Name(shape.hidden));
    CAPTURE(shape.batch);
    const ReferenceImageMlp task = MakeTask(shape);
    const std::vector<float> params = Params(task);
    const Outputs wanted = OnHost(task, params);
    for (const int threads : {32, 96, 256}) {
      CAPTURE(threads);
      const bool resident = threads != 96;
      const Outputs got = OnBlock(task, params, {.threads = threads, .resident = resident});
      CheckNear(wanted, got);
      for (const ThreadOrder order : {ThreadOrder::kBackward, ThreadOrder::kMixed}) {
        const bool same =
            got ==
            OnBlock(task, params, {.threads = threads, .resident = resident, .order = order});
        CHECK(same);
      }
    }
  }
}

TEST_CASE("Every activation on a device is that of the oracle") {
  for (const auto& [activation, name] : kActivations) {
    CAPTURE(name);
    const ReferenceImageMlp task =
        MakeTask({.hidden = {17, 6}, .batch = 40, .activation = activation});
    const std::vector<float> params = Params(task);
    CheckNear(OnHost(task, params), OnBlock(task, params));
  }
}

TEST_CASE("Activations in single precision are those in double precision, at any number") {
  for (const auto& [activation, name] : kActivations) {
    CAPTURE(name);
    const bool turns = activation == Activation::kCos || activation == Activation::kSin;
    for (const float size : {1e-20f, 1e-3f, 0.3f, 1.0f, 3.0f, 6.0f, 11.0f, 80.0f, 1e4f, 1e30f}) {
      for (const float x : {size, -size}) {
        CAPTURE(x);
        if (turns && size > 1e4f) continue;
        const auto wanted = ActivatedAt<double>(activation, x);
        const ActivatedReal<float> got = ActivatedAt(activation, x);
        CHECK(got.value == doctest::Approx(wanted.value).epsilon(1e-6).scale(1));
        CHECK(got.slope == doctest::Approx(wanted.slope).epsilon(1e-6).scale(1));
      }
    }
    CHECK(std::isnan(ActivatedAt(activation, std::numeric_limits<float>::quiet_NaN()).value));
  }
}

TEST_CASE("A device draws the rows of a batch that the host draws") {
  for (const Sampling sampling : {Sampling::kReplacement, Sampling::kEpoch}) {
    for (const int64_t batch : {1, 7, 128, 900}) {
      const ReferenceImageMlp task = MakeTask({.hidden = {}, .batch = batch, .sampling = sampling});
      const DeviceRows rows = DeviceRowsOf(task.parts().data);
      for (const Split split : kSplits) {
        const auto [first, last] = task.ExampleRange(split);
        for (const int64_t step : {0, 1, 2, 39, 40, 1000003}) {
          std::vector<int32_t> wanted(static_cast<size_t>(batch));
          if (sampling == Sampling::kReplacement) {
            Randint(FoldIn(kKey, 0), static_cast<int32_t>(first), static_cast<int32_t>(last),
                    wanted);
          } else {
            const int64_t count = last - first;
            const int64_t batches = (count + batch - 1) / batch;
            Workspace scratch;
            const Permutation order(FoldIn(kOrder, static_cast<uint64_t>(step / batches)), count,
                                    scratch);
            for (int64_t i = 0; i < batch; ++i) {
              wanted[static_cast<size_t>(i)] =
                  static_cast<int32_t>(first) + order((step % batches * batch + i) % count);
            }
          }
          const DeviceEvaluation evaluation = EvaluationAt({.split = split, .step = step});
          const DeviceBatch drawn(rows, evaluation);
          std::vector<int32_t> got;
          for (int i = 0; i < batch; ++i) got.push_back(drawn(i));
          CHECK(got == wanted);
        }
      }
    }
  }
}

TEST_CASE("Batches of every split and by epochs have the oracle's losses on a device") {
  for (const Sampling sampling : {Sampling::kReplacement, Sampling::kEpoch}) {
    const ReferenceImageMlp task =
        MakeTask({.size = 3, .hidden = {5}, .batch = 33, .sampling = sampling});
    const std::vector<float> params = Params(task);
    for (const Split split : kSplits) {
      for (const int64_t step : {0, 5, 123}) {
        const At at = {.split = split, .step = step};
        CheckNear(OnHost(task, params, at), OnBlock(task, params, {.threads = 64}, at));
      }
    }
  }
}

TEST_CASE("Params of NaN have a loss that is not finite on a device, and no example is right") {
  for (const auto& [activation, name] : kActivations) {
    CAPTURE(name);
    const ReferenceImageMlp task =
        MakeTask({.hidden = {5, 6}, .batch = 20, .activation = activation});
    std::vector<float> params = Params(task);
    for (const size_t i : {size_t{3}, params.size() / 2, params.size() - 1}) {
      std::vector<float> broken = params;
      broken[i] = std::numeric_limits<float>::quiet_NaN();
      const Outputs out = OnBlock(task, broken);
      CHECK(std::isnan(out.loss));
      CHECK(out.accuracy == 0);
      CHECK(std::isnan(out.gradient.back()));
    }
  }
}

TEST_CASE("Units that are infinite leave alone what does not depend on them") {
  const ReferenceImageMlp task =
      MakeTask({.hidden = {3, 5}, .batch = 9, .activation = Activation::kTanh});
  std::vector<float> params = Params(task);
  // The first layer's bias is beyond what float32 holds after one addition.
  const LayoutEntry& bias = task.params_layout().Find("mlp/linear_0/b");
  params[static_cast<size_t>(bias.offset)] = std::numeric_limits<float>::infinity();
  CheckNear(OnHost(task, params), OnBlock(task, params));
}

TEST_CASE("Logits that are equal, infinite or NaN have the oracle's outputs") {
  const ReferenceImageMlp task =
      MakeTask({.hidden = {5, 6}, .batch = 2, .activation = Activation::kRelu});
  const std::vector<float> start = Params(task);
  const auto bias = static_cast<size_t>(task.params_layout().Find("mlp/linear_2/b").offset);
  const ReferenceImageMlp many = MakeTask({.hidden = {5}, .batch = 100});
  const std::vector<float> zeros(static_cast<size_t>(many.params_layout().size()));
  CheckNear(OnHost(many, zeros), OnBlock(many, zeros));
  CHECK(OnBlock(many, zeros).accuracy > 0);
  for (const float value :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (size_t logit = 0; logit < 10; ++logit) {
      std::vector<float> params = start;
      params[bias + logit] = value;
      CheckNear(OnHost(task, params), OnBlock(task, params));
      // Units whose slope is 0 let nothing through.
      CHECK(std::ranges::any_of(OnBlock(task, params).gradient, [](float g) { return g == 0; }));
    }
  }
}

TEST_CASE("An image MLP with an option that no device has is an error that names it") {
  DeviceConstants constants(FindDevice("emulated")->memory());
  for (const Norm norm : {Norm::kLayer, Norm::kBatch}) {
    const ImageMlp task({.norm = norm}, Noise(8, 10));
    CHECK(ErrorOf([&] { ImageMlpArgs(task, kRoom, &constants); }) ==
          std::string("device: ImageMLP with norm '") + NameOf("norm", norm, kNorms) +
              "' has no functions for a device; choose cpu (device, --device)");
  }
  const ImageMlp augmented({.augment = Config::Parse(R"({"type": "Drawn"})", "test")},
                           Noise(8, 10));
  CHECK(ErrorOf([&] { ImageMlpArgs(augmented, kRoom, &constants); }) ==
        "device: ImageMLP with an augmentation (augment) has no functions for a device; choose "
        "cpu (device, --device)");
}

}  // namespace
}  // namespace lopt

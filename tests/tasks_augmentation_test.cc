#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "lopt/tasks/augment/augmentation.h"
#include "lopt/tasks/augment/ctaugment/rates.h"
#include "lopt/tasks/data/image_data.h"
#include "lopt/tasks/image/image_batches.h"
#include "lopt/tasks/image/torch_model.h"
#include "lopt/tasks/registry.h"
#include "tests/error_of.h"

namespace lopt {
namespace {

// 40 images, 10 a split, with labels 0, 1, 2.
std::shared_ptr<const ImageData> RandomImages(int64_t height, int64_t width, int64_t channels) {
  RawImages raw{.count = 40,
                .height = height,
                .width = width,
                .channels = channels,
                .pixels = {},
                .labels = {},
                .splits = {{0, 10}, {10, 20}, {20, 30}, {30, 40}}};
  std::vector<int32_t> pixels(static_cast<size_t>(40 * height * width * channels));
  Randint(KeyFromSeed(1), 0, 256, pixels);
  raw.pixels.assign(pixels.begin(), pixels.end());
  for (uint8_t i = 0; i < 40; ++i) raw.labels.push_back(i % 3);
  return std::make_shared<ImageData>(raw, 0);
}

// One row of an evaluation and what it sees.
struct Row {
  explicit Row(const std::string& augment, std::shared_ptr<const ImageData> data)
      : images(Config::Parse(augment, "test"), std::move(data)),
        config(static_cast<size_t>(images.config_layout().size())),
        model_state(static_cast<size_t>(images.model_state_layout().size())) {
    images.Sample(KeyFromSeed(2), config);
    images.Init(model_state);
  }

  TaskEvaluation Evaluation() {
    TaskEvaluation e;
    e.config = config;
    e.model_state = model_state;
    e.split = split;
    if (with_key) e.keys = {&key, 1};
    e.examples = examples;
    return e;
  }
  ImageBatch Batch() { return images.Batch(Evaluation(), 0, scratch); }
  // Images of the batch, one after the other, without padding.
  std::vector<float> Pixels() {
    const ImageBatch batch = Batch();
    std::vector<float> pixels;
    for (const int32_t row : batch.examples) {
      const float* image = batch.images + row * batch.stride;
      pixels.insert(pixels.end(), image, image + images.data().features());
    }
    return pixels;
  }
  // Sets the numbers of a tensor of the config.
  void Set(const std::string& name, const std::vector<float>& values) {
    const LayoutEntry& entry = images.config_layout().Find(name);
    REQUIRE(entry.size == std::ssize(values));
    std::ranges::copy(values, config.begin() + entry.offset);
  }
  std::vector<float> Get(const std::string& name) const {
    const LayoutEntry& entry = images.config_layout().Find(name);
    return {config.begin() + entry.offset, config.begin() + entry.offset + entry.size};
  }

  ImageBatches images;
  std::vector<float> config;
  std::vector<float> model_state;
  Key key = KeyFromSeed(3);
  bool with_key = true;
  Split split = Split::kTrain;
  std::vector<int32_t> examples = {3, 0, 7};
  Workspace scratch;
};

constexpr char kStill[] = R"({"type": "Drawn", "rotation": 0, "scale": 1, "shear": 0,
    "translation": 0, "stroke": 0, "contrast": 1, "brightness": 0, "permute": 1})";

// Drawn, with all numbers those of images that stay as they are.
Row StillRow(std::shared_ptr<const ImageData> data) {
  Row row(kStill, std::move(data));
  std::vector<float> order(row.Get("augment/permutation").size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<float>(i);
  row.Set("augment/permutation", order);
  return row;
}

TEST_CASE("Without an augmentation a batch is the rows of the data set themselves") {
  const auto data = RandomImages(3, 5, 1);
  Row row(R"({"type": "None"})", data);
  CHECK(row.config.empty());
  CHECK(row.model_state.empty());
  const ImageBatch batch = row.Batch();
  CHECK(batch.images == data->images());
  CHECK(batch.labels == data->labels());
  CHECK(batch.examples.data() == row.examples.data());
}

TEST_CASE("Augmented batches have the examples' labels, and rows that are aligned and padded") {
  const auto data = RandomImages(3, 5, 3);
  for (const char* type : {"Drawn", "CTAugment"}) {
    INFO(type);
    Row row(R"({"type": ")" + std::string(type) + R"("})", data);
    const ImageBatch batch = row.Batch();
    REQUIRE(batch.examples.size() == 3);
    CHECK(batch.stride == data->stride());
    CHECK(reinterpret_cast<uintptr_t>(batch.images) % 64 == 0);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(batch.labels[batch.examples[i]] == data->labels()[row.examples[i]]);
      const float* image = batch.images + batch.examples[i] * batch.stride;
      const auto in_range = [](float v) { return v >= 0 && v <= 1; };
      CHECK(std::all_of(image, image + 45, in_range));
      CHECK(std::all_of(image + 45, image + batch.stride, [](float v) { return v == 0; }));
    }
    CHECK(row.Pixels() != Row(R"({"type": "None"})", data).Pixels());
  }
}

TEST_CASE("A drawn augmentation whose numbers say so leaves every bit as it is") {
  for (const int64_t channels : {1, 3}) {
    const auto data = RandomImages(4, 7, channels);
    CHECK(StillRow(data).Pixels() == Row(R"({"type": "None"})", data).Pixels());
  }
}

TEST_CASE("A quarter turn, a mirror image and a move by half a pixel are the exact ones") {
  const auto data = RandomImages(5, 5, 3);
  const std::vector<float> plain = Row(R"({"type": "None"})", data).Pixels();
  const auto at = [&](int64_t image, int64_t y, int64_t x, int64_t c) {
    const bool inside = x >= 0 && x < 5 && y >= 0 && y < 5;
    return inside ? plain[static_cast<size_t>(75 * image + 15 * y + 3 * x + c)] : 0.0F;
  };
  const auto check = [&](const std::vector<float>& affine, const auto& wanted) {
    Row row = StillRow(data);
    row.Set("augment/affine", affine);
    const std::vector<float> pixels = row.Pixels();
    for (int64_t i = 0; i < std::ssize(pixels); ++i) {
      CHECK(pixels[static_cast<size_t>(i)] ==
            doctest::Approx(wanted(i / 75, i / 15 % 5, i / 3 % 5, i % 3)).epsilon(1e-6));
    }
  };
  check({0, -1, 0, 1, 0, 0},
        [&](int64_t i, int64_t y, int64_t x, int64_t c) { return at(i, x, 4 - y, c); });
  check({-1, 0, 0, 0, 1, 0},
        [&](int64_t i, int64_t y, int64_t x, int64_t c) { return at(i, y, 4 - x, c); });
  check({1, 0, 0.5F, 0, 1, 0}, [&](int64_t i, int64_t y, int64_t x, int64_t c) {
    return (at(i, y, x, c) + at(i, y, x + 1, c)) / 2;
  });
  check({1, 0, 0, 0, 1, -1.25F}, [&](int64_t i, int64_t y, int64_t x, int64_t c) {
    return 0.75F * at(i, y - 1, x, c) + 0.25F * at(i, y - 2, x, c);
  });
  check({1, 0, 1e30F, 0, 1, 0}, [](int64_t, int64_t, int64_t, int64_t) { return 0; });
}

TEST_CASE("Strokes grow and shrink by a part of the 3 x 3 neighbourhood") {
  // A bright pixel in the middle of a dark image, and the reverse.
  RawImages raw{.count = 10,
                .height = 5,
                .width = 5,
                .pixels = std::vector<uint8_t>(250),
                .labels = std::vector<uint8_t>(10),
                .splits = {{0, 10}}};
  raw.pixels[12] = 255;
  std::fill_n(raw.pixels.begin() + 25, 25, uint8_t{255});
  raw.pixels[25 + 12] = 0;
  Row row = StillRow(std::make_shared<ImageData>(raw, 0));
  row.examples = {0, 1};
  const auto check = [&](float stroke, float around, float middle, float dark_around,
                         float dark_middle) {
    row.Set("augment/stroke", {stroke});
    const std::vector<float> pixels = row.Pixels();
    for (int y = 0; y < 5; ++y) {
      for (int x = 0; x < 5; ++x) {
        const bool in_middle = x == 2 && y == 2;
        const bool near = std::abs(x - 2) <= 1 && std::abs(y - 2) <= 1;
        const float bright_one = in_middle ? middle : near ? around : 0;
        const float dark_one = in_middle ? dark_middle : near ? dark_around : 1;
        CHECK(pixels[static_cast<size_t>(5 * y + x)] == bright_one);
        CHECK(pixels[static_cast<size_t>(25 + 5 * y + x)] == dark_one);
      }
    }
  };
  check(0.25F, 0.25F, 1, 1, 0.25F);
  check(-0.25F, 0, 0.75F, 0.75F, 0);
  check(1, 1, 1, 1, 1);
}

TEST_CASE("Contrast turns about the middle grey, and values stay in [0, 1]") {
  const auto data = RandomImages(4, 4, 1);
  const std::vector<float> plain = Row(R"({"type": "None"})", data).Pixels();
  Row row = StillRow(data);
  row.Set("augment/contrast", {2});
  row.Set("augment/brightness", {0.25F});
  const std::vector<float> pixels = row.Pixels();
  bool clipped = false;
  for (size_t i = 0; i < plain.size(); ++i) {
    const float value = 2 * (plain[i] - 0.5F) + 0.75F;
    clipped = clipped || value < 0 || value > 1;
    CHECK(pixels[i] == doctest::Approx(std::clamp(value, 0.0F, 1.0F)).epsilon(1e-6));
  }
  CHECK(clipped);
}

TEST_CASE("Exchanged pixels go where the permutation says, with all their channels") {
  const auto data = RandomImages(4, 5, 3);
  const std::vector<float> plain = Row(R"({"type": "None"})", data).Pixels();
  Row row(kStill, data);
  const std::vector<float> order = row.Get("augment/permutation");
  std::vector<float> sorted = order;
  std::ranges::sort(sorted);
  CHECK(sorted != order);
  for (size_t p = 0; p < 20; ++p) CHECK(sorted[p] == static_cast<float>(p));
  const std::vector<float> pixels = row.Pixels();
  for (size_t i = 0; i < 3; ++i) {
    for (size_t p = 0; p < 20; ++p) {
      for (size_t c = 0; c < 3; ++c) {
        CHECK(pixels[60 * i + 3 * static_cast<size_t>(order[p]) + c] == plain[60 * i + 3 * p + c]);
      }
    }
  }
}

TEST_CASE("What a task draws is the same for all its splits, keys and batches") {
  Row row(R"({"type": "Drawn", "permute": 0.5})", RandomImages(6, 6, 1));
  const std::vector<float> pixels = row.Pixels();
  row.split = Split::kTest;
  row.key = KeyFromSeed(77);
  CHECK(row.Pixels() == pixels);
  row.with_key = false;
  CHECK(row.Pixels() == pixels);
  row.examples = {0, 7};
  CHECK(row.Pixels() == std::vector<float>(pixels.begin() + 36, pixels.end()));
}

// Tensor `name`'s number `at` in the configs of many tasks, sorted.
std::vector<float> Draws(const std::string& augment, const std::string& name, size_t at) {
  const ImageBatches images(Config::Parse(augment, "test"), RandomImages(8, 16, 1));
  const LayoutEntry& entry = images.config_layout().Find(name);
  std::vector<float> values;
  std::vector<float> config(static_cast<size_t>(images.config_layout().size()));
  for (uint64_t task = 0; task < 2000; ++task) {
    images.Sample(FoldIn(KeyFromSeed(9), task), config);
    values.push_back(config[static_cast<size_t>(entry.offset) + at]);
  }
  std::ranges::sort(values);
  return values;
}

TEST_CASE("Numbers are drawn from the whole of their ranges, and from nowhere else") {
  const auto only = [](const std::string& option) {
    Config config = Config::Parse(kStill, "test").With("permute", "0");
    const size_t colon = option.find(':');
    return config.With(option.substr(0, colon), option.substr(colon + 1)).Dump();
  };
  // Uniform on [-by, by).
  const auto check = [](const std::vector<float>& draws, double by) {
    CHECK(draws.front() >= -by * 1.000001);
    CHECK(draws.back() <= by * 1.000001);
    for (size_t part = 0; part < 10; ++part) {
      const double wanted = by * (static_cast<double>(part) / 5 - 1);
      CHECK(draws[200 * part] == doctest::Approx(wanted).epsilon(0.05 * by).scale(1));
    }
  };
  const auto logarithms = [](std::vector<float> values) {
    for (float& value : values) value = std::log(value);
    return values;
  };
  check(Draws(only("stroke:0.5"), "augment/stroke", 0), 0.5);
  check(Draws(only("brightness:0.3"), "augment/brightness", 0), 0.3);
  check(logarithms(Draws(only("contrast:2"), "augment/contrast", 0)), std::log(2));
  check(Draws(only("translation:0.25"), "augment/affine", 2), 4);
  check(Draws(only("translation:0.25"), "augment/affine", 5), 2);
  check(Draws(only("shear:0.5"), "augment/affine", 1), 0.5);
  check(logarithms(Draws(only("scale:3"), "augment/affine", 0)), std::log(3));
  check(logarithms(Draws(only("scale:3"), "augment/affine", 4)), std::log(3));
  std::vector<float> angles = Draws(only("rotation:30"), "augment/affine", 3);
  for (float& sine : angles) sine = std::asin(sine);
  check(angles, std::numbers::pi / 6);
  // Half of the tasks have a permutation.
  const auto first =
      Draws(Config::Parse(kStill, "test").With("permute", "0.5").Dump(), "augment/permutation", 0);
  CHECK(std::ranges::count(first, 0.0F) == doctest::Approx(1000).epsilon(0.1));
}

TEST_CASE("CTAugment changes what trains, and leaves other splits and keyless examples alone") {
  const auto data = RandomImages(8, 8, 1);
  const std::vector<float> plain = Row(R"({"type": "None"})", data).Pixels();
  Row row(R"({"type": "CTAugment"})", data);
  CHECK(row.model_state == std::vector<float>(303, 1.0F));
  const std::vector<float> pixels = row.Pixels();
  CHECK(pixels != plain);
  CHECK(row.Pixels() == pixels);
  for (const float value : pixels) {
    CHECK(static_cast<float>(std::lround(255 * value)) / 255.0F == value);
  }
  row.key = KeyFromSeed(4);
  CHECK(row.Pixels() != pixels);
  for (const Split split : {Split::kInnerValid, Split::kOuterValid, Split::kTest}) {
    row.split = split;
    CHECK(row.Batch().images == data->images());
  }
  row.split = Split::kTrain;
  row.with_key = false;
  CHECK(row.Batch().images == data->images());
}

TEST_CASE("Rates move towards the probability that the network gives the label") {
  const TaskResources resources("");
  const auto task = TaskRegistry().Make(
      Config::Parse(R"({"type": "ImageMLP", "image_size": 8, "batch_size": 20, "data": "glyphs",
                        "augment": {"type": "CTAugment", "depth": 2, "probes": 5}})",
                    "test"),
      resources);
  CHECK(task->config_layout().size() == 0);
  CHECK(task->model_state_layout() == RatesLayout());
  std::vector<float> params(static_cast<size_t>(task->params_layout().size()));
  std::vector<float> rates(303, 1.0F);
  std::vector<float> aux(1);
  float loss = 0;
  const Key key = KeyFromSeed(5);
  Workspace scratch;
  const auto evaluate = [&](Split split) {
    TaskEvaluation e;
    e.params = params;
    e.model_state = rates;
    e.split = split;
    e.keys = {&key, 1};
    e.losses = {&loss, 1};
    e.aux = aux;
    task->Evaluate(e, scratch);
  };
  // All params 0: the network gives each of the 10 labels .1.
  evaluate(Split::kTest);
  CHECK(rates == std::vector<float>(303, 1.0F));
  evaluate(Split::kTrain);
  const auto changed = std::ranges::count_if(rates, [](float rate) { return rate != 1; });
  CHECK(changed >= 5);
  CHECK(changed <= 5 * 2 * 2);
  for (const float rate : rates) {
    const bool expected = rate == 1 || std::abs(rate - 0.991) < 1e-6 ||
                          std::abs(rate - (0.991 * 0.99 + 0.001)) < 1e-6;
    CHECK(expected);
  }
}

TEST_CASE("A model for PyTorch is refused where the task changes the images of every split") {
  const TaskResources resources("");
  const auto error = [&](const std::string& type, const std::string& augment) {
    const auto task = TaskRegistry().Make(
        Config::Parse(R"({"type": ")" + type + R"(", "augment": {"type": ")" + augment + "\"}}",
                      "test"),
        resources);
    const std::vector<float> params(static_cast<size_t>(task->params_layout().size()));
    const std::vector<float> state(static_cast<size_t>(task->model_state_layout().size()));
    return ErrorOf([&] { MakeTorchModel(type, *task, params, state); });
  };
  for (const std::string type : {"ImageMLP", "ImageConv"}) {
    CAPTURE(type);
    CHECK(error(type, "None") == "no error");
    CHECK(error(type, "CTAugment") == "no error");
    CHECK(error(type, "Drawn") ==
          type +
              ": augment is 'Drawn', which changes the images of every split, and an exported "
              "model would see them unchanged; only models of an augment that is for training "
              "alone can be exported, such as 'None' and 'CTAugment'");
  }
}

TEST_CASE("An augmentation of a task that has no images is an error") {
  const auto error = [](const std::string& config) {
    return ErrorOf([&] { TaskRegistry().Make(Config::Parse(config, "test"), TaskResources("")); });
  };
  CHECK(error(R"({"type": "QuadraticTask", "augment": {"type": "CTAugment"}})") ==
        "config: unknown key 'augment'; valid keys: dim");
  CHECK(error(R"({"type": "ImageMLP", "augment": {"type": "CTAugmnt"}})") ==
        "config: 'augment.type' is 'CTAugmnt'; valid types of augmentation: None, Drawn, "
        "CTAugment; others come with plug-ins (--plugin FILE); did you mean 'CTAugment'?");
  CHECK(error(R"({"type": "ImageMLP", "augment": {"type": "Drawn", "scale": 0.5}})") ==
        "config: 'augment.scale' must be a number in [1, 10], got 0.5");
  CHECK(error(R"({"type": "ImageMLP", "augment": {"type": "CTAugment", "translate": "px"}})") ==
        "config: 'augment.translate' must be one of pixels, fraction, got \"px\"; did you mean "
        "'pixels'?");
}

TEST_CASE("A config that moves a pixel out of the image is an error") {
  Row row(R"({"type": "Drawn", "permute": 1})", RandomImages(4, 4, 1));
  for (const float place : {16.0F, -1.0F, 1e9F, std::nanf("")}) {
    row.config.back() = place;
    CHECK(ErrorOf([&] { row.Batch(); }).starts_with("Drawn: the config moves a pixel to place "));
  }
}

}  // namespace
}  // namespace lopt

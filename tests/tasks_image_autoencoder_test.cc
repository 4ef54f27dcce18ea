#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/tasks/image/image_autoencoder.h"
#include "lopt/tasks/image/squared_error_kernel.h"
#include "tests/image_rows.h"
#include "tests/squared_error_check.h"

namespace lopt {
namespace {

std::shared_ptr<const ImageData> Drawn(int64_t size, int64_t channels) {
  return GetImages({.image_size = size, .channels = channels}, TaskResources(""));
}

TEST_CASE("The kernel agrees with the plain loops for images and layers of any size") {
  for (const Named<Activation>& activation : kActivations) {
    for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
             {64, 32, 8, 32, 64}, {49, 33, 49}, {75, 5, 75}, {3, 3}, {1, 20, 1}}) {
      for (const int64_t examples : {1, 19, 300}) {
        const MlpShape shape{.sizes = sizes};
        std::vector<float> images(examples * sizes[0]);
        Uniform(FoldIn(KeyFromSeed(1), examples), images);
        const ImageRows rows(sizes[0], images, std::vector<uint8_t>(examples));
        std::vector<float> params(shape.params());
        Normal(KeyFromSeed(2), params);
        for (float& x : params) x *= 0.4f;
        CAPTURE(activation.name);
        CAPTURE(sizes[0]);
        CAPTURE(examples);
        // Near 1 the slope y - y^2 of a sigmoid has a digit less.
        CheckSquaredError(shape,
                          {.activation = activation.value, .params = params, .batch = rows.batch()},
                          {}, 5e-6F);
      }
    }
  }
}

TEST_CASE("The loss is the mean squared difference of image and reconstruction") {
  const ImageAutoencoder task({.images = {.image_size = 5, .channels = 3}, .hidden = {6}},
                              Drawn(5, 3));
  CHECK(task.params_layout().size() == 76 * 6 + 7 * 75);
  CHECK(task.aux_layout().size() == 0);
  CHECK(*task.NormalizerMaximum() == 1);
  std::vector<float> params(task.params_layout().size());
  task.Init({}, KeyFromSeed(1), params, {});
  const std::vector<int32_t> examples = {3, 1, 4, 1, 5};
  float loss = 0;
  Workspace scratch;
  task.Evaluate({.params = params, .examples = examples, .losses = {&loss, 1}}, scratch);
  const std::vector<Pictures> shown = task.Show({.params = params, .examples = examples}, scratch);
  REQUIRE(shown.size() == 2);
  CHECK(shown[0].name == "batch");
  CHECK(shown[1].name == "reconstruction");
  REQUIRE(shown[0].pixels.size() == 5 * 75);
  REQUIRE(shown[1].pixels.size() == 5 * 75);
  double mean = 0;
  for (size_t i = 0; i < 5 * 75; ++i) {
    mean += std::pow(double{shown[0].pixels[i]} - shown[1].pixels[i], 2) / (5 * 75);
    CHECK(shown[1].pixels[i] > 0);
    CHECK(shown[1].pixels[i] < 1);
  }
  CHECK(loss == doctest::Approx(mean).epsilon(1e-5));
}

TEST_CASE("Params of zero give grey, whose loss is known") {
  const ImageRows rows(4, std::vector<float>{0, 1, 0.5f, 0.25f}, {0});
  const MlpShape shape{.sizes = {4, 2, 4}};
  const std::vector<float> params(shape.params());
  std::vector<float> gradient(shape.params());
  Workspace scratch;
  CHECK(SquaredErrorLoss(shape, {.params = params, .batch = rows.batch(), .gradient = gradient},
                         scratch) == doctest::Approx((0.25 + 0.25 + 0 + 0.0625) / 4));
  // 2 (1/2 - x) 1/4 / 4 for each output's bias.
  CHECK(gradient[18] == doctest::Approx(0.0625));
  CHECK(gradient[19] == doctest::Approx(-0.0625));
  CHECK(gradient[20] == 0);
  CHECK(gradient[21] == doctest::Approx(0.03125));
}

TEST_CASE("Wrong options are errors") {
  CHECK_THROWS_WITH_AS(ImageAutoencoder({.hidden = {0}}, Drawn(8, 0)),
                       "ImageAutoencoder: hidden[0] must be in [1, 100000], got 0", Error);
  CHECK_THROWS_WITH_AS(ImageAutoencoder({.images = {.image_size = 5}}, Drawn(8, 0)),
                       "image task: images of 8 x 8, wanted image_size 5", Error);
  const ImageOptions signals{.image_size = 0, .data = ImageSource::kMnist1d};
  CHECK_THROWS_WITH_AS(
      ImageAutoencoder({.images = signals}, GetImages(signals, TaskResources(""))),
      "ImageAutoencoder: the data are signals, wanted images: it gives numbers in [0, 1]", Error);
}

}  // namespace
}  // namespace lopt

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "lopt/tasks/image/parametric_image_mlp.h"
#include "tests/error_of.h"
#include "tests/farthest.h"

namespace lopt {
namespace {

const TaskResources& Resources() {
  static const TaskResources resources("");
  return resources;
}

std::shared_ptr<const ParametricImageMlp> Family(int64_t seed) {
  const ParametricImageMlpOptions options{.family_seed = seed};
  return std::make_shared<ParametricImageMlp>(
      options, GetImages(ParametricImageMlp::Drawn(options).images, Resources()));
}

// The first seed whose network has so many hidden layers, and images no larger than 8.
int64_t SeedWith(size_t layers) {
  for (int64_t seed = 0;; ++seed) {
    const ImageMlpOptions drawn = ParametricImageMlp::Drawn({.family_seed = seed});
    if (drawn.hidden.size() == layers && drawn.images.image_size <= 8) return seed;
  }
}

TEST_CASE("A family seed draws sizes of the published ranges and distributions") {
  constexpr int kSeeds = 600;
  int layers[5] = {};
  int narrow = 0;
  int small = 0;
  int few = 0;
  for (int64_t seed = 0; seed < kSeeds; ++seed) {
    const ImageMlpOptions drawn = ParametricImageMlp::Drawn({.family_seed = seed});
    REQUIRE(drawn.hidden.size() <= 4);
    ++layers[drawn.hidden.size()];
    for (const int64_t hidden : drawn.hidden) {
      CHECK(hidden == drawn.hidden[0]);
      CHECK(hidden >= 8);
      CHECK(hidden < 128);
    }
    narrow += !drawn.hidden.empty() && drawn.hidden[0] < 32 ? 1 : 0;
    CHECK(drawn.images.image_size >= 4);
    CHECK(drawn.images.image_size < 32);
    small += drawn.images.image_size < 11 ? 1 : 0;
    CHECK(drawn.images.batch_size >= 4);
    CHECK(drawn.images.batch_size < 512);
    few += drawn.images.batch_size < 45 ? 1 : 0;
  }
  // Binomial counts within four standard deviations: below x of int(exp(U(ln a, ln b))) are
  // ln(x / a) / ln(b / a).
  const auto near = [](int count, double probability, int n) {
    return std::abs(count - n * probability) < 4 * std::sqrt(n * probability * (1 - probability));
  };
  for (const int count : layers) CHECK(near(count, 0.2, kSeeds));
  CHECK(near(narrow, 0.5, kSeeds - layers[0]));
  CHECK(near(small, std::log(11.0 / 4) / std::log(8), kSeeds));
  CHECK(near(few, std::log(45.0 / 4) / std::log(128), kSeeds));
}

TEST_CASE("Tasks draw activations, initializers and scales as published") {
  const auto family = Family(SeedWith(0));
  constexpr int kTasks = 1200;
  int activations[12] = {};
  int initializers[5] = {};
  double scales = 0;
  std::vector<float> config(3);
  for (uint64_t seed = 0; seed < kTasks; ++seed) {
    family->Sample(KeyFromSeed(seed), config);
    ++activations[static_cast<int>(config[0])];
    ++initializers[static_cast<int>(config[1])];
    CHECK(config[2] >= 0.5F);
    CHECK(config[2] <= 2.0F);
    scales += config[2];
  }
  for (const int count : activations) CHECK(std::abs(count - 100) < 4 * 9.6);
  for (const int count : initializers) CHECK(std::abs(count - 240) < 4 * 13.9);
  CHECK(std::abs(scales / kTasks - 1.25) < 4 * 1.5 / std::sqrt(12.0 * kTasks));
}

TEST_CASE("A task is the ImageMLP of its activation, bit for bit") {
  const int64_t seed = SeedWith(2);
  const auto family = Family(seed);
  ImageMlpOptions options = ParametricImageMlp::Drawn({.family_seed = seed});
  std::vector<float> params(family->params_layout().size());
  const Key key = KeyFromSeed(5);
  std::vector<float> losses;
  for (size_t i = 0; i < std::size(kParametricActivations); ++i) {
    options.activation = kParametricActivations[i];
    const ImageMlp network(options, GetImages(options.images, Resources()));
    CHECK(network.params_layout() == family->params_layout());
    const std::vector<float> config = {static_cast<float>(i), 4, 1.5F};
    family->Init(config, key, params, {});
    const auto evaluate = [&](const TaskFamily& task, std::span<const float> its_config) {
      std::vector<float> results(params.size() + 2);
      Workspace scratch;
      task.Evaluate({.config = its_config,
                     .params = params,
                     .keys = {&key, 1},
                     .losses = std::span(results).first(1),
                     .gradients = std::span(results).subspan(2),
                     .aux = std::span(results).subspan(1, 1)},
                    scratch);
      return results;
    };
    const std::vector<float> results = evaluate(*family, config);
    CHECK(results == evaluate(network, {}));
    losses.push_back(results[0]);
  }
  CHECK(losses[0] == losses[1]);  // relu, twice
  CHECK(losses[8] == losses[9]);  // silu, twice
  std::ranges::sort(losses);
  const auto repeated = std::ranges::unique(losses);
  CHECK(losses.size() - repeated.size() == 9);  // and relu6 is relu on numbers this small
}

// The first tensor of a task with this initializer and scale, [in, out].
std::vector<float> FirstWeights(const TaskFamily& family, Initializer initializer, float scale) {
  const std::vector<float> config = {0, static_cast<float>(initializer), scale};
  std::vector<float> params(family.params_layout().size());
  family.Init(config, KeyFromSeed(2), params, {});
  const LayoutEntry& bias = family.params_layout().entries()[1];
  for (int64_t i = 0; i < bias.size; ++i) CHECK(params[bias.offset + i] == 0);
  params.resize(family.params_layout().entries()[0].size);
  return params;
}

TEST_CASE("Initializers have the variance and the bounds of their definitions") {
  const auto family = Family(SeedWith(3));
  const Shape& shape = family->params_layout().entries()[0].shape;
  const auto in = static_cast<double>(shape[0]);
  const auto check = [&](Initializer initializer, float scale, double variance, double bound,
                         double kurtosis) {
    const std::vector<float> weights = FirstWeights(*family, initializer, scale);
    const auto n = static_cast<double>(weights.size());
    double squares = 0;
    double largest = 0;
    for (const float weight : weights) {
      squares += double{weight} * weight;
      largest = std::max(largest, std::abs(double{weight}));
    }
    CHECK(std::abs(squares / n / variance - 1) < 4 * std::sqrt((kurtosis - 1) / n));
    CHECK(largest <= bound * 1.000001);
    CHECK(largest >= 0.9 * std::min(bound, 3 * std::sqrt(variance)));
  };
  const double inf = std::numeric_limits<double>::infinity();
  for (const float s : {0.5F, 2.0F}) {
    check(Initializer::kUniformScaling, s, s * s / in, s * std::sqrt(3 / in), 1.8);
    check(Initializer::kNormal, s, s / in, inf, 3);
    check(Initializer::kTruncatedNormal, s, s / in, 2 * std::sqrt(s / in) / 0.87962566, 2.4);
    check(Initializer::kUniform, s, s / in, std::sqrt(3 * s / in), 1.8);
  }
}

TEST_CASE("Orthogonal weights are orthonormal times their scale, whichever side is longer") {
  bool was_tall = false;
  bool was_wide = false;
  for (int64_t seed = 0; !was_tall || !was_wide; ++seed) {
    const ImageMlpOptions drawn = ParametricImageMlp::Drawn({.family_seed = seed});
    if (drawn.images.image_size > 6) continue;
    const auto family = Family(seed);
    const Shape& shape = family->params_layout().entries()[0].shape;
    was_tall = was_tall || shape[0] > shape[1];
    was_wide = was_wide || shape[0] < shape[1];
    const std::vector<float> weights = FirstWeights(*family, Initializer::kOrthogonal, 1.5F);
    const auto at = [&](int64_t vector, int64_t i) {
      return double{shape[0] >= shape[1] ? weights[i * shape[1] + vector]
                                         : weights[vector * shape[1] + i]};
    };
    double worst = 0;
    for (int64_t a = 0; a < std::min(shape[0], shape[1]); ++a) {
      for (int64_t b = 0; b <= a; ++b) {
        double dot = 0;
        for (int64_t i = 0; i < std::max(shape[0], shape[1]); ++i) dot += at(a, i) * at(b, i);
        worst = Farther(worst, std::abs(dot - (a == b ? 2.25 : 0)));
      }
    }
    CHECK(worst < 1e-6);
  }
}

TEST_CASE("The meta-loss is 0 at ln(c / 5), 10 at its largest and rises in between") {
  const auto family = Family(SeedWith(0));
  CHECK(family->Normalize({}, std::log(2)) == doctest::Approx(0));
  CHECK(family->Normalize({}, std::log(10)) == doctest::Approx(10 * std::log(5) / std::log(10)));
  CHECK(family->Normalize({}, 0) == doctest::Approx(-10 * std::log(2) / std::log(10)));
  CHECK(family->Normalize({}, -1) == family->Normalize({}, 0));
  CHECK(family->Normalize({}, 1e9) == doctest::Approx(10));
  CHECK(family->Normalize({}, NAN) == family->NormalizerMaximum());
  CHECK(*family->NormalizerMaximum() == doctest::Approx(10));
}

TEST_CASE("A config that names no activation or no initializer is refused") {
  const auto family = Family(SeedWith(0));
  std::vector<float> params(family->params_layout().size());
  const std::vector<float> config = {12, 5, 1};
  CHECK(ErrorOf([&] { family->Init(config, Key{}, params, {}); }) ==
        "ParametricImageMLP: a config has initializer 5, wanted one of 5");
  const Key key;
  float loss = 0;
  Workspace scratch;
  CHECK(ErrorOf([&] {
          family->Evaluate(
              {.config = config, .params = params, .keys = {&key, 1}, .losses = {&loss, 1}},
              scratch);
        }) == "ParametricImageMLP: a config has activation 12, wanted one of 12");
}

}  // namespace
}  // namespace lopt

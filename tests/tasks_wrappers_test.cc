// Families over families against closed forms, and what all of them pass on.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/tasks/image/image_mlp.h"
#include "lopt/tasks/quadratic/quadratic.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/wrappers/delayed_gradients.h"
#include "lopt/tasks/wrappers/es_task.h"
#include "lopt/tasks/wrappers/normalize_task_gradient.h"
#include "lopt/tasks/wrappers/reduced_batchsize.h"
#include "lopt/tasks/wrappers/reparam_weights.h"
#include "lopt/tasks/wrappers/sampled_family.h"
#include "lopt/tasks/wrappers/subsample_directions.h"
#include "tests/error_of.h"

namespace lopt {
namespace {

// A family of one task: a function of its params, which start at `start`.
class Function : public TaskFamily {
 public:
  using Loss = std::function<double(std::span<const float> x, std::span<float> gradient)>;

  Function(Layout params, std::vector<float> start, Loss loss)
      : TaskFamily({.params = std::move(params)}),
        start_(std::move(start)),
        loss_(std::move(loss)) {}

 private:
  void DoInit(std::span<const float>, Key, std::span<float> params,
              std::span<float>) const override {
    std::ranges::copy(start_, params.begin());
  }
  void DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const override {
    const Workspace::Frame frame(scratch);
    const int64_t size = params_layout().size();
    const std::span<float> gradient = scratch.Take<float>(size);
    for (int64_t row = 0; row < e.rows; ++row) {
      e.losses[row] = static_cast<float>(loss_(e.params.subspan(row * size, size), gradient));
      if (!e.gradients.empty()) {
        std::ranges::copy(gradient, e.gradients.begin() + row * size);
      }
    }
  }

  std::vector<float> start_;
  Loss loss_;
};

// slope . x, whose gradient is the same everywhere.
std::shared_ptr<const TaskFamily> Linear(std::vector<float> slope) {
  const auto size = std::ssize(slope);
  return std::make_shared<Function>(Layout({{"x", {size}}}), std::vector<float>(slope.size(), 1),
                                    [slope](std::span<const float> x, std::span<float> gradient) {
                                      std::ranges::copy(slope, gradient.begin());
                                      return std::inner_product(x.begin(), x.end(), slope.begin(),
                                                                0.0);
                                    });
}

// x^2 / 2 of one number, started at 1.
std::shared_ptr<const TaskFamily> HalfSquare() {
  return std::make_shared<Function>(Layout({{"x", {1}}}), std::vector<float>{1},
                                    [](std::span<const float> x, std::span<float> gradient) {
                                      gradient[0] = x[0];
                                      return double{x[0]} * x[0] / 2;
                                    });
}

std::shared_ptr<const TaskFamily> Glyphs(const ImageMlpOptions& options) {
  static const TaskResources resources("");
  return std::make_shared<ImageMlp>(options, GetImages(options.images, resources));
}

std::shared_ptr<const TaskFamily> Glyphs() {
  return Glyphs({.images = {.image_size = 4, .batch_size = 10}, .hidden = {5}});
}

// One task of a family.
struct Task {
  Task(const TaskFamily& family, Key key)
      : family(family),
        config(static_cast<size_t>(family.config_layout().size())),
        params(static_cast<size_t>(family.params_layout().size())),
        model_state(static_cast<size_t>(family.model_state_layout().size())),
        gradient(params.size()),
        aux(static_cast<size_t>(family.aux_layout().size())) {
    family.Sample(FoldIn(key, 1), config);
    family.Init(config, FoldIn(key, 2), params, model_state);
  }

  float Evaluate(Key key, Split split = Split::kTrain, bool gradients = true,
                 std::span<const int32_t> examples = {}) {
    float loss = 0;
    Workspace scratch;
    family.Evaluate({.config = config,
                     .params = params,
                     .model_state = model_state,
                     .split = split,
                     .keys = {&key, 1},
                     .examples = examples,
                     .losses = {&loss, 1},
                     .gradients = gradients ? std::span<float>(gradient) : std::span<float>(),
                     .aux = aux},
                    scratch);
    return loss;
  }

  const TaskFamily& family;
  std::vector<float> config;
  std::vector<float> params;
  std::vector<float> model_state;
  std::vector<float> gradient;
  std::vector<float> aux;
};

ReparamWeightsOptions Scale(ReparamLevel level, double scale) {
  return {.levels = {level}, .ranges = {scale, scale}};
}

TEST_CASE("The loss of scaled weights is that of the unscaled start, and the start is divided") {
  const auto sum =
      std::make_shared<Function>(Layout({{"p0", {2}}, {"p1", {2}}}), std::vector<float>{1, 1, 1, 1},
                                 [](std::span<const float> x, std::span<float> gradient) {
                                   std::ranges::fill(gradient, 1.0F);
                                   return std::accumulate(x.begin(), x.end(), 0.0);
                                 });
  const ReparamWeights twice(sum, Scale(ReparamLevel::kGlobal, 2));
  Task task(twice, KeyFromSeed(1));
  CHECK(task.config == std::vector<float>{2});
  CHECK(task.params == std::vector<float>{0.5, 0.5, 0.5, 0.5});
  CHECK(task.Evaluate(Key{}) == 4);
  CHECK(task.gradient == std::vector<float>{2, 2, 2, 2});

  const ReparamWeights tensors(sum, Scale(ReparamLevel::kTensor, 2));
  Task by_tensor(tensors, KeyFromSeed(1));
  CHECK(by_tensor.config == std::vector<float>{2, 2});
  by_tensor.config = {2, 0.5};
  tensors.Init(by_tensor.config, Key{}, by_tensor.params, {});
  CHECK(by_tensor.params == std::vector<float>{0.5, 0.5, 2, 2});
  CHECK(by_tensor.Evaluate(Key{}) == 4);
  CHECK(by_tensor.gradient == std::vector<float>{2, 2, 0.5, 0.5});

  const ReparamWeights numbers(sum, Scale(ReparamLevel::kParameter, 2));
  Task by_number(numbers, KeyFromSeed(1));
  by_number.config = {2, 4, 0.5, 1};
  numbers.Init(by_number.config, Key{}, by_number.params, {});
  CHECK(by_number.params == std::vector<float>{0.5, 0.25, 2, 1});
  CHECK(by_number.Evaluate(Key{}) == 4);
  CHECK(by_number.gradient == by_number.config);
}

TEST_CASE("Logarithms of scales are uniform on their range") {
  const ReparamWeights family(Glyphs(), {.levels = {ReparamLevel::kParameter}, .ranges = {0.5, 8}});
  const Task task(family, KeyFromSeed(3));
  REQUIRE(task.config.size() == task.params.size());
  // The mean and the variance of a uniform number on [ln .5, ln 8], in standard errors.
  const double width = std::log(16);
  const auto n = static_cast<double>(task.config.size());
  double sum = 0;
  double squares = 0;
  for (const float scale : task.config) {
    CHECK(scale >= 0.5F);
    CHECK(scale <= 8.0F);
    const double position = (std::log(scale) - std::log(0.5)) / width;
    sum += position;
    squares += (position - 0.5) * (position - 0.5);
  }
  CHECK(std::abs(sum / n - 0.5) < 4 * std::sqrt(1.0 / 12 / n));
  CHECK(std::abs(squares / n - 1.0 / 12) < 4 * std::sqrt((1.0 / 80 - 1.0 / 144) / n));
}

TEST_CASE("A task draws one of the levels and one of the ranges") {
  using enum ReparamLevel;
  const ReparamWeights family(Glyphs(),
                              {.levels = {kNone, kGlobal, kTensor, kParameter, kParameter},
                               .ranges = {0.01, 0.1, 10, 100}});
  const Layout& params = family.params_layout();
  REQUIRE(family.config_layout().size() == params.size());
  constexpr int kTasks = 1000;
  int of_level[4] = {};
  int below = 0;
  for (uint64_t seed = 0; seed < kTasks; ++seed) {
    const Task task(family, KeyFromSeed(seed));
    const auto all_equal = [&](std::span<const float> scales) {
      return std::ranges::all_of(scales, [&](float scale) { return scale == scales[0]; });
    };
    const bool tensors_equal = std::ranges::all_of(params.entries(), [&](const LayoutEntry& entry) {
      return all_equal(std::span(task.config).subspan(entry.offset, entry.size));
    });
    const bool is_global = all_equal(task.config);
    const bool is_none = is_global && task.config[0] == 1;
    ++of_level[is_none ? 0 : is_global ? 1 : tensors_equal ? 2 : 3];
    if (is_none) continue;
    const bool is_below = task.config[0] < 1;
    below += static_cast<int>(is_below);
    for (const float scale : task.config) {
      CHECK(scale >= (is_below ? 0.0099999F : 9.9999F));
      CHECK(scale <= (is_below ? 0.100001F : 100.0001F));
    }
  }
  // Binomial, within four standard deviations.
  for (const int level : {0, 1, 2}) CHECK(std::abs(of_level[level] - 200) < 4 * 12.7);
  CHECK(std::abs(of_level[3] - 400) < 4 * 15.5);
  CHECK(std::abs(below - 400) < 4 * 15.5);
}

TEST_CASE("Options of scales that make no sense are refused") {
  const auto error = [](const ReparamWeightsOptions& options) {
    return ErrorOf([&] { ReparamWeights(HalfSquare(), options); });
  };
  CHECK(error({.levels = {}}) == "ReparamWeights: levels is empty, wanted at least one");
  CHECK(error({.ranges = {0.1, 1, 2}}) ==
        "ReparamWeights: ranges has 3 numbers, wanted the least and the largest scale of each "
        "range");
  CHECK(error({.ranges = {}}) ==
        "ReparamWeights: ranges has 0 numbers, wanted the least and the largest scale of each "
        "range");
  CHECK(error({.ranges = {0.1, 1, 2, 0.5}}) ==
        "ReparamWeights: ranges[2] is 2 and ranges[3] 0.5, wanted the least scale of a range "
        "first");
  CHECK(error({.ranges = {0, 1}}) == "ReparamWeights: ranges[0] must be above 0, got 0");
}

TEST_CASE("A normalized gradient has length 1, however small or large, and a zero one stays zero") {
  const auto normalized = [](std::vector<float> slope) {
    const NormalizeTaskGradient family(Linear(std::move(slope)), {});
    Task task(family, Key{});
    task.Evaluate(Key{});
    return task.gradient;
  };
  CHECK(normalized({3, 4}) == std::vector<float>{0.6F, 0.8F});
  CHECK(normalized({3e-30F, -4e-30F})[1] == doctest::Approx(-0.8F));
  CHECK(normalized({3e30F, 4e30F})[0] == doctest::Approx(0.6F));
  CHECK(normalized({0, 0}) == std::vector<float>{0, 0});
  CHECK(std::isnan(normalized({1, INFINITY})[1]));

  // Over all tensors of a network at once.
  const NormalizeTaskGradient family(Glyphs(), {});
  Task task(family, KeyFromSeed(2));
  const float loss = task.Evaluate(KeyFromSeed(3));
  CHECK(std::inner_product(task.gradient.begin(), task.gradient.end(), task.gradient.begin(),
                           0.0) == doctest::Approx(1).epsilon(1e-6));
  const auto plain = Glyphs();
  CHECK(Task(*plain, KeyFromSeed(2)).Evaluate(KeyFromSeed(3)) == loss);
}

// The mean of the gradient over many keys agrees with `wanted`, number by number, within 4.5
// standard errors.
void CheckMeanGradient(const TaskFamily& family, const std::vector<double>& wanted) {
  constexpr int kKeys = 4000;
  Task task(family, KeyFromSeed(1));
  const size_t size = wanted.size();
  REQUIRE(size == task.gradient.size());
  std::vector<double> sum(size);
  std::vector<double> squares(size);
  for (const Key key : SplitKey(KeyFromSeed(7), kKeys)) {
    task.Evaluate(key);
    for (size_t i = 0; i < size; ++i) {
      sum[i] += task.gradient[i];
      squares[i] += double{task.gradient[i]} * task.gradient[i];
    }
  }
  for (size_t i = 0; i < size; ++i) {
    const double mean = sum[i] / kKeys;
    const double deviation = std::sqrt(squares[i] / kKeys - mean * mean);
    CAPTURE(i);
    CHECK(deviation > 0);
    CHECK(std::abs(mean - wanted[i]) < 4.5 * deviation / std::sqrt(kKeys));
  }
}

TEST_CASE("The mean of a gradient along n of P dimensions is n / P of it") {
  const std::vector<float> slope = {3, -1, 0, 0.5, 2};
  for (const int64_t directions : {1, 4}) {
    const SubsampleDirections family(Linear(slope), {.directions = directions});
    std::vector<double> wanted;
    for (const float g : slope) wanted.push_back(g * static_cast<double>(directions) / 5);
    CheckMeanGradient(family, wanted);
  }
}

TEST_CASE("The mean of a gradient of signs is known from the mean slope of a unit vector") {
  // E u sign(u . g) = g / |g| E|u_1|, and E|u_1| = Gamma(P / 2) / (sqrt(pi) Gamma((P + 1) / 2)).
  const std::vector<float> slope = {3, -4, 0};
  const SubsampleDirections family(Linear(slope), {.directions = 2, .sign = true});
  const double mean = 2 * std::tgamma(1.5) / (std::sqrt(M_PI) * std::tgamma(2));
  CHECK(mean == doctest::Approx(1));  // E|u_1| is 1 / 2 in three dimensions
  CheckMeanGradient(family, {0.6, -0.8, 0});
}

TEST_CASE("A gradient along one direction is the projection on it") {
  const auto plain = Glyphs();
  const SubsampleDirections family(plain, {.directions = 1});
  Task projected(family, KeyFromSeed(2));
  Task whole(*plain, KeyFromSeed(2));
  CHECK(projected.Evaluate(KeyFromSeed(3)) == whole.Evaluate(KeyFromSeed(3)));
  // |P g|^2 = g . P g
  const auto dot = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  CHECK(dot(projected.gradient, projected.gradient) ==
        doctest::Approx(dot(whole.gradient, projected.gradient)));
}

TEST_CASE("Estimates from losses are the gradient of a quadratic in the mean") {
  const auto bowl = std::make_shared<Function>(
      Layout({{"x", {3}}}), std::vector<float>{1, -2, 0.5},
      [](std::span<const float> x, std::span<float> gradient) {
        gradient[0] = x[0];
        gradient[1] = 4 * x[1];
        gradient[2] = -x[2];
        return (double{x[0]} * x[0] + 4 * double{x[1]} * x[1] - double{x[2]} * x[2]) / 2;
      });
  // Whatever the size of the perturbations.
  for (const double std : {0.01, 1.5}) {
    CAPTURE(std);
    CheckMeanGradient(ESTask(bowl, {.std = std, .pairs = 2}), {1, -8, -0.5});
  }
}

TEST_CASE("Losses beside estimated gradients are those of the task, and so is its accuracy") {
  const auto plain = Glyphs();
  const ESTask family(plain, {});
  Task estimated(family, KeyFromSeed(2));
  Task exact(*plain, KeyFromSeed(2));
  CHECK(estimated.Evaluate(KeyFromSeed(3)) == exact.Evaluate(KeyFromSeed(3)));
  CHECK(estimated.aux == exact.aux);
  CHECK(estimated.gradient != exact.gradient);
  CHECK(family.flops() == doctest::Approx(17.0 / 3 * plain->flops()));
}

TEST_CASE("Gradients that are drawn want keys") {
  const auto error = [](const TaskFamily& family) {
    Task task(family, KeyFromSeed(2));
    const std::vector<int32_t> examples = {0, 1};
    Workspace scratch;
    float loss = 0;
    TaskEvaluation evaluation{
        .config = task.config, .params = task.params, .examples = examples, .losses = {&loss, 1}};
    family.Evaluate(evaluation, scratch);  // a loss wants none
    evaluation.gradients = task.gradient;
    return ErrorOf([&] { family.Evaluate(evaluation, scratch); });
  };
  CHECK(error(ESTask(Glyphs(), {})) == "ESTask: gradients are wanted, but there are no keys");
  CHECK(error(SubsampleDirections(Glyphs(), {})) ==
        "SubsampleDirections: gradients are wanted, but there are no keys");
}

TEST_CASE("A reduced batch is the first examples of the whole one") {
  const auto plain = Glyphs();
  const ReducedBatchsize family(plain, {.fraction = 0.39});
  CHECK(family.parts().data.batch_size == 3);
  CHECK(family.flops() == doctest::Approx(0.3 * plain->flops()));
  Task reduced(family, KeyFromSeed(2));
  Task whole(*plain, KeyFromSeed(2));
  const Key key = KeyFromSeed(3);
  const auto [first, last] = plain->ExampleRange(Split::kTrain);
  std::vector<int32_t> batch(10);
  Randint(FoldIn(key, 0), static_cast<int32_t>(first), static_cast<int32_t>(last), batch);
  CHECK(whole.Evaluate(key) == whole.Evaluate(key, Split::kTrain, true, batch));
  const float loss = whole.Evaluate(key, Split::kTrain, true, std::span(batch).first(3));
  CHECK(reduced.Evaluate(key) == loss);
  CHECK(reduced.gradient == whole.gradient);
  CHECK(ReducedBatchsize(plain, {.fraction = 0.01}).parts().data.batch_size == 1);
  CHECK(ReducedBatchsize(plain, {.fraction = 1}).parts().data.batch_size == 10);
  CHECK(ErrorOf([] { ReducedBatchsize(HalfSquare(), {}); }) ==
        "ReducedBatchsize: the task has no data set, so it has no batches; wrap a task with one");
  CHECK(ErrorOf([&] { ReducedBatchsize(plain, {.fraction = 0}); }) ==
        "ReducedBatchsize: fraction must be in (0, 1], got 0");
}

// x_0, x_1, ... of gradient descent.
std::vector<double> Descend(const TaskFamily& family, float learning_rate, int64_t steps) {
  Task task(family, KeyFromSeed(1));
  std::vector<double> trajectory;
  for (int64_t step = 0; step < steps; ++step) {
    const double x = trajectory.emplace_back(task.params[0]);
    const auto loss = static_cast<float>(x * x / 2);
    CHECK(task.Evaluate(FoldIn(Key{}, static_cast<uint64_t>(step))) ==
          (std::fpclassify(loss) == FP_SUBNORMAL ? 0 : loss));
    task.params[0] -= learning_rate * task.gradient[0];
  }
  return trajectory;
}

TEST_CASE("A gradient of d steps ago makes descent x_{t+1} = x_t - lr x_{t-d} exactly") {
  for (const int64_t delay : {0, 1, 2, 5}) {
    CAPTURE(delay);
    const DelayedGradients family(HalfSquare(), {.delay = delay});
    const std::vector<double> x = Descend(family, 0.25F, 40);
    for (int64_t t = 0; t + 1 < std::ssize(x); ++t) {
      const auto now = static_cast<float>(x[t]);
      const auto then = static_cast<float>(x[std::max<int64_t>(0, t - delay)]);
      CHECK(x[t + 1] == now - 0.25F * then);
    }
  }
}

TEST_CASE("Delayed descent on x^2 / 2 is stable up to 2 sin(pi / (2 (2 d + 1))) and no further") {
  // 2, 1, .618 and .2846.
  for (const int64_t delay : {0, 1, 2, 5}) {
    CAPTURE(delay);
    const DelayedGradients family(HalfSquare(), {.delay = delay});
    const double limit = 2 * std::sin(M_PI / (2 * (2 * static_cast<double>(delay) + 1)));
    const auto largest_at_end = [&](double learning_rate) {
      const std::vector<double> x = Descend(family, static_cast<float>(learning_rate), 2000);
      double largest = 0;
      for (size_t t = x.size() - 50; t < x.size(); ++t) largest = std::max(largest, std::abs(x[t]));
      return largest;
    };
    CHECK(largest_at_end(0.98 * limit) < 0.1);
    CHECK(largest_at_end(1.02 * limit) > 10);
  }
}

TEST_CASE("A NaN in the gradient stays one, of signs too") {
  const SubsampleDirections family(Linear({1, std::nanf("")}), {.directions = 3, .sign = true});
  Task task(family, Key{});
  task.Evaluate(KeyFromSeed(1));
  CHECK(std::isnan(task.gradient[0]));
}

TEST_CASE("A position that no step leaves in the model state is an error") {
  const DelayedGradients family(HalfSquare(), {.delay = 2});
  for (const float position : {-3.0F, 3.0F, 1e30F, std::nanf("")}) {
    CAPTURE(position);
    Task task(family, Key{});
    task.model_state.back() = position;
    CHECK(ErrorOf([&] {
            task.Evaluate(Key{});
          }).starts_with("DelayedGradients: the model state has position "));
    CHECK(task.Evaluate(Key{}, Split::kTest) == 0.5F);
  }
}

TEST_CASE("Other splits neither delay a gradient nor count as steps") {
  const DelayedGradients family(HalfSquare(), {.delay = 2});
  Task task(family, Key{});
  CHECK(task.model_state == std::vector<float>{0, 0, 0, -1});
  for (const float x : {5.0F, 6.0F, 7.0F, 8.0F}) {
    task.params = {x};
    task.Evaluate(Key{});
  }
  CHECK(task.gradient == std::vector<float>{6});
  CHECK(task.model_state == std::vector<float>{8, 6, 7, 0});
  task.params = {9};
  const std::vector<float> state = task.model_state;
  CHECK(task.Evaluate(Key{}, Split::kTest) == 40.5F);
  CHECK(task.gradient == std::vector<float>{9});
  CHECK(task.model_state == state);
  // A step without a gradient is one.
  CHECK(task.Evaluate(Key{}, Split::kTrain, false) == 40.5F);
  task.params = {10};
  task.Evaluate(Key{});
  CHECK(task.gradient == std::vector<float>{8});
}

std::shared_ptr<const TaskFamily> Fixed(int64_t dim) {
  return std::make_shared<FixedDimQuadraticFamily>(QuadraticOptions{.dim = dim});
}

TEST_CASE("Families of a mix come as often as their weights say and keep their bits") {
  const auto bowl = std::make_shared<QuadraticTask>(QuadraticOptions{.dim = 3});
  const auto targets = Fixed(3);
  const auto delayed = std::make_shared<DelayedGradients>(targets, DelayedGradientsOptions{});
  const std::vector<std::shared_ptr<const TaskFamily>> families = {bowl, targets, delayed};
  const SampledFamily mix(families, {.weights = {1, 5, 2}});
  CHECK(mix.config_layout().size() == 4);
  CHECK(mix.model_state_layout().size() == 7);
  constexpr int kTasks = 800;
  int count[3] = {};
  for (uint64_t seed = 0; seed < kTasks; ++seed) {
    Task task(mix, KeyFromSeed(seed));
    const auto index = static_cast<size_t>(task.config[0]);
    ++count[index];
    if (seed >= 20) continue;
    Task alone(*families[index], KeyFromSeed(seed));
    for (const uint64_t step : {0, 1}) {
      CHECK(task.Evaluate(KeyFromSeed(step)) == alone.Evaluate(KeyFromSeed(step)));
      CHECK(task.gradient == alone.gradient);
      CHECK(mix.Normalize(task.config, 3) == families[index]->Normalize(alone.config, 3));
    }
    alone.model_state.resize(7);
    CHECK(task.model_state == alone.model_state);
    alone.config.resize(3);
    CHECK(std::vector(task.config.begin() + 1, task.config.end()) == alone.config);
  }
  CHECK(std::abs(count[0] - 100) < 4 * 9.4);
  CHECK(std::abs(count[1] - 500) < 4 * 13.7);
  CHECK(std::abs(count[2] - 200) < 4 * 12.3);
}

TEST_CASE("A mix has the data set of its families where it is one, and else each draws its own") {
  const auto plain = Glyphs();
  const auto dark =
      Glyphs({.images = {.image_size = 4, .batch_size = 10, .distortion = Distortion::kDim},
              .hidden = {5}});
  const auto small = Glyphs({.images = {.image_size = 4, .batch_size = 7}, .hidden = {5}});
  const SampledFamily one({plain, dark}, {});
  CHECK(one.ExampleRange(Split::kTest) == plain->ExampleRange(Split::kTest));
  CHECK(one.flops() == plain->flops());
  const SampledFamily two({plain, small}, {});
  CHECK(two.ExampleRange(Split::kTest) == std::pair<int64_t, int64_t>(0, 0));
  CHECK(two.flops() == doctest::Approx(0.85 * plain->flops()));
  for (const bool shared : {true, false}) {
    const SampledFamily& mix = shared ? one : two;
    const auto other = shared ? dark : small;
    for (uint64_t seed = 0; seed < 6; ++seed) {
      Task task(mix, KeyFromSeed(seed));
      Task alone(task.config[0] == 0 ? *plain : *other, KeyFromSeed(seed));
      CHECK(task.Evaluate(KeyFromSeed(9)) == alone.Evaluate(KeyFromSeed(9)));
      CHECK(task.gradient == alone.gradient);
      CHECK(task.aux == alone.aux);
    }
  }
  Task task(two, KeyFromSeed(1));
  const std::vector<int32_t> examples = {0, 1};
  CHECK(ErrorOf([&] { task.Evaluate(Key{}, Split::kTrain, true, examples); }) ==
        "TaskFamily: examples are given, but this family has no data set");
}

TEST_CASE("Families inside a mix that draw their own batches by epochs know the step") {
  const auto plain = Glyphs();
  const auto epochs = Glyphs(
      {.images = {.image_size = 4, .batch_size = 10, .sampling = Sampling::kEpoch}, .hidden = {5}});
  const SampledFamily mix({plain, epochs}, {.weights = {1e-9, 1}});
  const ESTask estimated(
      std::make_shared<SampledFamily>(std::vector<std::shared_ptr<const TaskFamily>>{plain, epochs},
                                      SampledFamilyOptions{.weights = {1e-9, 1}}),
      {});
  CHECK(mix.ExampleRange(Split::kTrain) == std::pair<int64_t, int64_t>(0, 0));
  const auto evaluate = [](const TaskFamily& family, int64_t step) {
    Task task(family, KeyFromSeed(4));
    const Key key = KeyFromSeed(5);
    const EpisodeStep at{KeyFromSeed(6), step};
    std::vector<float> results(task.params.size() + 1);
    Workspace scratch;
    family.Evaluate({.config = task.config,
                     .params = task.params,
                     .keys = {&key, 1},
                     .steps = {&at, 1},
                     .losses = std::span(results).first(1),
                     .gradients = std::span(results).subspan(1)},
                    scratch);
    return results;
  };
  for (const int64_t step : {0, 3}) CHECK(evaluate(mix, step) == evaluate(*epochs, step));
  CHECK(evaluate(mix, 0) != evaluate(mix, 3));
  CHECK(evaluate(estimated, 3)[0] == evaluate(mix, 3)[0]);
  CHECK(evaluate(estimated, 0)[1] != evaluate(estimated, 3)[1]);
}

TEST_CASE("Families that cannot be mixed are refused with what differs") {
  using Families = std::vector<std::shared_ptr<const TaskFamily>>;
  const auto error = [](const Families& tasks, const SampledFamilyOptions& options = {}) {
    return ErrorOf([&] { SampledFamily(tasks, options); });
  };
  CHECK(error({}) == "SampledFamily: tasks is empty, wanted at least one");
  CHECK(error({Fixed(3), Fixed(3)}, {.weights = {1}}) ==
        "SampledFamily: 1 weights for 2 tasks; give one for each, or none for equal ones");
  CHECK(error({Fixed(3)}, {.weights = {0}}) == "SampledFamily: weights[0] must be above 0, got 0");
  CHECK(error({Fixed(3), Fixed(3), Fixed(4)}) ==
        "SampledFamily: all tasks must have the same params; tasks[0] has 'x' [3] where tasks[2] "
        "has 'x' [4]");
  const auto deep = Glyphs({.images = {.image_size = 4}, .hidden = {5, 6}});
  CHECK(error({Glyphs(), deep}) ==
        "SampledFamily: all tasks must have the same params; tasks[0] has 'mlp/linear_1/w' [5, 10] "
        "where tasks[1] has 'mlp/linear_1/w' [5, 6]");
  const auto cut = [](std::optional<double> maximum, Layout aux) {
    class Other : public TaskFamily {
     public:
      using TaskFamily::TaskFamily;
      explicit Other(TaskParts parts) : TaskFamily(std::move(parts)) {}
      void DoInit(std::span<const float>, Key, std::span<float>, std::span<float>) const override {}
      void DoEvaluate(const TaskEvaluation&, Workspace&) const override {}
    };
    return std::make_shared<Other>(TaskParts{
        .params = Layout({{"x", {3}}}), .aux = std::move(aux), .normalizer_maximum = maximum});
  };
  CHECK(error({Fixed(3), cut(2.5, Layout())}) ==
        "SampledFamily: all tasks must have the same maximum of their normalizers; tasks[0] has "
        "none where tasks[1] has 2.5");
  CHECK(error({Fixed(3), cut(std::nullopt, Layout({{"accuracy", Shape()}}))}) ==
        "SampledFamily: all tasks must have the same aux outputs; tasks[0] has nothing where "
        "tasks[1] has 'accuracy' []");
}

TEST_CASE("What families over families draw does not change what the families inside draw") {
  const auto inside = Fixed(4);
  const auto once = std::make_shared<ReparamWeights>(inside, ReparamWeightsOptions{});
  const ReparamWeights twice(once, {});
  const SampledFamily mixed({std::make_shared<ESTask>(once, ESTaskOptions{})}, {});
  const Task plain(*inside, KeyFromSeed(4));
  const Task one(*once, KeyFromSeed(4));
  const Task two(twice, KeyFromSeed(4));
  const Task three(mixed, KeyFromSeed(4));
  CHECK(std::vector(one.config.begin(), one.config.begin() + 4) == plain.config);
  CHECK(std::vector(two.config.begin(), two.config.begin() + 5) == one.config);
  CHECK(std::vector(three.config.begin() + 1, three.config.end()) == one.config);
  CHECK(two.config[4] != two.config[5]);  // each draws its own
  std::vector<std::string> names;
  for (const LayoutEntry& entry : twice.config_layout().entries()) names.push_back(entry.name);
  CHECK(names == std::vector<std::string>{"task/task/target", "task/scale", "scale"});
}

}  // namespace
}  // namespace lopt

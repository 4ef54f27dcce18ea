#include "lopt/torch/torch_task.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/parallel.h"
#include "lopt/tasks/image/image_mlp.h"
#include "lopt/torch/registry.h"
#include "tests/farthest.h"
#include "tests/torch_example_tasks.h"

namespace lopt {
namespace {

struct Results {
  std::vector<float> losses, gradients, aux;
};

// Evaluates all rows in calls of `rows_per_call` rows.
Results Evaluate(const TaskFamily& task, std::span<const float> config,
                 std::span<const float> params, std::span<const Key> keys,
                 std::span<const int32_t> examples, int64_t rows_per_call, bool with_aux) {
  const int64_t rows = static_cast<int64_t>(params.size()) / task.params_layout().size();
  const int64_t examples_per_row = static_cast<int64_t>(examples.size()) / rows;
  Results results{std::vector<float>(static_cast<size_t>(rows)), std::vector<float>(params.size()),
                  std::vector<float>(with_aux ? static_cast<size_t>(rows) : 0)};
  Workspace scratch;
  const auto part = [](auto values, int64_t first, int64_t n, int64_t size) {
    return values.empty() ? values : values.subspan(first * size, n * size);
  };
  for (int64_t first = 0; first < rows; first += rows_per_call) {
    const int64_t n = std::min(rows_per_call, rows - first);
    task.Evaluate(
        {.rows = n,
         .config = part(config, first, n, task.config_layout().size()),
         .params = part(params, first, n, task.params_layout().size()),
         .keys = part(keys, first, n, 1),
         .examples = part(examples, first, n, examples_per_row),
         .losses = part(std::span(results.losses), first, n, 1),
         .gradients = part(std::span(results.gradients), first, n, task.params_layout().size()),
         .aux = part(std::span(results.aux), first, n, 1)},
        scratch);
  }
  return results;
}

// Initial params of `rows` replicas with some noise, so that biases are not zero.
std::vector<float> SomeParams(const TaskFamily& task, int64_t rows) {
  const int64_t size = task.params_layout().size();
  std::vector<float> params(static_cast<size_t>(rows * size));
  for (int64_t row = 0; row < rows; ++row) {
    const Key key = FoldIn(KeyFromSeed(17), static_cast<uint64_t>(row));
    const auto values = std::span(params).subspan(row * size, size);
    task.Init({}, key, values, {});
    std::vector<float> noise(static_cast<size_t>(size));
    Normal(FoldIn(key, 1), noise);
    for (size_t i = 0; i < noise.size(); ++i) values[i] += 0.1f * noise[i];
  }
  return params;
}

void CheckClose(const std::vector<float>& got, const std::vector<float>& wanted) {
  REQUIRE_EQ(got.size(), wanted.size());
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = Farther(worst, std::abs(double{got[i]} - double{wanted[i]}) /
                               std::max(1.0, std::abs(double{wanted[i]})));
  }
  CHECK_LE(worst, 1e-5);
}

std::shared_ptr<const TaskFamily> MakeTorchImageMlp(const ImageMlpOptions& options,
                                                    const TaskResources& resources) {
  return TorchTaskRegistry().Make(WriteOptions("TorchImageMLP", options), resources);
}

// x -> a (x - center)^2 summed, a and center from the config: a task as a user would write it.
TorchTaskFamily Parabola() {
  return TorchTaskFamily(
      [](Key key, const torch::Tensor& config) -> NamedTensors {
        return {{"x", NormalTensor(key, {2, 3}) + config[1]}, {"unused", torch::zeros({2})}};
      },
      [](const TorchEvaluation& e) -> TorchLoss {
        const torch::Tensor noise = UniformTensor(e.keys, {2, 3});
        const torch::Tensor scale = e.config.select(1, 0).view({-1, 1, 1});
        const torch::Tensor center = e.config.select(1, 1).view({-1, 1, 1});
        return (scale * (e.params[0] - center + noise).square()).sum({1, 2});
      },
      {.config = Layout({{"scale", {}}, {"center", {}}})});
}

}  // namespace

TEST_CASE("The torch image MLP is the native one: params, losses, gradients, accuracy") {
  std::vector<ImageMlpOptions> shapes = {
      {},
      {.images = {.batch_size = 7}, .hidden = {}},
      {.images = {.image_size = 5, .batch_size = 33},
       .hidden = {13},
       .activation = Activation::kTanh},
      {.images = {.image_size = 8, .batch_size = 64}, .hidden = {32, 16, 9}},
      {.images = {.image_size = 14, .batch_size = 1},
       .hidden = {31, 17},
       .activation = Activation::kTanh},
  };
  for (const auto& [activation, name] : kActivations) {
    shapes.push_back(
        {.images = {.image_size = 4, .batch_size = 6}, .hidden = {5}, .activation = activation});
  }
  for (const ImageMlpOptions& options : shapes) {
    INFO(NameOf("activation", options.activation, kActivations));
    CAPTURE(options.images.image_size);
    CAPTURE(options.hidden.size());
    const TaskResources resources("");
    const ImageMlp native(options, GetImages(options.images, resources));
    const auto torch_task = MakeTorchImageMlp(options, resources);
    REQUIRE_EQ(torch_task->params_layout(), native.params_layout());
    REQUIRE_EQ(torch_task->aux_layout(), native.aux_layout());
    CHECK_EQ(torch_task->NormalizerMaximum(), native.NormalizerMaximum());
    CHECK_EQ(torch_task->ExampleRange(Split::kOuterValid), native.ExampleRange(Split::kOuterValid));
    CHECK_EQ(torch_task->Normalize({}, 100), native.Normalize({}, 100));

    const std::vector<float> params = SomeParams(native, 5);
    CHECK(SomeParams(*torch_task, 5) == params);
    std::vector<Key> keys;
    for (uint64_t row = 0; row < 5; ++row) keys.push_back(FoldIn(KeyFromSeed(3), row));
    const Results got = Evaluate(*torch_task, {}, params, keys, {}, 5, true);
    const Results wanted = Evaluate(native, {}, params, keys, {}, 1, true);
    CheckClose(got.losses, wanted.losses);
    CheckClose(got.gradients, wanted.gradients);
    CheckClose(got.aux, wanted.aux);

    const auto [first, last] = native.ExampleRange(Split::kTest);
    std::vector<int32_t> examples(5 * 21);
    Randint(KeyFromSeed(9), static_cast<int32_t>(first), static_cast<int32_t>(last), examples);
    const Results got_examples = Evaluate(*torch_task, {}, params, {}, examples, 5, true);
    const Results wanted_examples = Evaluate(native, {}, params, {}, examples, 1, true);
    CheckClose(got_examples.losses, wanted_examples.losses);
    CheckClose(got_examples.gradients, wanted_examples.gradients);
    CheckClose(got_examples.aux, wanted_examples.aux);
  }
}

TEST_CASE("Rows have the same bits however many are evaluated in one call") {
  const ImageMlpOptions options;
  const auto task = MakeTorchImageMlp(options, TaskResources(""));
  const std::vector<float> params = SomeParams(*task, 6);
  std::vector<Key> keys;
  for (uint64_t row = 0; row < 6; ++row) keys.push_back(FoldIn(KeyFromSeed(4), row));
  const Results at_once = Evaluate(*task, {}, params, keys, {}, 6, true);
  for (const int64_t rows_per_call : {1, 2, 4}) {
    const Results parts = Evaluate(*task, {}, params, keys, {}, rows_per_call, true);
    CHECK(parts.losses == at_once.losses);
    CHECK(parts.gradients == at_once.gradients);
    CHECK(parts.aux == at_once.aux);
  }
}

TEST_CASE("A replica whose params are not numbers leaves the others alone") {
  const ImageMlpOptions options;
  const auto task = MakeTorchImageMlp(options, TaskResources(""));
  const auto size = static_cast<size_t>(task->params_layout().size());
  std::vector<float> params = SomeParams(*task, 3);
  const std::vector<Key> keys(3, KeyFromSeed(4));
  const Results healthy = Evaluate(*task, {}, params, keys, {}, 3, true);
  std::fill_n(params.begin() + static_cast<std::ptrdiff_t>(size), size, std::nanf(""));
  const Results sick = Evaluate(*task, {}, params, keys, {}, 3, true);
  CHECK(std::isnan(sick.losses[1]));
  CHECK_EQ(sick.aux[1], 0);
  CHECK_GT(sick.aux[0], 0);
  CHECK_EQ(sick.losses[0], healthy.losses[0]);
  CHECK_EQ(sick.losses[2], healthy.losses[2]);
  for (size_t i = 0; i < size; ++i) {
    REQUIRE_EQ(sick.gradients[i], healthy.gradients[i]);
    REQUIRE_EQ(sick.gradients[2 * size + i], healthy.gradients[2 * size + i]);
  }
}

TEST_CASE("A user's torch task has the layout, losses and gradients that its functions say") {
  const TorchTaskFamily task = Parabola();
  CHECK_EQ(task.params_layout(), Layout({{"x", {2, 3}}, {"unused", {2}}}));
  CHECK_EQ(task.PreferredRows(), TaskFamily::kAllRows);

  const std::vector<float> config = {2, 10, 3, 20};
  std::vector<float> params(16);
  for (size_t row = 0; row < 2; ++row) {
    task.Init(std::span(config).subspan(2 * row, 2), KeyFromSeed(row),
              std::span(params).subspan(8 * row, 8), {});
    std::vector<float> normals(6);
    Normal(KeyFromSeed(row), normals);
    for (size_t i = 0; i < 6; ++i) {
      CHECK_EQ(params[8 * row + i], normals[i] + config[2 * row + 1]);
    }
  }
  const std::vector<Key> keys = {KeyFromSeed(1), KeyFromSeed(2)};
  const Results got = Evaluate(task, config, params, keys, {}, 2, false);
  for (size_t row = 0; row < 2; ++row) {
    std::vector<float> noise(6);
    Uniform(keys[row], noise);
    double loss = 0;
    for (size_t i = 0; i < 6; ++i) {
      const double distance = double{params[8 * row + i]} - config[2 * row + 1] + noise[i];
      loss += config[2 * row] * distance * distance;
      CHECK_EQ(got.gradients[8 * row + i],
               doctest::Approx(2 * config[2 * row] * distance).epsilon(1e-5));
    }
    CHECK_EQ(got.losses[row], doctest::Approx(loss).epsilon(1e-5));
    CHECK_EQ(got.gradients[8 * row + 6], 0);
    CHECK_EQ(got.gradients[8 * row + 7], 0);
  }
}

TEST_CASE("Losses without gradients have the same bits as with them") {
  const TorchTaskFamily task = Parabola();
  const std::vector<float> config = {2, 10, 3, 20};
  const std::vector<float> params(16, 0.5f);
  const std::vector<Key> keys = {KeyFromSeed(1), KeyFromSeed(2)};
  const Results with = Evaluate(task, config, params, keys, {}, 2, false);
  std::vector<float> losses(2);
  Workspace scratch;
  task.Evaluate({.rows = 2, .config = config, .params = params, .keys = keys, .losses = losses},
                scratch);
  CHECK(losses == with.losses);
}

TEST_CASE("Mistakes in a user's torch task are errors that say what is wrong") {
  const auto init = [](Key, const torch::Tensor&) -> NamedTensors {
    return {{"x", torch::zeros({3})}};
  };
  const std::vector<float> params(6);
  const std::vector<Key> keys(2);
  const auto evaluate = [&](const TorchTaskFamily::LossFunction& loss) {
    Evaluate(TorchTaskFamily(init, loss), {}, params, keys, {}, 2, false);
  };
  CHECK_THROWS_WITH_AS(
      evaluate([](const TorchEvaluation& e) -> TorchLoss { return e.params[0].sum(); }),
      "torch task: the loss function returned losses of shape [] and type Float, wanted shape [2] "
      "and type Float",
      Error);
  CHECK_THROWS_WITH_AS(
      evaluate([](const TorchEvaluation&) -> TorchLoss { return torch::Tensor(); }),
      "torch task: the loss function returned no losses", Error);
  CHECK_THROWS_WITH_AS(evaluate([](const TorchEvaluation& e) -> TorchLoss {
                         return torch::mm(e.params[0], e.params[0]).sum(1);
                       }),
                       doctest::Contains("torch task: loss failed: "), Error);
  CHECK_THROWS_WITH_AS(
      TorchTaskFamily(
          [](Key, const torch::Tensor&) -> NamedTensors {
            return {{"x", {}}};
          },
          [](const TorchEvaluation& e) -> TorchLoss { return e.params[0].sum(1); }),
      "torch task: init returned no tensor for 'x'", Error);
}

TEST_CASE("A model state is started by init, updated by the train split and used by the others") {
  const TaskResources resources("");
  const auto task = NormalizedPoints(resources);
  CHECK_EQ(task->params_layout(), Layout({{"w", {3, 1}}}));
  CHECK_EQ(task->model_state_layout(), Layout({{"mean", {3}}}));
  const torch::Tensor points = GetPoints(resources)->values;
  std::vector<float> params(6);
  std::vector<float> state(6, 5.0f);
  for (size_t row = 0; row < 2; ++row) {
    task->Init({}, KeyFromSeed(row), std::span(params).subspan(3 * row, 3),
               std::span(state).subspan(3 * row, 3));
  }
  CHECK(state == std::vector<float>(6, 0.0f));
  state = {1, 2, 3, 4, 5, 6};

  const std::vector<Key> keys = {KeyFromSeed(3), KeyFromSeed(4)};
  std::vector<float> losses(2);
  std::vector<float> aux(2);
  Workspace scratch;
  for (const Split split : {Split::kTrain, Split::kTest}) {
    const std::vector<float> before = state;
    task->Evaluate({.rows = 2,
                    .params = params,
                    .model_state = state,
                    .split = split,
                    .keys = keys,
                    .losses = losses,
                    .aux = aux},
                   scratch);
    const auto [first, last] = task->ExampleRange(split);
    for (size_t row = 0; row < 2; ++row) {
      std::vector<int32_t> batch(16);
      Randint(FoldIn(keys[row], 0), static_cast<int32_t>(first), static_cast<int32_t>(last), batch);
      std::vector<double> batch_mean(3);
      for (const int32_t point : batch) {
        for (int64_t i = 0; i < 3; ++i) batch_mean[i] += points[point][i].item<float>() / 16.0;
      }
      double loss = 0;
      for (const int32_t point : batch) {
        double error = -1;
        for (size_t i = 0; i < 3; ++i) {
          const double mean = split == Split::kTrain ? batch_mean[i] : before[3 * row + i];
          error +=
              params[3 * row + i] * (points[point][static_cast<int64_t>(i)].item<float>() - mean);
        }
        loss += error * error / 16;
      }
      CHECK_EQ(losses[row], doctest::Approx(loss).epsilon(1e-5));
      CHECK_EQ(aux[row], doctest::Approx((batch_mean[0] + batch_mean[1] + batch_mean[2]) / 3));
      for (size_t i = 0; i < 3; ++i) {
        const double old = before[3 * row + i];
        CHECK_EQ(state[3 * row + i],
                 doctest::Approx(split == Split::kTrain ? 0.75 * old + 0.25 * batch_mean[i] : old));
      }
    }
  }
}

TEST_CASE("A model state that the loss leaves as it is has the derivatives of differences") {
  const TorchTaskFamily task(
      [](Key, const torch::Tensor&) -> TorchStart {
        return {{{"w", torch::ones({2})}}, {{"scale", torch::ones({2})}}};
      },
      [](const TorchEvaluation& e) -> TorchLoss {
        return (e.params[0] * e.model_state[0] - 1).square().sum(1);
      });
  const std::vector<float> params = {0.5F, 2};
  const std::vector<float> state = {3, -1};
  const std::vector<float> factors = {7, 11};
  const std::vector<Key> keys = {KeyFromSeed(0)};
  Workspace scratch;
  for (const Split split : {Split::kTrain, Split::kTest}) {
    CAPTURE(static_cast<int>(split));
    // The loss plus the new model state times the factors.
    const auto outer = [&](std::vector<float> now) {
      std::vector<float> losses(1);
      task.Evaluate({.rows = 1,
                     .params = params,
                     .model_state = now,
                     .split = split,
                     .keys = keys,
                     .losses = losses},
                    scratch);
      return losses[0] + factors[0] * now[0] + factors[1] * now[1];
    };
    std::vector<float> d_params(2);
    std::vector<float> d_state(2);
    std::vector<float> here = state;
    task.Differentiate(
        {.rows = 1, .params = params, .model_state = here, .split = split, .keys = keys},
        {.loss = 1, .model_state = factors}, d_params, d_state, scratch);
    for (size_t i = 0; i < state.size(); ++i) {
      constexpr float kStep = 0.125F;  // exact: the loss is quadratic, its numbers short
      std::vector<float> above = state;
      std::vector<float> below = state;
      above[i] += kStep;
      below[i] -= kStep;
      CHECK_EQ(d_state[i], doctest::Approx((outer(above) - outer(below)) / (2 * kStep)));
    }
    CHECK_EQ(d_params[0], doctest::Approx(2 * (0.5 * 3 - 1) * 3));
  }
}

TEST_CASE("Replicas may be evaluated in turn by the loss function of all") {
  const auto init = [](Key key, const torch::Tensor&) -> NamedTensors {
    return {{"x", NormalTensor(key, {3})}};
  };
  std::vector<int64_t> seen;
  const auto loss = [&](const TorchEvaluation& e) -> TorchLoss {
    seen.push_back(e.params[0].size(0));
    return (e.params[0] * UniformTensor(e.keys, {3})).square().sum(1);
  };
  const std::vector<float> params = {1, 2, 3, 4, 5, 6};
  const std::vector<Key> keys = {KeyFromSeed(5), KeyFromSeed(6)};
  const TorchTaskFamily together(init, loss);
  const TorchTaskFamily in_turn(init, loss, {}, TorchRows::kInTurn);
  const Results wanted = Evaluate(together, {}, params, keys, {}, 2, false);
  CHECK(seen == std::vector<int64_t>{2});
  const Results got = Evaluate(in_turn, {}, params, keys, {}, 2, false);
  CHECK(seen == std::vector<int64_t>{2, 1, 1});
  CHECK(got.losses == wanted.losses);
  CHECK(got.gradients == wanted.gradients);
  CHECK_EQ(in_turn.PreferredRows(), 1);
  CHECK(RowsBySize(49e6) == TorchRows::kTogether);
  CHECK(RowsBySize(51e6) == TorchRows::kInTurn);
}

TEST_CASE("A loss function may be written for one replica") {
  const Recurrence task;
  CHECK_EQ(task.PreferredRows(), 1);
  const std::vector<float> config = {0.5f, -0.25f, 0, 2};
  std::vector<float> params(20);
  std::vector<float> state = {10, 20};
  for (size_t row = 0; row < 2; ++row) {
    task.Init(std::span(config).subspan(2 * row, 2), KeyFromSeed(row),
              std::span(params).subspan(10 * row, 10), std::span(state).subspan(row, 1));
  }
  CHECK(state == std::vector<float>{0, 0});
  const std::vector<Key> keys = {KeyFromSeed(5), KeyFromSeed(6)};
  std::vector<float> losses(2);
  std::vector<float> gradients(20);
  std::vector<float> aux(4);
  Workspace scratch;
  task.Evaluate({.rows = 2,
                 .config = config,
                 .params = params,
                 .model_state = state,
                 .keys = keys,
                 .losses = losses,
                 .gradients = gradients,
                 .aux = aux},
                scratch);
  CHECK(state == std::vector<float>{1, 1});
  for (size_t row = 0; row < 2; ++row) {
    const float* w = &params[10 * row];
    const float* u = w + 6;
    std::vector<float> x(15);
    Uniform(keys[row], x);
    double h[2] = {0, 0};
    for (size_t t = 0; t < 5; ++t) {
      double next[2] = {0, 0};
      for (size_t j = 0; j < 2; ++j) {
        for (size_t i = 0; i < 3; ++i) next[j] += double{x[3 * t + i]} * w[2 * i + j];
        for (size_t i = 0; i < 2; ++i) next[j] += h[i] * u[2 * i + j];
      }
      for (size_t j = 0; j < 2; ++j) h[j] = std::tanh(next[j]);
    }
    double loss = 0;
    for (size_t j = 0; j < 2; ++j) {
      loss += (h[j] - config[2 * row + j]) * (h[j] - config[2 * row + j]);
      CHECK_EQ(aux[2 * row + j], doctest::Approx(h[j]).epsilon(1e-5));
    }
    CHECK_EQ(losses[row], doctest::Approx(loss).epsilon(1e-5));
  }
}

TEST_CASE("A model state of the wrong size, and layouts given twice, are errors") {
  const auto init = [](Key, const torch::Tensor&) -> TorchStart {
    return {{{"x", torch::zeros({3})}}, {{"s", torch::zeros({2})}}};
  };
  const std::vector<float> params(3);
  std::vector<float> state(2);
  float loss = 0;
  const Key key{};
  const auto evaluate = [&](const std::vector<torch::Tensor>& new_state, Split split) {
    const TorchTaskFamily task(init, [&](const TorchEvaluation& e) -> TorchLoss {
      return {e.params[0].sum(1), {}, new_state};
    });
    Workspace scratch;
    task.Evaluate({.params = params,
                   .model_state = state,
                   .split = split,
                   .keys = {&key, 1},
                   .losses = {&loss, 1}},
                  scratch);
  };
  CHECK_THROWS_WITH_AS(evaluate({torch::zeros({1, 2}), torch::zeros({1, 2})}, Split::kTrain),
                       "torch task: the loss function returned 2 tensors of model state, wanted 1",
                       Error);
  CHECK_THROWS_WITH_AS(evaluate({torch::zeros({2})}, Split::kTrain),
                       "torch task: the loss function returned model state of shape [2] and type "
                       "Float, wanted shape [1, 2] and type Float",
                       Error);
  evaluate({torch::ones({1, 2})}, Split::kTest);
  evaluate({}, Split::kTrain);
  CHECK(state == std::vector<float>{0, 0});
  evaluate({torch::ones({1, 2})}, Split::kTrain);
  CHECK(state == std::vector<float>{1, 1});
  CHECK_THROWS_WITH_AS(
      TorchTaskFamily(init,
                      [](const TorchEvaluation& e) -> TorchLoss { return e.params[0].sum(1); },
                      {.params = Layout({{"x", {3}}})}),
      "torch task: the layouts of params and model_state are those of init; leave them out of the "
      "parts",
      Error);
}

TEST_CASE("Random tensors are functions of their keys") {
  const std::vector<Key> keys = {KeyFromSeed(1), KeyFromSeed(2)};
  std::vector<float> numbers(6);
  Uniform(keys[1], numbers);
  const torch::Tensor uniform = UniformTensor(keys, {2, 3});
  CHECK(uniform[1].equal(torch::from_blob(numbers.data(), {2, 3})));
  CHECK(uniform[0].equal(UniformTensor(keys[0], {2, 3})));
  Normal(keys[0], numbers);
  CHECK(NormalTensor(keys, {6})[0].equal(torch::from_blob(numbers.data(), {6})));
  CHECK(NormalTensor(keys, {6})[1].equal(NormalTensor(keys[1], {6})));
  std::vector<int32_t> integers(6);
  Randint(keys[1], -3, 12, integers);
  const torch::Tensor drawn = RandintTensor(keys, -3, 12, {6});
  for (int64_t i = 0; i < 6; ++i) {
    CHECK_EQ(drawn[1][i].item<int64_t>(), integers[static_cast<size_t>(i)]);
  }
  CHECK(drawn[0].equal(RandintTensor(keys[0], -3, 12, {6})));
}

// Two threads that multiply at once get wrong products from a BLAS that is not thread-safe, one in
// a thousand or so.
TEST_CASE("Many products on many threads are those of one thread") {
  const TorchTaskFamily task(
      [](Key key, const torch::Tensor&) -> NamedTensors {
        return {{"w", NormalTensor(key, {32, 64})}};
      },
      [](const TorchEvaluation& e) -> TorchLoss {
        const torch::Tensor x = torch::linspace(-1, 1, 128 * 32).view({1, 128, 32});
        torch::Tensor sum = torch::matmul(x, e.params[0]);
        for (int i = 0; i < 200; ++i) sum = sum + torch::matmul(x, e.params[0]);
        return sum.square().sum({1, 2});
      });
  constexpr int64_t kReplicas = 400;
  const std::vector<float> params = SomeParams(task, 1);
  std::vector<float> losses(kReplicas);
  ThreadPool(4).Run([&] {
    ParallelFor(kReplicas, [&](int64_t i) {
      const Key key;
      Workspace scratch;
      task.Evaluate(
          {.params = params, .keys = {&key, 1}, .losses = std::span(losses).subspan(i, 1)},
          scratch);
    });
  });
  for (const float loss : losses) CHECK(loss == losses[0]);
}

}  // namespace lopt

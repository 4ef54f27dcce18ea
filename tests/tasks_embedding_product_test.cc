#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/base/workspace.h"
#include "lopt/tasks/table/embedding_product.h"
#include "lopt/tasks/task_resources.h"
#include "tests/error_of.h"

namespace lopt {
namespace {

std::shared_ptr<const Ratings> Drawn(const RatingsOptions& options) {
  return GetRatings(options, TaskResources(""));
}

EmbeddingProduct Task(const EmbeddingProductOptions& options) {
  return {options, Drawn(options.ratings)};
}

double LossOf(const EmbeddingProduct& task, const std::vector<float>& params,
              std::vector<int32_t> examples, std::vector<float>* gradients = nullptr) {
  Workspace scratch;
  float loss = 0;
  TaskEvaluation evaluation{.params = params, .examples = examples, .losses = {&loss, 1}};
  if (gradients != nullptr) {
    gradients->assign(params.size(), 9);
    evaluation.gradients = *gradients;
  }
  task.Evaluate(evaluation, scratch);
  return double{loss};
}

std::vector<float> InitialParams(const EmbeddingProduct& task, Key key = KeyFromSeed(1)) {
  std::vector<float> params(static_cast<size_t>(task.params_layout().size()));
  task.Init({}, key, params, {});
  return params;
}

TEST_CASE("A rating is the product of the embeddings and both biases, by hand") {
  const EmbeddingProductOptions options{
      .ratings = {.rows = 3, .users = 2, .items = 3}, .batch_size = 1, .width = 2};
  const EmbeddingProduct task = Task(options);
  std::vector<std::string> names;
  for (const LayoutEntry& entry : task.params_layout().entries()) names.push_back(entry.name);
  CHECK(names == std::vector<std::string>{"users", "items", "user_bias", "item_bias"});
  // users [2, 2], items [2, 3], user_bias [1, 2], item_bias [1, 3]
  const std::vector<float> params = {1, 2, 3, 4, .5F, -1, .25F, 2, -3, 1, 10, 20, .1F, .2F, .3F};
  const auto ratings = Drawn(options.ratings);
  const std::vector<int32_t> examples = {0, 2};
  double wanted = 0;
  std::vector<double> slopes(params.size());
  for (const int32_t example : examples) {
    const Rating& row = ratings->rows()[static_cast<size_t>(example)];
    const int64_t u = row.user, i = 4 + row.item;
    const double error = double{params[u]} * params[i] + double{params[u + 2]} * params[i + 3] +
                         params[10 + u] + params[12 + row.item] - row.rating;
    wanted += error * error / 2;
    for (const int64_t k : {0, 1}) {
      slopes[u + 2 * k] += error * params[i + 3 * k];
      slopes[i + 3 * k] += error * params[u + 2 * k];
    }
    slopes[10 + row.user] += error;
    slopes[12 + row.item] += error;
  }
  std::vector<float> gradients;
  CHECK(LossOf(task, params, examples, &gradients) == doctest::Approx(wanted).epsilon(1e-6));
  CHECK(LossOf(task, params, examples) == doctest::Approx(wanted).epsilon(1e-6));
  // Sums of two products of float32.
  for (size_t n = 0; n < params.size(); ++n) {
    CHECK(double{gradients[n]} == doctest::Approx(slopes[n]).epsilon(1e-5));
  }
}

TEST_CASE("Ratings have mean 0 and variance 1 beside their noise, and most items are rare") {
  const RatingsOptions options{.rows = 200000, .users = 3000, .items = 40, .noise = .5};
  const auto ratings = Drawn(options);
  double mean = 0, square = 0;
  std::vector<double> often(40);
  std::vector<double> active(3000);
  const auto count = static_cast<double>(ratings->rows().size());
  for (const Rating& row : ratings->rows()) {
    mean += row.rating / count;
    square += double{row.rating} * row.rating / count;
    often[static_cast<size_t>(row.item)] += 1 / count;
    active[static_cast<size_t>(row.user)] += 1 / count;
  }
  // The items' vectors are 40 draws of 4 numbers, of which the first weighs a quarter: the
  // variance's standard deviation is about .3.
  CHECK(std::abs(mean) < .1);
  CHECK(std::abs(square - 1.25) < .8);
  double harmonic = 0;
  for (int i = 0; i < 40; ++i) harmonic += 1.0 / (i + 1);
  for (int i = 0; i < 40; ++i) {
    // Within five standard deviations of a binomial.
    const double p = 1 / (i + 1.0) / harmonic;
    CHECK(std::abs(often[static_cast<size_t>(i)] - p) < 5 * std::sqrt(p / count));
  }
  CHECK(std::ranges::min(active) > .2 / 3000);
  CHECK(std::ranges::max(active) < 3.0 / 3000);
}

TEST_CASE("Without noise ratings have the rank of the factors, and another seed draws others") {
  const auto exact = Drawn({.rows = 500, .users = 5, .items = 4, .rank = 2, .noise = 0});
  // Two ratings of one user and item are the same.
  std::vector<std::vector<float>> seen(20);
  for (const Rating& row : exact->rows()) {
    auto& of_pair = seen[static_cast<size_t>(row.user) * 4 + static_cast<size_t>(row.item)];
    of_pair.push_back(row.rating);
    CHECK(of_pair.front() == row.rating);
  }
  // The determinant of three users' ratings of three items is 0, as their rank is 2.
  const auto at = [&](size_t u, size_t i) { return double{seen[4 * u + i].at(0)}; };
  const double determinant = at(0, 0) * (at(1, 1) * at(2, 2) - at(1, 2) * at(2, 1)) -
                             at(0, 1) * (at(1, 0) * at(2, 2) - at(1, 2) * at(2, 0)) +
                             at(0, 2) * (at(1, 0) * at(2, 1) - at(1, 1) * at(2, 0));
  CHECK(std::abs(determinant) < 1e-5);
  CHECK(Drawn({.table_seed = 1})->rows()[0].rating != Drawn({.table_seed = 2})->rows()[0].rating);
}

TEST_CASE("More ratings to train on leave those held out as they are") {
  const auto few = Drawn({.rows = 100});
  const auto many = Drawn({.rows = 3000});
  const auto same = [](const Rating& a, const Rating& b) {
    return a.user == b.user && a.item == b.item && a.rating == b.rating;
  };
  CHECK(std::ranges::equal(few->rows().last(6000), many->rows().last(6000), same));
  CHECK(std::ranges::equal(few->rows().first(100), many->rows().first(100), same));
  CHECK(few->range(Split::kTrain) == std::pair<int64_t, int64_t>{0, 100});
  CHECK(few->range(Split::kInnerValid) == std::pair<int64_t, int64_t>{100, 2100});
  CHECK(few->range(Split::kTest) == std::pair<int64_t, int64_t>{4100, 6100});
}

TEST_CASE("Gradient descent from small params learns the ratings") {
  const EmbeddingProduct task = Task(
      {.ratings = {.rows = 3000, .users = 30, .items = 20, .rank = 2, .noise = 0}, .width = 4});
  std::vector<float> params = InitialParams(task);
  double square = 0;
  for (const float p : params) square += double{p} * p / static_cast<double>(params.size());
  CHECK(std::sqrt(square) == doctest::Approx(.1).epsilon(.2));
  std::vector<int32_t> all(3000);
  std::iota(all.begin(), all.end(), 0);
  const double before = LossOf(task, params, all);
  std::vector<float> gradients;
  for (int step = 0; step < 600; ++step) {
    LossOf(task, params, all, &gradients);
    for (size_t n = 0; n < params.size(); ++n) params[n] -= gradients[n];
  }
  CHECK(LossOf(task, params, all) < 1e-2 * before);
  std::vector<int32_t> held_out(2000);
  std::iota(held_out.begin(), held_out.end(), 3000);
  CHECK(LossOf(task, params, held_out) < 5e-2 * before);
}

TEST_CASE("Wrong options of ratings are errors") {
  const auto error = [](const EmbeddingProductOptions& options) {
    return ErrorOf([&] { Task(options); });
  };
  CHECK(error({.ratings = {.users = 0}}) ==
        "EmbeddingProduct: users must be in [1, 1000000], got 0");
  CHECK(error({.ratings = {.noise = -1}}) ==
        "EmbeddingProduct: noise must be in [0, 1000], got -1");
  CHECK(error({.ratings = {.users = 1000000, .rank = 1000}}) ==
        "EmbeddingProduct: rank 1000 times 1000000 users or items is more than 268435456 numbers");
  CHECK(error({.ratings = {.users = 1000000}, .width = 10000}) ==
        "EmbeddingProduct: width 10000 for 1000000 users and 400 items is more than 268435456 "
        "params");
  CHECK(error({.width = 0}) == "EmbeddingProduct: width must be in [1, 10000], got 0");
  CHECK(error({.init_std = 0}) == "EmbeddingProduct: init_std must be in [1e-06, 1000000], got 0");
  CHECK(ErrorOf([] { EmbeddingProduct(EmbeddingProductOptions{}, Drawn({.table_seed = 1})); }) ==
        "EmbeddingProduct: the ratings were drawn with other options");
}

}  // namespace
}  // namespace lopt

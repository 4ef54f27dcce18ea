#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lopt/base/isa.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/base/parallel.h"
#include "lopt/base/processor.h"
#include "lopt/tasks/image/image_mlp_kernel.h"
#include "tests/farthest.h"
#include "tests/image_rows.h"
#include "tests/reference/image_mlp_reference.h"
#include "tests/skip.h"

namespace lopt {
namespace {

// Uses one instruction set after the other, and the best again in the end.
template <class Body>
void OnEveryIsa(const Body& body) {
  const std::vector<std::string> isas = SupportedIsas();
  for (const std::string& isa : isas) {
    CAPTURE(isa);
    PinIsa(isa);
    body();
  }
  PinIsa(isas.front());
}

struct Problem {
  MlpShape shape;
  Activation activation;
  std::vector<float> params;
  ImageRows rows;
  std::vector<float> statistics = {};
  bool train = true;

  // `moved` is the copy of the running statistics that training changes.
  MlpEvaluation Evaluation(std::span<float> gradient, std::span<float> moved = {}) const {
    return {.activation = activation,
            .params = params,
            .statistics = moved,
            .train = train,
            .batch = rows.batch(),
            .gradient = gradient};
  }
};

// Random images with many zeros, labels and weights, so large that units saturate now and then.
Problem MakeProblem(std::vector<int64_t> sizes, Activation activation, int64_t examples) {
  MlpShape shape{.sizes = sizes};
  const Key key = FoldIn(KeyFromSeed(static_cast<uint64_t>(sizes[0])), examples);
  std::vector<float> images(examples * sizes[0]);
  Uniform(FoldIn(key, 0), images);
  for (float& pixel : images) pixel = pixel < 0.4f ? 0 : pixel;
  std::vector<int32_t> drawn(examples);
  Randint(FoldIn(key, 1), 0, static_cast<int32_t>(sizes.back()), drawn);
  std::vector<float> params(shape.params());
  Normal(FoldIn(key, 2), params);
  auto at = params.begin();
  for (size_t l = 0; l + 1 < sizes.size(); ++l) {
    const auto end = at + sizes[l] * sizes[l + 1];
    for (; at != end; ++at) *at *= 1.5f / std::sqrt(static_cast<float>(sizes[l]));
    at += sizes[l + 1];
  }
  return {shape, activation, params,
          ImageRows(sizes[0], images, std::vector<uint8_t>(drawn.begin(), drawn.end()))};
}

struct Outcome {
  ClassifierResult result;
  std::vector<float> gradient;
  std::vector<float> statistics;
};

template <class Function>
Outcome Run(const Function& function, const Problem& problem) {
  Outcome out{{}, std::vector<float>(problem.params.size()), problem.statistics};
  Workspace scratch;
  out.result = function(problem.shape, problem.Evaluation(out.gradient, out.statistics), scratch);
  return out;
}

void CheckAgainstReference(const Problem& problem, float tolerance = 1e-6f) {
  const Outcome wanted = Run(MlpLossReference, problem);
  float scale = 0;
  for (const float g : wanted.gradient) scale = std::max(scale, std::abs(g));
  OnEveryIsa([&] {
    const Outcome got = Run(MlpLoss, problem);
    CHECK(std::abs(got.result.loss - wanted.result.loss) < 1e-6f * (1 + wanted.result.loss));
    CHECK(got.result.correct == wanted.result.correct);
    CHECK(Farthest(got.gradient, wanted.gradient) <= tolerance * scale);
    CHECK(Farthest(got.statistics, wanted.statistics) <= 1e-6f);
    Workspace scratch;
    std::vector<float> statistics = problem.statistics;
    const ClassifierResult without =
        MlpLoss(problem.shape, problem.Evaluation({}, statistics), scratch);
    CHECK(statistics == got.statistics);
    CHECK(without.loss == got.result.loss);
    CHECK(without.correct == got.result.correct);
  });
}

TEST_CASE("The kernel agrees with the plain loops for layers and batches of any size") {
  for (const Activation activation : {Activation::kRelu, Activation::kTanh}) {
    for (const int64_t examples : {1, 2, 7, 8, 15, 16, 17, 31, 33, 100, 128}) {
      for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
               {64, 32, 10}, {9, 5, 3}, {16, 33, 10}, {25, 64, 11}, {4, 1, 2}, {1, 31, 7, 4}}) {
        CAPTURE(examples);
        CAPTURE(ToString(sizes));
        CheckAgainstReference(MakeProblem(sizes, activation, examples));
      }
    }
  }
}

TEST_CASE("The kernel agrees with the plain loops without hidden layers and with many") {
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{64, 10},
                                                                             {9, 2},
                                                                             {49, 26},
                                                                             {1, 1},
                                                                             {36, 17, 16, 15, 10},
                                                                             {64, 100, 65, 40},
                                                                             {196, 128, 128, 10}}) {
    for (const int64_t examples : {3, 40, 129}) {
      CAPTURE(ToString(sizes));
      CAPTURE(examples);
      CheckAgainstReference(MakeProblem(sizes, Activation::kRelu, examples));
    }
  }
}

TEST_CASE("The kernel agrees with the plain loops for every activation") {
  for (const Named<Activation>& activation : kActivations) {
    for (const std::vector<int64_t>& sizes :
         std::vector<std::vector<int64_t>>{{64, 32, 10}, {9, 5, 3}, {25, 40, 20, 10}}) {
      for (const int64_t examples : {1, 33, 128, 300}) {
        CAPTURE(activation.name);
        CAPTURE(ToString(sizes));
        CAPTURE(examples);
        CheckAgainstReference(MakeProblem(sizes, activation.value, examples));
      }
    }
  }
}

// Adds a norm with random scales, offsets and running statistics.
Problem Normalized(const Problem& plain, Norm norm) {
  Problem problem = plain;
  problem.shape.norm = norm;
  problem.params.clear();
  const MlpShape& shape = problem.shape;
  auto from = plain.params.begin();
  for (int64_t l = 0; l < shape.layers(); ++l) {
    const auto end = from + plain.shape.params(l);
    problem.params.insert(problem.params.end(), from, end);
    from = end;
    if (l + 1 == shape.layers()) continue;
    std::vector<float> more(2 * shape.sizes[l + 1]);
    Uniform(FoldIn(KeyFromSeed(3), l), more);
    problem.params.insert(problem.params.end(), more.begin(), more.end());
    Uniform(FoldIn(KeyFromSeed(4), l), more);
    if (norm == Norm::kBatch) {
      problem.statistics.insert(problem.statistics.end(), more.begin(), more.end());
    }
  }
  return problem;
}

TEST_CASE("The kernel agrees with the plain loops with norms, in training and out of it") {
  for (const Norm norm : {Norm::kLayer, Norm::kBatch}) {
    for (const Activation activation : {Activation::kRelu, Activation::kTanh, Activation::kGelu}) {
      for (const std::vector<int64_t>& sizes :
           std::vector<std::vector<int64_t>>{{64, 32, 10}, {9, 5, 3}, {25, 40, 20, 10}, {16, 4}}) {
        for (const int64_t examples : {5, 33, 128, 300, 600}) {
          for (const bool train : {true, false}) {
            Problem problem = Normalized(MakeProblem(sizes, activation, examples), norm);
            problem.train = train;
            CAPTURE(ToString(sizes));
            CAPTURE(examples);
            CAPTURE(train);
            CheckAgainstReference(problem, 5e-6f);
          }
        }
      }
    }
  }
}

TEST_CASE("A batch norm's running statistics move a tenth of the way to the batch's") {
  // One input, one unit of weight 1 and bias 0: the unit's values are 1, 2, 3 and 6.
  Problem problem{MlpShape{.sizes = {1, 1, 2}, .norm = Norm::kBatch},
                  Activation::kRelu,
                  {1, 0, 1, 0, 1, -1, 0, 0},
                  ImageRows(1, std::vector<float>{1, 2, 3, 6}, {0, 1, 0, 1}),
                  {0, 1}};
  std::vector<float> gradient(problem.params.size());
  for (const auto& function : {MlpLoss, MlpLossReference}) {
    std::vector<float> statistics = problem.statistics;
    Workspace scratch;
    function(problem.shape, problem.Evaluation(gradient, statistics), scratch);
    CHECK(statistics[0] == doctest::Approx(0.1 * 3));
    CHECK(statistics[1] == doctest::Approx(0.9 + 0.1 * 14 / 3));
    problem.train = false;
    function(problem.shape, problem.Evaluation(gradient, statistics), scratch);
    CHECK(statistics[0] == doctest::Approx(0.1 * 3));
    problem.train = true;
  }
}

TEST_CASE("Paced stores change no bit of losses and gradients") {
  const auto paces = [](const std::string& isa) { return isa.starts_with("avx3"); };
  if (std::ranges::none_of(SupportedIsas(), paces)) {
    return SkipTest("no instruction set of this processor has vectors of 16 floats");
  }
  const auto run = [](bool paced, const Problem& problem) {
    const PacedStoresScope scope(paced);
    return Run(MlpLoss, problem);
  };
  for (const int64_t examples : {1, 7, 33, 128}) {
    for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
             {64, 32, 10}, {1, 31, 7, 4}, {16, 33, 10}, {4, 1, 2}, {300, 64, 48, 11}}) {
      CAPTURE(examples);
      CAPTURE(ToString(sizes));
      const Problem problem = MakeProblem(sizes, Activation::kRelu, examples);
      OnEveryIsa([&] {
        const Outcome paced = run(true, problem);
        const Outcome at_once = run(false, problem);
        CHECK(paced.result.loss == at_once.result.loss);
        CHECK(paced.gradient == at_once.gradient);
      });
    }
  }
}

TEST_CASE("A batch that takes several passes gives the mean over all of it") {
  for (const int64_t examples : {256, 257, 600}) {
    CheckAgainstReference(MakeProblem({25, 12, 10}, Activation::kTanh, examples));
    CheckAgainstReference(MakeProblem({25, 64, 32, 10}, Activation::kRelu, examples));
  }
}

TEST_CASE("NaN and infinite weights go where the plain loops put them") {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY, 1e30f}) {
    for (const std::vector<int64_t>& sizes :
         std::vector<std::vector<int64_t>>{{9, 5, 3}, {16, 33, 10}, {25, 40, 20, 10}}) {
      Problem problem = MakeProblem(sizes, Activation::kRelu, 19);
      for (const size_t at : {size_t{0}, problem.params.size() / 2, problem.params.size() - 1}) {
        const float good = problem.params[at];
        problem.params[at] = bad;
        const Outcome wanted = Run(MlpLossReference, problem);
        OnEveryIsa([&] {
          const Outcome got = Run(MlpLoss, problem);
          CHECK(std::isnan(got.result.loss) == std::isnan(wanted.result.loss));
          if (std::isfinite(wanted.result.loss)) {
            CHECK(got.result.loss == doctest::Approx(wanted.result.loss).epsilon(1e-5));
          }
          for (size_t i = 0; i < got.gradient.size(); ++i) {
            CHECK(std::isnan(got.gradient[i]) == std::isnan(wanted.gradient[i]));
          }
        });
        problem.params[at] = good;
      }
    }
  }
}

TEST_CASE("Logits far apart give exact losses and vanishing gradients") {
  const ImageRows rows(1, std::vector<float>{0, 0}, {0, 1});
  const MlpShape shape{.sizes = {1, 3}};
  const std::vector<float> params = {0, 0, 0, 300, -300, -80};
  std::vector<float> gradient(6);
  Workspace scratch;
  OnEveryIsa([&] {
    const ClassifierResult out =
        MlpLoss(shape, {.params = params, .batch = rows.batch(), .gradient = gradient}, scratch);
    CHECK(out.loss == 300);
    CHECK(out.correct == 1);
    CHECK(gradient[3] == 0.5f);
    CHECK(gradient[4] == -0.5f);
    CHECK(std::abs(gradient[5]) < 1e-34f);
  });
}

TEST_CASE(
    "Small shares of the softmax are as accurate as an exponential to two units in the last "
    "place") {
  const ImageRows rows(1, std::vector<float>{0}, {0});
  const MlpShape shape{.sizes = {1, 2}};
  std::vector<float> gradient(4);
  Workspace scratch;
  OnEveryIsa([&] {
    double worst = 0;
    for (int i = 0; i < 2000; ++i) {
      const float logit = -0.039f * static_cast<float>(i);
      const std::vector<float> params = {0, 0, 0, logit};
      MlpLoss(shape, {.params = params, .batch = rows.batch(), .gradient = gradient}, scratch);
      const double e = std::exp(static_cast<double>(logit));
      worst = Farther(worst, std::abs(gradient[3] / (e / (1 + e)) - 1));
    }
    // Two units of e itself, and a rounding of the sum, of its inverse and of their product.
    CHECK(worst < 3.5 * 0x1p-23);
  });
}

TEST_CASE("The same problem gives the same bits in every thread and in used scratch memory") {
  const Problem problem = MakeProblem({64, 32, 10}, Activation::kRelu, 100);
  const Outcome wanted = Run(MlpLoss, problem);
  WorkspacePool workspaces;
  ThreadPool pool(2);
  std::vector<int> same(16);
  pool.Run([&] {
    ParallelFor(16, [&](int64_t i) {
      WorkspacePool::Lease scratch(workspaces);
      std::vector<float> gradient(problem.params.size());
      const ClassifierResult result =
          MlpLoss(problem.shape, problem.Evaluation(gradient), *scratch);
      same[i] = result.loss == wanted.result.loss && gradient == wanted.gradient;
    });
  });
  CHECK(std::count(same.begin(), same.end(), 1) == 16);
}

}  // namespace
}  // namespace lopt

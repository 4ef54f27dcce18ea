// Denormal numbers in gradients, params and states.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/denormals.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/base/parallel.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/registry.h"

namespace lopt {
namespace {

const char* const kOptimizers[] = {R"({"type": "LearnableSGDM"})",   R"({"type": "LearnableAdam"})",
                                   R"({"type": "MLPLOpt"})",         R"({"type": "AdafacMLPLOpt"})",
                                   R"({"type": "Celo2"})",           R"({"type": "SOAP"})",
                                   R"({"type": "LearnedScheduler",
        "optimizer": {"type": "OrthogonalSteps", "optimizer": {"type": "LearnableSGDM"}}})",
                                   R"({"type": "MatricesAndVectors",
        "matrices": {"type": "MLPLOpt"}, "vectors": {"type": "LearnableAdam"}})"};

struct Trained {
  std::vector<float> params;
  std::vector<float> state;
  bool operator==(const Trained&) const = default;
};

// Three updates of a tensor that is updated in pieces, and of a small one. A third of the gradients
// is ordinary, a third denormal, and a third has denormal squares.
Trained Train(const std::string& optimizer, float denormal = 1e-39f) {
  const auto learned = OptimizerRegistry().Make(Config::Parse(optimizer, "test"));
  const Layout layout({{"w", {300, 250}}, {"b", {10}}});
  const Eigen::VectorXf theta = learned->InitTheta(KeyFromSeed(0));
  const auto rule = learned->Bind(layout, {theta.data(), static_cast<size_t>(theta.size())});
  Trained run{.params = std::vector<float>(static_cast<size_t>(layout.size())),
              .state = std::vector<float>(static_cast<size_t>(rule->state_layout().size()))};
  std::vector<float> gradient(run.params.size());
  Normal(KeyFromSeed(1), run.params);
  Normal(KeyFromSeed(2), gradient);
  for (size_t i = 0; i < gradient.size(); ++i) {
    if (i % 3 == 1) gradient[i] *= denormal;
    if (i % 3 == 2) gradient[i] *= 1e-20f;
  }
  rule->InitState({.num_steps = 3}, run.params, run.state);
  Workspace scratch;
  for (int64_t step = 0; step < 3; ++step) {
    rule->Update({.step = step, .num_steps = 3}, gradient, run.params, run.state, scratch);
  }
  return run;
}

TEST_CASE(
    "An update has the same bits whatever denormal numbers are to its caller, on any threads") {
  ThreadPool pool(3);
  for (const char* optimizer : kOptimizers) {
    INFO(optimizer);
    const Trained plain = Train(optimizer);
    Trained flushed;
    {
      const FlushDenormals flush;
      flushed = Train(optimizer);
    }
    CHECK_FALSE(FlushDenormals::Active());
    CHECK(flushed == plain);
    Trained threads;
    pool.Run([&] { threads = Train(optimizer); });
    CHECK(threads == plain);
  }
}

TEST_CASE("A denormal number in a gradient does what a zero does") {
  for (const char* optimizer : kOptimizers) {
    INFO(optimizer);
    CHECK(Train(optimizer, 1e-39f) == Train(optimizer, 0));
    CHECK(Train(optimizer, 1e-44f) == Train(optimizer, 0));
  }
}

TEST_CASE("Momentum without gradients ends at 0") {
  const auto sgdm = OptimizerRegistry().Make(Config::Parse(R"({"type": "LearnableSGDM"})", "test"));
  const Eigen::VectorXf theta = sgdm->InitTheta(KeyFromSeed(0));
  const auto rule =
      sgdm->Bind(Layout({{"w", {2}}}), {theta.data(), static_cast<size_t>(theta.size())});
  std::vector<float> params = {1, 1};
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  std::vector<float> gradient = {1, 0};
  Workspace scratch;
  for (int64_t step = 0; step < 1000; ++step) {  // .9^1000 = 2e-46
    rule->Update({.step = step}, gradient, params, state, scratch);
    gradient = {0, 0};
  }
  for (const float value : state) CHECK(value == 0);
}

}  // namespace
}  // namespace lopt

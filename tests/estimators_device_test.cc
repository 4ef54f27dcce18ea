#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/eigen.h"
#include "base/error.h"
#include "estimators/device_program.h"
#include "estimators/lopt_problem.h"
#include "estimators/registry.h"
#include "lopt/registry.h"
#include "tasks/registry.h"
#include "tests/error_of.h"

namespace lopt {
namespace {

Config Parsed(const std::string& text) { return Config::Parse(text, "test"); }

struct Case {
  std::string task;
  std::string optimizer;
  std::string schedule = R"({"type": "ConstantTruncationSchedule", "total_length": 7})";
  LoptProblemOptions options = {};
};

std::unique_ptr<LoptProblem> MakeProblem(const Case& of, const std::string& device) {
  return std::make_unique<LoptProblem>(TaskRegistry().Make(Parsed(of.task), TaskResources("")),
                                       OptimizerRegistry().Make(Parsed(of.optimizer)),
                                       ScheduleRegistry().Make(Parsed(of.schedule)), of.options,
                                       FindDevice(device));
}

double Apart(double a, double b) {
  return std::abs(a - b) / std::max({1.0, std::abs(a), std::abs(b)});
}

// Two windows of twins under perturbed thetas on both; the largest relative difference of losses
// and of params after them.
struct Difference {
  double losses = 0;
  double params = 0;
};

Difference CompareWithHost(const Case& of, int64_t steps = 10) {
  constexpr int64_t kPairs = 2;
  Difference difference;
  const auto host = MakeProblem(of, "cpu");
  const auto device = MakeProblem(of, "emulated");
  const Eigen::VectorXf theta = host->optimizer().InitTheta(KeyFromSeed(3));
  const Perturbations perturbations(SplitKey(KeyFromSeed(4), kPairs), 0.05, theta.size());
  const ThetaRows rows = {
      .theta = AsSpan(theta), .rows = 2 * kPairs, .perturbations = &perturbations};
  std::vector<Key> keys = SplitKey(KeyFromSeed(5), kPairs);
  keys.insert(keys.end(), keys.begin(), keys.begin() + kPairs);
  UnrollState states[2] = {host->Start(rows, {}, keys), device->Start(rows, {}, keys)};
  for (int window = 0; window < 2; ++window) {
    UnrollTrace traces[2];
    const LoptProblem* problems[2] = {host.get(), device.get()};
    for (int i = 0; i < 2; ++i) {
      problems[i]->Run(
          {.theta = rows, .keys = keys, .steps = steps, .state = &states[i], .trace = &traces[i]});
    }
    for (int64_t b = 0; b < rows.rows; ++b) {
      for (int64_t k = 0; k < steps; ++k) {
        difference.losses =
            std::max(difference.losses, Apart(traces[0].loss(k, b), traces[1].loss(k, b)));
        CHECK_EQ(traces[0].iteration(k, b), traces[1].iteration(k, b));
        CHECK_EQ(traces[0].is_last(k, b), traces[1].is_last(k, b));
      }
    }
  }
  for (const auto& [name, array] : states[0]) {
    const Array other = states[1].At(name).To(HostMemory());
    REQUIRE(other.shape() == array.shape());
    if (array.dtype() != DType::kFloat32) {
      CHECK_MESSAGE(other == array, name);
      continue;
    }
    for (size_t i = 0; i < array.As<float>().size(); ++i) {
      difference.params =
          std::max(difference.params, Apart(array.As<float>()[i], other.As<float>()[i]));
    }
  }
  return difference;
}

TEST_CASE("MLPLOpt on a device makes the steps that it makes on the host") {
  for (const char* options :
       {R"("hidden_size": 4)", R"("hidden_size": 16)", R"("hidden_size": 17, "hidden_layers": 3)",
        R"("hidden_size": 32)", R"("hidden_size": 33, "hidden_layers": 1)",
        R"("hidden_size": 64, "hidden_layers": 4)",
        R"("hidden_size": 5, "progress_features": true, "schedule": "cosine",
            "relative_step": true, "relative_to_parameter": true)"}) {
    for (const char* task : {R"({"type": "FixedDimQuadraticFamily", "dim": 10})",
                             R"({"type": "NoisyQuadraticFamily", "dim": 33})",
                             R"({"type": "QuadraticTask", "dim": 1})",
                             R"({"type": "LogQuadraticTask", "dim": 300})"}) {
      CAPTURE(options);
      CAPTURE(task);
      const Difference difference = CompareWithHost(
          {.task = task,
           .optimizer = std::string(R"({"type": "MLPLOpt", "step_mult": 0.1, )") + options + "}"});
      CHECK_LT(difference.losses, 2e-5);
      CHECK_LT(difference.params, 2e-5);
    }
  }
}

}  // namespace
}  // namespace lopt

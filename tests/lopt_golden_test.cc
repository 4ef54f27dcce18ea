#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/config.h"
#include "lopt/base/safetensors.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/lopt/registry.h"
#include "tests/farthest.h"
#include "tests/golden_dir.h"
#include "tests/reference/mlp_lopt_reference.h"

namespace lopt {
namespace {

// Steps of an optimizer, by another program. Arrays: "theta/<tensor>"; "param0/<tensor>" before the
// first step; "gradient/<tensor>" and "param/<tensor>", the params after it, [steps, the tensor's].
// Metadata: "optimizer", its type and options in JSON, and "steps".
struct Trace {
  explicit Trace(const std::string& name) : path(GoldenPath(name)), file(ReadArrayFile(path)) {
    steps = std::stoll(file.metadata.at("steps"));
    std::vector<std::pair<std::string, Shape>> tensors;
    for (const auto& [tensor, array] : file.arrays.Extract("param0/"))
      tensors.emplace_back(tensor, array.shape());
    params = Layout(tensors);
  }

  Config Optimizer() const { return Config::Parse(file.metadata.at("optimizer"), path); }

  // The largest difference over all steps to the trace's arrays of this prefix: of the params, or
  // of those that the run stands for.
  double Replay(const LearnedOptimizer& optimizer, const std::string& prefix = "param/") const {
    std::vector<float> theta(static_cast<size_t>(optimizer.theta_layout().size()));
    RowFromArrays(optimizer.theta_layout(), file.arrays, "theta/", theta);
    const std::unique_ptr<UpdateRule> rule = optimizer.Bind(params, theta);
    std::vector<float> p(static_cast<size_t>(params.size()));
    RowFromArrays(params, file.arrays, "param0/", p);
    std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
    rule->InitState({}, p, state);
    std::vector<float> gradient(p.size());
    Workspace scratch;
    double worst = 0;
    for (int64_t step = 0; step < steps; ++step) {
      for (const LayoutEntry& entry : params.entries()) {
        const auto all = file.arrays.At("gradient/" + entry.name).As<float>();
        std::copy_n(all.begin() + step * entry.size, entry.size, gradient.begin() + entry.offset);
      }
      rule->Update({.step = step, .num_steps = steps}, gradient, p, state, scratch);
      const std::span<const float> got = prefix == "param/" ? p : rule->EvalParams(p, state);
      for (const LayoutEntry& entry : params.entries()) {
        const auto all = file.arrays.At(prefix + entry.name).As<float>();
        worst = Farther(worst, Farthest(got.subspan(entry.offset, entry.size),
                                        all.subspan(step * entry.size, entry.size)));
      }
    }
    return worst;
  }

  std::string path;
  ArrayFile file;
  int64_t steps;
  Layout params;
};

TEST_CASE("A NaN in a trace is found, the other's as well, wherever it is") {
  const std::vector<float> numbers = {3, -4, 0};
  CHECK(Farthest(numbers, numbers) == 0);
  CHECK(Farthest(numbers, std::vector<double>{3, -4.5, 0.25}) == 0.5);
  CHECK(FarthestOfLargest(std::vector<float>{3, -3, 0}, numbers) == 0.25);
  CHECK(FarthestOfLargest(std::vector<float>{1e-38F}, std::vector<float>{0}) == 0);
  CHECK(std::isinf(FarthestOfLargest(std::vector<float>{1}, std::vector<float>{0})));
  for (size_t i = 0; i < numbers.size(); ++i) {
    CAPTURE(i);
    std::vector<float> others = numbers;
    others[i] = NAN;
    for (const double far :
         {Farthest(numbers, others), Farthest(others, numbers), FarthestOfLargest(numbers, others),
          FarthestOfLargest(others, numbers)}) {
      CHECK(std::isinf(far));
    }
    const std::vector<float> zeros(1);
    CHECK(std::isinf(FarthestOfLargest(std::vector<float>{NAN}, zeros)));
  }
  CHECK(std::isinf(Farther(Farther(0.0, NAN), 1)));

  const Trace trace("mlp_lopt_steps.safetensors");
  const ReferenceMLPLOpt optimizer(ReadOptions<MLPLOptOptions>(trace.Optimizer()));
  const std::string name = "param/" + trace.params.entries().front().name;
  for (const bool first : {true, false}) {
    Trace changed = trace;
    const auto numbers_of = changed.file.arrays.At(name).As<float>();
    (first ? numbers_of.front() : numbers_of.back()) = NAN;
    CHECK(std::isinf(changed.Replay(optimizer)));
  }
}

TEST_CASE("the reference of MLPLOpt reproduces the golden step traces to 3e-7") {
  for (const std::string name :
       {"mlp_lopt_steps.safetensors", "mlp_lopt_steps_large.safetensors"}) {
    CAPTURE(name);
    const Trace trace(name);
    REQUIRE(trace.Optimizer().Type() == "MLPLOpt");
    const ReferenceMLPLOpt optimizer(ReadOptions<MLPLOptOptions>(trace.Optimizer()));
    CHECK(trace.Replay(optimizer) <= 3e-7);
  }
}

TEST_CASE("MLPLOpt from the registry reproduces the golden step traces to 1e-6") {
  for (const std::string name :
       {"mlp_lopt_steps.safetensors", "mlp_lopt_steps_large.safetensors"}) {
    CAPTURE(name);
    const Trace trace(name);
    CHECK(trace.Replay(*OptimizerRegistry().Make(trace.Optimizer())) <= 1e-6);
  }
}

TEST_CASE(
    "LearnableAdam and LearnableSGDM from the registry reproduce the golden step traces to 3e-7") {
  for (const std::string name :
       {"learnable_adam_steps.safetensors", "learnable_sgdm_steps.safetensors"}) {
    CAPTURE(name);
    const Trace trace(name);
    CHECK(trace.Replay(*OptimizerRegistry().Make(trace.Optimizer())) <= 3e-7);
  }
}

TEST_CASE("hand-designed optimizers reproduce the steps of the field's packages to 3e-6") {
  for (const std::string name :
       {"nesterov_steps.safetensors", "nadamw_steps.safetensors", "lion_steps.safetensors",
        "schedule_free_adamw_steps.safetensors", "muon_steps.safetensors",
        "muon_rms_steps.safetensors", "soap_steps.safetensors", "prodigy_steps.safetensors"}) {
    CAPTURE(name);
    const Trace trace(name);
    CHECK(trace.Replay(*OptimizerRegistry().Make(trace.Optimizer())) <= 3e-6);
  }
}

TEST_CASE("ScheduleFreeAdamW stands for the average of its package's steps to 1e-6") {
  const Trace trace("schedule_free_adamw_steps.safetensors");
  CHECK(trace.Replay(*OptimizerRegistry().Make(trace.Optimizer()), "average/") <= 1e-6);
}

}  // namespace
}  // namespace lopt

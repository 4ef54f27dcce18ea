#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "lopt/base/device.h"
#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/lopt/adafac/adafac_mlp_lopt.h"
#include "lopt/lopt/celo2/celo2.h"
#include "lopt/lopt/device_rules.h"
#include "lopt/lopt/golden_steps.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "tests/host_replica.h"
#include "tests/reference/adafac_mlp_lopt_reference.h"
#include "tests/reference/celo2_reference.h"
#include "tests/reference/mlp_lopt_reference.h"
#include "tests/rule_pair.h"

namespace lopt {

// The functions that a device has for a rule, run on the host.
template <class Functions>
class RuleOnBlock {
 public:
  using Args = typename Functions::Args;

  RuleOnBlock(const Args& args, const RulePair& pair, bool resident,
              ThreadOrder order = ThreadOrder::kForward)
      : args_(args),
        state_size_(std::ssize(pair.start.state)),
        block_(static_cast<int>(std::clamp<int64_t>((pair.layout.size() + 31) / 32 * 32, 32, 256)),
               nullptr, order),
        replica_(pair.start.params,
                 {.state = resident ? Functions::StateFloats(args) : state_size_,
                  .weights = Functions::WeightFloats(args),
                  .scratch = Functions::ScratchFloats(args, block_.threads())},
                 resident) {
    for (int64_t i = 0; i < state_size_; ++i) {
      replica_.replica().state[Place(i)] = pair.start.state[i];
    }
    Functions::Bind(
        block_, args_, [&](int64_t i) { return pair.theta[i]; }, replica_.replica());
  }

  void Update(int64_t step, std::span<const float> gradient) {
    std::ranges::copy(gradient, replica_.replica().gradient);
    Functions::Update(block_, args_, {.step = step, .num_steps = RulePair::kNumSteps},
                      replica_.replica());
  }

  RuleRun run() const {
    RuleRun run{.params = replica_.params(), .state = {}};
    for (int64_t i = 0; i < state_size_; ++i) {
      run.state.push_back(replica_.replica().state[Place(i)]);
    }
    return run;
  }

 private:
  int64_t Place(int64_t i) const {
    return replica_.replica().resident ? Functions::PlaceOfState(args_, i) : i;
  }

  Args args_;
  int64_t state_size_;
  Block block_;
  HostReplica replica_;
};

// Calls check with the functions of a device for so many hidden units.
template <template <int> class Functions, int kWidth, int... kWider>
void WithWidth(int64_t hidden, const auto& check) {
  if constexpr (sizeof...(kWider) > 0) {
    if (hidden > kWidth) return WithWidth<Functions, kWider...>(hidden, check);
  }
  check.template operator()<Functions<kWidth>>();
}

// A rule under way that a device has functions for, and its oracle.
struct MlpLoptCase : RulePair {
  MlpLoptCase(const MLPLOptOptions& options, const Layout& layout)
      : RulePair(MLPLOpt(options), ReferenceMLPLOpt(options), layout), optimizer(options) {
    BeginUnderWay(3);
  }
  // check<Functions>(args) with those for the options' hidden units.
  void WithFunctions(const auto& check) const {
    WithWidth<MlpLoptDevice, 16, 32, 64>(optimizer.options().hidden_size, [&]<class Functions>() {
      DeviceConstants constants(HostMemory());
      check.template operator()<Functions>(
          *MlpLoptArgsOf(optimizer, layout, Functions::kGroup, &constants));
    });
  }

  MLPLOpt optimizer;
};

struct AdafacCase : RulePair {
  AdafacCase(const AdafacMLPLOptOptions& options, const Layout& layout)
      : RulePair(AdafacMLPLOpt(options), ReferenceAdafacMLPLOpt(options), layout),
        optimizer(options) {
    BeginUnderWay(3);
  }
  void WithFunctions(const auto& check) const {
    WithWidth<AdafacMlpLoptDevice, 4, 32, 64>(
        optimizer.options().hidden_size, [&]<class Functions>() {
          DeviceConstants constants(HostMemory());
          check.template operator()<Functions>(
              *AdafacArgsOf(optimizer, layout, Functions::kGroup, &constants));
        });
  }

  AdafacMLPLOpt optimizer;
};

template <class Optimizer, class Reference, class Options>
struct Celo2CaseOf : RulePair {
  Celo2CaseOf(const Options& options, const Layout& layout)
      : RulePair(Optimizer(options), Reference(options), layout), optimizer(options) {
    BeginUnderWay(3);
    for (float& g : gradient) g *= 300;  // some are clipped
  }
  void WithFunctions(const auto& check) const {
    DeviceConstants constants(HostMemory());
    check.template operator()<Celo2Device>(
        *Celo2ArgsOf(optimizer, layout, Celo2Device::kGroup, &constants));
  }

  Optimizer optimizer;
};
using Celo2BaseCase = Celo2CaseOf<Celo2Base, ReferenceCelo2Base, Celo2BaseOptions>;
using Celo2Case = Celo2CaseOf<Celo2, ReferenceCelo2, Celo2Options>;

// What a device's functions make of golden steps; nothing for types that no device has, and for
// networks in bfloat16. They run behind `before`, which is called when the rest is made.
inline std::optional<GoldenDeviation> RepeatOnDevice(
    const GoldenSteps& golden, const LearnedOptimizer& optimizer, const Eigen::VectorXf& theta,
    const std::function<void()>& before = [] {}) {
  const auto repeat = [&](auto&& rule) {
    Require(golden.num_steps == RulePair::kNumSteps, "golden steps of {} steps, not {}",
            golden.num_steps, RulePair::kNumSteps);
    rule.theta = theta;
    rule.start.params = golden.params;
    std::ranges::fill(rule.start.state, 0.0f);
    std::optional<GoldenDeviation> found;
    before();
    rule.WithFunctions([&]<class Functions>(const typename Functions::Args& args) {
      RuleOnBlock<Functions> on_block(args, rule, true);
      for (int64_t update = 0; update < std::ssize(golden.steps); ++update) {
        on_block.Update(golden.steps[update], GoldenGradient(golden, update));
      }
      found = CompareGoldenResult(golden, "device", on_block.run().params);
    });
    return found;
  };
  if (const auto* one = dynamic_cast<const MLPLOpt*>(&optimizer)) {
    if (one->options().precision != Precision::kFloat32) return std::nullopt;
    return repeat(MlpLoptCase(one->options(), golden.layout));
  }
  if (const auto* one = dynamic_cast<const AdafacMLPLOpt*>(&optimizer)) {
    return repeat(AdafacCase(one->options(), golden.layout));
  }
  if (const auto* one = dynamic_cast<const Celo2*>(&optimizer)) {
    return repeat(Celo2Case(one->options(), golden.layout));
  }
  if (const auto* one = dynamic_cast<const Celo2Base*>(&optimizer)) {
    const Celo2Options& options = one->options();
    return repeat(Celo2BaseCase({.learning_rate = options.learning_rate,
                                 .weight_decay = options.weight_decay,
                                 .schedule = options.schedule},
                                golden.layout));
  }
  return std::nullopt;
}

}  // namespace lopt

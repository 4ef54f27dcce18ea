#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/eigen.h"
#include "lopt/lopt/adafac/adafac_mlp_lopt.h"
#include "lopt/lopt/celo2/celo2.h"
#include "lopt/lopt/golden_steps.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "tests/device_rule.h"
#include "tests/error_of.h"
#include "tests/farthest.h"
#include "tests/optimizer_examples.h"
#include "tests/rule_pair.h"

namespace lopt {
namespace {

// Ranks from 0 to 5, ties of the largest axes, sizes around warps, blocks of the state and groups.
Layout DeviceShapes() {
  return Layout({{"none", {0, 3}},
                 {"r0", {}},
                 {"v3", {3}},
                 {"v16", {16}},
                 {"v17", {17}},
                 {"empty", {0}},
                 {"v255", {255}},
                 {"v1000", {1000}},
                 {"one", {1, 1}},
                 {"r2", {3, 5}},
                 {"tall", {41, 1}},
                 {"square", {16, 16}},
                 {"down", {40, 10}},
                 {"up", {2, 270}},
                 {"r3", {7, 5, 2}},
                 {"tie", {4, 2, 4}},
                 {"conv", {3, 3, 5, 7}},
                 {"inner", {9, 8, 3}},
                 {"r5", {2, 3, 1, 3, 2}},
                 {"last", {5, 0, 2}}});
}

// A few of them.
Layout FewDeviceShapes() {
  return Layout({{"r0", {}}, {"v17", {17}}, {"r2", {9, 5}}, {"conv", {3, 2, 4, 2}}});
}

// The largest difference of two rows beside the largest magnitude of `sizes` in its tensor, or a
// tenth of that in any.
double LargestDifference(const Layout& layout, std::span<const float> a, std::span<const float> b,
                         std::span<const float> sizes) {
  double least = 0;
  for (const float size : sizes) {
    if (std::isfinite(size)) least = std::max(least, .1 * std::abs(double{size}));
  }
  double largest = 0;
  for (const LayoutEntry& entry : layout.entries()) {
    double size = least;
    double apart = 0;
    for (int64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
      if (!Agree(a[i], b[i], std::numeric_limits<double>::infinity())) return INFINITY;
      if (!std::isfinite(b[i]) || !std::isfinite(sizes[i])) continue;
      size = std::max(size, std::abs(double{sizes[i]}));
      apart = Farther(apart, std::abs(double{a[i]} - double{b[i]}));
    }
    if (apart > 0) largest = Farther(largest, apart / size);
  }
  return largest;
}

std::vector<float> StepsOf(const RulePair& pair, const RuleRun& run) {
  std::vector<float> steps = run.params;
  for (size_t i = 0; i < steps.size(); ++i) steps[i] -= pair.start.params[i];
  return steps;
}

// One update by a device's functions, resident and not, the threads in any order: the same bits.
template <class Functions>
RuleRun DeviceRun(const typename Functions::Args& args, const RulePair& pair, int64_t step) {
  std::vector<RuleRun> runs;
  for (const bool resident : {true, false}) {
    for (const auto order : {ThreadOrder::kForward, ThreadOrder::kBackward, ThreadOrder::kMixed}) {
      RuleOnBlock<Functions> rule(args, pair, resident, order);
      rule.Update(step, pair.gradient);
      runs.push_back(rule.run());
      const RuleRun& first = runs.front();
      const RuleRun& run = runs.back();
      CHECK(std::memcmp(run.params.data(), first.params.data(), run.params.size() * 4) == 0);
      CHECK(std::memcmp(run.state.data(), first.state.data(), run.state.size() * 4) == 0);
    }
  }
  return runs.front();
}

// Sums of float32 are formed in another order, and of a tensor with one element little may be left
// where its terms cancel.
void CheckAgrees(const RulePair& pair, const RuleRun& run, const RuleRun& oracle) {
  const std::vector<float> steps = StepsOf(pair, oracle);
  CHECK_LT(LargestDifference(pair.layout, StepsOf(pair, run), steps, steps), 1e-5);
  CHECK_LT(LargestDifference(pair.reference->state_layout(), run.state, oracle.state, oracle.state),
           1e-6);
}

// The same updates by both, with gradients that share a part, as those of a run do. Returns the
// largest distance of the params in the end beside the largest way that any went.
template <class Functions>
double Drift(const typename Functions::Args& args, const RulePair& pair, int64_t steps) {
  RuleOnBlock<Functions> rule(args, pair, true);
  RuleRun oracle = pair.start;
  Workspace scratch;
  std::vector<float> gradient(pair.gradient.size());
  for (int64_t step = 0; step < steps; ++step) {
    Normal(KeyFromSeed(100 + static_cast<uint64_t>(step)), gradient);
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] += pair.gradient[i];
    rule.Update(step, gradient);
    pair.reference->Update({.step = step, .num_steps = RulePair::kNumSteps}, gradient,
                           oracle.params, oracle.state, scratch);
  }
  return LargestDifference(pair.layout, rule.run().params, oracle.params, StepsOf(pair, oracle));
}

// One update agrees with the oracle's.
void CheckOneStep(const auto& rule) {
  rule.WithFunctions([&]<class Functions>(const typename Functions::Args& args) {
    CheckAgrees(rule, DeviceRun<Functions>(args, rule, 37), rule.After(*rule.reference, 37));
  });
}

void CheckSpecialGradients(auto&& rule) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> gradient = rule.gradient;
  for (const float special : {0.0f, 1e-40f, 1e-20f, 1e8f, 1e14f, 1e25f, infinity, nan}) {
    for (const bool everywhere : {false, true}) {
      CAPTURE(special);
      CAPTURE(everywhere);
      rule.gradient = gradient;
      rule.Put(special, everywhere, &rule.gradient);
      CheckOneStep(rule);
    }
  }
}

constexpr int64_t kHiddenSizes[] = {1, 4, 5, 16, 32, 33, 64};

TEST_CASE("The functions of a device come out within the limits of theta files") {
  int on_device = 0;
  for (const auto& [name, text] : OptimizerExamples()) {
    CAPTURE(name);
    const Config config = Config::Parse(text, "test");
    const auto optimizer = OptimizerRegistry().Make(config);
    for (const uint64_t seed : {1, 2, 3, 4}) {
      CAPTURE(seed);
      const Eigen::VectorXf theta = optimizer->InitTheta(KeyFromSeed(seed));
      const GoldenSteps golden = MeasureGoldenSteps(config, AsSpan(theta));
      if (const auto found = RepeatOnDevice(golden, *optimizer, theta)) {
        CHECK_MESSAGE(found->within, found->Describe());
        ++on_device;
      }
    }
  }
  CHECK(on_device == 4 * 7);
  // tests/prove_theta_files: a line for each file of its directory, with the deviation beside the
  // limit.
  const char* const directory = std::getenv("LOPT_TEST_THETA_DIR");
  if (directory == nullptr) return;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string path = entry.path().string();
    CAPTURE(path);
    const ThetaFile file = ReadThetaFile(path, {}, FailedCheck::kWarn);
    const auto optimizer = OptimizerRegistry().Make(file.learned_optimizer);
    if (const auto found =
            RepeatOnDevice(*TakeGoldenSteps(ReadArrayFile(path), path), *optimizer, file.theta)) {
      CHECK_MESSAGE(found->within, found->Describe());
      fmt::print("device {} {}\n", entry.path().filename().string(),
                 found->deviation == 0 ? 0 : found->deviation / found->limit);
    }
  }
}

TEST_CASE("MLPLOpt on a device agrees with its reference for every width, depth and shape") {
  for (const int64_t hidden_size : kHiddenSizes) {
    for (const int64_t hidden_layers : {1, 2, 3, 4}) {
      CAPTURE(hidden_size);
      CAPTURE(hidden_layers);
      CheckOneStep(
          MlpLoptCase({.hidden_size = hidden_size, .hidden_layers = hidden_layers, .step_mult = 1},
                      DeviceShapes()));
    }
  }
}

TEST_CASE("MLPLOpt on a device agrees with its reference under all of its options") {
  for (const int options : {0, 1, 2, 3, 4, 5}) {
    CAPTURE(options);
    MLPLOptOptions of{.hidden_size = 8, .exp_mult = .5, .step_mult = 1};
    if (options == 0 || options == 5) of.progress_features = true;
    if (options == 1) of.schedule = RateSchedule::kLinear;
    if (options == 5) of.schedule = RateSchedule::kCosine;
    if (options == 2 || options == 5) of.relative_step = true;
    if (options == 3 || options == 5) of.relative_to_parameter = true;
    if (options == 4 || options == 5) of.normalizer_epsilon = 1e-12;
    CheckOneStep(MlpLoptCase(of, DeviceShapes()));
  }
}

TEST_CASE("MLPLOpt on a device agrees with its reference on zeros, infinity and NaN") {
  CheckSpecialGradients(MlpLoptCase({.hidden_size = 4, .step_mult = 1}, DeviceShapes()));
  CheckSpecialGradients(
      MlpLoptCase({.hidden_size = 4, .step_mult = 1, .relative_step = true}, DeviceShapes()));
}

TEST_CASE("AdafacMLPLOpt on a device agrees with its reference for every width, depth and shape") {
  for (const int64_t hidden_size : kHiddenSizes) {
    for (const int64_t hidden_layers : {1, 2, 3, 4}) {
      CAPTURE(hidden_size);
      CAPTURE(hidden_layers);
      CheckOneStep(
          AdafacCase({.hidden_size = hidden_size, .hidden_layers = hidden_layers, .step_mult = 1},
                     DeviceShapes()));
    }
  }
}

TEST_CASE("AdafacMLPLOpt on a device agrees with its reference for other lists of decays") {
  for (const size_t momenta : {1, 2, 5}) {
    for (const size_t squares : {size_t{1}, momenta}) {
      CAPTURE(momenta);
      CAPTURE(squares);
      AdafacMLPLOptOptions options{.exp_mult = .5, .step_mult = 1};
      options.initial_momentum_decays = options.initial_adafactor_decays = {};
      for (size_t k = 0; k < momenta; ++k) {
        options.initial_momentum_decays.push_back(.9 - .1 * static_cast<double>(k));
        // Small ones, so that theta's offsets make some negative, which are clipped.
        options.initial_adafactor_decays.push_back(.1 + .03 * static_cast<double>(k));
      }
      options.initial_rms_decays = options.initial_adafactor_decays;
      options.initial_rms_decays.resize(squares);
      CheckOneStep(AdafacCase(options, DeviceShapes()));
    }
  }
}

TEST_CASE("AdafacMLPLOpt on a device agrees with its reference on zeros, infinity and NaN") {
  CheckSpecialGradients(AdafacCase({.step_mult = 1}, DeviceShapes()));
}

TEST_CASE("Celo2Base on a device agrees with its reference for every shape and option") {
  for (const RateSchedule& schedule :
       {RateSchedule::kConstant, RateSchedule::kLinear, RateSchedule::kCosine}) {
    for (const double weight_decay : {0.0, 0.3}) {
      CheckOneStep(
          Celo2BaseCase({.learning_rate = .1, .weight_decay = weight_decay, .schedule = schedule},
                        DeviceShapes()));
    }
  }
}

TEST_CASE("Celo2 on a device agrees with its reference for every shape and option") {
  for (const OneD one_d : {OneD::kAdam, OneD::kAdamW, OneD::kLearned}) {
    for (const double weight_decay : {0.0, 0.3}) {
      CAPTURE(static_cast<int>(one_d));
      CAPTURE(weight_decay);
      CheckOneStep(Celo2Case({.learning_rate = .1,
                              .weight_decay = weight_decay,
                              .schedule = RateSchedule::kLinear,
                              .one_d = one_d,
                              .mult_1d = 2},
                             DeviceShapes()));
    }
  }
}

TEST_CASE("Newton-Schulz on a device takes matrices of many columns in pieces") {
  CheckOneStep(
      Celo2Case({.learning_rate = .1}, Layout({{"wide", {33, 301}}, {"tall", {300, 41}}})));
}

TEST_CASE("Celo2 on a device agrees with its reference on zeros, infinity and NaN") {
  CheckSpecialGradients(Celo2BaseCase({}, DeviceShapes()));
  CheckSpecialGradients(Celo2Case({}, Layout({{"b", {5}}, {"tall", {19, 5}}, {"r3", {2, 17, 3}}})));
}

// Rounding adds up over a run: what remains after 2,000 updates with the same gradients is this
// part of the longest way that a parameter of the tensor went.
constexpr double kMostDrift = 5e-6;

template <class Case>
double Drift(const Case& rule) {
  double drift = 0;
  rule.WithFunctions([&]<class Functions>(const typename Functions::Args& args) {
    drift = Drift<Functions>(args, rule, 2000);
  });
  return drift;
}

TEST_CASE("rules on a device stay with their references over 2,000 updates") {
  const Layout layout = FewDeviceShapes();
  CHECK_LT(Drift(MlpLoptCase({.hidden_size = 4}, layout)), kMostDrift);
  CHECK_LT(Drift(MlpLoptCase({.hidden_size = 16, .hidden_layers = 3}, layout)), kMostDrift);
  CHECK_LT(Drift(MlpLoptCase({.hidden_size = 5,
                              .exp_mult = .1,
                              .progress_features = true,
                              .schedule = RateSchedule::kCosine,
                              .relative_step = true,
                              .relative_to_parameter = true},
                             layout)),
           kMostDrift);
  CHECK_LT(Drift(AdafacCase({}, layout)), kMostDrift);
  CHECK_LT(Drift(AdafacCase({.hidden_size = 16, .hidden_layers = 3}, layout)), kMostDrift);
  CHECK_LT(Drift(Celo2BaseCase({}, layout)), kMostDrift);
  CHECK_LT(Drift(Celo2Case({}, layout)), kMostDrift);
}

TEST_CASE("A device has no MLPLOpt in bfloat16 and says so") {
  const MLPLOpt optimizer({.precision = Precision::kBfloat16});
  DeviceConstants constants(HostMemory());
  CHECK(ErrorOf([&] { MlpLoptArgsOf(optimizer, FewDeviceShapes(), 1, &constants); }) ==
        "device: MLPLOpt has device functions for precision fp32, not bf16");
}

}  // namespace
}  // namespace lopt

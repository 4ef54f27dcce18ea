#include "lopt/tools/selftest/known.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "lopt/base/config.h"
#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/registry.h"
#include "lopt/tools/selftest/trainings.h"

namespace lopt {
namespace {

constexpr int64_t kSteps = 5;
constexpr float kScale = 0.1F;  // of parameters and gradients
constexpr double kShareOfWay = 1e-3;
constexpr double kRounding = 1e-7;  // of parameters that stay where they are
constexpr size_t kSomeWeights = 24;

Layout ParamsLayout() { return Layout({{"b", {5}}, {"w", {4, 3}}}); }

std::vector<float> Drawn(uint64_t stream) {
  std::vector<float> values(static_cast<size_t>(ParamsLayout().size()));
  Normal(FoldIn(KeyFromSeed(33), stream), values);
  for (float& value : values) value *= kScale;
  return values;
}

std::vector<float> Start() { return Drawn(0); }

std::string Numbers(std::span<const float> values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) {
    text += fmt::format("{}{:.9g}", i % 6 == 0 ? "\n         " : " ", values[i]);
    if (i + 1 < values.size()) text += ",";
  }
  return text;
}

}  // namespace

const std::vector<KnownSteps>& KnownOptimizerSteps() {
  static const std::vector<KnownSteps> known = {
#define LOPT_KNOWN_STEPS
#include "lopt/tools/selftest/known.inc"
#undef LOPT_KNOWN_STEPS
  };
  return known;
}

const KnownTraining& KnownMetaTraining() {
  static const KnownTraining known = {
#define LOPT_KNOWN_TRAINING
#include "lopt/tools/selftest/known.inc"
#undef LOPT_KNOWN_TRAINING
  };
  return known;
}

Config KnownConfig(const std::string& type) {
  const char* others = "";
  if (type == "OrthogonalSteps" || type == "LearnedScheduler" || type == "UnknownLength") {
    others = R"(, "optimizer": {"type": "LearnableSGDM"})";
  } else if (type == "MatricesAndVectors") {
    others = R"(, "matrices": {"type": "LearnableSGDM"}, "vectors": {"type": "LearnableAdam"})";
  }
  return Config::Parse(fmt::format(R"({{"type": "{}"{}}})", type, others), "lopt selftest");
}

std::vector<float> RunOptimizerSteps(const std::string& type) {
  const auto optimizer = OptimizerRegistry().Make(KnownConfig(type));
  const Eigen::VectorXf theta = optimizer->InitTheta(KeyFromSeed(34));
  const Layout layout = ParamsLayout();
  const auto rule = optimizer->Bind(layout, {theta.data(), static_cast<size_t>(theta.size())});
  std::vector<float> params = Start();
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  StepInfo info{.step = 0, .num_steps = kSteps, .loss = 1};
  rule->InitState(info, params, state);
  Workspace scratch;
  for (; info.step < kSteps; ++info.step) {
    rule->Update(info, Drawn(1 + static_cast<uint64_t>(info.step)), params, state, scratch);
  }
  return params;
}

void CheckOptimizerSteps(const KnownSteps& known) {
  const std::vector<float> start = Start();
  const std::vector<float> params = RunOptimizerSteps(known.type);
  Require(known.params.size() == params.size(), "{}: {} parameters are known, {} were stepped",
          known.type, known.params.size(), params.size());
  const Layout layout = ParamsLayout();
  double farthest = 0;
  std::string error;
  for (const LayoutEntry& entry : layout.entries()) {
    double way = 0;
    for (int64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
      way = std::max(way, std::abs(double{known.params[i]} - double{start[i]}));
    }
    const double limit = kShareOfWay * way + kRounding;
    for (int64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
      const double beyond = std::abs(double{params[i]} - double{known.params[i]}) - limit;
      if (beyond <= farthest) continue;
      farthest = std::isnan(beyond) ? std::numeric_limits<double>::infinity() : beyond;
      error = fmt::format(
          "{}: parameter {} of '{}' is {:.9g} after {} steps, {:.9g} is known; they may differ by "
          "{:.2g}",
          known.type, i - entry.offset, entry.name, params[i], kSteps, known.params[i], limit);
    }
  }
  Require(error.empty(), "{}", error);
}

uint64_t HashOf(std::span<const float> values) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : std::as_bytes(values)) {
    hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

std::vector<float> SomeWeights(std::span<const float> theta) {
  std::vector<float> weights;
  const size_t stride = std::max<size_t>(1, theta.size() / kSomeWeights);
  for (size_t i = 0; i < theta.size() && weights.size() < kSomeWeights; i += stride) {
    weights.push_back(theta[i]);
  }
  return weights;
}

std::string PrintKnown() {
  Require(!KernelsAreNative(),
          "selftest: --print-known wants a build with all kernels (-DLOPT_KERNELS=ALL)");
  std::string text =
      "// What `lopt selftest` compares with; written by `lopt selftest --print-known`.\n"
      "// clang-format off\n"
      "#ifdef LOPT_KNOWN_STEPS\n";
  for (const TypeEntry& entry : OptimizerRegistry().table().entries()) {
    if (!entry.plugin.empty()) continue;
    text += fmt::format("    {{\"{}\", {{{}}}}},\n", entry.type,
                        Numbers(RunOptimizerSteps(entry.type)));
  }
  text += "#endif\n#ifdef LOPT_KNOWN_TRAINING\n";
  std::string bits;
  for (const std::string& isa : SupportedIsas()) {
    const std::vector<float> theta = TrainSmoke(isa);
    if (bits.empty()) text += fmt::format("    {{{}}},\n", Numbers(SomeWeights(theta)));
    bits += fmt::format("     {{\"{}\", {:#018x}}},\n", isa, HashOf(theta));
  }
  return text + "    {\n" + bits + "    },\n#endif\n";
}

}  // namespace lopt

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/arrays.h"
#include "base/config.h"
#include "base/safetensors.h"
#include "lopt/celo2.h"
#include "lopt/celo2_reference.h"
#include "lopt/registry.h"
#include "tests/golden_dir.h"

namespace lopt {
namespace {

struct Celo2Trace {
  explicit Celo2Trace(const std::string& name) : path(GoldenPath(name)), file(ReadArrayFile(path)) {
    steps = std::stoll(file.metadata.at("steps"));
    std::vector<std::pair<std::string, Shape>> tensors;
    for (const auto& [tensor, array] : file.arrays.Extract("param0/")) {
      tensors.emplace_back(tensor, array.shape());
    }
    params = Layout(std::move(tensors));
    theta.resize(Celo2().theta_layout().size());
    RowFromArrays(Celo2().theta_layout(), file.arrays, "theta/", theta);
  }

  // What the file has of a tensor at a step; empty if nothing.
  std::span<const float> At(const std::string& name, int64_t step, int64_t of) const {
    if (!file.arrays.Contains(name)) return {};
    const auto all = file.arrays.At(name).As<float>();
    const size_t size = all.size() / static_cast<size_t>(of);
    return all.subspan(static_cast<size_t>(step) * size, size);
  }
  std::span<const float> At(const std::string& name, int64_t step) const {
    return At(name, step, steps);
  }

  std::vector<float> Row(const std::string& prefix, int64_t step, const Layout& layout) const {
    std::vector<float> row(static_cast<size_t>(layout.size()));
    for (const LayoutEntry& entry : layout.entries()) {
      const auto values = At(prefix + "/" + entry.name, step);
      REQUIRE(std::ssize(values) == entry.size);
      std::ranges::copy(values, row.begin() + entry.offset);
    }
    return row;
  }

  std::string path;
  ArrayFile file;
  int64_t steps;
  Layout params;
  std::vector<float> theta;
};

double Difference(std::span<const float> got, std::span<const float> wanted) {
  REQUIRE(got.size() == wanted.size());
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(double{got[i]} - double{wanted[i]});
    if (!(difference <= worst)) worst = difference;
  }
  return worst;
}

// The largest difference over the largest number wanted; 0 where that is hardly a normal number.
double RelativeDifference(std::span<const float> got, std::span<const float> wanted) {
  double largest = 0;
  for (const float x : wanted) largest = std::max(largest, std::abs(double{x}));
  return largest < 1e-37 ? 0 : Difference(got, wanted) / largest;
}

// `part` of [elements, 3] as the golden files have it.
std::vector<float> Interleaved(std::span<const float> const (&parts)[3]) {
  std::vector<float> all;
  for (size_t i = 0; i < parts[0].size(); ++i) {
    for (const auto& part : parts) all.push_back(part[i]);
  }
  return all;
}

TEST_CASE("the reference of Celo2 and Celo2Base has the golden features, directions and moments") {
  const Celo2Trace trace("celo2_steps.safetensors");
  const PlainNetwork network = Celo2Network(trace.theta);
  for (const std::string variant : {"celo2", "base"}) {
    for (const LayoutEntry& entry : trace.params.entries()) {
      CAPTURE(variant);
      CAPTURE(entry.name);
      const Celo2Tensor tensor(entry.shape);
      const Layout one({{entry.name, entry.shape}});
      const Celo2Base base;
      std::vector<float> state(static_cast<size_t>(base.StateLayout(one).size()));
      const Celo2State parts(tensor, state);
      for (int64_t i = 0; i < trace.steps; ++i) {
        CAPTURE(i);
        const auto golden = [&](const std::string& what, int64_t step) {
          return trace.At(what + "/" + entry.name, step);
        };
        const auto p = i == 0 ? trace.file.arrays.At("param0/" + entry.name).As<float>()
                              : golden(variant + "/param", i - 1);
        const Celo2Step step =
            PlainCelo2Step(tensor, network, variant == "celo2", golden("gradient", i), p, state);
        if (i == 0 || i + 1 == trace.steps) {
          const auto features = trace.At(variant + "/features/" + entry.name, i == 0 ? 0 : 1, 2);
          CHECK(Difference(step.features, features) <= 2e-6);
        }
        CHECK(Difference(step.direction, golden(variant + "/direction", i)) <= 2e-6);
        const bool orthogonal = variant == "celo2" && tensor.factored;
        if (orthogonal) {
          CHECK(Difference(step.orthogonal, golden("celo2/orthogonal", i)) <= 1.5e-5);
        }
        CHECK(Difference(step.step, golden(variant + "/step", i)) <=
              (orthogonal ? 1.5e-5 : 2.1e-6));
        CHECK(RelativeDifference(Interleaved({parts.m[0], parts.m[1], parts.m[2]}),
                                 golden("m", i)) <= 1e-6);
        CHECK(RelativeDifference(parts.r, golden("rms", i)) <= 1e-6);
        const auto row = Interleaved({parts.row[0], parts.row[1], parts.row[2]});
        if (tensor.factored) {
          CHECK(RelativeDifference(row, golden("v_row", i)) <= 1e-6);
          CHECK(RelativeDifference(Interleaved({parts.col[0], parts.col[1], parts.col[2]}),
                                   golden("v_col", i)) <= 1e-6);
        } else {
          CHECK(RelativeDifference(row, golden("v_diag", i)) <= 1e-6);
        }
      }
    }
  }
}

// The largest difference of the params to those of a trace, over all steps.
double Replay(const Celo2Trace& trace, const std::string& variant,
              const LearnedOptimizer& optimizer) {
  const std::unique_ptr<UpdateRule> rule = optimizer.Bind(trace.params, trace.theta);
  std::vector<float> p(static_cast<size_t>(trace.params.size()));
  RowFromArrays(trace.params, trace.file.arrays, "param0/", p);
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  rule->InitState({}, p, state);
  Workspace scratch;
  double worst = 0;
  for (int64_t step = 0; step < trace.steps; ++step) {
    rule->Update({.step = step}, trace.Row("gradient", step, trace.params), p, state, scratch);
    worst = std::max(worst, Difference(p, trace.Row(variant + "/param", step, trace.params)));
  }
  return worst;
}

constexpr Celo2::Implementation kBoth[] = {Celo2::Implementation::kReference,
                                           Celo2::Implementation::kFast};

TEST_CASE("Celo2 and Celo2Base follow the golden params to 3e-7") {
  const Celo2Trace trace("celo2_steps.safetensors");
  const Config config = Config::Parse(trace.file.metadata.at("optimizer"), trace.path);
  const double learning_rate = config.json().at("learning_rate").get<double>();
  const double weight_decay = config.json().at("weight_decay").get<double>();
  for (const Celo2::Implementation implementation : kBoth) {
    CHECK(Replay(trace, "celo2",
                 Celo2({.learning_rate = learning_rate,
                        .weight_decay = weight_decay,
                        .one_d = OneD::kLearned},
                       implementation)) <= 3e-7);
    CHECK(Replay(trace, "base",
                 Celo2Base({.learning_rate = learning_rate, .weight_decay = weight_decay},
                           implementation)) <= 3e-7);
  }
}

TEST_CASE("Celo2's two Adams follow the golden params of biases and embeddings to 1e-6") {
  const Celo2Trace trace("celo2_1d_steps.safetensors");
  const Config config = Config::Parse(trace.file.metadata.at("config"), trace.path);
  Celo2Options options = {.learning_rate = config.json().at("learning_rate").get<double>(),
                          .weight_decay = config.json().at("weight_decay").get<double>(),
                          .mult_1d = config.json().at("mult_1d").get<double>()};
  for (const Celo2::Implementation implementation : kBoth) {
    options.one_d = OneD::kAdamW;
    CHECK(Replay(trace, "eval", Celo2(options, implementation)) <= 1e-6);
    options.one_d = OneD::kAdam;
    CHECK(Replay(trace, "train", Celo2(options, implementation)) <= 1e-6);
  }
}

}  // namespace
}  // namespace lopt

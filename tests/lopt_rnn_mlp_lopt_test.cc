// rnn_mlp_lopt_steps.safetensors: a trace of RNNMLPLOpt of learned_optimization 0.0.1 (PyPI), with
// haiku 0.0.17 on jax 0.10.2.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/safetensors.h"
#include "lopt/lopt/check/optimizer_checks.h"
#include "lopt/lopt/golden_steps.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rnn/rnn_mlp_lopt.h"
#include "tests/farthest.h"
#include "tests/paths.h"

namespace lopt {
namespace {

using Floats = std::vector<float>;

Layout LayoutBelow(const NamedArrays& arrays, const std::string& prefix) {
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const auto& [name, array] : arrays.Extract(prefix))
    tensors.emplace_back(name, array.shape());
  return Layout(tensors);
}

// theta of arrays with the published names.
Floats PublishedTheta(const NamedArrays& arrays, const Layout& layout) {
  NamedArrays tensors;
  for (const auto& [name, array] : arrays.Extract("theta/")) {
    const size_t tilde = name.find("~/");
    tensors.Set(tilde == std::string::npos ? name : std::string(name).erase(tilde, 2), array);
  }
  Floats theta(static_cast<size_t>(layout.size()));
  RowFromArrays(layout, tensors, "", theta);
  return theta;
}

// The largest difference of a row to step `step` of the arrays of a trace.
double Distance(const Layout& layout, const NamedArrays& trace, const std::string& prefix,
                int64_t step, std::span<const float> row) {
  double worst = 0;
  for (const LayoutEntry& entry : layout.entries()) {
    const auto all = trace.At(prefix + entry.name).As<float>();
    for (int64_t i = 0; i < entry.size; ++i) {
      const double wanted = all[step * entry.size + i];
      const double off = std::abs(double{row[entry.offset + i]} - wanted) / (1 + std::abs(wanted));
      worst = Farther(worst, off);
    }
  }
  return worst;
}

TEST_CASE("RNNMLPLOpt reproduces a trace of the published code, params and state") {
  const ArrayFile file = ReadArrayFile(SourcePath("tests/golden/rnn_mlp_lopt_steps.safetensors"));
  const RNNMLPLOpt optimizer({.exp_mult = std::stod(file.metadata.at("exp_mult")),
                              .step_mult = std::stod(file.metadata.at("step_mult"))});
  const Floats theta = PublishedTheta(file.arrays, optimizer.theta_layout());
  const Layout params = LayoutBelow(file.arrays, "params/");
  const auto rule = optimizer.Bind(params, theta);
  Floats p(static_cast<size_t>(params.size()));
  RowFromArrays(params, file.arrays, "params/", p);
  Floats state(static_cast<size_t>(rule->state_layout().size()), NAN);
  rule->InitState({}, p, state);
  const auto losses = file.arrays.At("losses").As<float>();
  REQUIRE(losses.size() >= 8);
  Floats gradient(p.size());
  Workspace scratch;
  for (int64_t step = 0; step < std::ssize(losses); ++step) {
    CAPTURE(step);
    for (const LayoutEntry& entry : params.entries()) {
      const auto all = file.arrays.At("gradients/" + entry.name).As<float>();
      std::copy_n(all.begin() + step * entry.size, entry.size, gradient.begin() + entry.offset);
    }
    rule->Update({.step = step, .loss = losses[static_cast<size_t>(step)]}, gradient, p, state,
                 scratch);
    CHECK(Distance(params, file.arrays, "result/", step, p) < 1e-6);
    CHECK(Distance(rule->state_layout(), file.arrays, "", step, state) < 5e-6);
  }
}

TEST_CASE("Theta has 35,799 numbers with the published names and the initial law of haiku") {
  const RNNMLPLOpt optimizer;
  const Layout& layout = optimizer.theta_layout();
  CHECK(layout.size() == 35799);
  CHECK(layout.Find("rnn_params/rnn/linear/w").shape == Shape{116, 256});
  CHECK(layout.Find("ffmod_params/mlp/linear_2/w").shape == Shape{32, 18});
  const Eigen::VectorXf theta = optimizer.InitTheta(KeyFromSeed(3));
  for (const LayoutEntry& entry : layout.entries()) {
    CAPTURE(entry.name);
    const auto values = theta.segment(entry.offset, entry.size).cast<double>();
    const double deviation = std::sqrt(values.squaredNorm() / static_cast<double>(entry.size));
    if (entry.name.ends_with("/w")) {
      const double scale = 1 / std::sqrt(static_cast<double>(entry.shape[0]));
      CHECK(values.cwiseAbs().maxCoeff() <= 2 * scale);
      CHECK(deviation == doctest::Approx(0.8796 * scale).epsilon(0.06));
    } else if (entry.name.starts_with("initial_")) {
      const double scale = 1 / std::sqrt(static_cast<double>(entry.size));
      CHECK(values.cwiseAbs().maxCoeff() <= 2 * scale / 0.8796);
      CHECK(deviation == doctest::Approx(scale).epsilon(0.35));
    } else {
      CHECK(deviation == 0);
    }
  }
}

// Params after some updates along gradients that belong to the tensors, whatever their order.
struct Trained {
  Layout layout;
  Floats params;
  std::span<const float> Of(const std::string& name) const {
    const LayoutEntry& entry = layout.Find(name);
    return std::span(params).subspan(entry.offset, entry.size);
  }
};

Trained Train(const std::vector<std::pair<std::string, Shape>>& tensors, float scale_of_b = 1,
              bool reverse_b = false) {
  const RNNMLPLOpt optimizer({.hidden_size = 8, .exp_mult = 0.5, .step_mult = 0.1});
  const Floats theta = checks::DrawTheta(optimizer, 5);
  Trained trained{Layout(tensors), {}};
  const auto draw = [&](uint64_t purpose, Floats* row) {
    row->resize(static_cast<size_t>(trained.layout.size()));
    for (const LayoutEntry& entry : trained.layout.entries()) {
      const std::span<float> part = std::span(*row).subspan(entry.offset, entry.size);
      Normal(FoldIn(KeyFromSeed(static_cast<uint64_t>(entry.name[0])), purpose), part);
      if (entry.name == "b" && reverse_b) std::ranges::reverse(part);
      if (entry.name == "b" && purpose > 0) {
        for (float& value : part) value *= scale_of_b;
      }
    }
  };
  draw(0, &trained.params);
  const auto rule = optimizer.Bind(trained.layout, theta);
  Floats state(static_cast<size_t>(rule->state_layout().size()));
  rule->InitState({}, trained.params, state);
  Floats gradient;
  Workspace scratch;
  for (int64_t step = 0; step < 4; ++step) {
    draw(1 + static_cast<uint64_t>(step), &gradient);
    rule->Update({.step = step, .loss = 1 / (1 + static_cast<float>(step))}, gradient,
                 trained.params, state, scratch);
  }
  return trained;
}

double Difference(std::span<const float> a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max<double>(worst, std::abs(a[i] - b[i]));
  return worst;
}

TEST_CASE("Neither the order of tensors nor that of elements matters, nor do empty tensors") {
  const Trained trained = Train({{"a", {}}, {"b", {2, 6}}, {"c", {4}}});
  const Trained turned = Train({{"c", {4}}, {"empty", {3, 0}}, {"a", {}}, {"b", {2, 6}}}, 1, true);
  CHECK(Difference(trained.Of("a"), turned.Of("a")) < 1e-6);
  CHECK(Difference(trained.Of("c"), turned.Of("c")) < 1e-6);
  Floats b(turned.Of("b").begin(), turned.Of("b").end());
  CHECK(Difference(trained.Of("b"), b) > 0.1);
  std::ranges::reverse(b);
  CHECK(Difference(trained.Of("b"), b) < 1e-6);
}

TEST_CASE("What happens to one tensor reaches the others") {
  const std::vector<std::pair<std::string, Shape>> tensors = {{"a", {}}, {"b", {2, 6}}, {"c", {4}}};
  const Trained trained = Train(tensors);
  // Below the limit of the clipping, so that they hear of it from the LSTMs alone.
  const Trained other = Train(tensors, 0.5f);
  CHECK(Difference(trained.Of("a"), other.Of("a")) > 1e-6);
  CHECK(Difference(trained.Of("c"), other.Of("c")) > 1e-6);
}

TEST_CASE("Its golden steps show whether a reader passes the loss on") {
  const Config config = Config::Parse(
      R"({"type": "RNNMLPLOpt", "hidden_size": 8, "exp_mult": 0.5, "step_mult": 0.1})", "test");
  const auto optimizer = OptimizerRegistry().Make(config);
  const Floats theta = checks::DrawTheta(*optimizer, 5);
  GoldenSteps golden = MeasureGoldenSteps(config, theta);
  CHECK(RepeatGoldenSteps(golden, *optimizer, theta).within);
  REQUIRE(golden.losses.size() == golden.steps.size());
  golden.losses.assign(golden.losses.size(), 0);
  CHECK(!RepeatGoldenSteps(golden, *optimizer, theta).within);
}

}  // namespace
}  // namespace lopt

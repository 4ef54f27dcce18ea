#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/eigen.h"
#include "lopt/base/key.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/matrices_and_vectors.h"
#include "tests/default_optimizer.h"
#include "tests/error_of.h"

namespace lopt {
namespace {

using Params = std::vector<std::pair<std::string, Shape>>;

constexpr int64_t kUpdates = 5;
constexpr const char* kMlp = R"({"type": "MLPLOpt", "hidden_size": 4, "step_mult": 0.1})";
constexpr const char* kAdafac = R"({"type": "AdafacMLPLOpt", "step_mult": 0.1})";
constexpr const char* kAdam = R"({"type": "LearnableAdam", "learning_rate": 0.1})";
constexpr const char* kSgd = R"({"type": "LearnableSGD", "learning_rate": 0.5})";
constexpr const char* kOrthogonal =
    R"({"type": "OrthogonalSteps", "optimizer": {"type": "LearnableSGDM"}})";

std::shared_ptr<const LearnedOptimizer> OptimizerOf(const std::string& config) {
  return OptimizerRegistry().Make(Config::Parse(config, "test"));
}

std::string Both(const std::string& matrices, const std::string& vectors) {
  return R"({"type": "MatricesAndVectors", "matrices": )" + matrices + R"(, "vectors": )" +
         vectors + "}";
}

struct Row {
  std::vector<float> params;
  std::vector<float> state;
  bool operator==(const Row&) const = default;
};

// Numbers of a tensor that its name alone decides.
std::vector<float> NumbersOf(const LayoutEntry& entry, uint64_t stream) {
  std::vector<float> numbers(static_cast<size_t>(entry.size));
  Normal(FoldIn(FoldIn(KeyFromSeed(7), stream), std::hash<std::string>()(entry.name)), numbers);
  return numbers;
}

std::vector<float> RowOf(const Layout& layout, uint64_t stream) {
  std::vector<float> row;
  for (const LayoutEntry& entry : layout.entries()) {
    const std::vector<float> own = NumbersOf(entry, stream);
    row.insert(row.end(), own.begin(), own.end());
  }
  return row;
}

// After updates with drawn gradients.
Row AfterUpdates(const LearnedOptimizer& optimizer, const Layout& params,
                 std::span<const float> theta) {
  const auto rule = optimizer.Bind(params, theta);
  Row row{.params = RowOf(params, 0),
          .state = std::vector<float>(static_cast<size_t>(rule->state_layout().size()))};
  rule->InitState({.num_steps = kUpdates}, row.params, row.state);
  Workspace scratch;
  for (int64_t step = 0; step < kUpdates; ++step) {
    rule->Update({.step = step, .num_steps = kUpdates, .loss = 1},
                 RowOf(params, 1 + static_cast<uint64_t>(step)), row.params, row.state, scratch);
  }
  return row;
}

Row AfterUpdates(const std::string& config, const Params& params) {
  const auto optimizer = OptimizerOf(config);
  const Eigen::VectorXf theta = optimizer->InitTheta(KeyFromSeed(1));
  return AfterUpdates(*optimizer, Layout(params), AsSpan(theta));
}

// Theta of both, of which that of the one named `part` is `own`.
std::vector<float> ThetaWith(const LearnedOptimizer& both, const std::string& part,
                             const Eigen::VectorXf& own) {
  const Eigen::VectorXf drawn = both.InitTheta(KeyFromSeed(3));
  std::vector<float> theta(drawn.begin(), drawn.end());
  const auto entries = both.theta_layout().entries();
  const auto first = std::ranges::find_if(
      entries, [&](const LayoutEntry& entry) { return entry.name.starts_with(part + "/"); });
  REQUIRE(first != entries.end());
  std::copy(own.begin(), own.end(), theta.begin() + first->offset);
  return theta;
}

// What the optimizer makes of these params by itself.
Row Alone(const std::string& config, const Params& params, Eigen::VectorXf* theta) {
  const auto optimizer = OptimizerOf(config);
  *theta = optimizer->InitTheta(KeyFromSeed(2));
  return AfterUpdates(*optimizer, Layout(params), AsSpan(*theta));
}

const Params kMatrices = {{"w", {5, 3}}, {"none", {0, 3}}, {"k", {3, 2, 2, 7}}, {"row", {1, 1}}};
const Params kVectors = {{"b", {17}}, {"empty", {0}}, {"scale", {}}};

TEST_CASE("Of matrices alone it is the optimizer of matrices, of vectors alone that of vectors") {
  for (const char* config : {kMlp, kAdafac, kAdam, kOrthogonal}) {
    CAPTURE(config);
    Eigen::VectorXf theta;
    const Row matrices = Alone(config, kMatrices, &theta);
    const auto of_matrices = OptimizerOf(Both(config, kSgd));
    CHECK(AfterUpdates(*of_matrices, Layout(kMatrices),
                       ThetaWith(*of_matrices, "matrices", theta)) == matrices);
    const Row vectors = Alone(config, kVectors, &theta);
    const auto of_vectors = OptimizerOf(Both(kSgd, config));
    CHECK(AfterUpdates(*of_vectors, Layout(kVectors), ThetaWith(*of_vectors, "vectors", theta)) ==
          vectors);
  }
}

TEST_CASE("Among one another each tensor has the bits of its own optimizer") {
  const Params mixed = {kVectors[0],  kMatrices[0], kVectors[1], kMatrices[1],
                        kMatrices[2], kVectors[2],  kMatrices[3]};
  for (const auto& [of_matrices, of_vectors] :
       {std::pair(kAdafac, kAdam), {kOrthogonal, kMlp}, {kMlp, kAdafac}, {kSgd, kSgd}}) {
    CAPTURE(of_matrices);
    CAPTURE(of_vectors);
    const auto both = OptimizerOf(Both(of_matrices, of_vectors));
    Eigen::VectorXf matrices_theta;
    Eigen::VectorXf vectors_theta;
    const Row matrices = Alone(of_matrices, kMatrices, &matrices_theta);
    const Row vectors = Alone(of_vectors, kVectors, &vectors_theta);
    std::vector<float> theta(matrices_theta.begin(), matrices_theta.end());
    theta.insert(theta.end(), vectors_theta.begin(), vectors_theta.end());
    const Layout layout(mixed);
    const Row row = AfterUpdates(*both, layout, theta);
    std::vector<float> state = matrices.state;
    state.insert(state.end(), vectors.state.begin(), vectors.state.end());
    CHECK(row.state == state);
    const auto check = [&](const Params& params, const Row& alone) {
      const Layout own(params);
      for (const LayoutEntry& entry : own.entries()) {
        CAPTURE(entry.name);
        const auto begin = row.params.begin() + layout.Find(entry.name).offset;
        CHECK(std::equal(begin, begin + entry.size, alone.params.begin() + entry.offset));
      }
      CHECK(alone.params != RowOf(own, 0));
    };
    check(kMatrices, matrices);
    check(kVectors, vectors);
  }
}

TEST_CASE("Steps of gradient descent by one rate for matrices and another for vectors") {
  const auto optimizer =
      OptimizerOf(Both(kSgd, R"({"type": "LearnableSGD", "learning_rate": 0.125})"));
  const Eigen::VectorXf theta = optimizer->InitTheta(KeyFromSeed(1));
  const auto rule = optimizer->Bind(Layout({{"b", {2}}, {"w", {1, 2}}, {"s", {}}}), AsSpan(theta));
  std::vector<float> params = {1, 2, 3, 4, 5};
  const std::vector<float> gradient = {8, -8, 8, -8, 16};
  Workspace scratch;
  rule->Update({}, gradient, params, {}, scratch);
  const std::vector<double> wanted = {0, 3, -1, 8, 3};
  for (size_t i = 0; i < params.size(); ++i) {
    CHECK(params[i] == doctest::Approx(wanted[i]).epsilon(1e-6));  // exp(log(rate)) in float32
  }
}

TEST_CASE("Theta and state are those of both, with their names before theirs") {
  const auto both = OptimizerOf(Both(kAdam, kMlp));
  const auto names = [](const Layout& layout) {
    std::vector<std::string> names;
    for (const LayoutEntry& entry : layout.entries()) names.push_back(entry.name);
    return names;
  };
  std::vector<std::string> wanted;
  for (const auto& [prefix, config] : {std::pair("matrices/", kAdam), {"vectors/", kMlp}}) {
    for (const std::string& name : names(OptimizerOf(config)->theta_layout())) {
      wanted.push_back(prefix + name);
    }
  }
  CHECK(names(both->theta_layout()) == wanted);
  const Layout state = both->StateLayout(Layout({{"b", {3}}, {"w", {2, 3}}}));
  wanted.clear();
  for (const std::string& name : names(OptimizerOf(kAdam)->StateLayout(Layout({{"w", {2, 3}}})))) {
    wanted.push_back("matrices/" + name);
  }
  for (const std::string& name : names(OptimizerOf(kMlp)->StateLayout(Layout({{"b", {3}}})))) {
    wanted.push_back("vectors/" + name);
  }
  CHECK(names(state) == wanted);
  CHECK(both->sees_shapes());
  CHECK(both->config().json().at("vectors").at("hidden_layers") == 2);
}

TEST_CASE("It begins with two draws of theta: two optimizers of a type do not have the same") {
  const auto both = OptimizerOf(Both(kMlp, kMlp));
  const Eigen::VectorXf theta = both->InitTheta(KeyFromSeed(4));
  const Eigen::Index half = theta.size() / 2;
  CHECK(theta.head(half) != theta.tail(half));
  CHECK(theta == both->InitTheta(KeyFromSeed(4)));
}

TEST_CASE("It needs what one of the two needs, and multiplies the coarser numbers of the two") {
  const std::string cosine = R"({"type": "LearnableSGD", "schedule": "cosine"})";
  const std::string linear = R"({"type": "LearnableAdam", "schedule": "linear"})";
  const auto need = [](const std::string& matrices, const std::string& vectors) {
    return OptimizerOf(Both(matrices, vectors))->needs_num_steps();
  };
  CHECK(need(kSgd, kAdam) == "");
  CHECK(need(kSgd, linear) == OptimizerOf(linear)->needs_num_steps());
  CHECK(need(cosine, linear) == OptimizerOf(cosine)->needs_num_steps());
  const std::string bf16 = R"({"type": "MLPLOpt", "precision": "bf16"})";
  CHECK(OptimizerOf(Both(kSgd, kMlp))->precision() == Precision::kFloat32);
  CHECK(OptimizerOf(Both(kSgd, bf16))->precision() == Precision::kBfloat16);
  CHECK(OptimizerOf(Both(bf16, kSgd))->precision() == Precision::kBfloat16);
  CHECK_FALSE(OptimizerOf(Both(kSgd, kMlp))->needs_loss());
}

TEST_CASE("The learning rate is that of matrices, of vectors where there is no matrix") {
  const auto both = OptimizerOf(
      Both(R"({"type": "Lion", "learning_rate": 0.5})", R"({"type": "Lion", "learning_rate": 2})"));
  const Eigen::VectorXf theta = both->InitTheta(KeyFromSeed(1));
  const auto rate = [&](const Params& params) {
    return both->Bind(Layout(params), AsSpan(theta))->LearningRate({});
  };
  CHECK(rate({{"b", {2}}, {"w", {2, 2}}}) == doctest::Approx(0.5));
  CHECK(rate({{"b", {2}}}) == doctest::Approx(2));
}

TEST_CASE("Every type may be there for tensors of which there are none") {
  const std::vector<float> wanted = AfterUpdates(kSgd, kMatrices).params;
  int types = 0;
  for (const TypeEntry& entry : OptimizerRegistry().table().entries()) {
    CAPTURE(entry.type);
    if (OptimizerOf(DefaultsOf(entry.type))->run_state_size() > 0) continue;
    const Row row = AfterUpdates(Both(kSgd, DefaultsOf(entry.type)), kMatrices);
    CHECK(row.params == wanted);
    for (const float x : row.state) CHECK(std::isfinite(x));
    ++types;
  }
  CHECK(types >= 15);
}

TEST_CASE("Optimizers with numbers of the run, averages and missing parts are errors") {
  for (const char* type : {"Celo", "CeloAdam", "Sinv6"}) {
    CAPTURE(type);
    const std::string of_run = R"({"type": ")" + std::string(type) + "\"}";
    const std::string what =
        "MatricesAndVectors: wanted optimizers whose state belongs to their tensors; that of ";
    CHECK(ErrorOf([&] { OptimizerOf(Both(of_run, kSgd)); }) ==
          what + "matrices has numbers of the run");
    CHECK(ErrorOf([&] { OptimizerOf(Both(kSgd, of_run)); }) ==
          what + "vectors has numbers of the run");
  }
  CHECK(ErrorOf([&] {
          AfterUpdates(Both(kSgd, R"({"type": "ScheduleFreeAdamW"})"), kVectors);
        }).starts_with("MatricesAndVectors: vectors: wanted an optimizer whose steps make"));
  CHECK(ErrorOf([&] {
          OptimizerOf(R"({"type": "MatricesAndVectors", "matrices": {"type": "Adam"}})");
        }).find("vectors") != std::string::npos);
}

TEST_CASE("Gradients in float64 reach both optimizers as they are") {
  const std::string adam = R"({"type": "Adam"})";
  const Layout layout(Params{{"w", {2, 2}}, {"b", {3}}, {"k", {1, 2}}});
  const auto after = [&](const std::string& config) {
    const auto optimizer = OptimizerOf(config);
    const Eigen::VectorXf theta = optimizer->InitTheta(KeyFromSeed(1));
    const auto rule = optimizer->Bind(layout, AsSpan(theta));
    std::vector<float> params(static_cast<size_t>(layout.size()));
    std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
    // Too small for float32 but as a denormal number.
    const std::vector<double> gradient(params.size(), 1e-40);
    Workspace scratch;
    rule->InitState({.num_steps = 1}, params, state);
    rule->UpdateInFloat64({.num_steps = 1}, gradient, params, state, scratch);
    return params;
  };
  CHECK(after(Both(adam, adam)) == after(adam));
  CHECK(std::ranges::none_of(after(adam), [](float x) { return x == 0; }));
}

}  // namespace
}  // namespace lopt

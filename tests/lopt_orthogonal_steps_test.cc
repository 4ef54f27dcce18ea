#include <doctest/doctest.h>

#include <Eigen/QR>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/eigen.h"
#include "lopt/base/key.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/celo2/celo2_step_device.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/orthogonal_steps.h"
#include "tests/error_of.h"

namespace lopt {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

std::shared_ptr<const LearnedOptimizer> Made(const std::string& config) {
  return OptimizerRegistry().Make(Config::Parse(config, "test"));
}

// The params after one step, whose state begins as the rule wants it.
std::vector<float> Stepped(const LearnedOptimizer& optimizer, const Layout& params,
                           std::vector<float> p, const std::vector<float>& gradient) {
  const Eigen::VectorXf theta = optimizer.InitTheta(KeyFromSeed(1));
  const auto rule = optimizer.Bind(params, AsSpan(theta));
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  const StepInfo info = {.step = 0, .num_steps = 10};
  rule->InitState(info, p, state);
  Workspace scratch;
  rule->Update(info, gradient, p, state, scratch);
  return p;
}

Matrix Orthonormal(Key key, int64_t rows, int64_t columns) {
  std::vector<float> normal(static_cast<size_t>(rows * columns));
  Normal(key, normal);
  const Matrix m = Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic>>(
                       normal.data(), rows, columns)
                       .cast<double>();
  return Matrix(m.householderQr().householderQ() * Matrix::Identity(rows, columns));
}

// What Newton-Schulz makes of a singular value.
double Iterated(double value) {
  const auto [a, b, c] = Celo2Numbers::kPolynomial;
  for (int i = 0; i < Celo2Numbers::kIterations; ++i) {
    const double square = value * value;
    value *= a + square * (b + square * c);
  }
  return value;
}

constexpr const char* kOrthogonalSgd =
    R"({"type": "OrthogonalSteps", "optimizer": {"type": "LearnableSGD",
        "learning_rate": 0.5}})";

TEST_CASE("Steps of matrices keep their singular vectors and size, and get singular values alike") {
  struct Case {
    Shape shape;
    int64_t rows, columns;
    std::vector<double> values;  // singular
  };
  for (const Case& of :
       {Case{{5, 3}, 5, 3, {3, 1, 0.2}}, Case{{3, 19}, 3, 19, {3, 1, 0.2}},
        Case{{4, 4}, 4, 4, {1e-6, 2e-6, 3e-7, 5e-7}}, Case{{64, 33}, 64, 33, {9, 7, 5, 2}},
        Case{{6, 1}, 6, 1, {4}}, Case{{2, 3, 5}, 6, 5, {2, 2, 1}}}) {
    CAPTURE(of.rows);
    CAPTURE(of.columns);
    const auto rank = static_cast<int64_t>(of.values.size());
    const Matrix u = Orthonormal(KeyFromSeed(2), of.rows, rank);
    const Matrix v = Orthonormal(KeyFromSeed(3), of.columns, rank);
    double squares = 0;
    for (const double value : of.values) squares += value * value;
    const double size = 0.5 * std::sqrt(squares);
    Eigen::VectorXd iterated(rank);
    for (int64_t i = 0; i < rank; ++i) iterated[i] = Iterated(of.values[i] / std::sqrt(squares));
    const Matrix gradient =
        u * Eigen::Map<const Eigen::VectorXd>(of.values.data(), rank).asDiagonal() * v.transpose();
    const Matrix wanted = size / iterated.norm() * u * iterated.asDiagonal() * v.transpose();
    const std::vector<float> flat(gradient.data(), gradient.data() + gradient.size());
    const std::vector<float> after = Stepped(*Made(kOrthogonalSgd), Layout({{"w", of.shape}}),
                                             std::vector<float>(flat.size(), 0.0f), flat);
    for (int64_t i = 0; i < wanted.size(); ++i) {
      CHECK(std::abs(-after[i] - wanted.data()[i]) < 5e-6 * size);
    }
  }
}

TEST_CASE("Other tensors, steps of zeros and tensors without elements stay as the optimizer's") {
  const Layout params({{"b", {4}}, {"s", {}}, {"none", {0, 3}}, {"w", {2, 2}}});
  const std::vector<float> p = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<float> gradient = {1, -2, 3, -4, 5, 0, 0, 0, 0};
  CHECK(Stepped(*Made(kOrthogonalSgd), params, p, gradient) ==
        Stepped(*Made(R"({"type": "LearnableSGD", "learning_rate": 0.5})"), params, p, gradient));
}

TEST_CASE("Theta, state and needs are those of the optimizer, which the config names") {
  const auto inner = Made(R"({"type": "MLPLOpt", "hidden_size": 3, "schedule": "cosine"})");
  const auto outer = Made(
      R"({"type": "OrthogonalSteps", "optimizer": {"type": "MLPLOpt", "hidden_size": 3,
          "schedule": "cosine"}})");
  CHECK(outer->theta_layout() == inner->theta_layout());
  CHECK(outer->InitTheta(KeyFromSeed(4)) == inner->InitTheta(KeyFromSeed(4)));
  CHECK(outer->needs_num_steps() == inner->needs_num_steps());
  const Layout params({{"w", {3, 4}}, {"b", {4}}});
  CHECK(outer->StateLayout(params) == inner->StateLayout(params));
  CHECK(outer->sees_shapes());
  CHECK(outer->config().json().at("optimizer").at("hidden_layers") == 2);
}

TEST_CASE("An optimizer whose params are an average, and a wrong type, are errors") {
  const auto average =
      Made(R"({"type": "OrthogonalSteps", "optimizer": {"type": "ScheduleFreeAdamW"}})");
  CHECK(ErrorOf([&] {
          const Eigen::VectorXf theta = average->InitTheta(KeyFromSeed(5));
          average->Bind(Layout({{"w", {2, 2}}}), AsSpan(theta));
        }).find("keeps those, an average, in its state") != std::string::npos);
  CHECK(ErrorOf([&] {
          Made(R"({"type": "OrthogonalSteps", "optimizer": {"type": "Celo3"}})");
        }).find("Celo2") != std::string::npos);
}

}  // namespace
}  // namespace lopt

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/eigen.h"
#include "lopt/base/isa.h"
#include "lopt/base/key.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/network/sums.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/learned_scheduler.h"
#include "lopt/lopt/rules/learned_scheduler_kernel.h"
#include "tests/error_of.h"

namespace lopt {
namespace {

std::shared_ptr<const LearnedOptimizer> Scheduled(const std::string& optimizer,
                                                  const std::string& options = "") {
  return OptimizerRegistry().Make(Config::Parse(
      R"({"type": "LearnedScheduler", "optimizer": )" + optimizer + options + "}", "test"));
}

constexpr const char* kSgd = R"({"type": "LearnableSGD", "learning_rate": 100})";
constexpr const char* kOrthogonalSgdm =
    R"({"type": "OrthogonalSteps",
        "optimizer": {"type": "LearnableSGDM", "learning_rate": 1000, "momentum": 0.8}})";

Layout Params() { return Layout({{"w", {5, 3}}, {"none", {0, 3}}, {"b", {3}}, {"s", {}}}); }

std::vector<float> Normals(uint64_t seed, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  Normal(KeyFromSeed(seed), values);
  return values;
}

// A theta whose network has weights everywhere.
Eigen::VectorXf DrawnTheta(const LearnedOptimizer& optimizer) {
  Eigen::VectorXf theta = optimizer.InitTheta(KeyFromSeed(1));
  const int64_t network = optimizer.theta_layout().Find("scheduler/hidden/w").offset;
  const std::vector<float> normal = Normals(2, theta.size() - network);
  for (int64_t i = network; i < theta.size(); ++i) theta[i] += 0.2F * normal[i - network];
  return theta;
}

// A training whose gradients are the params' own and noise, as its params after every step.
std::vector<std::vector<float>> Trained(const LearnedOptimizer& optimizer, const Layout& params,
                                        const Eigen::VectorXf& theta, int64_t num_steps,
                                        float gradient_scale = 1) {
  const auto rule = optimizer.Bind(params, AsSpan(theta));
  std::vector<float> p = Normals(3, params.size());
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  rule->InitState({.step = 0, .num_steps = num_steps}, p, state);
  Workspace scratch;
  std::vector<std::vector<float>> all = {p};
  for (int64_t step = 0; step < num_steps; ++step) {
    std::vector<float> gradient = Normals(100 + step, params.size());
    for (size_t i = 0; i < p.size(); ++i)
      gradient[i] = gradient_scale * (p[i] + 0.5F * gradient[i]);
    rule->Update({.step = step, .num_steps = num_steps}, gradient, p, state, scratch);
    all.push_back(p);
  }
  return all;
}

double Cos(const Eigen::VectorXd& x, const Eigen::VectorXd& y) {
  return x.squaredNorm() > 0 && y.squaredNorm() > 0 ? x.dot(y) / x.norm() / y.norm() : 0;
}

TEST_CASE("Steps over gradient descent are those of the header's formulas") {
  constexpr int64_t kSteps = 7;
  const auto optimizer =
      Scheduled(kSgd, R"(, "hidden_size": 3, "step_size": 0.3, "weight_decay": 0.01)");
  const Eigen::VectorXf theta = DrawnTheta(*optimizer);
  const Layout params = Params();
  const std::vector<std::vector<float>> got = Trained(*optimizer, params, theta, kSteps);
  const auto tensor = [&](const char* name) -> Eigen::MatrixXd {
    const LayoutEntry& e = optimizer->theta_layout().Find(name);
    const int64_t columns = e.shape.back();
    return Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
               &theta[e.offset], e.size / columns, columns)
        .cast<double>();
  };
  const Eigen::MatrixXd v = tensor("scheduler/hidden/w");
  const Eigen::MatrixXd d = tensor("scheduler/hidden/b");
  const Eigen::MatrixXd w = tensor("scheduler/out/w");
  const Eigen::MatrixXd b = tensor("scheduler/out/b");
  struct Case {
    const char* name;
    double rows, columns, matrix;
  };
  for (const Case& of : {Case{"w", 5, 3, 1}, Case{"b", 1, 3, -1}, Case{"s", 1, 1, -1}}) {
    CAPTURE(of.name);
    const LayoutEntry& e = params.Find(of.name);
    Eigen::VectorXd p = Eigen::Map<const Eigen::VectorXf>(&got[0][e.offset], e.size).cast<double>();
    Eigen::VectorXd last = Eigen::VectorXd::Zero(e.size);
    double h9 = 0, h99 = 0, a9 = 0, slow = 0, fast = 0;
    for (int64_t t = 0; t < kSteps; ++t) {
      const std::vector<float> noise = Normals(100 + t, params.size());
      const Eigen::VectorXd g =
          p + 0.5 * Eigen::Map<const Eigen::VectorXf>(&noise[e.offset], e.size).cast<double>();
      const auto mean = [&](double* m, double k, double x) {
        *m = k * *m + (1 - k) * x;
        return *m / (1 - std::pow(k, t + 1));
      };
      Eigen::VectorXd f(LearnedScheduler::kFeatures);
      const double q = g.squaredNorm() / static_cast<double>(e.size);
      const double means[] = {mean(&h9, .9, Cos(g, last)), mean(&h99, .99, Cos(g, last)),
                              mean(&a9, .9, 1.0), mean(&slow, .999, q), mean(&fast, .9, q)};
      f << 2.0 * static_cast<double>(t) / kSteps - 1, (std::log(double{kSteps}) - 5.5) / 2,
          std::exp(-static_cast<double>(t) / 10), 3 * means[0], 5 * means[1], 3 * means[2] - 1,
          std::log(means[4] / means[3]) / 2,
          (std::log(p.norm() / std::sqrt(static_cast<double>(e.size))) + 2) / 2,
          (std::log(of.rows) - 3) / 2, (std::log(of.columns) - 3) / 2, of.matrix;
      const Eigen::VectorXd h =
          (v.transpose() * f + d.transpose()).unaryExpr([](double x) { return std::tanh(x); });
      Eigen::VectorXd fh(f.size() + h.size());
      fh << f, h;
      const Eigen::VectorXd out = w.transpose() * fh + b.transpose();
      const double factor = (1 + std::cos(std::numbers::pi * static_cast<double>(t) / kSteps)) / 2;
      last = 0.3 * factor * std::exp(out[0]) / std::sqrt(std::max(of.rows, of.columns)) /
             std::sqrt(q) * g;
      p = p - last - 0.01 * factor * std::exp(2 * out[1]) * p;
      for (int64_t i = 0; i < e.size; ++i) {
        CHECK(got[t + 1][e.offset + i] == doctest::Approx(p[i]).epsilon(1e-4));
      }
    }
  }
}

TEST_CASE("The kernel has the bits of plain sums and loops on every instruction set") {
  for (const std::string& isa : SupportedIsas()) {
    CAPTURE(isa);
    const IsaScope scope(isa);
    for (const int64_t size : {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 1000, 1003}) {
      CAPTURE(size);
      const std::vector<float> g = Normals(1, size);
      const std::vector<float> p = Normals(2, size);
      std::vector<float> u = Normals(3, size);
      std::vector<float> l = Normals(4, size);
      const SchedulerSums sums = SumsOfScheduler(g, p, u, l);
      const auto sum_of = [&](const auto& x, const auto& y) {
        return SumInLanes(size, [&](int64_t i) { return double{x(i)} * y(i); });
      };
      const auto of_g = [&](int64_t i) { return g[i]; };
      const auto of_p = [&](int64_t i) { return p[i]; };
      const auto of_l = [&](int64_t i) { return l[i]; };
      const auto of_step = [&](int64_t i) { return p[i] - u[i]; };
      CHECK(sums.gg == sum_of(of_g, of_g));
      CHECK(sums.gs == sum_of(of_g, of_step));
      CHECK(sums.gl == sum_of(of_g, of_l));
      CHECK(sums.ss == sum_of(of_step, of_step));
      CHECK(sums.ll == sum_of(of_l, of_l));
      CHECK(sums.pp == sum_of(of_p, of_p));
      std::vector<float> wanted = u;
      std::vector<float> wanted_last = l;
      for (int64_t i = 0; i < size; ++i) {
        wanted_last[i] = 0.3F * of_step(i);
        wanted[i] = (p[i] - wanted_last[i]) - 0.01F * p[i];
      }
      StepOfScheduler(0.3F, 0.01F, p, u, l);
      CHECK(u == wanted);
      CHECK(l == wanted_last);
    }
  }
}

TEST_CASE("As theta begins, steps have the lengths that the options say, by the run's length") {
  const auto optimizer = Scheduled(
      kOrthogonalSgdm, R"(, "step_size": 0.2, "weight_decay": 0, "schedule": "constant")");
  const Layout params({{"w", {4, 4}}, {"b", {30}}});
  const Eigen::VectorXf theta = optimizer->InitTheta(KeyFromSeed(1));
  for (const int64_t steps : {10, 1000}) {
    const std::vector<float> zeros(static_cast<size_t>(params.size()));
    std::vector<float> p = zeros;
    const auto rule = optimizer->Bind(params, AsSpan(theta));
    std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
    Workspace scratch;
    const std::vector<float> gradient = Normals(4, params.size());
    rule->Update({.step = 0, .num_steps = steps}, gradient, p, state, scratch);
    const auto norm = [&](const char* name) {
      const LayoutEntry& e = params.Find(name);
      return Eigen::Map<const Eigen::VectorXf>(&p[e.offset], e.size).norm();
    };
    const double length = 0.2 / std::sqrt(static_cast<double>(steps) / std::exp(5.5));
    CHECK(norm("b") == doctest::Approx(length));
    CHECK(norm("w") == doctest::Approx(2 * length));  // of singular values about `length`
  }
}

TEST_CASE("As theta begins, steps shrink with the gradients, more than their schedule asks for") {
  // An optimizer whose steps are those of the schedule alone ends as far off as its last steps
  // are long; here a bowl whose gradients have no noise.
  const auto optimizer = Scheduled(kOrthogonalSgdm);
  const Layout params({{"x", {10}}});
  Eigen::VectorXf theta = optimizer->InitTheta(KeyFromSeed(1));
  const auto distance = [&] {  // the mean of 8 trainings
    const auto rule = optimizer->Bind(params, AsSpan(theta));
    float sum = 0;
    for (uint64_t start = 0; start < 8; ++start) {
      std::vector<float> p = Normals(start, params.size());
      std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
      Workspace scratch;
      for (int64_t step = 0; step < 300; ++step) {
        std::vector<float> gradient = p;
        for (size_t i = 0; i < p.size(); ++i) gradient[i] *= 0.5F + 0.1F * static_cast<float>(i);
        rule->Update({.step = step, .num_steps = 300}, gradient, p, state, scratch);
      }
      sum += Eigen::Map<const Eigen::VectorXf>(p.data(), params.size()).norm();
    }
    return sum / 8;
  };
  const float begun = distance();
  const int64_t out = optimizer->theta_layout().Find("scheduler/out/w").offset;
  theta[out + 2 * 3] = 0;  // o0 of features 3 and 6
  theta[out + 2 * 6] = 0;
  const float by_schedule = distance();
  CHECK(by_schedule > 1e-5F);
  CHECK(begun < by_schedule / 10);
}

TEST_CASE("The scale of gradients changes nothing") {
  const auto optimizer = Scheduled(kOrthogonalSgdm);
  const Eigen::VectorXf theta = DrawnTheta(*optimizer);
  const auto wanted = Trained(*optimizer, Params(), theta, 20);
  for (const float scale : {1e-6F, 1e6F}) {
    const auto got = Trained(*optimizer, Params(), theta, 20, scale);
    for (size_t i = 0; i < wanted.back().size(); ++i) {
      CHECK(got.back()[i] == doctest::Approx(wanted.back()[i]).epsilon(1e-3));
    }
  }
}

TEST_CASE("Gradients of zeros decay the params and no more; infinite ones are not hidden") {
  const auto optimizer = Scheduled(kSgd, R"(, "weight_decay": 0.1)");
  const Layout params = Params();
  const Eigen::VectorXf theta = optimizer->InitTheta(KeyFromSeed(1));
  const auto rule = optimizer->Bind(params, AsSpan(theta));
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  std::vector<float> p(static_cast<size_t>(params.size()), 2.0F);
  std::vector<float> gradient(p.size());
  Workspace scratch;
  rule->Update({.step = 0, .num_steps = 5}, gradient, p, state, scratch);
  for (const float x : p) CHECK(x == doctest::Approx(1.8));
  std::ranges::fill(gradient, 1e30F);
  rule->Update({.step = 1, .num_steps = 5}, gradient, p, state, scratch);
  for (const float x : p) CHECK(std::isfinite(x));
  gradient[0] = INFINITY;
  rule->Update({.step = 2, .num_steps = 5}, gradient, p, state, scratch);
  CHECK(!std::isfinite(p[0]));
  CHECK(std::isfinite(p.back()));
}

TEST_CASE("Theta and state hold the optimizer's, and the length of the run is needed") {
  const auto inner = OptimizerRegistry().Make(Config::Parse(kOrthogonalSgdm, "test"));
  const auto optimizer = Scheduled(kOrthogonalSgdm, R"(, "hidden_size": 4)");
  const Layout& theta = optimizer->theta_layout();
  CHECK(theta.Find("optimizer/one_minus_momentum").shape == Shape{1});
  CHECK(theta.Find("scheduler/hidden/w").shape == Shape{11, 4});
  CHECK(theta.Find("scheduler/out/w").shape == Shape{15, 2});
  CHECK(theta.size() == inner->theta_layout().size() + 11 * 4 + 4 + 15 * 2 + 2);
  const Layout state = optimizer->StateLayout(Params());
  CHECK(state.Find("step/w").shape == Shape{5, 3});
  CHECK(state.Find("means/b").shape == Shape{5});
  CHECK(state.size() == inner->StateLayout(Params()).size() + Params().size() + 4 * 5);
  CHECK(optimizer->needs_num_steps() == "LearnedScheduler");
  CHECK(optimizer->sees_shapes());
  CHECK(optimizer->config().json().at("optimizer").at("optimizer").at("momentum") == 0.8);
}

TEST_CASE("Options that cannot be, and an optimizer whose params are an average, are errors") {
  CHECK(ErrorOf([&] { Scheduled(kSgd, R"(, "step_size": 0)"); }).find("step_size") !=
        std::string::npos);
  CHECK(ErrorOf([&] { Scheduled(kSgd, R"(, "weight_decay": 2)"); }).find("in [0, 1]") !=
        std::string::npos);
  CHECK(ErrorOf([&] { Scheduled(R"({"type": "Celo3"})"); }).find("Celo2") != std::string::npos);
  const auto average = Scheduled(R"({"type": "ScheduleFreeAdamW"})");
  CHECK(ErrorOf([&] {
          const Eigen::VectorXf theta = average->InitTheta(KeyFromSeed(5));
          average->Bind(Params(), AsSpan(theta));
        }).find("LearnedScheduler") != std::string::npos);
}

TEST_CASE("Options that are set in C++ are checked as those of a config") {
  const Config sgd = Config::Parse(kSgd, "test");
  const auto refused = [&](const char* key, const LearnedSchedulerOptions& options) {
    CAPTURE(key);
    for (const bool made : {false, true}) {
      const std::string error = ErrorOf([&] {
        made ? LearnedScheduler(options, OptimizerRegistry().Make(sgd)) : LearnedScheduler(options);
      });
      CHECK(error.starts_with("LearnedScheduler: "));
      CHECK(error.find(key) != std::string::npos);
    }
  };
  refused("hidden_size", {.optimizer = sgd, .hidden_size = 0});
  refused("step_size", {.optimizer = sgd, .step_size = -1});
  refused("step_size", {.optimizer = sgd, .step_size = std::nan("")});
  refused("weight_decay", {.optimizer = sgd, .weight_decay = 5});
  LearnedScheduler({}, OptimizerRegistry().Make(sgd));  // in place of the options' optimizer
}

}  // namespace
}  // namespace lopt

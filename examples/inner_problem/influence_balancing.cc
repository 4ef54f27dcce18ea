// What estimators differentiate need not be the training of anything: a linear system whose first
// effects of theta point the other way than the lasting ones (influence balancing, Tallec and
// Ollivier 2017). Truncated ES is misled by them, PES is not.
#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <memory>
#include <span>

#include "lopt/estimators/check/checks.h"
#include "lopt/estimators/persistent_es.h"
#include "lopt/estimators/truncated_es.h"

constexpr int kSize = 23;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// s <- A s + theta v, with 1/2 on the diagonal of A and above it, and v = 1 for ten numbers, -1 for
// the others. The loss is (s_1 - 1)^2 / 2, which theta = -1/6 makes 0 in the long run.
class InfluenceBalancing : public lopt::InnerProblem {
 public:
  InfluenceBalancing() : InnerProblem(lopt::Layout({{"theta", {1}}})) {}
  bool EpisodesEnd() const override { return false; }

 private:
  // Everything that lives between two windows is in named arrays of one row for each replica.
  lopt::UnrollState DoStart(const lopt::ThetaRows& theta, const lopt::OuterState&,
                            std::span<const lopt::Key>,
                            std::optional<int64_t> horizon) const override {
    lopt::UnrollState state;
    state.Set("s", lopt::Array(lopt::DType::kFloat64, {theta.rows, kSize}));
    state.Set("step", lopt::Array(lopt::DType::kInt64, {theta.rows}));
    state.Set("length", lopt::Array(lopt::DType::kInt64, {theta.rows}));  // of the episode
    std::ranges::fill(state.At("s").As<double>(), 1.0);
    std::ranges::fill(state.At("length").As<int64_t>(), horizon.value_or(kNever));
    return state;
  }

  void DoRun(const lopt::Window& window) const override {
    const auto s = window.state->At("s").As<double>();
    const auto step = window.state->At("step").As<int64_t>();
    const auto length = window.state->At("length").As<int64_t>();
    for (int64_t b = 0; b < window.theta.rows; ++b) {
      float theta = 0;
      for (int64_t k = 0; k < window.steps; ++k, ++step[b]) {
        if (k == 0 || window.theta.ChangesAt(step[b])) {
          window.theta.Row(b, {.inner_step = step[b]}, {&theta, 1});
        }
        const double loss = Advance(theta, s.subspan(b * kSize, kSize));
        window.trace->non_finite(k, b) = !std::isfinite(loss);
        window.trace->loss(k, b) = FiniteOrNaN(loss);
        window.trace->iteration(k, b) = step[b];
        window.trace->is_last(k, b) = step[b] + 1 == length[b];
      }
    }
  }

  // Of the state as it stands; FullES's last_recompute asks for it.
  void DoMetaLoss(const lopt::ThetaRows& theta, std::span<const lopt::Key>,
                  const lopt::UnrollState& state, std::span<double> loss) const override {
    const auto s = state.At("s").As<double>();
    for (int64_t b = 0; b < theta.rows; ++b) loss[b] = FiniteOrNaN(Loss(s[b * kSize]));
  }

  // What is not finite is not to be used, which NaN says.
  static double FiniteOrNaN(double loss) {
    return std::isfinite(loss) ? loss : std::numeric_limits<double>::quiet_NaN();
  }

  static double Loss(double s) { return 0.5 * (s - 1) * (s - 1); }
  static double Advance(double theta, std::span<double> s) {
    for (int i = 0; i < kSize; ++i) {
      s[i] = 0.5 * s[i] + (i + 1 < kSize ? 0.5 * s[i + 1] : 0.0) + (i < 10 ? theta : -theta);
    }
    return Loss(s[0]);
  }
};

// Theta after 3,000 windows of one step and as many steps of gradient descent.
float Descend(const lopt::GradientEstimator& estimator) {
  lopt::WorkerWeights weights = {.theta = Eigen::VectorXf::Constant(1, 0.5F), .outer = {}};
  lopt::EstimatorState state = estimator.InitWorkerState(weights, lopt::KeyFromSeed(1));
  for (uint64_t step = 0; step < 3000; ++step) {
    const lopt::Key key = FoldIn(lopt::KeyFromSeed(2), step);
    weights.theta -= 1e-4F * estimator.Estimate(weights, key, &state).gradient;
  }
  return weights.theta(0);
}

// Whether it keeps what the library promises of inner problems; prints what it does not keep.
bool PassesChecks(const std::shared_ptr<const InfluenceBalancing>& problem) {
  bool passed = true;
  const lopt::checks::ProblemUnderCheck subject = {
      .problem = problem, .theta = {0.5F}, .other_theta = {-0.5F}, .random_starts = false};
  for (const auto& outcome : RunChecks(lopt::checks::ProblemChecks(), subject)) {
    passed = passed && outcome.findings.passed();
    for (const std::string& message : outcome.findings.messages()) {
      fmt::print("{}: {}\n", outcome.name, message);
    }
  }
  return passed;
}

int main() {
  const auto problem = std::make_shared<InfluenceBalancing>();
  if (!PassesChecks(problem)) return 1;
  const lopt::TruncatedOptions options = {.num_tasks = 500, .trunc_length = 1, .std = 0.1};
  const float pes = Descend(lopt::TruncatedPES(problem, options));
  const float es = Descend(lopt::TruncatedES(problem, {options}));
  fmt::print("theta by PES {:.4f}, by truncated ES {:.4f}, wanted {:.4f}\n", pes, es, -1.0 / 6);
  return std::abs(pes + 1.0 / 6) < 1e-3 && es > 2 ? 0 : 1;
}

#include "lopt/tools/distill/step_formula.h"

#include <fmt/format.h>

#include <Eigen/Core>
#include <Eigen/QR>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/learned_scheduler.h"

namespace lopt {

namespace {

// ln a is linear in these, beside ln step_size.
constexpr size_t kSlopes = 3;
constexpr std::array<const char*, kSlopes> kSlopeNames = {"length_power", "end", "vectors"};
constexpr std::array<double, kSlopes> kUntrained = {0.5, 0, 0};  // of a LearnedScheduler

std::array<double, kSlopes> Terms(int64_t step, int64_t num_steps, bool vector) {
  const auto length = static_cast<double>(num_steps);
  return {std::log(StepFormula::kLength / length), static_cast<double>(step) / length,
          vector ? 1.0 : 0.0};
}

bool IsVector(const SchedulerRecord& record) { return record.kind == TensorKind::kVector; }

// The columns of `all` that those before them do not determine; the first one is among them.
std::vector<Eigen::Index> IndependentColumns(const Eigen::MatrixXd& all) {
  constexpr double kRounding = 1e-9;
  std::vector<Eigen::Index> columns;
  for (Eigen::Index column = 0; column < all.cols(); ++column) {
    columns.push_back(column);
    Eigen::ColPivHouseholderQR<Eigen::MatrixXd> solver(all(Eigen::all, columns));
    if (solver.setThreshold(kRounding).rank() < std::ssize(columns)) columns.pop_back();
  }
  return columns;
}

// What steps take away, as a fraction of their size: the median over those of matrices, or of
// vectors where there are no others.
double FitWeightDecay(const std::vector<SchedulerRecord>& records) {
  const bool vectors = std::ranges::all_of(records, IsVector);
  std::vector<double> fractions;
  for (const SchedulerRecord& record : records) {
    if (IsVector(record) == vectors && record.decay && record.size > 0) {
      fractions.push_back(*record.decay / record.size);
    }
  }
  if (fractions.empty()) return 0;
  const auto middle = fractions.begin() + std::ssize(fractions) / 2;
  std::ranges::nth_element(fractions, middle);
  return std::max(0.0, *middle);
}

}  // namespace

double StepFormula::Size(const RateSchedule& schedule, int64_t step, int64_t num_steps,
                         bool vector) const {
  const auto [length, progress, is_vector] = Terms(step, num_steps, vector);
  return step_size * ScheduleFactor(schedule, {.step = step, .num_steps = num_steps}) *
         std::exp(length_power * length + std::log(end) * progress + std::log(vectors) * is_vector);
}

FittedFormula FitStepFormula(const std::vector<SchedulerRecord>& records,
                             const RateSchedule& schedule) {
  std::vector<const SchedulerRecord*> used;
  std::vector<double> logs;  // of their sizes beside the schedule
  for (const SchedulerRecord& record : records) {
    const double factor =
        ScheduleFactor(schedule, {.step = record.step, .num_steps = record.num_steps});
    if (!(record.size > 0 && factor > 0)) continue;
    used.push_back(&record);
    logs.push_back(std::log(record.size / factor));
  }
  Require(!used.empty(), "the trainings made no step above 0, so there is none to fit");

  const std::ptrdiff_t rows = std::ssize(used);
  Eigen::MatrixXd terms(rows, 1 + kSlopes);
  for (std::ptrdiff_t i = 0; i < rows; ++i) {
    const SchedulerRecord& record = *used[static_cast<size_t>(i)];
    const auto [length, progress, vector] = Terms(record.step, record.num_steps, IsVector(record));
    terms.row(i) << 1, length, progress, vector;
  }
  const Eigen::Map<const Eigen::VectorXd> wanted(logs.data(), rows);
  Eigen::VectorXd numbers = Eigen::VectorXd::Zero(1 + kSlopes);
  std::copy(kUntrained.begin(), kUntrained.end(), numbers.begin() + 1);
  const std::vector<Eigen::Index> columns = IndependentColumns(terms);
  FittedFormula fitted{.records = rows};
  for (size_t i = 0; i < kSlopes; ++i) {
    if (std::ranges::find(columns, static_cast<Eigen::Index>(i + 1)) == columns.end()) {
      fitted.not_fitted.emplace_back(kSlopeNames[i]);
    }
  }
  for (const Eigen::Index column : columns) numbers[column] = 0;
  const Eigen::MatrixXd free = terms(Eigen::all, columns);
  const Eigen::VectorXd solved =
      free.colPivHouseholderQr().solve(Eigen::VectorXd(wanted - terms * numbers));
  for (size_t i = 0; i < columns.size(); ++i) {
    numbers[columns[i]] = solved[static_cast<Eigen::Index>(i)];
  }
  fitted.log_error =
      std::sqrt((terms * numbers - wanted).squaredNorm() / static_cast<double>(rows));
  fitted.formula = {.step_size = std::exp(numbers[0]),
                    .length_power = numbers[1],
                    .end = std::exp(numbers[2]),
                    .vectors = std::exp(numbers[3])};
  fitted.formula.weight_decay = FitWeightDecay(records);
  return fitted;
}

ThetaFile WithFormula(const ThetaFile& file, const StepFormula& formula) {
  // The rule's own step size is that of matrices where its features of progress and length are 0 in
  // these words: at the start of a run of e^5.5 steps.
  const double step_size =
      formula.step_size * std::pow(StepFormula::kLength / std::exp(5.5), formula.length_power);
  ThetaFile replaced;
  replaced.learned_optimizer =
      file.learned_optimizer.With("hidden_size", "1")
          .With("step_size", fmt::format("{:.17g}", step_size))
          .With("weight_decay", fmt::format("{:.17g}", formula.weight_decay * step_size));
  replaced.trained_horizon = file.trained_horizon;
  replaced.trained_range = file.trained_range;
  replaced.version = file.version;
  const auto optimizer = OptimizerRegistry().Make(replaced.learned_optimizer);
  const Layout& layout = optimizer->theta_layout();
  replaced.theta = Eigen::VectorXf::Zero(layout.size());
  const int64_t of_optimizer = layout.Find("scheduler/hidden/w").offset;
  replaced.theta.head(of_optimizer) = file.theta.head(of_optimizer);
  // Of the features 2 t / T - 1, (ln T - 5.5) / 2, and 1 for tensors of two axes, -1 for others.
  // The second output is half the first: what is taken away is in proportion to the step.
  const std::array<std::pair<int64_t, double>, 3> weights = {
      {{0, std::log(formula.end) / 2},
       {1, -2 * formula.length_power},
       {10, -std::log(formula.vectors) / 2}}};
  const int64_t w = layout.Find("scheduler/out/w").offset;
  const int64_t b = layout.Find("scheduler/out/b").offset;
  for (int64_t output = 0; output < LearnedScheduler::kOutputs; ++output) {
    const double share = output == 0 ? 1 : 0.5;
    for (const auto& [feature, weight] : weights) {
      replaced.theta[w + feature * LearnedScheduler::kOutputs + output] =
          static_cast<float>(share * weight);
    }
    replaced.theta[b + output] =
        static_cast<float>(share * (std::log(formula.end) + std::log(formula.vectors)) / 2);
  }
  return replaced;
}

}  // namespace lopt

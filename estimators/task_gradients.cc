#include "lopt/estimators/task_gradients.h"

#include <limits>
#include <utility>

#include "lopt/estimators/antithetic.h"
#include "lopt/estimators/diagnostics.h"

namespace lopt {

Eigen::ArrayXXd ThroughNormalizer(const LoptProblem& problem, const UnrollTrace& trace,
                                  const Eigen::ArrayXXd& weights) {
  return trace.loss.unaryExpr([&problem](double loss) { return problem.MetaLossSlope(loss); }) *
         weights;
}

GradientEstimate SumOverTasks(const UnrollTrace& trace, const Eigen::MatrixXd& d_theta) {
  const int64_t tasks = d_theta.cols();
  GradientEstimate estimate;
  Eigen::VectorXd sum = Eigen::VectorXd::Zero(d_theta.rows());
  double squares = 0;
  for (int64_t n = 0; n < tasks; ++n) {
    sum += d_theta.col(n);
    squares += d_theta.col(n).squaredNorm();
  }
  estimate.gradient = sum.cast<float>();
  const auto usable = trace.loss.isFinite();
  const int64_t count = usable.count();
  estimate.mean_loss = count > 0 ? usable.select(trace.loss, 0.0).sum() / static_cast<double>(count)
                                 : std::numeric_limits<double>::quiet_NaN();
  estimate.counts = CountSteps(trace);
  NotedMeans noted;
  noted.Add(trace);
  noted.WriteTo(&estimate.metrics);
  // By itself a task would give `tasks` times its part.
  WriteGradientSnr(estimate.gradient, squares * static_cast<double>(tasks * tasks), tasks,
                   &estimate.metrics);
  return estimate;
}

}  // namespace lopt

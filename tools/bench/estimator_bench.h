#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lopt/learner/meta_train_config.h"

namespace lopt {

// A number with its 95 % interval over the runs.
struct Measured {
  double value = 0;
  double low = 0;
  double high = 0;

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("value", value);
    visit("low", low);
    visit("high", high);
  }
};

// How good one estimator's estimates of the gradient are under one theta, in one window of an
// episode or in the mean over all its windows.
struct EstimatorQuality {
  std::string estimator = {};  // "<index>_<task>"
  std::string type = {};
  std::string task = {};
  std::optional<int64_t> window = {};       // from 0; none: the mean over all windows
  double inner_steps = 0;                   // of one estimate, both of a pair counted
  double seconds = 0;                       // of processor time on one thread, without the burn-in
  std::string reference = {};               // what stands for the exact gradient
  std::optional<std::string> inexact = {};  // why that is not FullGrad, where it is not
  Measured gradient_norm = {};              // of the reference's mean
  Measured bias = {};                       // |mean - exact| / |exact|
  Measured variance = {};                   // trace of the covariance of one estimate
  Measured cosine = {};                     // of one estimate to the exact gradient, the mean

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("estimator", estimator);
    visit("type", type);
    visit("task", task);
    visit("window", window);
    visit("inner_steps", inner_steps);
    visit("seconds", seconds);
    visit("reference", reference);
    visit("inexact", inexact);
    visit("gradient_norm", gradient_norm);
    visit("bias", bias);
    visit("variance", variance);
    visit("cosine", cosine);
  }

  // The variance of the mean of as many estimates as make 1,000 inner steps, or take one second.
  Measured VariancePer1000Steps() const;
  Measured VariancePerSecond() const;
};

struct EstimatorBench {
  static constexpr const char* kFormat = "lopt estimator bench 1";

  std::string theta = {};  // where it is from
  int64_t runs = 0;
  std::vector<EstimatorQuality> estimators = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("theta", theta);
    visit("runs", runs);
    visit("estimators", estimators);
  }
};

// The file of a directory that `lopt bench --estimators` writes.
inline constexpr const char* kEstimatorBenchFile = "estimators.json";

struct EstimatorBenchOptions {
  int64_t runs = 200;                   // independent ones of each estimator, at least 3
  std::optional<int64_t> windows = {};  // of a run; none: those of one episode
};

// Runs every estimator of the config under `theta` from fresh tasks, `runs` times, and the same
// tasks with the exact gradient: FullGrad, for window w the gradient of its losses through all the
// steps before it. An estimator with a burn-in has no such reference. Where tasks or optimizer
// cannot be differentiated, or the exact gradient is not finite, the mean over the windows is
// compared with FullES instead, whose own error widens the interval. Where there is no reference it
// is called "none", and norm, bias and cosine are 0. A function of config and theta but for the
// seconds. Throws Error if an estimator of the config cannot be made.
EstimatorBench BenchEstimators(const MetaTrainConfig& config, const Eigen::VectorXf& theta,
                               const EstimatorBenchOptions& options);

// [D, R]: one column for each run. Jackknife intervals. Throws Error unless R >= 3.
// |mean of columns|; without the noise that the mean has, 0 where there is nothing but noise.
Measured NormOfMean(const Eigen::MatrixXd& runs);
// Trace of the covariance of a column.
Measured TraceOfCovariance(const Eigen::MatrixXd& runs);
// The mean cosine of a column to the mean of the other columns of `exact`.
Measured MeanCosine(const Eigen::MatrixXd& runs, const Eigen::MatrixXd& exact);

}  // namespace lopt

#pragma once

#include <Eigen/Core>
#include <memory>
#include <string>

#include "lopt/base/registry.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/lopt/theta_file.h"

namespace lopt {

// What trains the model of a training.
struct TrainOptimizer {
  std::shared_ptr<const LearnedOptimizer> optimizer;  // its kind
  Eigen::VectorXf theta;                              // its weights
  // What they were trained on; its longest training also where that alone is known.
  TrainedRange trained_range = {};
};

// The key "optimizer" of a training: "Theta", the weights of a learned optimizer in a file, whose
// steps may be multiplied and which may be an UnknownLength; "Initial", any optimizer with the
// theta that it begins with; and a type for each of the classic baselines with its learning rate.
// Making one throws Error as ReadThetaFile and UnknownLength do.
Registry<TrainOptimizer>& TrainOptimizerRegistry();

}  // namespace lopt

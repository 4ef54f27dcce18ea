#pragma once

#include <cstdint>
#include <string>

#include "lopt/learner/meta_train_config.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tools/fit/fit_record.h"

namespace lopt {

// Pairs of an update of theta.
inline constexpr int64_t kFitPairs = 24;

// How often an update trains the task, in whole trainings.
double TrainingsOfUpdate(int64_t steps);

// A run that meta-trains a theta of the learned optimizer, beginning with the file `init_theta`:
// FullES over whole trainings of steps / 8 to steps, judged by the last loss on outer_valid, or by
// its logarithm.
MetaTrainConfig FitMetaConfig(const FitRequest& request, const Config& learned_optimizer,
                              bool log_loss, int64_t updates, int64_t pairs,
                              const std::string& init_theta);

}  // namespace lopt

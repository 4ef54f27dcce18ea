#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace lopt {

// A meta-training experiment, as its config file describes it:
//   MetaTrainConfig config = ReadOptions<MetaTrainConfig>(Config::Load(path));
// What may be set without changing the result (threads, directories for output) is not here but in
// MetaTrainerOptions, except the intervals below.
struct MetaTrainConfig {
  std::string name = "meta-train";
  Config learned_optimizer;
  Config theta_opt;
  std::vector<Config> estimators;
  int64_t workers = 1;
  int64_t meta_steps = 500;
  int64_t windows_per_update = 1;
  int64_t seed = 0;
  std::string non_finite_gradient = "skip";
  std::string mode = "sync";
  int64_t batch_size = 1;
  int64_t staleness = 1;
  std::string staleness_policy = "drop";
  double deadline_seconds = 0;
  int64_t quorum = 0;
  int64_t estimators_per_worker = 0;
  std::string estimator_placement = "round-robin";
  double worker_timeout_seconds = 60;
  bool gather_checkpoints = false;
  std::string data_dir;
  std::string isa;
  double checkpoint_seconds = 30;
  int64_t checkpoint_steps = 0;
  int64_t keep_last = 3;
  int64_t keep_every = 0;
  int64_t metrics_steps = 1;
  int64_t eval_every = 0;
  std::vector<Config> eval_tasks;
  int64_t eval_steps = 300;
  int64_t eval_seeds = 8;

  void Visit(FieldVisitor& v);
};

// Throws Error, with what to do, if keys of the config do not go together.
void CheckCombinations(const MetaTrainConfig& config);

// Top-level keys that may change when a run is resumed.
const std::vector<std::string>& KeysFreeOnResume();

}  // namespace lopt

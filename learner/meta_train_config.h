#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/choices.h"
#include "lopt/base/options.h"
#include "lopt/learner/aggregation.h"
#include "lopt/learner/run/run_keys.h"

namespace lopt {

// Which estimators a worker runs if it does not run all.
enum class EstimatorPlacement { kRoundRobin, kRandom };
inline constexpr Named<EstimatorPlacement> kEstimatorPlacements[] = {
    {EstimatorPlacement::kRoundRobin, "round-robin"}, {EstimatorPlacement::kRandom, "random"}};

// A meta-training experiment, as its config file describes it:
//   MetaTrainConfig config = ReadOptions<MetaTrainConfig>(Config::Load(path));
// What may be set without changing the result (threads, directories for output) is not here but in
// MetaTrainerOptions, except the intervals below.
struct MetaTrainConfig : RunKeys {
  std::string name = "meta-train";
  Config learned_optimizer;
  std::string init_theta;
  std::vector<std::string> frozen;
  // The optimizer that updates theta.
  Config theta_opt =
      Config::Parse(R"({"type": "Adam", "learning_rate": 1e-3})", "the default theta_opt");
  std::vector<Config> estimators;
  Weighting weighting = Weighting::kFixed;
  GradientSum gradient_sum = GradientSum::kInOrder;
  int64_t workers = 1;
  int64_t meta_steps = 500;
  int64_t windows_per_update = 1;
  int64_t seed = 0;
  NonFiniteGradient non_finite_gradient = NonFiniteGradient::kSkip;
  Config mode = Config::Parse(R"({"type": "Sync"})", "the default of mode");
  int64_t estimators_per_worker = 0;
  EstimatorPlacement estimator_placement = EstimatorPlacement::kRoundRobin;
  bool gather_checkpoints = false;
  std::string device = "cpu";
  int64_t worker_metrics = 64;
  int64_t eval_every = 0;
  std::vector<Config> eval_tasks;
  int64_t eval_steps = 300;
  int64_t eval_seeds = 8;

  void Visit(FieldVisitor& v);
};

// The config with what one key leaves to another filled in: the total_steps of theta_opt's schedule
// are meta_steps. What a run writes is resolved, so that a resumed run keeps the schedule that it
// began with, whatever meta_steps is then.
MetaTrainConfig Resolved(MetaTrainConfig config);

// The config of a run of an earlier version with its keys as they are called now: `lengths` of
// estimators was `schedule`, `beta1` and `beta2` of a theta_opt were `b1` and `b2`, and the keys of
// a mode stood beside its name, "mode": "sync".
Config InTodaysKeys(const Config& config);

// Throws Error, with what to do, if a value of the config is not valid or keys do not go together.
void CheckConfig(const MetaTrainConfig& config);

// Top-level keys that may change when a run is resumed.
std::vector<std::string> KeysFreeOnResume();

}  // namespace lopt

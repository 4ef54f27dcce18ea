#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/evaluation/baselines.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/lopt/theta_file.h"

namespace lopt {

// Tasks of an evaluation by their names, each with some of its numbers of steps.
using TaskSteps = std::map<std::string, std::vector<int64_t>>;

// A learned optimizer with its weights, under the name that results give it.
struct NamedLearnedOptimizer {
  std::string name;                                   // distinct among all optimizers
  std::shared_ptr<const LearnedOptimizer> optimizer;  // of the type that the file names
  Eigen::VectorXf theta;                              // [D]
  Config config = {};               // type and options of `optimizer`, where it is to be written
  std::string source = {};          // the file that theta is from, for people
  int64_t trained_horizon = 0;      // of that file; 0 if unknown
  TrainedRange trained_range = {};  // of that file
  Config meta_training = {};    // of the run that made theta (ThetaFile::config); empty if unknown
  int64_t seed = 0;             // of that run
  bool is_start = false;        // theta is drawn with that seed
  double step_multiplier = 1;   // what its steps are multiplied by
  bool tuned = false;           // what its steps are multiplied by is tuned for each task
  bool unknown_length = false;  // WithUnknownLength has made it of another
  // What the meta-training has trained on (evaluation/trained_on.h); none if unknown.
  std::optional<TaskSteps> trained_on = {};
  // Whether that began with the weights of a file (init_theta), trained on what is not known here.
  bool trained_before = false;
};

// Its rule for such params. Throws Error as ScaleSteps does (lopt/rules/scaled_steps.h).
std::unique_ptr<UpdateRule> BindLearned(const NamedLearnedOptimizer& learned, const Layout& params);

// The same optimizer as "NAME-tuned": what its steps are multiplied by (lopt/rules/scaled_steps.h)
// is tuned for each task and number of steps as the learning rates of the baselines are, 1 first,
// then from 1/32 to 32 and beyond. Throws Error if its steps cannot be multiplied.
NamedLearnedOptimizer WithTunedSteps(NamedLearnedOptimizer learned);

// Whether its steps can be multiplied: those of an optimizer that keeps an average cannot.
bool HasScalableSteps(const NamedLearnedOptimizer& learned);

// Whether it was made for trainings of unknown length: an UnknownLength.
bool IsUnknownLength(const NamedLearnedOptimizer& learned);

// The same weights in trainings whose length the optimizer is not told (an UnknownLength of it,
// lopt/rules/unknown_length.h): "NAME-unknown". Throws Error if the optimizer keeps an average
// itself.
NamedLearnedOptimizer WithUnknownLength(NamedLearnedOptimizer learned);

// The optimizer of a theta file.
NamedLearnedOptimizer NamedLearnedOptimizerOf(std::string name, const ThetaFile& file,
                                              std::string source);

// One line in the log if some of the trainings, each a name and its inner steps, are longer than
// those that the optimizer was trained on.
void WarnBeyondHorizon(const NamedLearnedOptimizer& learned,
                       const std::vector<std::pair<std::string, int64_t>>& trainings);

// Who is judged.
struct EvaluatedOptimizers {
  std::vector<NamedLearnedOptimizer> learned = {};  // in the order of results
  std::vector<Baseline> baselines = {};             // likewise, before these
};

// One of each file's weights, in their order: the first. Starts are of none.
std::vector<NamedLearnedOptimizer> MetaTrained(const EvaluatedOptimizers& optimizers);

// The same optimizer with a theta before meta-training, `theta` [D], and its steps
// times `step_multiplier`: "NAME-start", or "NAME-start-0.3" where that is not 1. Throws Error as
// BindLearned does.
NamedLearnedOptimizer StartOf(NamedLearnedOptimizer learned, Eigen::VectorXf theta,
                              double step_multiplier);

// Judges each learned optimizer a second time, after itself, WithTunedSteps, but for those whose
// steps are multiplied and what WithUnknownLength has made. Throws Error as WithTunedSteps does,
// and if there is none.
void AddTunedSteps(EvaluatedOptimizers* optimizers);

// Judges each learned optimizer a second time, after itself, WithUnknownLength, but for untrained
// and tuned ones and those that were meta-trained for trainings of unknown length. Throws Error as
// WithUnknownLength does, and if there is none to judge so.
void AddUnknownLengths(EvaluatedOptimizers* optimizers);

// An optimizer that is tuned for each task.
struct TunedOptimizer {
  std::string name;                        // as in results
  std::vector<TunedHyperparameter> tuned;  // the values that bind takes, in this order
  bool scheduled = false;                  // whether its steps depend on how long the training is
  bool random_search = false;              // as Baseline has it
  // Its rule for such params with these values [tuned].
  std::function<std::unique_ptr<UpdateRule>(const Layout&, std::span<const double>)> bind;
};

// Those of them that are tuned, in the order of results.
std::vector<TunedOptimizer> TunedOf(const EvaluatedOptimizers& optimizers);

// In the order of results: baselines first. Throws Error if there is none or two have one name.
std::vector<std::string> NamesOf(const EvaluatedOptimizers& optimizers);

// One optimizer of an evaluation, for its manifest and its tables.
struct OptimizerInfo {
  std::string name = {};                // as in the results
  std::optional<Config> baseline = {};  // Baseline::Definition
  // Of a learned optimizer:
  std::optional<std::string> theta = {};         // the file that its weights are from
  std::optional<std::string> copy = {};          // of them, in the directory
  std::optional<Config> learned_optimizer = {};  // type and options
  std::optional<bool> tuned = {};                // true: its steps are tuned (WithTunedSteps)
  // The weights are drawn with this seed, that of the meta-training that made `theta`.
  std::optional<int64_t> start_seed = {};
  std::optional<double> step_multiplier = {};  // not 1: what its steps are multiplied by
  std::optional<bool> unknown_length = {};   // true: it is not told the length (WithUnknownLength)
  std::optional<TaskSteps> trained_on = {};  // none: unknown
  // true: other meta-trainings were before that one (init_theta), so there may be more tasks.
  std::optional<bool> trained_before = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("name", name);
    visit("baseline", baseline);
    visit("theta", theta);
    visit("copy", copy);
    visit("learned_optimizer", learned_optimizer);
    visit("tuned", tuned);
    visit("start_seed", start_seed);
    visit("step_multiplier", step_multiplier);
    visit("unknown_length", unknown_length);
    visit("trained_on", trained_on);
    visit("trained_before", trained_before);
  }
};

}  // namespace lopt

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/tools/check/outcome_table.h"

namespace lopt {

// What to check: configs of things that the registries know.
struct CheckRequest {
  std::vector<Config> optimizers;  // where there is none, tasks are trained by Adam
  std::vector<Config> tasks;
  std::vector<Config> schedules;
  std::vector<Config> estimators;
  std::string data_dir;
  std::string isa;  // the instruction set of the kernels; empty: the one in use
};

// Adds the optimizer, the tasks, schedules and estimators of a whole meta-training config, each
// once, and its data directory and instruction set where the request has none.
void AddMetaTraining(const Config& config, CheckRequest* request);

// Makes and checks one thing after the other: optimizers, schedules, tasks and these trained by the
// optimizer, estimators; `done` is called after each. Pins the instruction set, where one is named.
// Throws Error if one cannot be made.
void RunRequest(const CheckRequest& request, const std::function<void(const CheckedThing&)>& done);

// Every check that there is, for people.
std::string ListOfChecks();

}  // namespace lopt

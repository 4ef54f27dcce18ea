#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lopt/base/options.h"

namespace lopt {

// A task to judge optimizers on, under a name of the user's.
struct EvaluationTask {
  std::string name = {};            // distinct within the evaluation
  Config task = {};                 // type and options
  std::vector<int64_t> steps = {};  // in place of the evaluation's, where not empty
};

// What an evaluation does, as its config file describes it.
struct EvaluationConfig {
  std::string name = "evaluation";
  std::vector<int64_t> steps = {300};
  int64_t seeds = 16;
  int64_t trials = 21;
  int64_t tuning_seeds = 4;
  int64_t seed = 0;
  std::string data_dir;
  std::vector<EvaluationTask>
      tasks;  // in the file: an object of {"task": ..., "steps": ...} by name

  // All but the tasks.
  void Visit(FieldVisitor& v);
};

// One task of an evaluation, as the file has it under its name.
void VisitEvaluationTask(FieldVisitor& v, EvaluationTask* task);

// Throws Error as ReadFields does; also if there is no task or `steps` does not ascend.
EvaluationConfig ReadEvaluationConfig(const Config& config);
// The same checks of a config that was set in C++; also that no two tasks have one name.
void CheckEvaluationConfig(const EvaluationConfig& config);
// Leaves a task out. Throws Error if there is none of this name, or no other.
void SkipTask(const std::string& name, EvaluationConfig* config);
// Every key with its value.
Config WriteEvaluationConfig(const EvaluationConfig& config);

}  // namespace lopt

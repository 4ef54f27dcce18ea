#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lopt/base/options.h"
#include "lopt/learner/run/run_keys.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// The training of one model, as its config file describes it:
//   auto config = ReadOptions<TrainConfig>(Config::Load(path));
struct TrainConfig : RunKeys {
  std::string name = "train";
  Config task;
  std::string init_model;
  Config optimizer;
  int64_t workers = 1;
  Config batches = Config::Parse(R"({"type": "Split"})", "the default of batches");
  int64_t steps = 1000;
  int64_t seed = 0;
  int64_t eval_every = 0;
  Split eval_split = Split::kOuterValid;

  void Visit(FieldVisitor& v);
};

// Top-level keys that may change when a training is resumed.
std::vector<std::string> TrainKeysFreeOnResume();

}  // namespace lopt

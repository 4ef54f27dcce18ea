#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/compare.h"
#include "lopt/base/key.h"
#include "lopt/tasks/task_family.h"

namespace lopt::checks {

// Tasks of a family as the checks evaluate them.

// n tasks of a family, each somewhere near its initial params.
struct TaskRows {
  int64_t rows = 0;
  std::vector<float> config;
  std::vector<float> params;
  std::vector<float> model_state;
  std::vector<Key> keys;
};

TaskRows DrawRows(const TaskFamily& task, int64_t rows, uint64_t seed);
TaskRows TakeRow(const TaskRows& all, int64_t row);
// Row `row` of `values`, which are those of `rows` rows.
std::vector<float> RowOf(const std::vector<float>& values, int64_t rows, int64_t row);

struct TaskResults {
  std::vector<float> losses;
  std::vector<float> gradients;
  std::vector<float> aux;
  std::vector<float> model_state;
};

bool SameBits(const TaskResults& a, const TaskResults& b);
// What the results of `a` differ from those of `b` in, "losses and gradients"; empty if in nothing.
std::string Differing(const TaskResults& a, const TaskResults& b);

struct HowToEvaluate {
  Split split = Split::kTrain;
  std::span<const int32_t> examples = {};
  bool gradients = true;
  float garbage = kNaN;  // what outputs and scratch memory hold before
};

TaskResults EvaluateRows(const TaskFamily& task, const TaskRows& rows,
                         const HowToEvaluate& how = {});

bool HasDataSet(const TaskFamily& task);
// Whether rows evaluated together have the bits of each alone. Families that are evaluated in
// lockstep (PreferredRows) may differ by rounding.
bool RowsAreExact(const TaskFamily& task);

// "'w1', element 3": the tensor of a row's number.
std::string ElementName(const Layout& layout, int64_t index);

}  // namespace lopt::checks

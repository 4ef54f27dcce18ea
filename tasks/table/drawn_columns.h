#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// What drawn tables and ratings are made of.

// The largest meta-loss beside that of a network that says the same for every row. A network that
// has memorized few rows is far worse than that on others, and theta is to see how much.
inline constexpr double kMostLossOfRows = 100;

// Standard normal numbers [count].
std::vector<float> DrawNormals(Key key, int64_t count);

// Draws `count` numbers from 0, ..., values - 1; v has a probability in proportion to 1 / (v + 1).
std::vector<int64_t> DrawRareValues(Key key, int64_t values, int64_t count);

// Rows [first, last) of a split: `train` of train first, then `held_out` of each other in the order
// of kSplits.
std::pair<int64_t, int64_t> RangeOfRows(Split split, int64_t train, int64_t held_out);

}  // namespace lopt

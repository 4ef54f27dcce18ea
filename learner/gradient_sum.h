#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <span>
#include <variant>

#include "lopt/base/choices.h"

namespace lopt {

// In which order the gradients of an update's workers are added up, always in float64. Another
// order is another result, by rounding.
enum class GradientSum {
  kInOrder,  // one after the other, in the order of the workers
  kTree      // as a binary tree over the workers: a process adds up those that it computed
};
inline constexpr Named<GradientSum> kGradientSums[] = {{GradientSum::kInOrder, "in_order"},
                                                       {GradientSum::kTree, "tree"}};

// Nodes of the tree are the workers [first, first + 2^level), `first` being a multiple of 2^level.
// A node's sum is that of its lower half plus that of its upper half; of one worker it is the
// gradient. What is not there (workers that are late, numbers beyond the last worker) has no part
// in it: the sum of a node of which one half is there is that half's. So a sum depends on the
// gradients in the node alone, and not on who adds them up.

// A worker's gradient, or the sum of a node's.
struct Addend {
  int64_t first = 0;                                                       // the (first) worker
  std::variant<std::span<const float>, std::span<const double>> row = {};  // [D]
};

// How many workers the largest node holds that begins with worker `first` and lies within
// [first, end), of `workers` workers in all; those beyond the last count as inside.
int64_t LargestNode(int64_t first, int64_t end, int64_t workers);

// The sum [size] of rows [size] as one of these orders has it; rows are in the order of `first`.
// With weights, one a row, of the rows each times its weight: in order only. Elements are added in
// parallel on the pool around the call. Throws Error if the numbers of rows and weights disagree.
Eigen::VectorXd AddUp(GradientSum order, std::span<const Addend> rows, int64_t size,
                      std::span<const double> weights = {});

}  // namespace lopt

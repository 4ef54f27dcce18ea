#include "lopt/learner/aggregation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include "lopt/base/error.h"
#include "lopt/base/parallel.h"

namespace lopt {
namespace {

// Elements that are added up together: the sums of all levels of a tree stay in the nearest cache.
constexpr int64_t kTile = 512;

// Rows that are added in one pass, in which a sum stays in a register.
constexpr size_t kTogether = 8;

// Calls f(i, number i of the row from `begin` on) for each element of a tile.
template <class F>
void VisitRow(const Addend& from, int64_t begin, int64_t count, F&& f) {
  std::visit(
      [&](auto row) {
        const auto* __restrict numbers = row.data() + begin;
        for (int64_t i = 0; i < count; ++i) f(i, static_cast<double>(numbers[i]));
      },
      from.row);
}

// Adds the numbers [begin, begin + count) of a row, times its weight.
void Add(const Addend& from, int64_t begin, int64_t count, double weight, double* __restrict to) {
  VisitRow(from, begin, count, [&](int64_t i, double number) { to[i] += weight * number; });
}

// Adds those of rows of float32, one row after the other, each times its weight where there are
// weights.
template <bool kWeighted>
void AddTogether(const float* const* rows, const double* weights, int64_t begin, int64_t count,
                 double* __restrict to) {
  for (int64_t i = 0; i < count; ++i) {
    double sum = to[i];
    for (size_t k = 0; k < kTogether; ++k) {
      const auto number = static_cast<double>(rows[k][begin + i]);
      sum += kWeighted ? weights[k] * number : number;
    }
    to[i] = sum;
  }
}

// The next rows of float32, as many as are added together; none if there are fewer, or others.
std::optional<std::array<const float*, kTogether>> NextTogether(std::span<const Addend> rows) {
  if (rows.size() < kTogether) return std::nullopt;
  std::array<const float*, kTogether> next = {};
  for (size_t k = 0; k < kTogether; ++k) {
    const auto* row = std::get_if<std::span<const float>>(&rows[k].row);
    if (row == nullptr) return std::nullopt;
    next[k] = row->data();
  }
  return next;
}

void AddInOrder(std::span<const Addend> rows, std::span<const double> weights, int64_t begin,
                int64_t count, double* to) {
  for (size_t i = 0; i < rows.size();) {
    if (const auto next = NextTogether(rows.subspan(i))) {
      if (weights.empty()) {
        AddTogether<false>(next->data(), nullptr, begin, count, to);
      } else {
        AddTogether<true>(next->data(), &weights[i], begin, count, to);
      }
      i += kTogether;
    } else {
      Add(rows[i], begin, count, weights.empty() ? 1 : weights[i], to);
      ++i;
    }
  }
}

void Copy(const Addend& from, int64_t begin, int64_t count, double* __restrict to) {
  VisitRow(from, begin, count, [&](int64_t i, double number) { to[i] = number; });
}

// Of the node [first, first + workers), which all `rows` lie in, one at least: the elements
// [begin, begin + count). `free` is room for a tile of each level below.
void AddNode(std::span<const Addend> rows, int64_t first, int64_t workers, int64_t begin,
             int64_t count, double* __restrict to, double* __restrict free) {
  if (rows.size() == 1) {
    Copy(rows[0], begin, count, to);
    return;
  }
  const int64_t half = workers / 2;
  const auto lower = static_cast<size_t>(
      std::ranges::lower_bound(rows, first + half, {}, &Addend::first) - rows.begin());
  if (lower > 0) AddNode(rows.first(lower), first, half, begin, count, to, free);
  const std::span<const Addend> upper = rows.subspan(lower);
  if (lower == 0) {
    AddNode(upper, first + half, half, begin, count, to, free);
  } else if (upper.size() == 1) {
    Add(upper[0], begin, count, 1, to);
  } else if (!upper.empty()) {
    AddNode(upper, first + half, half, begin, count, free, free + kTile);
    for (int64_t i = 0; i < count; ++i) to[i] += free[i];
  }
}

double RunningNorm(double sum, int64_t count) {
  if (count == 0) return 0;
  return sum / (1 - std::pow(kNormDecay, static_cast<double>(count)));
}

}  // namespace

int64_t LargestNode(int64_t first, int64_t end, int64_t workers) {
  int64_t node = 1;
  while (first % (2 * node) == 0 && std::min(first + 2 * node, workers) <= end && node < workers) {
    node *= 2;
  }
  return std::min(node, workers - first);
}

Eigen::VectorXd AddUp(GradientSum order, std::span<const Addend> rows, int64_t size,
                      std::span<const double> weights) {
  Require(weights.empty() || weights.size() == rows.size(), "a sum of {} rows with {} weights",
          rows.size(), weights.size());
  Require(weights.empty() || order == GradientSum::kInOrder,
          "a sum in the order of a tree has no weights");
  Eigen::VectorXd sum = Eigen::VectorXd::Zero(size);
  if (rows.empty()) return sum;
  const auto workers = std::bit_ceil(static_cast<uint64_t>(rows.back().first) + 1);
  ParallelFor((size + kTile - 1) / kTile, [&](int64_t tile) {
    const int64_t begin = tile * kTile;
    const int64_t count = std::min(kTile, size - begin);
    double* to = sum.data() + begin;
    if (order == GradientSum::kInOrder) {
      AddInOrder(rows, weights, begin, count, to);
    } else {
      const auto levels = std::min(rows.size(), static_cast<size_t>(std::bit_width(workers)));
      std::vector<double> free(levels * kTile);
      AddNode(rows, 0, static_cast<int64_t>(workers), begin, count, to, free.data());
    }
  });
  return sum;
}

Eigen::VectorXd EqualNormMean(std::span<const EstimatorGradient> estimators, NamedArrays* state) {
  const Shape shape = {std::ssize(estimators)};
  if (state->size() == 0) {
    state->Set("sum", Array(DType::kFloat64, shape));
    state->Set("count", Array(DType::kInt64, shape));
  }
  const std::span<double> sums = state->At("sum", DType::kFloat64, shape).As<double>();
  const std::span<int64_t> counts = state->At("count", DType::kInt64, shape).As<int64_t>();
  Eigen::VectorXd result;
  double weights = 0;
  for (size_t e = 0; e < estimators.size(); ++e) {
    const auto& [weight, gradient] = estimators[e];
    if (gradient.size() == 0) continue;
    if (result.size() == 0) result.setZero(gradient.size());
    weights += weight;
    const double norm = gradient.norm();
    if (!std::isfinite(norm)) {
      result += gradient;
    } else if (norm > 0) {
      sums[e] = kNormDecay * sums[e] + (1 - kNormDecay) * norm;
      ++counts[e];
      result += weight / RunningNorm(sums[e], counts[e]) * gradient;
    }
  }
  Require(result.size() > 0, "equal_norm: the update has no gradient of any estimator by itself");
  return result / weights;
}

std::vector<double> RunningNorms(const NamedArrays& state) {
  std::vector<double> norms;
  if (state.size() == 0) return norms;
  const auto sums = state.At("sum").As<double>();
  const auto counts = state.At("count").As<int64_t>();
  for (size_t e = 0; e < sums.size(); ++e) norms.push_back(RunningNorm(sums[e], counts[e]));
  return norms;
}

}  // namespace lopt

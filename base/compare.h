#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "lopt/base/workspace.h"

namespace lopt::checks {

// What the checks of a contract compare with (base/check.h).

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Whether two contiguous ranges hold the same bits; NaN equals itself.
template <class A, class B>
bool SameBits(const A& a, const B& b) {
  static_assert(sizeof(*a.data()) == sizeof(*b.data()));
  const auto size = static_cast<size_t>(a.size());
  return size == static_cast<size_t>(b.size()) &&
         (size == 0 || std::memcmp(a.data(), b.data(), size * sizeof(*a.data())) == 0);
}

// The largest distance of two elements, relative to the largest element or to 1.
inline double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 1;
  double distance = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(double{b[i]}));
    const double apart = std::abs(double{a[i]} - double{b[i]});
    if (std::isnan(apart)) return std::numeric_limits<double>::infinity();
    distance = std::max(distance, apart);
  }
  return distance / largest;
}

template <class Range>
bool AllFinite(const Range& values) {
  return std::all_of(values.begin(), values.end(), [](auto v) { return std::isfinite(v); });
}

// Leaves `value` all over the scratch memory that a computation will get.
inline void Dirty(Workspace& scratch, float value) {
  const Workspace::Frame frame(scratch);
  std::ranges::fill(scratch.Take<float>(1 << 16), value);
}

}  // namespace lopt::checks

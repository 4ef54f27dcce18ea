#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/workspace.h"

namespace lopt::contracts {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

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
    distance = std::max(distance, std::abs(double{a[i]} - double{b[i]}));
  }
  return distance / largest;
}

template <class Range>
bool AllFinite(const Range& values) {
  return std::all_of(values.begin(), values.end(), [](auto v) { return std::isfinite(v); });
}

// Checks that `body` throws an Error whose message has `word` in it.
template <class Body>
void CheckThrows(const std::string& word, const Body& body) {
  std::string message;
  try {
    body();
    message = "nothing was thrown";
  } catch (const Error& error) {
    message = error.what();
    if (message.find(word) != std::string::npos) return;
  }
  FAIL_CHECK("wanted an Error about '", word, "', got: ", message);
}

// Leaves `value` all over the scratch memory that a computation will get.
inline void Dirty(Workspace& scratch, float value) {
  const Workspace::Frame frame(scratch);
  std::ranges::fill(scratch.Take<float>(1 << 16), value);
}

}  // namespace lopt::contracts

#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <type_traits>

namespace lopt {

// The larger of two distances. NaN is infinitely far, where std::max(farthest, NaN) is `farthest`.
template <class T>
T Farther(T farthest, std::type_identity_t<T> distance) {
  if (std::isnan(farthest) || std::isnan(distance)) return std::numeric_limits<T>::infinity();
  return distance > farthest ? distance : farthest;
}

// The largest distance of two numbers at one place of two rows; infinity where it is NaN.
template <class A, class B>
double Farthest(const A& a, const B& b) {
  REQUIRE_EQ(std::ssize(a), std::ssize(b));
  double farthest = 0;
  for (std::ptrdiff_t i = 0; i < std::ssize(a); ++i) {
    farthest = Farther(farthest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return farthest;
}

// The same in units of b's largest number; 0 where all numbers of both are hardly normal ones.
template <class A, class B>
double FarthestOfLargest(const A& a, const B& b) {
  double largest = 0;
  for (const auto x : b) largest = std::max(largest, std::abs(static_cast<double>(x)));
  const double farthest = Farthest(a, b);
  if (largest < 1e-37 && farthest < 1e-37) return 0;
  return Farther(0.0, farthest / largest);
}

}  // namespace lopt

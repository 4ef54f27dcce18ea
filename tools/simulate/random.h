#pragma once

#include <cstdint>

namespace lopt {

// Draws of the simulator: the same on every machine and with every standard library. SplitMix64
// (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // Of [first, last].
  int64_t Between(int64_t first, int64_t last) {
    return first + static_cast<int64_t>(Next() % static_cast<uint64_t>(last - first + 1));
  }
  bool Chance(double probability) {
    return static_cast<double>(Next() >> 11) < probability * 0x1p53;
  }
  // Of [1, 2^bits), each power of two as likely as another.
  int64_t AnySize(int bits) {
    const int64_t size = int64_t{1} << Between(0, bits - 1);
    return Between(size, 2 * size - 1);
  }

 private:
  uint64_t state_;
};

}  // namespace lopt

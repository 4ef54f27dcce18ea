#pragma once

#include <cmath>
#include <cstdint>

#include "lopt/base/block_device.h"
#include "lopt/base/key.h"

namespace lopt {

// The draws of base/key.h one at a time, for the host and for kernels of a device. Words, uniform
// numbers and integers are the same bits as there, normal numbers are the same to rounding.

namespace key_device {

template <int kBits>
LOPT_DEVICE inline uint32_t RotateLeft(uint32_t x) {
  return x << kBits | x >> (32 - kBits);
}

template <int kFirst, int kSecond, int kThird, int kFourth>
LOPT_DEVICE inline void FourRounds(uint32_t& x0, uint32_t& x1) {
  x0 += x1, x1 = RotateLeft<kFirst>(x1) ^ x0;
  x0 += x1, x1 = RotateLeft<kSecond>(x1) ^ x0;
  x0 += x1, x1 = RotateLeft<kThird>(x1) ^ x0;
  x0 += x1, x1 = RotateLeft<kFourth>(x1) ^ x0;
}

template <int kTerms>
LOPT_DEVICE inline float Polynomial(const float (&coefficients)[kTerms], float x) {
  float sum = coefficients[0];
  LOPT_UNROLL
  for (int i = 1; i < kTerms; ++i) sum = std::fma(sum, x, coefficients[i]);
  return sum;
}

}  // namespace key_device

// threefry-2x32 of 20 rounds.
LOPT_DEVICE inline Key Threefry(Key key, uint64_t counter) {
  using key_device::FourRounds;
  const uint32_t k0 = key.hi;
  const uint32_t k1 = key.lo;
  const uint32_t k2 = k0 ^ k1 ^ 0x1BD11BDAu;
  uint32_t x0 = static_cast<uint32_t>(counter >> 32) + k0;
  uint32_t x1 = static_cast<uint32_t>(counter) + k1;
  FourRounds<13, 15, 26, 6>(x0, x1);
  x0 += k1, x1 += k2 + 1;
  FourRounds<17, 29, 16, 24>(x0, x1);
  x0 += k2, x1 += k0 + 2;
  FourRounds<13, 15, 26, 6>(x0, x1);
  x0 += k0, x1 += k1 + 3;
  FourRounds<17, 29, 16, 24>(x0, x1);
  x0 += k1, x1 += k2 + 4;
  FourRounds<13, 15, 26, 6>(x0, x1);
  return {x0 + k2, x1 + k0 + 5};
}

// Word `index` of a key's array.
LOPT_DEVICE inline uint32_t BitsAt(Key key, uint64_t index) {
  const Key block = Threefry(key, index);
  return block.hi ^ block.lo;
}

// Number `index` of the array that Uniform makes of the key.
LOPT_DEVICE inline float UniformAt(Key key, uint64_t index) {
  return static_cast<float>(BitsAt(key, index) >> 9) * 0x1p-23f;
}

// sqrt(2) erfinv(u), |u| < 1: Giles 2011, "Approximating the erfinv function", single precision,
// the root of 2 in the coefficients. w = -log(1 - u^2), u^2 rounded before it is subtracted.
LOPT_DEVICE inline float SqrtTwoErfInv(float u) {
#ifdef __CUDA_ARCH__
  const float square = __fmul_rn(u, u);
#else
  const float square = u * u;
#endif
  const float w = -std::log(1.0f - square);
  if (w < 5.0f) {
    constexpr float kCentral[] = {3.97426021e-08f,  4.85462635e-07f, -4.9828227e-06f,
                                  -6.21052823e-06f, 0.00030912002f,  -0.00177303492f,
                                  -0.00590813393f,  0.348802656f,    2.12331367f};
    return key_device::Polynomial(kCentral, w - 2.5f) * u;
  }
  constexpr float kTail[] = {-0.000283145724f, 0.000142765653f, 0.00190825947f,
                             -0.00519501232f,  0.00811688974f,  -0.0107797878f,
                             0.0133485785f,    1.41658103f,     4.00643444f};
  return key_device::Polynomial(kTail, std::sqrt(w) - 3.0f) * u;
}

// Number `index` of the array that Normal makes of the key.
LOPT_DEVICE inline float NormalAt(Key key, uint64_t index) {
  // On (-1, 1): from the float after -1, in steps of 2^-22.
  constexpr float kAfterMinusOne = -0x1.fffffep-1f;
  return SqrtTwoErfInv(UniformAt(key, index) * 2.0f + kAfterMinusOne);
}

// What Randint needs of its range: low + ((a mod span) * multiplier + b mod span) mod span in
// 32-bit arithmetic is its number, a and b being bits of two keys.
struct RandintRange {
  int32_t low;
  uint32_t span;  // at least 1
  uint32_t multiplier;
};

// That of [low, high), low < high.
LOPT_DEVICE inline RandintRange RandintRangeOf(int32_t low, int32_t high) {
  const uint32_t span = static_cast<uint32_t>(high) - static_cast<uint32_t>(low);
  const uint32_t root = 65536u % span;
  return {low, span, root * root % span};
}

// Number `index` of the array that Randint makes of the key.
LOPT_DEVICE inline int32_t RandintAt(Key key, const RandintRange& range, uint64_t index) {
  const uint32_t upper = BitsAt(Threefry(key, 0), index) % range.span;
  const uint32_t lower = BitsAt(Threefry(key, 1), index) % range.span;
  const uint32_t offset = (upper * range.multiplier + lower) % range.span;
  return static_cast<int32_t>(static_cast<uint32_t>(range.low) + offset);
}

}  // namespace lopt

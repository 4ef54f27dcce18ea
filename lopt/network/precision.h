#pragma once

#include <bit>
#include <cstdint>

#include "lopt/base/choices.h"

namespace lopt {

// The numbers that the hidden layers of an optimizer's network multiply.
//   kFloat32   Inputs and weights as they are.
//   kBfloat16  Inputs and weights rounded to bfloat16, which keeps 8 bits of them. Products, sums,
//              biases and the output layer stay float32. Sums are in the order of Intel's AMX
//              (TDPBF16PS): 32 inputs at a time, those at even places and those at odd places each
//              added up in their order, the two sums added to one another and to what there is.
enum class Precision { kFloat32, kBfloat16 };
inline constexpr Named<Precision> kPrecisions[] = {{Precision::kFloat32, "fp32"},
                                                   {Precision::kBfloat16, "bf16"}};

// Inputs that kBfloat16 adds up before it adds them to the sum.
constexpr int64_t kBfloat16Inputs = 32;

// The nearest bfloat16, of two the even one; denormal numbers become 0 and NaN stays one. This is
// what the processor's conversion gives (VCVTNEPS2BF16).
inline float RoundToBfloat16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t exponent = bits & 0x7f800000u;
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  if (exponent == 0) rounded = bits & 0x80000000u;
  if (exponent == 0x7f800000u) {
    rounded = bits & 0xffff0000u;
    if ((bits & 0x007fffffu) != 0) rounded |= 0x00400000u;
  }
  return std::bit_cast<float>(rounded);
}

}  // namespace lopt

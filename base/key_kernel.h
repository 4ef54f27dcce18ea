#pragma once

#include <cstddef>
#include <cstdint>

#include "lopt/base/key_device.h"

namespace lopt {

// The bulk generators of base/key.h on the instruction set that base/isa.h names. Each fills
// out[0, n) with elements first, ..., first + n - 1 of the key's array; all of them share the upper
// 32 bits of their index. An element depends on the key and its index alone, not on the piece it is
// made in.
void BitsKernel(Key key, uint64_t first, size_t n, uint32_t* out);
void UniformKernel(Key key, uint64_t first, size_t n, float* out);
void NormalKernel(Key key, uint64_t first, size_t n, float* out);

// sqrt(2) erfinv of uniforms on [low, high), clamped to [min, max]; erfinv(+-1) is +-infinity.
struct QuantileRange {
  float low;
  float high;
  float min;
  float max;
};
void TruncatedNormalKernel(Key key, const QuantileRange& range, uint64_t first, size_t n,
                           float* out);

// Bits of the keys `upper` and `lower` are a and b of RandintRange.
void RandintKernel(Key upper, Key lower, const RandintRange& range, uint64_t first, size_t n,
                   int32_t* out);

}  // namespace lopt

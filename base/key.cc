#include "lopt/base/key.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lopt/base/error.h"
#include "lopt/base/key_device.h"
#include "lopt/base/key_kernel.h"

namespace lopt {
namespace {

RandintRange MakeRandintRange(int32_t low, int32_t high) {
  Require(low < high, "Randint: low must be below high, got low {} and high {}", low, high);
  return RandintRangeOf(low, high);
}

// Calls fill(first, n, out) for pieces of `out` whose indices share their upper 32 bits.
template <class T, class Fill>
void ForEachPiece(std::span<T> out, uint64_t first, const Fill& fill) {
  size_t done = 0;
  while (done < out.size()) {
    const uint64_t index = first + done;
    const uint64_t until_carry = (uint64_t{1} << 32) - (index & 0xFFFFFFFFu);
    const size_t n = std::min<uint64_t>(out.size() - done, until_carry);
    fill(index, n, out.data() + done);
    done += n;
  }
}

}  // namespace

Key KeyFromSeed(uint64_t seed) {
  return {static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)};
}

Key FoldIn(Key key, uint64_t data) { return Threefry(key, data); }

std::vector<Key> SplitKey(Key key, int64_t n) {
  Require(n >= 0, "SplitKey: the number of keys must not be negative, got {}", n);
  std::vector<Key> keys(static_cast<size_t>(n));
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = Threefry(key, i);
  }
  return keys;
}

void Bits(Key key, std::span<uint32_t> out, uint64_t first) {
  ForEachPiece(out, first, [&](uint64_t index, size_t n, uint32_t* piece) {
    BitsKernel(key, index, n, piece);
  });
}

void Uniform(Key key, std::span<float> out, uint64_t first) {
  ForEachPiece(out, first, [&](uint64_t index, size_t n, float* piece) {
    UniformKernel(key, index, n, piece);
  });
}

void Normal(Key key, std::span<float> out, uint64_t first) {
  ForEachPiece(out, first,
               [&](uint64_t index, size_t n, float* piece) { NormalKernel(key, index, n, piece); });
}

void TruncatedNormal(Key key, float low, float high, std::span<float> out, uint64_t first) {
  Require(low < high, "TruncatedNormal: low must be below high, got low {} and high {}", low, high);
  const auto erf_of = [](float bound) {
    return static_cast<float>(std::erf(static_cast<double>(bound) / std::sqrt(2.0)));
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const QuantileRange range = {erf_of(low), erf_of(high), std::nextafter(low, kInfinity),
                               std::nextafter(high, -kInfinity)};
  ForEachPiece(out, first, [&](uint64_t index, size_t n, float* piece) {
    TruncatedNormalKernel(key, range, index, n, piece);
  });
}

void Randint(Key key, int32_t low, int32_t high, std::span<int32_t> out, uint64_t first) {
  const RandintRange range = MakeRandintRange(low, high);
  const Key upper = Threefry(key, 0);
  const Key lower = Threefry(key, 1);
  ForEachPiece(out, first, [&](uint64_t index, size_t n, int32_t* piece) {
    RandintKernel(upper, lower, range, index, n, piece);
  });
}

float Uniform(Key key) { return UniformAt(key, 0); }

int32_t Randint(Key key, int32_t low, int32_t high) {
  return RandintAt(key, MakeRandintRange(low, high), 0);
}

}  // namespace lopt

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lopt {

// A threefry-2x32 key. All randomness in the project is a pure function of a Key, defined as in
// jax.random with the partitionable layout: 32-bit word i of an array is the xor of the two words
// of threefry(key, (i >> 32, i)). Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
// 3".
struct Key {
  uint32_t hi = 0;  // first word
  uint32_t lo = 0;  // second word
  auto operator<=>(const Key&) const = default;
};

// The key of a seed: its upper and lower 32 bits.
Key KeyFromSeed(uint64_t seed);

// threefry(key, data); equals jax.random.fold_in for data < 2^32, and jax.random.split(key,
// n)[data].
Key FoldIn(Key key, uint64_t data);

// {FoldIn(key, 0), ..., FoldIn(key, n - 1)}.
std::vector<Key> SplitKey(Key key, int64_t n);

// Each of these fills `out` with elements first, first + 1, ... of the infinite array that the key
// names, so any piece of it may be made anywhere. They are data-parallel by index and use the
// instruction set that base/isa.h names.
void Bits(Key key, std::span<uint32_t> out, uint64_t first = 0);
// Uniform on [0, 1), multiples of 2^-23.
void Uniform(Key key, std::span<float> out, uint64_t first = 0);
// Standard normal, sqrt(2) erfinv(u) with u uniform on (-1, 1); |z| < 5.5. The same to rounding on
// every instruction set, bit-identical on one.
void Normal(Key key, std::span<float> out, uint64_t first = 0);
// Standard normal conditioned on [low, high], by the inverse of its distribution function. Throws
// Error unless low < high.
void TruncatedNormal(Key key, float low, float high, std::span<float> out, uint64_t first = 0);
// Integers in [low, high). Throws Error unless low < high.
void Randint(Key key, int32_t low, int32_t high, std::span<int32_t> out, uint64_t first = 0);

// The first element of the arrays above.
float Uniform(Key key);
// Likewise, an integer in [low, high).
int32_t Randint(Key key, int32_t low, int32_t high);

}  // namespace lopt

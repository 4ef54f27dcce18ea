#pragma once

#include <cstdint>
#include <span>

namespace lopt {

// The values of a byte, which are the classes of the next one.
inline constexpr int64_t kByteValues = 256;

// Sequences of bytes: number `example` is the bytes text[starts[example], + length), each of which
// is to tell the next one.
struct ByteSequences {
  const uint8_t* text;
  const int64_t* starts;
  int64_t length;
  std::span<const int32_t> examples;
};

}  // namespace lopt

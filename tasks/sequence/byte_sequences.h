#pragma once

#include <cstdint>
#include <span>

namespace lopt {

// How many values a byte has, and so how many classes a prediction has.
inline constexpr int64_t kByteValues = 256;

// Sequences of bytes: number `example` is the bytes text[starts[example], + length), and a model
// predicts the byte after each.
struct ByteSequences {
  const uint8_t* text;
  const int64_t* starts;
  int64_t length;
  std::span<const int32_t> examples;
};

}  // namespace lopt

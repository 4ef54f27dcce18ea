#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lopt {

// x rounded to 8 significant bits, ties to even, denormal numbers to 0; NaN and infinities stay.
float PlainBfloat16(float x);

// The network of a learned optimizer whose precision is kBfloat16 as Intel's manual defines
// TDPBF16PS (Software Developer's Manual, volume 2), one number after the other.
class PlainBfloat16Network {
 public:
  // Theta is that of PackedNetwork: weights [in, out] and bias [out] of each layer; the first has
  // `steady` inputs of the step behind those of the parameter, which are not rounded. `fused`:
  // whether products are added without being rounded in the output layer.
  PlainBfloat16Network(int64_t inputs, int64_t steady, int64_t hidden, int64_t layers,
                       std::span<const float> theta, bool fused);

  // The two outputs of x [inputs + steady].
  std::vector<float> Run(std::vector<float> x) const;

 private:
  float Output(const std::vector<float>& x, int64_t which) const;

  int64_t inputs_;
  int64_t steady_;
  int64_t hidden_;
  int64_t layers_;
  std::vector<float> theta_;
  bool fused_;
};

}  // namespace lopt

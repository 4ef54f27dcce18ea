#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/base_vector_math_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// values[i] <- Exp(values[i]); n is a multiple of 16.
void ExpAll(float* values, size_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<float, 16> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d))
    hn::StoreU(Exp(d, hn::LoadU(d, values + i)), d, values + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <doctest/doctest.h>

namespace lopt {
namespace {

HWY_EXPORT(ExpAll);

TEST_CASE("the kernel's exponential is within 2 units in the last place on every instruction set") {
  std::vector<float> inputs;
  for (uint32_t bits = 0; bits < std::bit_cast<uint32_t>(90.0f); bits += 2503) {
    inputs.push_back(std::bit_cast<float>(bits));
  }
  for (uint32_t bits = 0; bits < std::bit_cast<uint32_t>(110.0f); bits += 2503) {
    inputs.push_back(-std::bit_cast<float>(bits));
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float x :
       {88.72283f, 88.72284f, 1e30f, infinity, -87.3f, -103.97f, -103.98f, -1e30f, -infinity}) {
    inputs.push_back(x);
  }
  inputs.resize((inputs.size() + 15) / 16 * 16);
  const std::string pinned = CurrentIsa();
  for (const std::string& isa : SupportedIsas()) {
    CAPTURE(isa);
    PinIsa(isa);
    std::vector<float> outputs = inputs;
    HWY_DYNAMIC_DISPATCH(ExpAll)(outputs.data(), outputs.size());
    double worst = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const double exact = std::exp(double{inputs[i]});
      const auto nearest = static_cast<float>(exact);
      if (std::isinf(nearest)) {
        // The last floats before the overflow may round either way.
        const bool good = std::isinf(outputs[i]) || exact < 3.402824e38;
        CHECK(good);
        continue;
      }
      const double unit =
          std::ldexp(1.0, std::max(std::ilogb(nearest == 0 ? 1e-45f : nearest), -126) - 23);
      const double error = std::abs(outputs[i] - exact) / unit;
      if (!(error <= worst)) worst = error;
    }
    CHECK(worst <= 2);
    std::vector<float> nan(16, std::numeric_limits<float>::quiet_NaN());
    HWY_DYNAMIC_DISPATCH(ExpAll)(nan.data(), nan.size());
    CHECK(std::isnan(nan[0]));
  }
  PinIsa(pinned);
}

}  // namespace
}  // namespace lopt
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lopt/base/isa.h"
#include "tests/farthest.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/base_vector_math_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"
#include "lopt/base/vector_math-inl.h"

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

// sines and cosines of the values, and 1 / (1 + e^-x) in their place.
void WavesAll(float* values, size_t n, float* sines, float* cosines) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<float, 16> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, values + i);
    const auto waves = SinCos(d, x);
    hn::StoreU(waves.sine, d, sines + i);
    hn::StoreU(waves.cosine, d, cosines + i);
    hn::StoreU(Sigmoid(d, x), d, values + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <doctest/doctest.h>

namespace lopt {
namespace {

HWY_EXPORT(ExpAll);
HWY_EXPORT(WavesAll);

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
    LOPT_DISPATCH(ExpAll)(outputs.data(), outputs.size());
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
      worst = Farther(worst, error);
    }
    CHECK(worst <= 2);
    std::vector<float> nan(16, std::numeric_limits<float>::quiet_NaN());
    LOPT_DISPATCH(ExpAll)(nan.data(), nan.size());
    CHECK(std::isnan(nan[0]));
  }
  PinIsa(pinned);
}

TEST_CASE("sine, cosine and sigmoid are those of double precision on every instruction set") {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> inputs = {infinity, -infinity, std::nanf(""), 1e6f, -1e20f, 3e38f};
  for (int i = -40000; i < 40000; ++i) inputs.push_back(0.2043f * static_cast<float>(i));
  for (int i = -4000; i < 4000; ++i) inputs.push_back(0.0031f * static_cast<float>(i));
  inputs.resize((inputs.size() + 15) / 16 * 16);
  const std::string pinned = CurrentIsa();
  for (const std::string& isa : SupportedIsas()) {
    CAPTURE(isa);
    PinIsa(isa);
    std::vector<float> sigmoids = inputs, sines = inputs, cosines = inputs;
    LOPT_DISPATCH(WavesAll)
    (sigmoids.data(), inputs.size(), sines.data(), cosines.data());
    double worst = 0, worst_sigmoid = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const double x = inputs[i];
      const double sigmoid = 1 / (1 + std::exp(-x));
      if (std::abs(x) < 85) {
        worst_sigmoid = Farther(worst_sigmoid, std::abs(sigmoids[i] / sigmoid - 1));
      }
      if (!std::isfinite(x)) {
        CHECK(std::isnan(sines[i]));
        CHECK(std::isnan(cosines[i]));
      } else if (std::abs(x) > 8192) {
        CHECK(std::abs(sines[i]) <= 1);
        CHECK(std::abs(cosines[i]) <= 1);
      } else {
        worst = Farther(worst, std::abs(sines[i] - std::sin(x)));
        worst = Farther(worst, std::abs(cosines[i] - std::cos(x)));
      }
    }
    CHECK(worst < 1e-7);
    CHECK(worst_sigmoid < 5e-7);
    CHECK(sigmoids[0] == 1);
    CHECK(sigmoids[1] == 0);
    CHECK(std::isnan(sigmoids[2]));
  }
  PinIsa(pinned);
}

}  // namespace
}  // namespace lopt
#endif

#pragma once

#include <cmath>

#include "lopt/base/block_device.h"

namespace lopt {

// The functions between the layers of a network. kSilu is also called swish. kGelu is the
// approximation by tanh, which is JAX's default. kLeakyRelu has the slope -1/2 below 0, that of the
// tasks of google/learned_optimization. kSign is 1 from 0 on and -1 below.
enum class Activation {
  kRelu,
  kTanh,
  kRelu6,
  kSelu,
  kCos,
  kSin,
  kSigmoid,
  kSilu,
  kGelu,
  kLeakyRelu,
  kSign
};

template <class Real>
struct ActivatedReal {
  Real value;
  Real slope;
};

namespace activation_device {

template <class Real>
LOPT_DEVICE inline Real Sigmoid(Real x) {
  return 1 / (1 + std::exp(-x));
}

template <class Real>
LOPT_DEVICE inline ActivatedReal<Real> Selu(Real x) {
  constexpr auto kScale = static_cast<Real>(1.0507009873554805);
  constexpr auto kLow = static_cast<Real>(1.0507009873554805 * 1.6732632423543772);
  if (x > 0) return {kScale * x, kScale};
  return {kLow * std::expm1(x), kLow * std::exp(x)};
}

template <class Real>
LOPT_DEVICE inline ActivatedReal<Real> Gelu(Real x) {
  constexpr auto kScale = static_cast<Real>(0.7978845608028654);  // sqrt(2 / pi)
  constexpr auto kCubic = static_cast<Real>(0.044715);
  const Real t = std::tanh(kScale * (x + kCubic * x * x * x));
  // Where tanh is 1, 3 kCubic x^2 may have no number.
  const Real outer = x * (1 - t * t) / 2 * kScale;
  const Real inner = outer == 0 ? 0 : 1 + 3 * kCubic * x * x;
  return {x * (1 + t) / 2, (1 + t) / 2 + outer * inner};
}

}  // namespace activation_device

// An activation at x and the factor that the gradient takes there: the derivative, 0 at the kinks
// of kRelu and kRelu6 and 1 at that of kLeakyRelu; for kSign, which has none, 1 for |x| <= 1 and 0
// beyond (straight through). Where it is 0 nothing comes through, NaN neither. All but the slopes
// of kinks pass NaN on.
template <class Real>
LOPT_DEVICE inline ActivatedReal<Real> ActivatedAt(Activation activation, Real x) {
  using activation_device::Sigmoid;
  switch (activation) {
    case Activation::kRelu:
      return {x < 0 ? 0 : x, static_cast<Real>(x > 0 ? 1 : 0)};
    case Activation::kTanh: {
      const Real y = std::tanh(x);
      return {y, 1 - y * y};
    }
    case Activation::kRelu6:
      return {x < 0 ? 0 : x > 6 ? 6 : x, static_cast<Real>(x > 0 && x < 6 ? 1 : 0)};
    case Activation::kSelu:
      return activation_device::Selu(x);
    case Activation::kCos:
      return {std::cos(x), -std::sin(x)};
    case Activation::kSin:
      return {std::sin(x), std::cos(x)};
    case Activation::kSigmoid: {
      const Real y = Sigmoid(x);
      return {y, y * Sigmoid(-x)};
    }
    case Activation::kSilu: {
      const Real y = Sigmoid(x);
      return {x * y, y * (1 + x * Sigmoid(-x))};
    }
    case Activation::kGelu:
      return activation_device::Gelu(x);
    case Activation::kLeakyRelu: {
      const Real slope = static_cast<Real>(x < 0 ? -0.5 : 1);
      return {slope * x, slope};
    }
    case Activation::kSign:
      return {x < 0 ? -1 : x >= 0 ? 1 : x, static_cast<Real>(std::abs(x) <= 1 ? 1 : 0)};
  }
  return {x, 1};
}

}  // namespace lopt

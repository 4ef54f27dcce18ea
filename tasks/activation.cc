#include "tasks/activation.h"

#include <cmath>
#include <numbers>

namespace lopt {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

Activated Selu(double x) {
  constexpr double kScale = 1.0507009873554805;
  constexpr double kAlpha = 1.6732632423543772;
  if (x > 0) return {kScale * x, kScale};
  return {kScale * kAlpha * std::expm1(x), kScale * kAlpha * std::exp(x)};
}

Activated Gelu(double x) {
  const double scale = std::sqrt(2 / std::numbers::pi);
  constexpr double kCubic = 0.044715;
  const double t = std::tanh(scale * (x + kCubic * x * x * x));
  return {x * (1 + t) / 2, (1 + t) / 2 + x * (1 - t * t) / 2 * scale * (1 + 3 * kCubic * x * x)};
}

}  // namespace

Activated ActivationAt(Activation activation, double x) {
  switch (activation) {
    case Activation::kRelu:
      return {x < 0 ? 0 : x, x > 0 ? 1.0 : 0.0};
    case Activation::kTanh:
      return {std::tanh(x), 1 - std::tanh(x) * std::tanh(x)};
    case Activation::kRelu6:
      return {x < 0 ? 0 : x > 6 ? 6 : x, x > 0 && x < 6 ? 1.0 : 0.0};
    case Activation::kSelu:
      return Selu(x);
    case Activation::kCos:
      return {std::cos(x), -std::sin(x)};
    case Activation::kSin:
      return {std::sin(x), std::cos(x)};
    case Activation::kSigmoid:
      return {Sigmoid(x), Sigmoid(x) * Sigmoid(-x)};
    case Activation::kSilu:
      return {x * Sigmoid(x), Sigmoid(x) * (1 + x * Sigmoid(-x))};
    case Activation::kGelu:
      return Gelu(x);
    case Activation::kLeakyRelu:
      return {x < 0 ? -0.5 * x : x, x < 0 ? -0.5 : 1.0};
    case Activation::kSign:
      return {x < 0 ? -1 : x >= 0 ? 1 : x, std::abs(x) <= 1 ? 1.0 : 0.0};
  }
  return {x, 1};
}

}  // namespace lopt

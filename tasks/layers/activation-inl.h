// Per-target header of Highway kernels, as base/vector_math-inl.h: activations and their slopes
// (activation.h), on vectors and on the units of a layer.
#if defined(LOPT_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_ACTIVATION_INL_H_
#undef LOPT_ACTIVATION_INL_H_
#else
#define LOPT_ACTIVATION_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "lopt/base/vector_math-inl.h"
#include "lopt/tasks/layers/activation.h"
#include "lopt/tasks/layers/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

struct ActivatedVector {
  V value;
  V slope;
};

template <Activation kActivation>
HWY_INLINE ActivatedVector ActivationOf(V x) {
  const V zero = hn::Zero(d);
  const V half = hn::Set(d, 0.5f);
  const V one = hn::Set(d, 1.0f);
  if constexpr (kActivation == Activation::kRelu) {
    return {AtLeast(zero, x), hn::IfThenElseZero(hn::Gt(x, zero), one)};
  } else if constexpr (kActivation == Activation::kTanh) {
    const V y = Tanh(d, x);
    return {y, hn::NegMulAdd(y, y, one)};
  } else if constexpr (kActivation == Activation::kRelu6) {
    const V six = hn::Set(d, 6.0f);
    return {hn::IfThenElse(hn::Gt(x, six), six, AtLeast(zero, x)),
            hn::IfThenElseZero(hn::And(hn::Gt(x, zero), hn::Lt(x, six)), one)};
  } else if constexpr (kActivation == Activation::kSelu) {
    const V scale = hn::Set(d, 1.0507009873554805f);
    const V low = hn::Set(d, 1.0507009873554805f * 1.6732632423543772f);
    const auto above = hn::Gt(x, zero);
    const V slope = hn::Mul(low, Exp(d, x));
    return {hn::IfThenElse(above, hn::Mul(scale, x), hn::Sub(slope, low)),
            hn::IfThenElse(above, scale, slope)};
  } else if constexpr (kActivation == Activation::kCos) {
    const SineAndCosine<V> at = SinCos(d, x);
    return {at.cosine, hn::Neg(at.sine)};
  } else if constexpr (kActivation == Activation::kSin) {
    const SineAndCosine<V> at = SinCos(d, x);
    return {at.sine, at.cosine};
  } else if constexpr (kActivation == Activation::kSigmoid) {
    const V y = Sigmoid(d, x);
    return {y, hn::Mul(y, Sigmoid(d, hn::Neg(x)))};
  } else if constexpr (kActivation == Activation::kSilu) {
    const V y = Sigmoid(d, x);
    return {hn::Mul(x, y), hn::MulAdd(hn::Mul(x, y), Sigmoid(d, hn::Neg(x)), y)};
  } else if constexpr (kActivation == Activation::kGelu) {
    const V limit = hn::Set(d, 10.0f);  // where tanh is 1
    const V cut = hn::IfThenElse(hn::Gt(hn::Abs(x), limit), hn::CopySign(limit, x), x);
    const V scale = hn::Set(d, 0.7978845608028654f);
    const V cubic = hn::Mul(hn::Set(d, 0.044715f), hn::Mul(cut, cut));
    const V t = Tanh(d, hn::Mul(scale, hn::MulAdd(cubic, cut, cut)));
    const V share = hn::MulAdd(half, t, half);
    const V inner = hn::Mul(scale, hn::MulAdd(hn::Set(d, 3.0f), cubic, one));
    const V outer = hn::Mul(hn::Mul(half, cut), hn::NegMulAdd(t, t, one));
    return {hn::Mul(x, share), hn::MulAdd(outer, inner, share)};
  } else if constexpr (kActivation == Activation::kLeakyRelu) {
    const V slope = hn::IfThenElse(hn::Lt(x, zero), hn::Neg(half), one);
    return {hn::Mul(slope, x), slope};
  } else {
    static_assert(kActivation == Activation::kSign);
    const V sign = hn::IfThenElse(hn::Lt(x, zero), hn::Neg(one), one);
    return {hn::IfThenElse(hn::Eq(x, x), sign, x),
            hn::IfThenElseZero(hn::Le(hn::Abs(x), one), one)};
  }
}

// Calls body with the activation as a constant.
template <class Body>
HWY_INLINE void WithActivation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::kRelu:
      return body(std::integral_constant<Activation, Activation::kRelu>());
    case Activation::kTanh:
      return body(std::integral_constant<Activation, Activation::kTanh>());
    case Activation::kRelu6:
      return body(std::integral_constant<Activation, Activation::kRelu6>());
    case Activation::kSelu:
      return body(std::integral_constant<Activation, Activation::kSelu>());
    case Activation::kCos:
      return body(std::integral_constant<Activation, Activation::kCos>());
    case Activation::kSin:
      return body(std::integral_constant<Activation, Activation::kSin>());
    case Activation::kSigmoid:
      return body(std::integral_constant<Activation, Activation::kSigmoid>());
    case Activation::kSilu:
      return body(std::integral_constant<Activation, Activation::kSilu>());
    case Activation::kGelu:
      return body(std::integral_constant<Activation, Activation::kGelu>());
    case Activation::kLeakyRelu:
      return body(std::integral_constant<Activation, Activation::kLeakyRelu>());
    case Activation::kSign:
      return body(std::integral_constant<Activation, Activation::kSign>());
  }
}

// What the derivative of an activation is taken from when the gradient comes back.
enum class Derivative {
  kReluValue,  // the value of a ReLU
  kTanhValue,  // that of a tanh
  kSlope,      // the slope, kept for this purpose
  kOne         // nothing: there is no activation
};

HWY_MAYBE_UNUSED static Derivative DerivativeOf(Activation activation) {
  if (activation == Activation::kRelu) return Derivative::kReluValue;
  if (activation == Activation::kTanh) return Derivative::kTanhValue;
  return Derivative::kSlope;
}

// The derivative times the gradient.
HWY_INLINE V ActivationGradient(Derivative derivative, V from, V gradient) {
  if (derivative == Derivative::kReluValue) {
    return hn::IfThenElseZero(hn::Gt(from, hn::Zero(d)), gradient);
  }
  if (derivative == Derivative::kTanhValue) {
    return hn::Mul(hn::NegMulAdd(from, from, hn::Set(d, 1.0f)), gradient);
  }
  if (derivative == Derivative::kSlope) {
    return hn::IfThenElseZero(hn::Ne(from, hn::Zero(d)), hn::Mul(from, gradient));
  }
  return gradient;
}

// Replaces rows [0, rows) of a layer's sums by the activation of them; its slopes are written
// where `slopes` has memory.
HWY_MAYBE_UNUSED static HWY_NOINLINE void Activate(Activation activation, int64_t rows,
                                                   int64_t columns, PanelMatrix units,
                                                   PanelMatrix slopes) {
  WithActivation(activation, [&](auto kActivation) HWY_ATTR {
    ForPanels(columns, [&](int64_t p, auto kV) HWY_ATTR {
      for (int64_t row = 0; row < rows; ++row) {
        Unrolled<kV>([&](auto v) HWY_ATTR {
          float* at = units.Panel(p) + row * kWidth + v * kLanes;
          const ActivatedVector out = ActivationOf<kActivation>(hn::Load(d, at));
          hn::Store(out.value, d, at);
          if (slopes.data == nullptr) return;
          hn::Store(out.slope, d, slopes.Panel(p) + row * kWidth + v * kLanes);
        });
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_ACTIVATION_INL_H_

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "lopt/tasks/layers/activation.h"

namespace lopt {
namespace {

TEST_CASE("Activations have their known values") {
  // The definitions at 0.5 and -1.5, evaluated elsewhere.
  const std::pair<Activation, std::pair<double, double>> known[] = {
      {Activation::kRelu, {0.5, 0}},
      {Activation::kTanh, {0.46211715726000976, -0.9051482536448664}},
      {Activation::kRelu6, {0.5, 0}},
      {Activation::kSelu, {0.5253504936790277, -1.3658143533672527}},
      {Activation::kCos, {0.8775825618903728, 0.0707372016677029}},
      {Activation::kSin, {0.479425538604203, -0.9974949866040544}},
      {Activation::kSigmoid, {0.6224593312018546, 0.18242552380635635}},
      {Activation::kSilu, {0.3112296656009273, -0.2736382857095345}},
      {Activation::kGelu, {0.34571400982514394, -0.10042842301976707}},
      {Activation::kLeakyRelu, {0.5, 0.75}},
      {Activation::kSign, {1, -1}}};
  REQUIRE(std::size(known) == std::size(kActivations));
  for (const auto& [activation, values] : known) {
    CAPTURE(NameOf("activation", activation, kActivations));
    CHECK(ActivatedAt<double>(activation, 0.5).value ==
          doctest::Approx(values.first).epsilon(1e-8));
    CHECK(ActivatedAt<double>(activation, -1.5).value ==
          doctest::Approx(values.second).epsilon(1e-7));
  }
  CHECK(ActivatedAt<double>(Activation::kRelu6, 7).value == 6);
  CHECK(ActivatedAt<double>(Activation::kRelu6, 7).slope == 0);
}

TEST_CASE("Slopes are the derivatives, and that of the sign goes straight through up to 1") {
  for (const Named<Activation>& activation : kActivations) {
    if (activation.value == Activation::kSign) continue;
    CAPTURE(activation.name);
    for (double x = -8.03; x < 8; x += 0.107) {
      const double difference = (ActivatedAt<double>(activation.value, x + 1e-5).value -
                                 ActivatedAt<double>(activation.value, x - 1e-5).value) /
                                2e-5;
      CHECK(std::abs(ActivatedAt<double>(activation.value, x).slope - difference) < 1e-8);
    }
  }
  CHECK(ActivatedAt<double>(Activation::kSign, 0).value == 1);
  CHECK(ActivatedAt<double>(Activation::kSign, -1e-30).value == -1);
  for (const double x : {-1.0, -0.3, 0.0, 1.0})
    CHECK(ActivatedAt<double>(Activation::kSign, x).slope == 1);
  for (const double x : {-1.001, 1.001, 7.0})
    CHECK(ActivatedAt<double>(Activation::kSign, x).slope == 0);
}

TEST_CASE("NaN goes through every activation") {
  for (const Named<Activation>& activation : kActivations) {
    CAPTURE(activation.name);
    CHECK(std::isnan(
        ActivatedAt<double>(activation.value, std::numeric_limits<double>::quiet_NaN()).value));
  }
}

}  // namespace
}  // namespace lopt

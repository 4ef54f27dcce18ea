#pragma once

#include "lopt/base/choices.h"

namespace lopt {

// What to do with an aggregated gradient that is not finite.
enum class NonFiniteGradient {
  kSkip,  // count a skipped update: theta and theta_opt stay, the outer step advances
  kAbort  // throw Error
};

inline constexpr Named<NonFiniteGradient> kNonFiniteGradients[] = {
    {NonFiniteGradient::kSkip, "skip"}, {NonFiniteGradient::kAbort, "abort"}};

}  // namespace lopt

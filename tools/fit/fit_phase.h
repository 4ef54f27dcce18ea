#pragma once

#include <string>

namespace lopt {

// What a fit does, in its order.
enum class FitPhase {
  kMeasuring,
  kStepSizes,
  kKinds,
  kSearch,
  kBases,
  kMetaTraining,
  kMetaTrained,
  kJudging
};

// A part of a fit, as its progress tells of it.
struct FitStage {
  FitPhase phase = FitPhase::kMeasuring;
  std::string contender = {};  // whom kJudging judges

  bool operator==(const FitStage&) const = default;

  // "measuring", "meta-training", "judging fitted": for people.
  std::string Text() const;
};

}  // namespace lopt

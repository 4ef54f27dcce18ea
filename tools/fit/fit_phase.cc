#include "lopt/tools/fit/fit_phase.h"

#include "lopt/base/error.h"

namespace lopt {

std::string FitStage::Text() const {
  switch (phase) {
    case FitPhase::kMeasuring:
      return "measuring";
    case FitPhase::kStepSizes:
      return "step sizes";
    case FitPhase::kKinds:
      return "kinds";
    case FitPhase::kSearch:
      return "searching";
    case FitPhase::kBases:
      return "whole trainings";
    case FitPhase::kMetaTraining:
      return "meta-training";
    case FitPhase::kMetaTrained:
      return "its whole trainings";
    case FitPhase::kJudging:
      return "judging " + contender;
  }
  Fail("fit: there is no such phase");
}

}  // namespace lopt

#pragma once

#include "lopt/tools/fit/fit_record.h"

namespace lopt {

// The time of a fit that is told neither a time nor both updates and trials. The other defaults are
// those of FitRequest.
inline constexpr double kDefaultFitMinutes = 10;

// Gives such a request its time.
inline void SetFitMinutes(FitRequest* request) {
  if (!request->minutes && !(request->updates && request->trials)) {
    request->minutes = kDefaultFitMinutes;
  }
}

}  // namespace lopt

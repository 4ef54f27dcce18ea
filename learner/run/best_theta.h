#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "lopt/evaluation/held_out.h"

namespace lopt {

// Keeps the theta of the lowest held-out loss that a run has seen: theta_best.safetensors in its
// directory, and best.json, which says how many updates made it, what its loss is and on what it
// was judged.
class BestTheta {
 public:
  // Goes on from what the directory holds. Where that was judged on something else than
  // `judged_on`, the comparison begins anew, with a line in the log; where one of the two files
  // cannot be read, is missing or is of another theta than the other, both are removed before.
  BestTheta(const std::string& directory, HeldOutOptions judged_on);

  // If `loss` is lower than the best, calls `write` with the path of the theta file and notes it. A
  // loss that is not a number is never the best.
  void Offer(int64_t updates, double loss, const std::function<void(const std::string&)>& write);

 private:
  std::string directory_;
  HeldOutOptions judged_on_;
  double loss_ = std::numeric_limits<double>::infinity();
};

// Removes what a directory holds of a best theta that was made by more updates than that, or whose
// two files are not of one theta, with a line in the log.
void RemoveBestThetaAfter(const std::string& directory, int64_t updates);

}  // namespace lopt

#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace lopt {

// Keeps the theta of the lowest held-out loss that a run has seen: theta_best.safetensors in its
// directory, and best.json, which says how many updates made it and what its loss is.
class BestTheta {
 public:
  // Goes on from what the directory holds. Throws Error if its best.json is damaged.
  explicit BestTheta(const std::string& directory);

  // If `loss` is lower than the best, calls `write` with the path of the theta file and notes it. A
  // loss that is not a number is never the best.
  void Offer(int64_t updates, double loss, const std::function<void(const std::string&)>& write);

 private:
  std::string directory_;
  double loss_ = std::numeric_limits<double>::infinity();
};

}  // namespace lopt

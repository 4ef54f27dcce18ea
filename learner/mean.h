#pragma once

#include <cmath>

namespace lopt {

// A weighted mean over the values that are not NaN; NaN if there is none.
class MeanOfNumbers {
 public:
  void Add(double value, double weight = 1) {
    if (!std::isnan(value)) {
      sum_ += weight * value;
      weight_ += weight;
    }
  }
  double Get() const { return sum_ / weight_; }

 private:
  double sum_ = 0;
  double weight_ = 0;
};

}  // namespace lopt

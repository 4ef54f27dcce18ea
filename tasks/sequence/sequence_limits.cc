#include "lopt/tasks/sequence/sequence_limits.h"

#include "lopt/base/error.h"
#include "lopt/tasks/most_numbers.h"

namespace lopt {

void RequireLength(const std::string& who, int64_t length) {
  Require(length <= kMostPlaces, "{}: length must be at most {}, got {}", who, kMostPlaces, length);
}

void RequireParams(const std::string& who, int64_t width, int64_t layers, int64_t params) {
  Require(params <= kMostNumbers, "{}: width {} and layers {} make {} params, wanted at most {}",
          who, width, layers, params, kMostNumbers);
}

void RequireScratch(const std::string& who, double numbers) {
  Require(numbers <= static_cast<double>(kMostNumbers),
          "{}: these sizes want {:.3g} numbers of scratch memory, wanted at most {}; take fewer "
          "layers or places, or a smaller width",
          who, numbers, kMostNumbers);
}

}  // namespace lopt

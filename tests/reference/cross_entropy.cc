#include "tests/reference/cross_entropy.h"

#include <algorithm>
#include <cmath>

namespace lopt {
namespace {

bool HasLargest(std::span<const double> logits, int64_t label) {
  for (int64_t c = 0; c < std::ssize(logits); ++c) {
    if (c < label && !(logits[label] > logits[c])) return false;
    if (c > label && !(logits[label] >= logits[c])) return false;
  }
  return true;
}

}  // namespace

CrossEntropyResult CrossEntropy(std::span<double> logits, int64_t label) {
  const bool largest_is_label = HasLargest(logits, label);
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  const double loss = std::log(sum) - (logits[label] - largest);
  for (double& logit : logits) logit = std::exp(logit - largest) / sum;
  logits[label] -= 1;
  return {loss, largest_is_label && !std::isnan(loss)};
}

}  // namespace lopt

#include "tests/reference/squared_error_reference.h"

#include <cmath>
#include <cstdint>
#include <span>

#include "tests/reference/image_mlp_reference.h"

namespace lopt {

float SquaredErrorLossReference(const MlpShape& shape, const MlpEvaluation& e, Workspace& scratch) {
  const auto squared_error = [&](int64_t example, std::span<double> outputs) {
    const float* target =
        e.batch.images + e.batch.examples[example] * e.batch.stride + e.targets.at;
    const auto count = static_cast<double>(outputs.size());
    double loss = 0;
    for (double& x : outputs) {
      const double y = e.targets.sigmoid ? 1 / (1 + std::exp(-x)) : x;
      const double slope = e.targets.sigmoid ? y * (1 - y) : 1;
      const double error = y - *target++;
      loss += error * error / count;
      x = 2 * error * slope / count;
    }
    return loss;
  };
  return static_cast<float>(MlpReference(shape, e, squared_error, scratch));
}

}  // namespace lopt

#include "tests/reference/image_autoencoder_reference.h"

#include <cmath>
#include <cstdint>
#include <span>

#include "tests/reference/image_mlp_reference.h"

namespace lopt {

float AutoencoderLossReference(const MlpShape& shape, const MlpEvaluation& e, Workspace& scratch) {
  const auto squared_error = [&](int64_t example, std::span<double> outputs) {
    const float* image = e.batch.images + e.batch.examples[example] * e.batch.stride;
    const auto pixels = static_cast<double>(outputs.size());
    double loss = 0;
    for (double& x : outputs) {
      const double y = 1 / (1 + std::exp(-x));
      const double error = y - *image++;
      loss += error * error / pixels;
      x = 2 * error * y * (1 - y) / pixels;
    }
    return loss;
  };
  return static_cast<float>(MlpReference(shape, e, squared_error, scratch));
}

}  // namespace lopt

#include "lopt/tasks/image/mlp_parts.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

namespace lopt {

void VisitNorm(FieldVisitor& v, Norm* norm) {
  v.Choice("norm", norm, kNorms,
           "What comes before the activation: nothing, or each example's units or each unit's "
           "values in the batch made mean 0 and variance 1, with a scale and an offset that are "
           "learned.");
}

MlpShape MakeMlpShape(int64_t inputs, const std::vector<int64_t>& hidden, int64_t outputs,
                      Norm norm) {
  MlpShape shape{.sizes = {inputs}, .norm = norm};
  shape.sizes.insert(shape.sizes.end(), hidden.begin(), hidden.end());
  shape.sizes.push_back(outputs);
  return shape;
}

Layout MlpLayout(const MlpShape& shape) {
  std::vector<std::pair<std::string, Shape>> tensors;
  for (int64_t l = 0; l < shape.layers(); ++l) {
    const int64_t out = shape.sizes[l + 1];
    tensors.push_back({fmt::format("mlp/linear_{}/w", l), {shape.sizes[l], out}});
    tensors.push_back({fmt::format("mlp/linear_{}/b", l), {out}});
    if (shape.norm == Norm::kNone || l + 1 == shape.layers()) continue;
    const char* norm = shape.norm == Norm::kLayer ? "layer" : "batch";
    tensors.push_back({fmt::format("mlp/{}_norm_{}/scale", norm, l), {out}});
    tensors.push_back({fmt::format("mlp/{}_norm_{}/offset", norm, l), {out}});
  }
  return Layout(std::move(tensors));
}

Layout MlpStatistics(const MlpShape& shape) {
  if (shape.norm != Norm::kBatch) return {};
  std::vector<std::pair<std::string, Shape>> tensors;
  for (int64_t l = 0; l + 1 < shape.layers(); ++l) {
    tensors.push_back({fmt::format("mlp/batch_norm_{}/mean", l), {shape.sizes[l + 1]}});
    tensors.push_back({fmt::format("mlp/batch_norm_{}/variance", l), {shape.sizes[l + 1]}});
  }
  return Layout(std::move(tensors));
}

void InitMlpStatistics(const Layout& model_state, std::span<float> start) {
  for (const LayoutEntry& entry : model_state.entries()) {
    std::ranges::fill(
        start.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.size)),
        entry.name.ends_with("/variance") ? 1.0F : 0.0F);
  }
}

double MlpFlops(const MlpShape& shape) {
  // Of a layer: the product, the gradient of its weights and, behind the first, of its input.
  double products = 0;
  for (int64_t l = 0; l < shape.layers(); ++l) {
    products += (l == 0 ? 2.0 : 3.0) * static_cast<double>(shape.sizes[l] * shape.sizes[l + 1]);
  }
  return 2 * products;
}

}  // namespace lopt

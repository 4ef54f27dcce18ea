#include "lopt/tasks/wrappers/subsample_directions.h"

#include <algorithm>
#include <cmath>

#include "lopt/base/error.h"
#include "lopt/base/options.h"

namespace lopt {

void SubsampleDirectionsOptions::Visit(FieldVisitor& v) {
  v.Field("directions", &directions, Between(1, 1e6), "Directions of one evaluation.");
  v.Field("sign", &sign, "Whether only the sign of the slope along a direction is known.");
}

SubsampleDirections::SubsampleDirections(const std::shared_ptr<const TaskFamily>& task,
                                         const SubsampleDirectionsOptions& options)
    : TaskWrapper(task, WithOtherGradients(PartsOf(*task))),
      options_(CheckOptions("SubsampleDirections", options)) {}

void SubsampleDirections::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  EvaluateTask(e, scratch);
  if (e.gradients.empty()) return;
  Require(!e.keys.empty(), "SubsampleDirections: gradients are wanted, but there are no keys");
  const Workspace::Frame frame(scratch);
  const int64_t size = params_layout().size();
  const std::span<float> gradient = scratch.Take<float>(size);
  const std::span<float> direction = scratch.Take<float>(size);
  for (int64_t row = 0; row < e.rows; ++row) {
    const std::span<float> sum = e.gradients.subspan(row * size, size);
    std::ranges::copy(sum, gradient.begin());
    std::ranges::fill(sum, 0.0F);
    const Key own = OwnKey(e.keys[row]);
    for (int64_t i = 0; i < options_.directions; ++i) {
      Normal(FoldIn(own, static_cast<uint64_t>(i)), direction);
      const double square = Dot(direction, direction);
      double along = Dot(direction, gradient) / square;
      if (options_.sign) {
        const double sign = along > 0 ? 1 : along < 0 ? -1 : along;  // zero and NaN stay
        along = sign / std::sqrt(square);
      }
      for (int64_t k = 0; k < size; ++k) sum[k] += static_cast<float>(along) * direction[k];
    }
  }
}

}  // namespace lopt

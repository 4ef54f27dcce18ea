#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lopt/base/fields.h"
#include "lopt/base/layout.h"
#include "lopt/tasks/image/image_mlp_problem.h"

namespace lopt {

// What the families of multilayer perceptrons share.

// The option "norm".
void VisitNorm(FieldVisitor& v, Norm* norm);

MlpShape MakeMlpShape(int64_t inputs, const std::vector<int64_t>& hidden, int64_t outputs,
                      Norm norm = Norm::kNone);

// The params: "mlp/linear_<l>/w" and "/b", and "mlp/layer_norm_<l>/scale" and "/offset" or
// "mlp/batch_norm_<l>/...".
Layout MlpLayout(const MlpShape& shape);

// The running statistics of Norm::kBatch, "mlp/batch_norm_<l>/mean" and "/variance"; else nothing.
Layout MlpStatistics(const MlpShape& shape);

// Their start: 1 for a variance and 0 for the rest, by the names in the layout of a family's model
// state. Numbers under other names are 0, too.
void InitMlpStatistics(const Layout& model_state, std::span<float> start);

// Floating-point operations of the loss and gradient of one example (TaskParts::flops).
double MlpFlops(const MlpShape& shape);

}  // namespace lopt

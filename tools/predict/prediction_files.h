#pragma once

#include <string>

#include "lopt/base/workspace.h"
#include "lopt/evaluation/predictions.h"
#include "lopt/learner/train/trained_model.h"
#include "lopt/tools/predict/prediction_text.h"

namespace lopt {

// Draws the first ten of these rows as PNG, "label>class" below each, green where the class is
// right and red where not. Throws Error if the task shows no pictures.
void WritePicture(const std::string& path, const TrainedModel& model, Split split,
                  const Predictions& p, const RowRange& range, Workspace& scratch);

// Writes what the last layer takes of these rows, with labels and pictures, for TensorBoard's
// projector. `who` is the task in messages.
void WriteProjector(const std::string& directory, const std::string& who, const TrainedModel& model,
                    Split split, const Predictions& p, const RowRange& range, Workspace& scratch);

}  // namespace lopt

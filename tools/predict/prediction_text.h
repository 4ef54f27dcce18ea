#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lopt/evaluation/predictions.h"

namespace lopt {

// Rows [first, last) of a split.
struct RowRange {
  int64_t first = 0;
  int64_t last = 0;
};

// Everything in JSON: the run, the split, loss, accuracy and confusion of all rows, and of these
// rows also logits and probabilities.
std::string PredictionsJson(const std::string& run, std::string_view split, const Predictions& p,
                            const RowRange& range);

// A line of names, and one for each of these rows: label, class, and the probability of each class.
std::string PredictionsCsv(const Predictions& p, const RowRange& range);

// These rows with their likeliest classes, loss and accuracy, and the confusion matrix where it
// fits, else the pairs that are confused most often.
void PrintPredictions(const Predictions& p, const RowRange& range);

}  // namespace lopt

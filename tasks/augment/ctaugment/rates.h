#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lopt/base/layout.h"
#include "lopt/tasks/augment/ctaugment/operations.h"

namespace lopt {

// What CTAugment learns: for every bin of every argument of every operation a rate, how well a
// network recognises images that were changed so. 303 numbers, "rates/<operation>/<argument>"
// [bins], operations in their order; all 1 at the start.
const Layout& RatesLayout();

// Where an argument's bins begin in the rates.
int64_t FirstBin(Operation operation, int argument);

// An image that was changed by an operation and judged: error = sum over classes of |probability -
// [the label's]| = 2 (1 - the label's probability), in [0, 2].
struct OperationRecord {
  Operation operation = Operation::kIdentity;  // what changed it
  float arguments[2] = {};                     // as many as it has
  float error = 0;                             // in [0, 2]
};

// A record as it goes from process to process, five numbers: the operation's place in their order,
// how many arguments it has, these, the error, and -555 up to the end.
inline constexpr size_t kPackedRecord = 5;
// Writes one.
void Pack(const OperationRecord& record, std::span<float, kPackedRecord> packed);
// Reads one. Throws Error if there is no such operation, or it has another number of arguments.
OperationRecord Unpack(std::span<const float, kPackedRecord> packed);

// One record after the other: of each of its arguments a, bin int(a bins .999) becomes rate decay +
// (1 - error / 2) (1 - decay), two float32 terms. The order counts (1e-4); records of several
// processes are put one after the other in the order of the processes, by all of them, so that all
// have the same rates.
void UpdateRates(std::span<const OperationRecord> records, double decay, std::span<float> rates);

// The probabilities that bins are drawn with, of each argument: (rate + 1 - decay) over the largest
// of them, 0 where that is under `threshold`, divided by their sum. As many as there are rates.
void BinProbabilities(std::span<const float> rates, double decay, double threshold,
                      std::span<double> probabilities);

}  // namespace lopt

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lopt/base/fields.h"
#include "lopt/tasks/raw_images.h"

namespace lopt {

// What a CSV file of images does not say itself.
struct CsvOptions {
  // [height, width] or [height, width, channels] of an image; empty: square and grey.
  std::vector<int64_t> shape = {};
  int64_t white = 255;
  void Visit(FieldVisitor& v);
};

// Reads train.csv[.gz] and, if it is there, test.csv[.gz] of a directory. A line is an image: its
// values, whole numbers from 0 to `white`, in the order [height, width, channels], then its label,
// from 0 to 255, all separated by commas; no header. Values are scaled to bytes, 255 for white.
// The rows of each file are shuffled, always alike, since such files are often sorted by their
// labels. Splits as JoinSets. Throws Error that names file and line: missing, damaged, lines of
// different lengths, not a whole number, a value or label out of range, a number of values that is
// not that of the shape or, without one, no square.
RawImages ReadCsvImages(const std::string& directory, const CsvOptions& options);

}  // namespace lopt

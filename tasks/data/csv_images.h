#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lopt/base/fields.h"
#include "lopt/tasks/data/raw_images.h"

namespace lopt {

// What a CSV file of images does not say itself.
struct CsvOptions {
  // [height, width] or [height, width, channels] of an image; empty: square and grey.
  std::vector<int64_t> shape = {};
  int64_t white = 255;
  int64_t label_column = 0;  // of the label, from 1 on; 0: the last
  void Visit(FieldVisitor& v);
};

// Reads train.csv[.gz] and, if it is there, test.csv[.gz] of a directory. A line is an image: its
// values, whole numbers from 0 to `white`, in the order [height, width, channels], and its label,
// from 0 to 255, in the last column or the one that the options name; no header. Values are scaled
// to bytes, 255 for white. Files are as spreadsheet programs write them: columns are separated by
// commas, semicolons or tabs; there may be spaces and quotes around numbers, a byte order mark,
// UTF-16, any ends of lines, and empty rows behind the last.
// The rows of each file are shuffled, always alike, since such files are often sorted by their
// labels. Splits as JoinSets. Throws Error that names file and line: missing, damaged, lines of
// different lengths, several separators, not a whole number, a value or label out of range, a label
// column that is not there, a number of values that is not that of the shape or, without one, no
// square; and for a shape of other than 1 or 3 channels.
RawImages ReadCsvImages(const std::string& directory, const CsvOptions& options);

}  // namespace lopt

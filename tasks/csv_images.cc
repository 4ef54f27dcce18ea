#include "lopt/tasks/csv_images.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/layout.h"
#include "lopt/base/options.h"
#include "lopt/tasks/gzip_file.h"

namespace lopt {
namespace {

// The part of `text` up to the first `separator`, which is cut off `text` with it.
std::string_view CutOff(char separator, std::string_view* text) {
  const size_t end = std::min(text->find(separator), text->size());
  const std::string_view part = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return part;
}

// Reads one file line by line.
class CsvReader {
 public:
  CsvReader(std::string path, const CsvOptions& options)
      : path_(std::move(path)), options_(options) {}

  RawImages Read() {
    const std::vector<uint8_t> bytes = ReadGzipFile(path_);
    std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    while (!text.empty()) {
      std::string_view line = CutOff('\n', &text);
      ++line_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      ReadLine(line);
    }
    Require(line_ > 0, "{}: the file is empty", path_);
    return std::move(images_);
  }

 private:
  void ReadLine(std::string_view line) {
    const auto values = static_cast<int64_t>(std::ranges::count(line, ','));
    if (line_ == 1) SetShape(values);
    const int64_t wanted = images_.height * images_.width * images_.channels;
    Require(values == wanted, "{}: line {} has {} numbers, wanted {} as in line 1", path_, line_,
            values + 1, wanted + 1);
    const int64_t white = options_.white;
    for (int64_t i = 0; i < values; ++i) {
      const int64_t value = Number(CutOff(',', &line), i, "value", white);
      images_.pixels.push_back(static_cast<uint8_t>((2 * 255 * value + white) / (2 * white)));
    }
    images_.labels.push_back(static_cast<uint8_t>(Number(line, values, "label", 255)));
    ++images_.count;
  }

  int64_t Number(std::string_view text, int64_t column, const char* what, int64_t largest) const {
    int64_t number = 0;
    const char* end = text.data() + text.size();
    const auto [read, error] = std::from_chars(text.data(), end, number);
    Require(error == std::errc() && read == end,
            "{}: line {}, column {}: {:?} is not a whole number", path_, line_, column + 1,
            text.substr(0, 40));
    Require(number >= 0 && number <= largest, "{}: line {}, column {}: {} {}, wanted 0 to {}",
            path_, line_, column + 1, what, number, largest);
    return number;
  }

  void SetShape(int64_t values) {
    Shape shape = options_.shape;
    if (shape.empty()) {
      const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(values))));
      Require(values >= 1 && side * side == values,
              "{}: line 1 has {} values before the label, which make no square image; csv_shape "
              "tells another shape",
              path_, values);
      shape = {side, side};
    }
    if (shape.size() == 2) shape.push_back(1);
    Require(NumElements(shape) == values,
            "{}: line 1 has {} values before the label, but csv_shape is {}", path_, values,
            ToString(options_.shape));
    images_.height = shape[0];
    images_.width = shape[1];
    images_.channels = shape[2];
  }

  const std::string path_;
  const CsvOptions& options_;
  int64_t line_ = 0;
  RawImages images_;
};

std::optional<RawImages> ReadCsvFile(const std::string& path, const CsvOptions& options) {
  if (path.empty()) return std::nullopt;
  RawImages images = CsvReader(path, options).Read();
  ShuffleRows(&images);
  return images;
}

}  // namespace

void CsvOptions::Visit(FieldVisitor& v) {
  v.Field("csv_shape", &shape, Between(1, 100000),
          "Height and width, or height, width and channels, of the images of a CSV file; empty: "
          "square and grey.");
  v.Field("csv_white", &white, Between(1, 255), "The value that is white in a CSV file.");
}

RawImages ReadCsvImages(const std::string& directory, const CsvOptions& options) {
  CheckOptions("CSV images", options);
  Require(options.shape.empty() || options.shape.size() == 2 || options.shape.size() == 3,
          "CSV images: csv_shape must be [], [height, width] or [height, width, channels], got {}",
          ToString(options.shape));
  const std::string train = FindFileOrGzipped(directory, "train.csv");
  Require(!train.empty(), "There is no train.csv[.gz] in {}", directory);
  return JoinSets(directory, ReadCsvFile(train, options),
                  ReadCsvFile(FindFileOrGzipped(directory, "test.csv"), options));
}

}  // namespace lopt

#include "lopt/tasks/data/csv_images.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/layout.h"
#include "lopt/base/options.h"
#include "lopt/tasks/data/gzip_file.h"

namespace lopt {
namespace {

// The part of `text` up to the first `separator`, which is cut off `text` with it.
std::string_view CutOff(char separator, std::string_view* text) {
  const size_t end = std::min(text->find(separator), text->size());
  const std::string_view part = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return part;
}

// The text of a file without its byte order mark. Spreadsheet programs write UTF-8 with one, and
// UTF-16, of which `decoded` takes the characters.
std::string_view TextOf(std::span<const uint8_t> bytes, const std::string& path,
                        std::string* decoded) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\xEF\xBB\xBF")) return text.substr(3);
  const bool little = text.starts_with("\xFF\xFE");
  if (!little && !text.starts_with("\xFE\xFF")) return text;
  for (size_t i = 2; i + 1 < text.size(); i += 2) {
    Require(text[i + (little ? 1 : 0)] == 0,
            "{}: character {} is none of a file of numbers (the file is UTF-16)", path, i / 2);
    *decoded += text[i + (little ? 0 : 1)];
  }
  return *decoded;
}

bool IsSpace(char c) { return c == ' ' || c == '\t'; }

// Without spaces around it.
std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

// A cell without spaces around it and around what is quoted.
std::string_view CellText(std::string_view cell) {
  cell = Trimmed(cell);
  if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') {
    cell = Trimmed(cell.substr(1, cell.size() - 2));
  }
  return cell;
}

// Reads one file line by line.
class CsvReader {
 public:
  CsvReader(std::string path, const CsvOptions& options)
      : path_(std::move(path)), options_(options) {}

  RawImages Read() {
    const std::vector<uint8_t> bytes = ReadGzipFile(path_);
    std::string decoded;
    const std::string_view content = TextOf(bytes, path_, &decoded);
    std::string_view text = content;
    // Rows without anything in them behind the last are none.
    text = text.substr(0, text.find_last_not_of("\r\n \t,;\"") + 1);
    Require(!text.empty(), "{}: the file is empty", path_);
    text = content.substr(0, std::min(content.find_first_of("\r\n", text.size()), content.size()));
    const char end = text.find('\n') == std::string_view::npos ? '\r' : '\n';
    while (!text.empty()) {
      std::string_view line = CutOff(end, &text);
      ++line_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line_ == 1) FindSeparator(line);
      ReadLine(line);
    }
    return std::move(images_);
  }

 private:
  // The separator is the one that the first line has.
  void FindSeparator(std::string_view line) {
    std::string found;
    for (const char separator : {',', ';', '\t'}) {
      if (line.find(separator) != std::string_view::npos) found += separator;
    }
    Require(found.size() <= 1,
            "{}: line 1 has several of the separators comma, semicolon and tab, wanted one: {:?}",
            path_, line.substr(0, 40));
    if (!found.empty()) separator_ = found[0];
  }

  void ReadLine(std::string_view line) {
    const auto values = static_cast<int64_t>(std::ranges::count(line, separator_));
    if (line_ == 1) {
      Require(options_.label_column <= values + 1,
              "{}: csv_label_column is {}, but line 1 has {} columns", path_, options_.label_column,
              values + 1);
      label_at_ = options_.label_column == 0 ? values : options_.label_column - 1;
      SetShape(values);
    }
    const int64_t wanted = images_.height * images_.width * images_.channels;
    Require(values == wanted, "{}: line {} has {} numbers, wanted {} as in line 1", path_, line_,
            values + 1, wanted + 1);
    const int64_t white = options_.white;
    for (int64_t i = 0; i <= values; ++i) {
      const std::string_view cell = CutOff(separator_, &line);
      if (i == label_at_) {
        images_.labels.push_back(static_cast<uint8_t>(Number(cell, i, "label", 255)));
      } else {
        const int64_t value = Number(cell, i, "value", white);
        images_.pixels.push_back(static_cast<uint8_t>((2 * 255 * value + white) / (2 * white)));
      }
    }
    ++images_.count;
  }

  int64_t Number(std::string_view cell, int64_t column, const char* what, int64_t largest) const {
    const std::string_view text = CellText(cell);
    int64_t number = 0;
    const char* end = text.data() + text.size();
    const auto [read, error] = std::from_chars(text.data(), end, number);
    Require(error == std::errc() && read == end,
            "{}: line {}, column {}: {:?} is not a whole number", path_, line_, column + 1,
            cell.substr(0, 40));
    Require(number >= 0 && number <= largest, "{}: line {}, column {}: {} {}, wanted 0 to {}",
            path_, line_, column + 1, what, number, largest);
    return number;
  }

  void SetShape(int64_t values) {
    Shape shape = options_.shape;
    if (shape.empty()) {
      const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(values))));
      Require(values >= 1 && side * side == values,
              "{}: line 1 has {} values beside the label, which make no square image; csv_shape "
              "tells another shape",
              path_, values);
      shape = {side, side};
    }
    if (shape.size() == 2) shape.push_back(1);
    Require(NumElements(shape) == values,
            "{}: line 1 has {} values beside the label, but csv_shape is {}", path_, values,
            ToString(options_.shape));
    images_.height = shape[0];
    images_.width = shape[1];
    images_.channels = shape[2];
  }

  const std::string path_;
  const CsvOptions& options_;
  int64_t line_ = 0;
  char separator_ = ',';
  int64_t label_at_ = 0;  // the label's cell in a line
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
          "Height and width, or height, width and channels (1 or 3), of the images of a CSV file; "
          "empty: square and grey.");
  v.Field("csv_white", &white, Between(1, 255), "The value that is white in a CSV file.");
  v.Field("csv_label_column", &label_column, AtLeast(0),
          "The column of the label in a CSV file, the first being 1; 0: the last.");
}

RawImages ReadCsvImages(const std::string& directory, const CsvOptions& options) {
  CheckOptions("CSV images", options);
  Require(options.shape.empty() || options.shape.size() == 2 || options.shape.size() == 3,
          "CSV images: csv_shape must be [], [height, width] or [height, width, channels], got {}",
          ToString(options.shape));
  Require(options.shape.size() < 3 || options.shape[2] == 1 || options.shape[2] == 3,
          "CSV images: csv_shape {} has {} channels, wanted 1 or 3", ToString(options.shape),
          options.shape.back());
  const std::string train = FindFileOrGzipped(directory, "train.csv");
  Require(!train.empty(), "There is no train.csv[.gz] in {}", directory);
  return JoinSets(directory, ReadCsvFile(train, options),
                  ReadCsvFile(FindFileOrGzipped(directory, "test.csv"), options));
}

}  // namespace lopt

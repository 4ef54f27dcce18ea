#include "lopt/tools/describe_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/options.h"
#include "lopt/base/print.h"
#include "lopt/base/utf8.h"
#include "lopt/tasks/data/raw_images.h"
#include "lopt/tasks/data/text_data.h"
#include "lopt/tasks/image/image_task.h"
#include "lopt/tasks/task_family.h"
#include "lopt/tasks/task_resources.h"

namespace lopt {
namespace {

constexpr int64_t kColumns = 80;
constexpr size_t kBytesOfText = 2 * kColumns;  // shown of its beginning, in so many lines
constexpr int kLinesOfText = 3;
constexpr int64_t kPictures = 4;
constexpr int64_t kPictureColumns = 18;  // a character is about twice as high as it is wide
constexpr int64_t kMostLines = 24;       // of a picture
constexpr int64_t kMostClassesInRows = 20;
constexpr std::string_view kInk = " .:-=+*#%@";  // from 0 to 255

// The keys of image tasks that are about data.
struct DataOptions {
  ImageSource data = ImageSource::kDefault;
  CsvOptions csv = {};
  void Visit(FieldVisitor& v) {
    v.Choice("data", &data, kImageSources, "The images.");
    csv.Visit(v);
  }
};

const char* SourceName(ImageSource source) { return NameOf("data", source, kImageSources); }

std::string WithCommas(int64_t number) {
  std::string text = fmt::format("{}", number);
  for (auto at = std::ssize(text) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), ",");
  return text;
}

void PrintSplits(const char* what, const std::pair<int64_t, int64_t> (&splits)[4]) {
  std::vector<std::string> parts;
  for (const Split split : kSplits) {
    const auto [first, last] = splits[static_cast<size_t>(split)];
    parts.push_back(fmt::format("{} {}", ToString(split), WithCommas(last - first)));
  }
  PrintOut("  {:<8} {}: {}\n", what, WithCommas(splits[3].second), fmt::join(parts, ", "));
}

void PrintPixels(const RawImages& images) {
  int64_t counts[256] = {};
  for (const uint8_t pixel : images.pixels) ++counts[pixel];
  double sum = 0;
  for (int64_t value = 0; value < 256; ++value) {
    sum += static_cast<double>(value) * static_cast<double>(counts[value]);
  }
  const auto [least, greatest] = std::ranges::minmax(images.pixels);
  const auto size = static_cast<double>(images.pixels.size());
  PrintOut("  {:<8} {} to {}, mean {:.1f}; {:.1f} % are 0, {:.1f} % are 255\n", "values", least,
           greatest, sum / size, 100 * static_cast<double>(counts[0]) / size,
           100 * static_cast<double>(counts[255]) / size);
}

// Of few classes a row each, with the splits; of many the counts alone, side by side.
void PrintClasses(const RawImages& images) {
  std::vector<std::array<int64_t, 4>> counts(1 + *std::ranges::max_element(images.labels));
  for (size_t split = 0; split < 4; ++split) {
    const auto [first, last] = images.splits[split];
    for (int64_t row = first; row < last; ++row) {
      ++counts[images.labels[static_cast<size_t>(row)]][split];
    }
  }
  const auto total = [&](size_t label) {
    int64_t sum = 0;
    for (const int64_t count : counts[label]) sum += count;
    return sum;
  };
  PrintOut("  {:<8} {}, labels 0 to {}\n", "classes", counts.size(), counts.size() - 1);
  if (std::ssize(counts) <= kMostClassesInRows) {
    PrintOut("  {:>8} {:>11}", "label", "images");
    for (const Split split : kSplits) PrintOut(" {:>11}", ToString(split));
    PrintOut("\n");
    for (size_t label = 0; label < counts.size(); ++label) {
      PrintOut("  {:>8} {:>11}", label, WithCommas(total(label)));
      for (const int64_t count : counts[label]) PrintOut(" {:>11}", WithCommas(count));
      PrintOut("\n");
    }
    return;
  }
  constexpr size_t kCells = 5;
  for (size_t label = 0; label < counts.size(); ++label) {
    PrintOut("{}{:>5}: {:>8}", label % kCells == 0 ? "" : " ", label, WithCommas(total(label)));
    if (label % kCells == kCells - 1 || label + 1 == counts.size()) PrintOut("\n");
  }
}

// The lines of a picture of one image; each character stands for the mean of what lies under it.
std::vector<std::string> Drawn(const RawImages& images, int64_t row) {
  const int64_t columns = std::min(kPictureColumns, 2 * images.width);
  const int64_t lines =
      std::clamp<int64_t>((columns * images.height + images.width) / (2 * images.width), 1,
                          std::min(kMostLines, images.height));
  const int64_t line_size = images.width * images.channels;
  const uint8_t* image = images.pixels.data() + row * images.height * line_size;
  std::vector<std::string> drawn;
  for (int64_t line = 0; line < lines; ++line) {
    std::string text;
    const int64_t top = line * images.height / lines;
    const int64_t bottom = std::max(top + 1, (line + 1) * images.height / lines);
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t left = column * images.width / columns;
      const int64_t right = std::max(left + 1, (column + 1) * images.width / columns);
      int64_t sum = 0;
      for (int64_t y = top; y < bottom; ++y) {
        for (int64_t x = left * images.channels; x < right * images.channels; ++x) {
          sum += image[y * line_size + x];
        }
      }
      const int64_t mean = sum / ((bottom - top) * (right - left) * images.channels);
      text += kInk[static_cast<size_t>(mean * std::ssize(kInk) / 256)];
    }
    drawn.push_back(std::move(text));
  }
  return drawn;
}

// The first images of some labels that occur, side by side.
void PrintPictures(const RawImages& images) {
  std::vector<int64_t> first_rows(256, -1);
  for (int64_t row = images.count - 1; row >= 0; --row) {
    first_rows[images.labels[static_cast<size_t>(row)]] = row;
  }
  std::erase(first_rows, -1);
  const int64_t shown = std::min(kPictures, std::ssize(first_rows));
  std::vector<std::vector<std::string>> pictures;
  std::string heads;
  for (int64_t i = 0; i < shown; ++i) {
    // Spread over the labels.
    const int64_t row = first_rows[static_cast<size_t>(i * std::ssize(first_rows) / shown)];
    pictures.push_back(Drawn(images, row));
    heads +=
        fmt::format("  {:<18}", fmt::format("label {}", images.labels[static_cast<size_t>(row)]));
  }
  PrintOut("{}\n", heads.substr(0, heads.find_last_not_of(' ') + 1));
  for (size_t line = 0; line < pictures[0].size(); ++line) {
    std::string text;
    for (const std::vector<std::string>& picture : pictures) {
      text += fmt::format("  {:<18}", picture[line]);
    }
    PrintOut("{}\n", text.substr(0, text.find_last_not_of(' ') + 1));
  }
}

void DescribeImages(const std::string& directory, ImageSource source, const CsvOptions& csv) {
  const RawImages images = LoadImages(source, directory, csv);
  PrintOut("{}: {}\n", directory, SourceName(source));
  PrintOut("  {:<8} {} x {}, {}\n", "shape", images.height, images.width,
           images.channels == 1 ? "grey" : fmt::format("{} channels", images.channels));
  PrintSplits("images", images.splits);
  PrintPixels(images);
  PrintClasses(images);
  PrintPictures(images);
}

// In lines of whole characters.
void PrintBeginning(std::string_view text) {
  size_t end = 0;
  while (end < std::min(kBytesOfText, text.size())) {
    end += std::max<size_t>(1, Utf8Length(text.substr(end)));
  }
  std::string shown = PlainText(text.substr(0, end), std::string::npos);
  for (int line = 0; line < kLinesOfText && !shown.empty(); ++line) {
    const std::string columns = FirstColumns(shown, kColumns - 2);
    PrintOut("  {}\n", columns);
    shown.erase(0, columns.size());
  }
}

void DescribeText(const std::string& path) {
  const auto text = GetText({.text = path}, TaskResources(""));
  const std::span<const uint8_t> bytes = text->bytes();
  std::array<int64_t, 256> counts = {};
  for (const uint8_t byte : bytes) ++counts[byte];
  std::pair<int64_t, int64_t> splits[4];
  for (const Split split : kSplits) splits[static_cast<size_t>(split)] = text->range(split);
  PrintOut("{}: text\n", path);
  PrintSplits("bytes", splits);
  PrintOut("  {:<8} {} different bytes, {} ends of lines\n", "values",
           256 - std::ranges::count(counts, 0), WithCommas(counts['\n']));
  PrintOut("  {:<8} {:.4f} nats a byte, {:.4f} given the byte before\n", "entropy",
           UnigramEntropy(bytes), BigramEntropy(bytes));
  PrintBeginning({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

DataOptions ReadData(const std::string& data) {
  if (data.starts_with('{')) return ReadOptions<DataOptions>(Config::Parse(data, "--data"));
  DataOptions options;
  if (!data.empty()) options.data = ValueOf("--data", data, kImageSources);
  return options;
}

}  // namespace

void DescribeData(const std::string& place, const std::string& data) {
  const DataOptions options = ReadData(data);
  Require(Exists(place), "--data-dir {}: there is nothing of this name", place);
  if (!IsDirectory(place)) {
    Require(data.empty(), "--data-dir {}: a file is described as text, without --data", place);
    DescribeText(place);
    return;
  }
  std::vector<ImageSource> sources = {options.data};
  if (options.data == ImageSource::kDefault) sources = SourcesIn(place);
  if (sources.empty()) {
    std::vector<std::string> names = ListDirectory(place);
    const size_t all = names.size();
    names.resize(std::min<size_t>(all, 5));
    Fail(
        "--data-dir {}: there are no data that lopt reads, but {}; looked for *-ubyte[.gz] (idx), "
        "data_batch_1.bin[.gz] and cifar-10-binary.tar[.gz] (cifar10), train.bin[.gz] and "
        "cifar-100-binary.tar[.gz] (cifar100), train.csv[.gz] (csv) and *.npz (npz)",
        place,
        all == 0 ? "nothing"
                 : fmt::format(
                       "{}{}", fmt::join(names, ", "),
                       all > names.size() ? fmt::format(" and {} more", all - names.size()) : ""));
  }
  for (const ImageSource source : sources) DescribeImages(place, source, options.csv);
}

}  // namespace lopt

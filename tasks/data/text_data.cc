#include "lopt/tasks/data/text_data.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/tasks/data/data_checksums.h"
#include "lopt/tasks/data/gzip_file.h"
#include "lopt/tasks/data/word_source.h"

namespace lopt {
namespace {

constexpr int64_t kGeneratedBytes = 100000;
constexpr uint64_t kTextSeed = 12;
constexpr int64_t kEndsPercent[] = {70, 80, 90, 100};

std::string NameOfText(const TextOptions& options) {
  return options.text.empty() ? "the generated text" : "text '" + options.text + "'";
}

// sum of counts * ln(sum / count) / sum.
double EntropyOfCounts(std::span<const int64_t> counts) {
  double sum = 0;
  double weighted = 0;
  for (const int64_t count : counts) {
    if (count == 0) continue;
    const auto c = static_cast<double>(count);
    sum += c;
    weighted += c * std::log(c);
  }
  return sum == 0 ? 0 : std::log(sum) - weighted / sum;
}

}  // namespace

void TextOptions::Visit(FieldVisitor& v) {
  v.Field("text", &text,
          "A file of any bytes, plain or gzipped; empty: 100,000 bytes of generated sentences.");
  v.Field("length", &length, Between(1, 100000), "Bytes that a window predicts.");
  v.Field("batch_size", &batch_size, Between(1, 1000000), "Windows a step.");
}

std::pair<int64_t, int64_t> TextData::range(Split split) const {
  const auto i = static_cast<size_t>(split);
  const int64_t size = std::ssize(bytes_);
  return {i == 0 ? 0 : size * kEndsPercent[i - 1] / 100, size * kEndsPercent[i] / 100};
}

std::shared_ptr<const TextData> GetText(const TextOptions& options,
                                        const TaskResources& resources) {
  CheckOptions("text", options);
  return resources.Get<TextData>(options.text, [&] {
    const auto source = options.text.empty() ? std::optional(SentenceSource()) : std::nullopt;
    auto data = std::make_shared<TextData>(
        source ? source->Generate(KeyFromSeed(kTextSeed), kGeneratedBytes)
               : ReadGzipFile(options.text));
    const auto zeros = std::ranges::count(data->bytes(), 0);
    if (zeros > std::ssize(data->bytes()) / 10) {
      spdlog::warn("{}: {} of its {} bytes are 0: is it UTF-16, or no text?", NameOfText(options),
                   zeros, data->bytes().size());
    }
    Require(std::ranges::adjacent_find(data->bytes(), std::not_equal_to()) != data->bytes().end() ||
                data->bytes().empty(),
            "{}: all its {} bytes are the same", NameOfText(options), data->bytes().size());
    if (!source) resources.NoteData(NameOfText(options), ChecksumOf(data->bytes()));
    spdlog::info(
        "{}: {} bytes, entropy {:.6f} nats a byte, {:.6f} given the byte before{}",
        NameOfText(options), data->bytes().size(), UnigramEntropy(data->bytes()),
        BigramEntropy(data->bytes()),
        source ? fmt::format("; its source: {:.6f} given the byte before, {:.6f} given all before",
                             source->BigramEntropy(), source->EntropyRate())
               : "");
    return data;
  });
}

TextWindows::TextWindows(const TextOptions& options, const TextData& data) {
  for (const Split split : kSplits) {
    const auto [first, last] = data.range(split);
    Require(last - first > options.length,
            "{}: of its {} bytes the split {} has {}, wanted at least {}: the option length "
            "({}) and a byte before it",
            NameOfText(options), data.bytes().size(), ToString(split), last - first,
            options.length + 1, options.length);
    const int64_t rows = (last - first - 1) / options.length;
    const int64_t before = std::ssize(starts);
    splits[static_cast<size_t>(split)] = {before, before + rows};
    for (int64_t row = 0; row < rows; ++row) starts.push_back(first + row * options.length);
  }
}

Pictures PictureOfWindows(const TextData& data, std::span<const int64_t> starts, int64_t length,
                          std::span<const int32_t> examples) {
  constexpr float kWhite = 127;
  Pictures picture{
      .name = "batch", .count = 1, .height = std::ssize(examples), .width = length + 1};
  for (const int32_t example : examples) {
    const int64_t start = starts[static_cast<size_t>(example)];
    for (const uint8_t byte : data.bytes().subspan(start, length + 1)) {
      picture.pixels.push_back(static_cast<float>(byte) / kWhite);
    }
  }
  return picture;
}

TaskParts BytePredictorParts(const TextOptions& options, const TextWindows& windows) {
  TaskParts parts{.aux = Layout({{"accuracy", Shape{}}}),
                  .normalizer_maximum = 1.5 * std::log(256.0)};
  parts.data.batch_size = options.batch_size;
  std::copy(std::begin(windows.splits), std::end(windows.splits), parts.data.splits);
  return parts;
}

double UnigramEntropy(std::span<const uint8_t> text) {
  std::vector<int64_t> counts(256);
  for (const uint8_t byte : text) ++counts[byte];
  return EntropyOfCounts(counts);
}

double BigramEntropy(std::span<const uint8_t> text) {
  std::vector<int64_t> counts(size_t{256} * 256);
  for (size_t i = 1; i < text.size(); ++i) ++counts[size_t{256} * text[i - 1] + text[i]];
  return text.empty() ? 0 : EntropyOfCounts(counts) - UnigramEntropy(text.first(text.size() - 1));
}

}  // namespace lopt

#include "lopt/tasks/data/data_checksums.h"

#include <zlib.h>

#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/option_words.h"
#include "lopt/base/utf8.h"

namespace lopt {
namespace {

template <class Number>
void Add(const Number* numbers, size_t count, uint32_t* checksum) {
  *checksum = static_cast<uint32_t>(
      crc32_z(*checksum, reinterpret_cast<const Bytef*>(numbers), count * sizeof(Number)));
}

// What a message calls them. The text may come from another process.
std::string Describe(const std::string& data) {
  constexpr size_t kMostShownBytes = 300;
  return data.empty() ? "data that are drawn" : PlainText(data, kMostShownBytes);
}

}  // namespace

uint32_t ChecksumOf(const RawImages& images) {
  std::vector<int64_t> sizes = {images.count, images.height, images.width, images.channels};
  for (const auto& [first, last] : images.splits) sizes.insert(sizes.end(), {first, last});
  uint32_t checksum = 0;
  Add(sizes.data(), sizes.size(), &checksum);
  Add(images.labels.data(), images.labels.size(), &checksum);
  Add(images.pixels.data(), images.pixels.size(), &checksum);
  return checksum;
}

uint32_t ChecksumOf(std::span<const uint8_t> text) {
  uint32_t checksum = 0;
  Add(text.data(), text.size(), &checksum);
  return checksum;
}

void RequireSameData(const std::string& stored, const std::optional<std::string>& then,
                     const std::string& now) {
  Require(!then || *then == now,
          "cannot resume {}: it was computed on {}, and here it would go on with {} (data sets "
          "read from files, with their CRC-32); bring the same files back, name their directory "
          "({}), or begin a new run for other data",
          stored, Describe(then.value_or(now)), Describe(now), KeyWords("data_dir"));
}

void RequireDataOf(const std::string& model, const std::optional<std::string>& then,
                   const std::string& now) {
  Require(!then || *then == now,
          "{} was trained on {}, but the data are now {} (data sets read from files, with their "
          "CRC-32); bring the same files back, or name their directory ({})",
          model, Describe(then.value_or(now)), Describe(now), OptionWords("data-dir", "DIR"));
}

void RequireSameDataOn(const std::string& who, const std::string& data, const std::string& learner,
                       const std::string& learner_data) {
  Require(data == learner_data,
          "{} computes on {}, {} on {} (data sets read from files, with their CRC-32); give all "
          "processes the same files ({})",
          who, Describe(data), learner, Describe(learner_data), KeyWords("data_dir"));
}

}  // namespace lopt

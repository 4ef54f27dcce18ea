#include "lopt/tasks/data/cifar.h"

#include <span>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/tasks/data/gzip_file.h"

namespace lopt {
namespace {

constexpr int64_t kCifarSide = 32;
constexpr int64_t kCifarPixels = kCifarSide * kCifarSide;

// The labels at the beginning of a record: how many there are of each; the last is taken.
using LabelCounts = std::vector<int>;

void AddCifarFile(const std::string& directory, const std::string& name, const LabelCounts& labels,
                  RawImages* images) {
  const std::string path = FindFileOrGzipped(directory, name);
  Require(!path.empty(), "There is no {}[.gz] in {}", name, directory);
  const std::vector<uint8_t> bytes = ReadGzipFile(path);
  const auto record_size = static_cast<int64_t>(labels.size()) + 3 * kCifarPixels;
  const auto size = static_cast<int64_t>(bytes.size());
  Require(size > 0 && size % record_size == 0,
          "{}: {} bytes are not a number of whole records of {} bytes", path, size, record_size);
  const int64_t records = size / record_size;
  const size_t present = images->pixels.size();
  images->pixels.resize(present + static_cast<size_t>(records * 3 * kCifarPixels));
  uint8_t* out = images->pixels.data() + present;
  const uint8_t* in = bytes.data();
  for (int64_t record = 0; record < records; ++record) {
    for (const int count : labels) {
      Require(*in < count, "{}: record {} has label {}, wanted 0 to {}", path, record, *in,
              count - 1);
      ++in;
    }
    images->labels.push_back(in[-1]);
    for (int64_t pixel = 0; pixel < kCifarPixels; ++pixel, ++in) {
      for (int64_t channel = 0; channel < 3; ++channel) *out++ = in[channel * kCifarPixels];
    }
    in += 2 * kCifarPixels;
  }
  images->count += records;
}

RawImages ReadCifar(const std::string& directory, const std::vector<std::string>& train_names,
                    const std::string& test_name, const LabelCounts& labels) {
  RawImages train{.height = kCifarSide, .width = kCifarSide, .channels = 3};
  RawImages test = train;
  for (const std::string& name : train_names) AddCifarFile(directory, name, labels, &train);
  AddCifarFile(directory, test_name, labels, &test);
  return JoinSets(directory, std::move(train), std::move(test));
}

}  // namespace

RawImages ReadCifar10(const std::string& directory) {
  return ReadCifar(directory,
                   {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                    "data_batch_5.bin"},
                   "test_batch.bin", {10});
}

RawImages ReadCifar100(const std::string& directory) {
  return ReadCifar(directory, {"train.bin"}, "test.bin", {20, 100});
}

}  // namespace lopt

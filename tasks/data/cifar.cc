#include "lopt/tasks/data/cifar.h"

#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/tasks/data/gzip_file.h"
#include "lopt/tasks/data/tar_file.h"

namespace lopt {
namespace {

constexpr int64_t kCifarSide = 32;
constexpr int64_t kCifarPixels = kCifarSide * kCifarSide;

// The labels at the beginning of a record: how many there are of each; the last is taken.
using LabelCounts = std::vector<int>;

struct CifarSet {
  std::string archive;  // as it is downloaded, without .gz
  std::string folder;   // that it unpacks to
  std::vector<std::string> train;
  std::string test;
  LabelCounts labels;
};

void AddCifarRecords(const std::string& path, std::span<const uint8_t> bytes,
                     const LabelCounts& labels, RawImages* images) {
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

// Gives `add` (RawImages*, name) each file of the set and returns the images.
template <class Add>
RawImages JoinCifar(const std::string& directory, const CifarSet& set, const Add& add) {
  RawImages train{.height = kCifarSide, .width = kCifarSide, .channels = 3};
  RawImages test = train;
  for (const std::string& name : set.train) add(&train, name);
  add(&test, set.test);
  return JoinSets(directory, std::move(train), std::move(test));
}

RawImages ReadCifarFiles(const std::string& directory, const CifarSet& set) {
  return JoinCifar(directory, set, [&](RawImages* images, const std::string& name) {
    const std::string path = FindFileOrGzipped(directory, name);
    Require(!path.empty(), "There is no {}[.gz] in {}", name, directory);
    AddCifarRecords(path, ReadGzipFile(path), set.labels, images);
  });
}

RawImages ReadCifarArchive(const std::string& path, const CifarSet& set) {
  const std::vector<uint8_t> bytes = ReadGzipFile(path);
  const auto files = FilesInTar(path, bytes);
  return JoinCifar(path, set, [&](RawImages* images, const std::string& name) {
    Require(files.contains(name), "There is no {} in {}", name, path);
    AddCifarRecords(path + "/" + name, files.at(name), set.labels, images);
  });
}

// The directory or the folder in it that holds the files; empty: neither.
std::string PlaceOfCifar(const std::string& directory, const CifarSet& set) {
  const std::string folder = (std::filesystem::path(directory) / set.folder).string();
  for (const std::string& place : {directory, folder}) {
    if (!FindFileOrGzipped(place, set.train[0]).empty()) return place;
  }
  return "";
}

bool HasCifar(const std::string& directory, const CifarSet& set) {
  return !PlaceOfCifar(directory, set).empty() ||
         !FindFileOrGzipped(directory, set.archive).empty();
}

RawImages ReadCifar(const std::string& directory, const CifarSet& set) {
  const std::string place = PlaceOfCifar(directory, set);
  if (!place.empty()) return ReadCifarFiles(place, set);
  const std::string archive = FindFileOrGzipped(directory, set.archive);
  Require(!archive.empty(), "There is no {0}[.gz] in {1}, no {2}/{0}[.gz] and no {3}[.gz]",
          set.train[0], directory, set.folder, set.archive);
  return ReadCifarArchive(archive, set);
}

const CifarSet& Cifar10() {
  static const CifarSet set{.archive = "cifar-10-binary.tar",
                            .folder = "cifar-10-batches-bin",
                            .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                      "data_batch_4.bin", "data_batch_5.bin"},
                            .test = "test_batch.bin",
                            .labels = {10}};
  return set;
}

const CifarSet& Cifar100() {
  static const CifarSet set{.archive = "cifar-100-binary.tar",
                            .folder = "cifar-100-binary",
                            .train = {"train.bin"},
                            .test = "test.bin",
                            .labels = {20, 100}};
  return set;
}

}  // namespace

RawImages ReadCifar10(const std::string& directory) { return ReadCifar(directory, Cifar10()); }

RawImages ReadCifar100(const std::string& directory) { return ReadCifar(directory, Cifar100()); }

bool HasCifar10(const std::string& directory) { return HasCifar(directory, Cifar10()); }

bool HasCifar100(const std::string& directory) { return HasCifar(directory, Cifar100()); }

}  // namespace lopt

#include "lopt/tasks/data/idx.h"

#include <optional>
#include <span>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/layout.h"
#include "lopt/tasks/data/gzip_file.h"

namespace lopt {
namespace {

uint32_t BigEndian(std::span<const uint8_t> bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// The images and labels of "train" or "t10k", without splits; nothing if neither file is there.
std::optional<RawImages> ReadPair(const std::string& directory, const std::string& prefix) {
  const std::string image_name = prefix + "-images-idx3-ubyte";
  const std::string label_name = prefix + "-labels-idx1-ubyte";
  const std::string image_path = FindFileOrGzipped(directory, image_name);
  const std::string label_path = FindFileOrGzipped(directory, label_name);
  if (image_path.empty() && label_path.empty()) return std::nullopt;
  Require(!image_path.empty(), "{}: there are labels, but no images: looked for {}[.gz] in {}",
          label_path, image_name, directory);
  Require(!label_path.empty(), "{}: there are images, but no labels: looked for {}[.gz] in {}",
          image_path, label_name, directory);
  IdxFile images = ReadIdx(image_path, 3);
  IdxFile labels = ReadIdx(label_path, 1);
  Require(images.shape[0] == labels.shape[0], "{}: {} labels for the {} images of {}", label_path,
          labels.shape[0], images.shape[0], image_path);
  Require(NumElements(images.shape) > 0,
          "{}: holds images of shape {}, wanted at least 1 of at least 1 x 1", image_path,
          ToString(images.shape));
  return RawImages{.count = images.shape[0],
                   .height = images.shape[1],
                   .width = images.shape[2],
                   .pixels = std::move(images.values),
                   .labels = std::move(labels.values),
                   .splits = {}};
}

// How the labels of a set begin. The files of both sets have the same names.
struct FirstLabels {
  const char* set;
  const char* train;
  const char* test;
};
constexpr FirstLabels kFirstLabels[] = {{"MNIST", "5041921314", "7210414959"},
                                        {"FashionMNIST", "9003027255", "9211614657"}};

// The first labels of "train" or "t10k", as digits; empty without the file.
std::string ReadFirstLabels(const std::string& directory, const std::string& prefix) {
  const std::string path = FindFileOrGzipped(directory, prefix + "-labels-idx1-ubyte");
  if (path.empty()) return "";
  std::string digits;
  for (const uint8_t label : ReadIdx(path, 1).values) {
    if (digits.size() == 10 || label > 9) break;
    digits += static_cast<char>('0' + label);
  }
  return digits;
}

// The set of which the labels in this file begin so; empty if it is none of the known.
std::string SetThatBegins(const std::string& digits, const char* FirstLabels::*file) {
  for (const FirstLabels& labels : kFirstLabels) {
    if (digits.starts_with(labels.*file)) return labels.set;
  }
  return "";
}

}  // namespace

IdxFile ReadIdx(const std::string& path, int rank) {
  IdxFile idx;
  const size_t header = 4 * (1 + static_cast<size_t>(rank));
  const std::vector<uint8_t> bytes = ReadGzipHead(path, header);
  Require(bytes.size() >= header,
          "{}: {} bytes are too few for the header of an IDX file with {} dimensions", path,
          bytes.size(), rank);
  const uint32_t magic = BigEndian(bytes);
  const uint32_t wanted = 0x0800u + static_cast<uint32_t>(rank);
  Require(magic == wanted,
          "{}: starts with magic number {:#010x}, wanted {:#010x} (IDX, unsigned "
          "bytes, {} dimensions)",
          path, magic, wanted, rank);
  uint64_t size = 1;
  for (int i = 0; i < rank; ++i) {
    const uint64_t dimension =
        BigEndian(std::span(bytes).subspan(4 * (1 + static_cast<size_t>(i)), 4));
    idx.shape.push_back(static_cast<int64_t>(dimension));
    // Beyond the largest file the product may not fit into 64 bits.
    size = size > kLargestDataFile ? size : size * dimension;
  }
  Require(size <= kLargestDataFile,
          "{}: the header says {} bytes of data; the most that a file of data may have are {}",
          path, ToString(idx.shape), kLargestDataFile);
  // One more than the header says is enough to see that there are too many.
  idx.values = ReadGzipHead(path, header + size + 1);
  const uint64_t data = idx.values.size() - header;
  Require(size == data, "{}: the header says {} bytes of data, but {}{} follow it", path,
          ToString(idx.shape), data > size ? "at least " : "", data);
  idx.values.erase(idx.values.begin(), idx.values.begin() + static_cast<int64_t>(header));
  return idx;
}

std::string NameOfIdxSet(const std::string& directory) {
  const std::string train = SetThatBegins(ReadFirstLabels(directory, "train"), &FirstLabels::train);
  const std::string test = SetThatBegins(ReadFirstLabels(directory, "t10k"), &FirstLabels::test);
  Require(
      train.empty() || test.empty() || train == test,
      "{}: by their first labels train-labels-idx1-ubyte is of {} and t10k-labels-idx1-ubyte of "
      "{}; wanted the files of one set",
      directory, train, test);
  return train.empty() ? test : train;
}

RawImages ReadImageDirectory(const std::string& directory) {
  std::optional<RawImages> train = ReadPair(directory, "train");
  std::optional<RawImages> test = ReadPair(directory, "t10k");
  Require(train || test,
          "There are no images in {}: looked for train-images-idx3-ubyte[.gz] with "
          "train-labels-idx1-ubyte[.gz] and for t10k-images-idx3-ubyte[.gz] with "
          "t10k-labels-idx1-ubyte[.gz]",
          directory);
  return JoinSets(directory, std::move(train), std::move(test));
}

}  // namespace lopt

#include "lopt/tasks/data/npz_images.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/npz.h"
#include "lopt/tasks/data/gzip_file.h"

namespace lopt {
namespace {

std::string OneNpzFile(const std::string& directory) {
  std::vector<std::string> paths;
  std::error_code none;  // a directory that cannot be read has none
  for (const auto& entry : std::filesystem::directory_iterator(directory, none)) {
    if (entry.path().extension() == ".npz") paths.push_back(entry.path().string());
  }
  std::ranges::sort(paths);
  Require(!paths.empty(), "There is no .npz file in {}", directory);
  Require(paths.size() == 1, "There are several .npz files in {}, wanted one: {} and {}", directory,
          paths[0], paths[1]);
  return paths[0];
}

template <class T>
std::vector<uint8_t> NpzLabels(const std::string& path, const std::string& name,
                               const Array& array) {
  std::vector<uint8_t> labels;
  for (const T label : array.As<T>()) {
    Require(label >= 0 && label <= 255, "{}: array '{}' has label {} in row {}, wanted 0 to 255",
            path, name, label, labels.size());
    labels.push_back(static_cast<uint8_t>(label));
  }
  return labels;
}

std::vector<uint8_t> NpzLabels(const std::string& path, const std::string& name,
                               const Array& array) {
  switch (array.dtype()) {
    case DType::kUint8:
      return NpzLabels<uint8_t>(path, name, array);
    case DType::kInt32:
      return NpzLabels<int32_t>(path, name, array);
    case DType::kInt64:
      return NpzLabels<int64_t>(path, name, array);
    case DType::kUint32:
      return NpzLabels<uint32_t>(path, name, array);
    default:
      Fail("{}: array '{}' holds {}, wanted whole numbers (U8, I32, U32 or I64)", path, name,
           ToString(array.dtype()));
  }
}

// Arrays that nobody asks for may hold anything.
void CheckIsNotWanted(const std::string& path, const OtherArray& other) {
  constexpr std::string_view kImages[] = {"images", "x_train", "x_test"};
  constexpr std::string_view kLabels[] = {"labels", "y_train", "y_test"};
  const bool images = std::ranges::find(kImages, other.name) != std::end(kImages);
  if (!images && std::ranges::find(kLabels, other.name) == std::end(kLabels)) return;
  Fail("{}: array '{}' has dtype '{}', wanted {}", path, other.name, other.dtype,
       images ? "uint8 (|u1)" : "whole numbers (|u1, <i4, <u4 or <i8)");
}

// The set of these two arrays; nothing if the file has neither.
std::optional<RawImages> NpzSet(const std::string& path, const NamedArrays& arrays,
                                const std::string& images_name, const std::string& labels_name) {
  const bool has_images = arrays.Contains(images_name);
  if (has_images != arrays.Contains(labels_name)) {
    Fail("{}: there is an array '{}', but no '{}'", path, has_images ? images_name : labels_name,
         has_images ? labels_name : images_name);
  }
  if (!has_images) return std::nullopt;
  const Array& images = arrays.At(images_name);
  Shape shape = images.shape();
  Require(images.dtype() == DType::kUint8 && (shape.size() == 3 || shape.size() == 4),
          "{}: array '{}' is {} {}, wanted U8 [images, height, width] or [images, height, width, "
          "channels]",
          path, images_name, ToString(images.dtype()), ToString(shape));
  if (shape.size() == 3) shape.push_back(1);
  Require(shape[3] == 1 || shape[3] == 3,
          "{}: array '{}' of shape {} has {} channels, wanted 1 or 3{}", path, images_name,
          ToString(images.shape()), shape[3],
          shape[1] == 1 || shape[1] == 3
              ? "; they come last, [images, height, width, channels]: turn it by "
                "transpose(0, 2, 3, 1)"
              : "");
  Require(NumElements(shape) > 0, "{}: array '{}' of shape {} is empty", path, images_name,
          ToString(images.shape()));
  const Array& labels = arrays.At(labels_name);
  const Shape wanted = {shape[0]};
  Require(labels.shape() == wanted || labels.shape() == Shape{shape[0], 1},
          "{}: array '{}' has shape {}, wanted {} as there are images", path, labels_name,
          ToString(labels.shape()), ToString(wanted));
  const std::span<const uint8_t> pixels = images.As<uint8_t>();
  RawImages set{.count = shape[0],
                .height = shape[1],
                .width = shape[2],
                .channels = shape[3],
                .pixels = {pixels.begin(), pixels.end()},
                .labels = NpzLabels(path, labels_name, labels),
                .splits = {}};
  ShuffleRows(&set);
  return set;
}

}  // namespace

RawImages ReadNpzImages(const std::string& directory) {
  const std::string path = OneNpzFile(directory);
  std::vector<OtherArray> others;
  const NamedArrays arrays = ReadNpz(path, &others, kLargestDataFile);
  for (const OtherArray& other : others) CheckIsNotWanted(path, other);
  std::optional<RawImages> all = NpzSet(path, arrays, "images", "labels");
  if (all) return JoinSets(path, std::move(all), std::nullopt);
  std::optional<RawImages> train = NpzSet(path, arrays, "x_train", "y_train");
  Require(train.has_value(),
          "{}: there are no images: looked for arrays 'images' and 'labels', or 'x_train' and "
          "'y_train'",
          path);
  return JoinSets(path, std::move(train), NpzSet(path, arrays, "x_test", "y_test"));
}

}  // namespace lopt

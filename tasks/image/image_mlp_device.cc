#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/option_words.h"
#include "lopt/base/permutation.h"
#include "lopt/tasks/device_tasks.h"
#include "lopt/tasks/image/image_mlp.h"

namespace lopt {

DeviceRows DeviceRowsOf(const DataRows& data) {
  DeviceRows rows{.splits = {},
                  .batch_size = static_cast<int>(data.batch_size),
                  .epochs = data.sampling == Sampling::kEpoch};
  for (const Split split : kSplits) {
    const auto [first, last] = data.splits[static_cast<size_t>(split)];
    Require(first < last, "device: the data set has no rows in the split {}", ToString(split));
    rows.splits[static_cast<size_t>(split)] = {
        .range = RandintRangeOf(static_cast<int32_t>(first), static_cast<int32_t>(last)),
        .by_epoch = PermutationNetworkOf(last - first)};
  }
  return rows;
}

std::optional<ImageMlpDevice::Args> ImageMlpArgs(const TaskFamily& family, int64_t room,
                                                 DeviceConstants* constants) {
  const auto* mlp = dynamic_cast<const ImageMlp*>(&family);
  if (mlp == nullptr) return std::nullopt;
  const MlpShape& shape = mlp->shape();
  Require(shape.norm == Norm::kNone,
          "device: ImageMLP with norm '{}' has no functions for a device; choose cpu ({})",
          NameOf("norm", shape.norm, kNorms), KeyWords("device"));
  Require(!mlp->images().augmented(),
          "device: ImageMLP with an augmentation (augment) has no functions for a device; choose "
          "cpu ({})",
          KeyWords("device"));

  using Units = ImageMlpDevice::Units;
  const ImageData& data = mlp->images().data();
  int64_t row = 0;  // floats of an example's units
  for (int64_t l = 0; l <= shape.layers(); ++l) {
    const bool hidden = l > 0 && l < shape.layers();
    row += (hidden ? 2 : 1) * ImageMlpDevice::Pitch(static_cast<int>(shape.sizes[l]));
  }
  const int64_t work = (ImageMlpDevice::kWork + 2) * kMostThreads;
  const int64_t batch = family.parts().data.batch_size;
  const int64_t fits = std::max<int64_t>(4, (room - work) / (row + 2) / 4 * 4);
  // Chunks of about the same size.
  const int64_t chunks = (batch + fits - 1) / fits;
  const int64_t chunk = ((batch + chunks - 1) / chunks + 3) / 4 * 4;

  std::vector<Units> units;
  int64_t place = 0;
  int64_t params = 0;
  for (int64_t l = 0; l <= shape.layers(); ++l) {
    const auto width = static_cast<int>(shape.sizes[l]);
    const int64_t size = chunk * ImageMlpDevice::Pitch(width);
    const bool hidden = l > 0 && l < shape.layers();
    units.push_back({.width = width,
                     .values = static_cast<int>(place),
                     .slopes = hidden ? static_cast<int>(place + size) : 0,
                     .params = params});
    place += (hidden ? 2 : 1) * size;
    if (l < shape.layers()) params += shape.params(l);
  }
  const auto rows = static_cast<size_t>(data.count());
  return ImageMlpDevice::Args{
      .rows = DeviceRowsOf(family.parts().data),
      .images = constants->Keep(
          std::span<const float>(data.images(), rows * static_cast<size_t>(data.stride()))),
      .stride = static_cast<int>(data.stride()),
      .labels = constants->Keep(std::span<const uint8_t>(data.labels(), rows)),
      .activation = mlp->activation(),
      .layers = static_cast<int>(shape.layers()),
      .units = constants->Keep(units),
      .chunk = static_cast<int>(chunk),
      .units_size = static_cast<int>(place)};
}

}  // namespace lopt

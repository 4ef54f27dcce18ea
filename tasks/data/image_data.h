#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "lopt/tasks/data/raw_images.h"

namespace lopt {

// The data set of a task: float32 rows, each an image [height, width, channels] of numbers in [0,
// 1] or a signal of numbers of any range. Immutable.
class ImageData {
 public:
  // Resizes every image to size x size, or leaves its size if that is 0 (bilinear, half-pixel
  // centres, edges clamped, no antialiasing), and divides by 255. Throws Error unless size >= 0.
  ImageData(const RawImages& raw, int64_t size);
  // Signals, as they are.
  explicit ImageData(const RawSignals& signals);

  int64_t count() const { return static_cast<int64_t>(labels_.size()); }
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  int64_t channels() const { return channels_; }
  bool holds_signals() const { return holds_signals_; }
  int64_t features() const { return height_ * width_ * channels_; }
  int64_t classes() const { return classes_; }  // the largest label + 1
  // Row i is images()[i * stride(), + features()), 64-byte aligned; zeros follow up to stride().
  const float* images() const { return images_.get(); }
  int64_t stride() const { return stride_; }
  const uint8_t* labels() const { return labels_.data(); }
  std::pair<int64_t, int64_t> range(Split split) const {
    return splits_[static_cast<size_t>(split)];
  }

 private:
  // Everything but the rows' numbers, whose padding is zero.
  template <class Value>
  ImageData(const StoredImages<Value>& stored, int64_t height, int64_t width, bool holds_signals);

  struct FreeAligned {
    void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };

  int64_t height_;
  int64_t width_;
  int64_t channels_;
  bool holds_signals_;
  int64_t stride_;
  int64_t classes_;
  std::vector<uint8_t> labels_;
  std::unique_ptr<float[], FreeAligned> images_;
  std::pair<int64_t, int64_t> splits_[4];
};

}  // namespace lopt

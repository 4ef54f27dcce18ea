#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tasks/task_family.h"

namespace lopt {

// Images as they are stored: [count, height, width, channels] bytes and one label an image.
struct RawImages {
  int64_t count = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 1;  // 1 is grey, 3 are red, green and blue
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;
  std::pair<int64_t, int64_t> splits[4];  // rows [first, last) of each Split
};

// Reads the IDX files {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz] of a directory. With both
// pairs the rows are those of the train file (80 % train, 10 % inner_valid, 10 % outer_valid) and
// then those of the t10k file (test). With one pair its rows are split 70/10/10/10 in that order,
// which the log says. Throws Error that names the file: missing, damaged (ReadIdx), counts or sizes
// that do not match, or fewer than 10 images.
RawImages ReadImageDirectory(const std::string& directory);

// 10,000 drawn digits (glyphs.h), split 70/10/10/10.
RawImages GenerateImages();

// Colour to grey, (19595 red + 38470 green + 7471 blue + 32768) / 65536 (the luma of ITU-R 601-2,
// rounded), or grey to three equal channels; 0 or the channels that there are: nothing. Throws
// Error on any other change.
void SetChannels(int64_t channels, RawImages* images);

// The data set of a task: float32 rows in [0, 1], each an image [height, width, channels].
// Immutable.
class ImageData {
 public:
  // Resizes every image to size x size, or leaves its size if that is 0 (bilinear, half-pixel
  // centres, edges clamped, no antialiasing), and divides by 255. Throws Error unless size >= 0.
  ImageData(const RawImages& raw, int64_t size);

  int64_t count() const { return static_cast<int64_t>(labels_.size()); }
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  int64_t channels() const { return channels_; }
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
  struct FreeAligned {
    void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };

  int64_t height_;
  int64_t width_;
  int64_t channels_;
  int64_t stride_;
  int64_t classes_;
  std::vector<uint8_t> labels_;
  std::unique_ptr<float[], FreeAligned> images_;
  std::pair<int64_t, int64_t> splits_[4];
};

}  // namespace lopt

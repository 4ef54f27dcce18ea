#include "lopt/tasks/data/image_data.h"

#include <algorithm>
#include <cmath>

#include "lopt/base/error.h"

namespace lopt {
namespace {

constexpr int64_t kFloatsPerLine = 16;  // 64 bytes

// Where an output pixel lies between input pixels along one axis.
struct Tap {
  int64_t low, high;
  float fraction;
};

// Of `size` output pixels over `input` ones.
std::vector<Tap> ResizeTaps(int64_t input, int64_t size) {
  std::vector<Tap> taps;
  for (int64_t i = 0; i < size; ++i) {
    const double at =
        (static_cast<double>(i) + 0.5) * static_cast<double>(input) / static_cast<double>(size) -
        0.5;
    const auto low = static_cast<int64_t>(std::floor(at));
    taps.push_back({std::clamp<int64_t>(low, 0, input - 1),
                    std::clamp<int64_t>(low + 1, 0, input - 1),
                    static_cast<float>(at - std::floor(at))});
  }
  return taps;
}

int64_t ResizedTo(int64_t size, int64_t stored) {
  Require(size >= 0, "Images cannot be resized to {} x {}", size, size);
  return size == 0 ? stored : size;
}

}  // namespace

template <class Value>
ImageData::ImageData(const StoredImages<Value>& stored, int64_t height, int64_t width,
                     bool holds_signals)
    : height_(height),
      width_(width),
      channels_(stored.channels),
      holds_signals_(holds_signals),
      stride_((features() + kFloatsPerLine - 1) / kFloatsPerLine * kFloatsPerLine),
      classes_(1 + *std::ranges::max_element(stored.labels)),
      labels_(stored.labels),
      images_(new (std::align_val_t{64}) float[static_cast<size_t>(stored.count * stride_)]) {
  std::ranges::copy(stored.splits, splits_);
  for (int64_t image = 0; image < stored.count; ++image) {
    float* row = images_.get() + image * stride_;
    std::fill(row + features(), row + stride_, 0.0F);
  }
}

ImageData::ImageData(const RawSignals& signals)
    : ImageData(signals, signals.height, signals.width, true) {
  const float* in = signals.pixels.data();
  for (int64_t row = 0; row < signals.count; ++row, in += features()) {
    std::copy_n(in, features(), images_.get() + row * stride_);
  }
}

ImageData::ImageData(const RawImages& raw, int64_t size)
    : ImageData(raw, ResizedTo(size, raw.height), ResizedTo(size, raw.width), false) {
  std::vector<Tap> columns = ResizeTaps(raw.width, width_);
  for (Tap& x : columns) {
    x.low *= channels_;
    x.high *= channels_;
  }
  const std::vector<Tap> lines = ResizeTaps(raw.height, height_);
  const int64_t line = raw.width * channels_;
  for (int64_t image = 0; image < raw.count; ++image) {
    const uint8_t* in = raw.pixels.data() + image * raw.height * line;
    float* out = images_.get() + image * stride_;
    for (const Tap& y : lines) {
      const uint8_t* low = in + y.low * line;
      const uint8_t* high = in + y.high * line;
      for (const Tap& x : columns) {
        for (int64_t c = 0; c < channels_; ++c) {
          const float top = (1 - x.fraction) * low[x.low + c] + x.fraction * low[x.high + c];
          const float bottom = (1 - x.fraction) * high[x.low + c] + x.fraction * high[x.high + c];
          *out++ = ((1 - y.fraction) * top + y.fraction * bottom) / 255.0f;
        }
      }
    }
  }
}

}  // namespace lopt

#include "lopt/tasks/augment/ctaugment/geometry.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

namespace lopt {
namespace {

// out(x, y) = in(xx x + xy y + x0, yx x + yy y + y0), at the middles of pixels.
struct Affine {
  double xx, xy, x0;
  double yx, yy, y0;
};

ByteImage CopyOf(const ByteImage& image, Workspace& scratch) {
  ByteImage copy = image;
  copy.pixels = scratch.Take<uint8_t>(image.size()).data();
  std::copy_n(image.pixels, image.size(), copy.pixels);
  return copy;
}

// `out` and `in` are images of one size.
void TakePixel(const ByteImage& in, int64_t x_in, int64_t y_in, uint8_t* out) {
  const bool inside = x_in >= 0 && x_in < in.width && y_in >= 0 && y_in < in.height;
  for (int64_t c = 0; c < in.channels; ++c) out[c] = inside ? in.at(y_in, x_in)[c] : 0;
}

// Coordinates in units of 2^-16 pixels.
int64_t Fixed(double value) { return static_cast<int64_t>(std::floor(value * 65536.0 + 0.5)); }

void TransformNearest(const Affine& a, const ByteImage& image, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const ByteImage in = CopyOf(image, scratch);
  int64_t x_line = Fixed(a.x0 + a.xx * 0.5 + a.xy * 0.5);
  int64_t y_line = Fixed(a.y0 + a.yx * 0.5 + a.yy * 0.5);
  for (int64_t y = 0; y < image.height; ++y) {
    int64_t x_in = x_line;
    int64_t y_in = y_line;
    for (int64_t x = 0; x < image.width; ++x) {
      TakePixel(in, x_in >> 16, y_in >> 16, image.at(y, x));
      x_in += Fixed(a.xx);
      y_in += Fixed(a.yx);
    }
    x_line += Fixed(a.xy);
    y_line += Fixed(a.yy);
  }
}

// Resizing, as Pillow's Resample.c does it: weights of float64, rounded to 22 bits behind the
// point, first along the lines, then along the columns.
constexpr int kWeightBits = 22;

double Sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double Support(ResizeMethod method) {
  switch (method) {
    case ResizeMethod::kLanczos:
      return 3;
    case ResizeMethod::kBicubic:
      return 2;
    case ResizeMethod::kBilinear:
    case ResizeMethod::kHamming:
      return 1;
    case ResizeMethod::kBox:
    case ResizeMethod::kNearest:
      break;
  }
  return 0.5;
}

double Weight(ResizeMethod method, double x) {
  const double distance = std::abs(x);
  switch (method) {
    case ResizeMethod::kLanczos:
      return x >= -3 && x < 3 ? Sinc(x) * Sinc(x / 3) : 0;
    case ResizeMethod::kBicubic: {
      constexpr double kA = -0.5;
      if (distance < 1) return ((kA + 2) * distance - (kA + 3)) * distance * distance + 1;
      if (distance < 2) return (((distance - 5) * distance + 8) * distance - 4) * kA;
      return 0;
    }
    case ResizeMethod::kBilinear:
      return distance < 1 ? 1 - distance : 0;
    case ResizeMethod::kHamming:
      if (distance >= 1) return 0;
      return Sinc(distance) * (0.54 + 0.46 * std::cos(distance * std::numbers::pi));
    case ResizeMethod::kBox:
    case ResizeMethod::kNearest:
      break;
  }
  return x > -0.5 && x <= 0.5 ? 1 : 0;
}

// The input pixels [first, first + count) that make up an output pixel.
struct Taps {
  int64_t first;
  int64_t count;
  int32_t weights[7];  // of at most 2 * 3 + 1 pixels: images are only ever stretched
};

Taps TapsOf(ResizeMethod method, int64_t in_size, int64_t out_size, int64_t i) {
  const double scale = static_cast<double>(in_size) / static_cast<double>(out_size);
  const double centre = (static_cast<double>(i) + 0.5) * scale;
  const double support = Support(method);
  Taps taps{};
  taps.first = std::max<int64_t>(0, static_cast<int64_t>(std::floor(centre - support + 0.5)));
  taps.count =
      std::min(in_size, static_cast<int64_t>(std::floor(centre + support + 0.5))) - taps.first;
  double weights[7];
  double sum = 0;
  for (int64_t k = 0; k < taps.count; ++k) {
    weights[k] = Weight(method, static_cast<double>(k + taps.first) - centre + 0.5);
    sum += weights[k];
  }
  for (int64_t k = 0; k < taps.count; ++k) {
    const double weight = weights[k] / sum * (1 << kWeightBits);
    taps.weights[k] = static_cast<int32_t>(weight + (weight < 0 ? -0.5 : 0.5));
  }
  return taps;
}

// The weighted sum of pixels `step` apart.
uint8_t SumOfTaps(const Taps& taps, const uint8_t* in, int64_t step) {
  int32_t sum = 1 << (kWeightBits - 1);
  for (int64_t k = 0; k < taps.count; ++k) {
    sum += int32_t{in[(taps.first + k) * step]} * taps.weights[k];
  }
  return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

// The pixels [top, top + height) x [left, left + width) of an image.
struct Crop {
  int64_t left, top, width, height;
};

void ResizeNearest(const Crop& crop, const ByteImage& image, Workspace& scratch) {
  const ByteImage in = CopyOf(image, scratch);
  const double y_step = static_cast<double>(crop.height) / static_cast<double>(image.height);
  const double x_step = static_cast<double>(crop.width) / static_cast<double>(image.width);
  double y_in = y_step * 0.5;
  for (int64_t y = 0; y < image.height; ++y, y_in += y_step) {
    double x_in = x_step * 0.5;
    for (int64_t x = 0; x < image.width; ++x, x_in += x_step) {
      TakePixel(in, crop.left + static_cast<int64_t>(x_in), crop.top + static_cast<int64_t>(y_in),
                image.at(y, x));
    }
  }
}

void ResizeSmoothly(ResizeMethod method, const Crop& crop, const ByteImage& image,
                    Workspace& scratch) {
  // [crop.height, image.width], lines resized
  const int64_t line = image.width * image.channels;
  const std::span<uint8_t> lines = scratch.Take<uint8_t>(crop.height * line);
  for (int64_t x = 0; x < image.width; ++x) {
    const Taps taps = TapsOf(method, crop.width, image.width, x);
    for (int64_t y = 0; y < crop.height; ++y) {
      for (int64_t c = 0; c < image.channels; ++c) {
        lines[y * line + x * image.channels + c] =
            SumOfTaps(taps, image.at(crop.top + y, crop.left) + c, image.channels);
      }
    }
  }
  for (int64_t y = 0; y < image.height; ++y) {
    const Taps taps = TapsOf(method, crop.height, image.height, y);
    for (int64_t i = 0; i < line; ++i) {
      image.pixels[y * line + i] = SumOfTaps(taps, lines.data() + i, line);
    }
  }
}

}  // namespace

void Rotate(int degrees, const ByteImage& image, Workspace& scratch) {
  if (degrees == 0) return;
  const auto rounded = [](double value) { return std::round(value * 1e15) / 1e15; };
  const double angle = -degrees * (std::numbers::pi / 180);
  const double cos = rounded(std::cos(angle));
  const double sin = rounded(std::sin(angle));
  const double x = static_cast<double>(image.width) / 2;
  const double y = static_cast<double>(image.height) / 2;
  TransformNearest({.xx = cos,
                    .xy = sin,
                    .x0 = cos * -x + sin * -y + x,
                    .yx = -sin,
                    .yy = cos,
                    .y0 = -sin * -x + cos * -y + y},
                   image, scratch);
}

void ShearX(double by, const ByteImage& image, Workspace& scratch) {
  TransformNearest({.xx = 1, .xy = by, .x0 = 0, .yx = 0, .yy = 1, .y0 = 0}, image, scratch);
}

void ShearY(double by, const ByteImage& image, Workspace& scratch) {
  TransformNearest({.xx = 1, .xy = 0, .x0 = 0, .yx = by, .yy = 1, .y0 = 0}, image, scratch);
}

void Translate(double by_x, double by_y, const ByteImage& image, Workspace& scratch) {
  TransformNearest({.xx = 1, .xy = 0, .x0 = by_x, .yx = 0, .yy = 1, .y0 = by_y}, image, scratch);
}

void CropAndResize(double border, ResizeMethod method, const ByteImage& image, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const auto first = [&](int64_t size) {
    return static_cast<int64_t>(std::nearbyint(border * static_cast<double>(size)));
  };
  const auto last = [&](int64_t size) {
    return static_cast<int64_t>(std::nearbyint(static_cast<double>(size) * (1 - border)));
  };
  const Crop crop{.left = first(image.width),
                  .top = first(image.height),
                  .width = last(image.width) - first(image.width),
                  .height = last(image.height) - first(image.height)};
  if (method == ResizeMethod::kNearest) {
    ResizeNearest(crop, image, scratch);
  } else {
    ResizeSmoothly(method, crop, image, scratch);
  }
}

void Cutout(int64_t centre_x, int64_t centre_y, int64_t size, const ByteImage& image) {
  const auto clipped = [&](int64_t at, int64_t limit) { return std::clamp<int64_t>(at, 0, limit); };
  for (int64_t y = clipped(centre_y - size / 2, image.height);
       y < clipped(centre_y + size / 2, image.height); ++y) {
    std::fill(image.at(y, clipped(centre_x - size / 2, image.width)),
              image.at(y, clipped(centre_x + size / 2, image.width)), uint8_t{127});
  }
}

}  // namespace lopt

#include "lopt/tasks/augment/ctaugment/colours.h"

#include <algorithm>
#include <array>
#include <span>

namespace lopt {
namespace {

using Table = std::array<uint8_t, 256>;

uint8_t Blended(uint8_t from, uint8_t to, float by) {
  const float value = static_cast<float>(from) +
                      by * static_cast<float>(static_cast<int>(to) - static_cast<int>(from));
  return static_cast<uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

// image = from + by (to - from), cut to whole numbers.
void Blend(const uint8_t* from, const uint8_t* to, double by, const ByteImage& image) {
  const auto fraction = static_cast<float>(by);
  for (int64_t i = 0; i < image.size(); ++i) {
    image.pixels[i] = Blended(from[i], to[i], fraction);
  }
}

Table InvertTable() {
  Table table;
  for (size_t v = 0; v < 256; ++v) table[v] = static_cast<uint8_t>(255 - v);
  return table;
}

// How many pixels of a channel have each value.
std::array<int64_t, 256> Histogram(const ByteImage& image, int64_t channel) {
  std::array<int64_t, 256> counts{};
  for (int64_t i = channel; i < image.size(); i += image.channels) ++counts[image.pixels[i]];
  return counts;
}

Table IdentityTable() {
  Table table;
  for (size_t v = 0; v < 256; ++v) table[v] = static_cast<uint8_t>(v);
  return table;
}

Table AutocontrastTable(const std::array<int64_t, 256>& counts) {
  const auto used = [](int64_t count) { return count > 0; };
  const auto low = std::ranges::find_if(counts, used) - counts.begin();
  const auto high = counts.rend() - std::find_if(counts.rbegin(), counts.rend(), used) - 1;
  if (high <= low) return IdentityTable();
  const double scale = 255.0 / static_cast<double>(high - low);
  const double offset = static_cast<double>(-low) * scale;
  Table table;
  for (size_t v = 0; v < 256; ++v) {
    const auto value = static_cast<int>(static_cast<double>(v) * scale + offset);
    table[v] = static_cast<uint8_t>(std::clamp(value, 0, 255));
  }
  return table;
}

Table EqualizeTable(const std::array<int64_t, 256>& counts) {
  int64_t pixels = 0;
  int64_t last = 0;
  for (const int64_t count : counts) {
    pixels += count;
    if (count > 0) last = count;
  }
  const int64_t step = (pixels - last) / 255;
  if (step == 0) return IdentityTable();
  Table table;
  int64_t below = step / 2;
  for (size_t v = 0; v < 256; ++v) {
    table[v] = static_cast<uint8_t>(std::min<int64_t>(below / step, 255));
    below += counts[v];
  }
  return table;
}

template <class MakeTable>
void BlendTables(double blend, const ByteImage& image, const MakeTable& make_table) {
  for (int64_t c = 0; c < image.channels; ++c) {
    Table table = make_table(c);
    for (size_t v = 0; v < 256; ++v) {
      table[v] = Blended(static_cast<uint8_t>(v), table[v], static_cast<float>(blend));
    }
    for (int64_t i = c; i < image.size(); i += image.channels) {
      image.pixels[i] = table[image.pixels[i]];
    }
  }
}

// out = in filtered by `sum` (of the channel around a pixel, `x` and `y` numbers further on to the
// right and down), but for a border of `radius` pixels. Images with no inside stay as they are.
template <class Sum>
void Filter(const ByteImage& in, int64_t radius, const Sum& sum, uint8_t* out) {
  std::copy_n(in.pixels, in.size(), out);
  for (int64_t y = radius; y < in.height - radius; ++y) {
    const int64_t line = in.width * in.channels;
    for (int64_t i = radius * in.channels; i < (in.width - radius) * in.channels; ++i) {
      out[y * line + i] = sum(in.pixels + y * line + i, in.channels, line);
    }
  }
}

void SmoothInto(const ByteImage& in, uint8_t* out) {
  const auto sum = [](const uint8_t* p, int64_t x, int64_t y) {
    const int around = p[-y - x] + p[-y] + p[-y + x] + p[-x] + p[x] + p[y - x] + p[y] + p[y + x];
    return static_cast<uint8_t>((2 * (around + 5 * p[0]) + 13) / 26);
  };
  Filter(in, 1, sum, out);
}

void BlurInto(const ByteImage& in, uint8_t* out) {
  const auto sum = [](const uint8_t* p, int64_t x, int64_t y) {
    int ring = 8;
    for (int64_t i = -2; i <= 2; ++i) ring += p[i * x - 2 * y] + p[i * x + 2 * y];
    for (int64_t i = -1; i <= 1; ++i) ring += p[i * y - 2 * x] + p[i * y + 2 * x];
    return static_cast<uint8_t>(ring / 16);
  };
  Filter(in, 2, sum, out);
}

uint8_t Luma(const uint8_t* pixel) {
  return static_cast<uint8_t>((pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >>
                              16);
}

// The grey value of pixel i.
uint8_t Grey(const ByteImage& image, int64_t i) {
  return image.channels == 3 ? Luma(image.pixels + 3 * i) : image.pixels[i];
}

}  // namespace

void Autocontrast(double blend, const ByteImage& image) {
  BlendTables(blend, image, [&](int64_t c) { return AutocontrastTable(Histogram(image, c)); });
}

void Equalize(double blend, const ByteImage& image) {
  BlendTables(blend, image, [&](int64_t c) { return EqualizeTable(Histogram(image, c)); });
}

void Invert(double blend, const ByteImage& image) {
  BlendTables(blend, image, [](int64_t) { return InvertTable(); });
}

void Posterize(int bits, const ByteImage& image) {
  const int dropped = (1 << (8 - bits)) - 1;
  for (int64_t i = 0; i < image.size(); ++i) {
    image.pixels[i] = static_cast<uint8_t>(image.pixels[i] & ~dropped);
  }
}

void Solarize(int threshold, const ByteImage& image) {
  for (int64_t i = 0; i < image.size(); ++i) {
    const uint8_t value = image.pixels[i];
    image.pixels[i] = value < threshold ? value : static_cast<uint8_t>(255 - value);
  }
}

void Smooth(double blend, const ByteImage& image, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const std::span<uint8_t> smooth = scratch.Take<uint8_t>(image.size());
  SmoothInto(image, smooth.data());
  Blend(image.pixels, smooth.data(), blend, image);
}

void Blur(double blend, const ByteImage& image, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const std::span<uint8_t> blurred = scratch.Take<uint8_t>(image.size());
  BlurInto(image, blurred.data());
  Blend(image.pixels, blurred.data(), blend, image);
}

void Brightness(double factor, const ByteImage& image, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const std::span<uint8_t> black = scratch.Take<uint8_t>(image.size());
  std::ranges::fill(black, uint8_t{0});
  Blend(black.data(), image.pixels, factor, image);
}

void Contrast(double factor, const ByteImage& image, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const int64_t pixels = image.height * image.width;
  int64_t sum = 0;
  for (int64_t i = 0; i < pixels; ++i) sum += Grey(image, i);
  const std::span<uint8_t> grey = scratch.Take<uint8_t>(image.size());
  std::ranges::fill(grey, static_cast<uint8_t>((2 * sum + pixels) / (2 * pixels)));
  Blend(grey.data(), image.pixels, factor, image);
}

void Color(double factor, const ByteImage& image, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const std::span<uint8_t> grey = scratch.Take<uint8_t>(image.size());
  for (int64_t i = 0; i < image.height * image.width; ++i) {
    std::fill_n(grey.data() + i * image.channels, image.channels, Grey(image, i));
  }
  Blend(grey.data(), image.pixels, factor, image);
}

void Sharpness(double factor, const ByteImage& image, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const std::span<uint8_t> smooth = scratch.Take<uint8_t>(image.size());
  SmoothInto(image, smooth.data());
  Blend(smooth.data(), image.pixels, factor, image);
}

}  // namespace lopt

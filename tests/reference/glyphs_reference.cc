#include "tests/reference/glyphs_reference.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lopt/tasks/data/glyphs.h"

namespace lopt {
namespace {

constexpr int64_t kRows = Glyphs::kSide;
constexpr float kOnePixel = 1024;  // squared, as an integer

int32_t Clamped(float pixel) { return std::clamp<int32_t>(static_cast<int32_t>(pixel), 0, kRows); }

}  // namespace

void ReferenceDrawSegments(std::span<const GlyphSegment> segments, const GlyphPen& pen,
                           std::span<const uint32_t> words, uint8_t* pixels) {
  const float reach = pen.radius + 0.5f;
  std::array<int32_t, kRows * kRows> squared;
  squared.fill(static_cast<int32_t>(reach * reach * kOnePixel));
  for (const auto& [from_x, from_y, to_x, to_y] : segments) {
    const float dx = to_x - from_x;
    const float dy = to_y - from_y;
    const float inverse = 1 / (dx * dx + dy * dy + 1e-6f);
    for (int32_t row = Clamped(std::min(from_y, to_y) - reach);
         row < Clamped(std::max(from_y, to_y) + reach + 1); ++row) {
      const float y = static_cast<float>(row) - from_y;
      for (int32_t column = Clamped(std::min(from_x, to_x) - reach);
           column < Clamped(std::max(from_x, to_x) + reach + 1); ++column) {
        const float x = static_cast<float>(column) - from_x;
        const float position = (x * dx + y * dy) * inverse;
        const float along = 0.5f * (std::abs(position) - std::abs(position - 1) + 1);  // in [0, 1]
        const float ex = x - along * dx;
        const float ey = y - along * dy;
        int32_t& known = squared[row * kRows + column];
        known = std::min(known, static_cast<int32_t>((ex * ex + ey * ey) * kOnePixel));
      }
    }
  }
  const float cover_scale = 256 / (2 * pen.radius);
  const float ink_scale = pen.ink / 256;
  const float noise_scale = pen.noise / 148;
  for (size_t i = 0; i < squared.size(); ++i) {
    const uint32_t word = words[i];
    const auto sum =
        static_cast<int32_t>((word & 255) + (word >> 8 & 255) + (word >> 16 & 255) + (word >> 24));
    const float inside = reach * reach - static_cast<float>(squared[i]) / kOnePixel;
    const int32_t cover = std::min(static_cast<int32_t>(cover_scale * inside), 256);
    const auto value = static_cast<int32_t>(ink_scale * static_cast<float>(cover) +
                                            noise_scale * static_cast<float>(sum - 510));
    pixels[i] = static_cast<uint8_t>(std::clamp(value, 0, 255));
  }
}

}  // namespace lopt

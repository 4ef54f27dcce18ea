#include "lopt/tasks/data/glyphs_kernel.h"

#include <algorithm>

#include "lopt/tasks/data/glyphs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/tasks/data/glyphs_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kGlyphSide = Glyphs::kSide;
constexpr int64_t kGlyphPixels = kGlyphSide * kGlyphSide;
constexpr size_t kMostLanes = 16;  // which divide the pixels
constexpr hn::CappedTag<float, kMostLanes> kFloats;
constexpr hn::RebindToSigned<decltype(kFloats)> kInts;

// Squared distances are compared as integers, in pixels^2 / kDistanceOne.
constexpr float kDistanceOne = 1024;

// Squared distances from each pixel's centre to the segments so far; only those up to reach^2 are
// known.
struct DistanceField {
  explicit DistanceField(float most) : reach(most) {
    std::ranges::fill(squared, static_cast<int32_t>(most * most * kDistanceOne));
  }
  float reach;
  int32_t squared[kGlyphPixels + kMostLanes];  // vectors at the end read beyond the pixels
};

int32_t ClampToSide(float pixel) {
  return std::clamp<int32_t>(static_cast<int32_t>(pixel), 0, kGlyphSide);
}

void AddSegment(const GlyphSegment& segment, DistanceField* field) {
  const float dx = segment.to_x - segment.from_x;
  const float dy = segment.to_y - segment.from_y;
  const auto inverse = hn::Set(kFloats, 1 / (dx * dx + dy * dy + 1e-6f));
  const auto along_x = hn::Set(kFloats, dx);
  const auto along_y = hn::Set(kFloats, dy);
  const auto one = hn::Set(kFloats, 1.0f);
  const float reach = field->reach;
  const int32_t left = ClampToSide(std::min(segment.from_x, segment.to_x) - reach);
  const int32_t right = ClampToSide(std::max(segment.from_x, segment.to_x) + reach + 1);
  const int32_t top = ClampToSide(std::min(segment.from_y, segment.to_y) - reach);
  const int32_t bottom = ClampToSide(std::max(segment.from_y, segment.to_y) + reach + 1);
  for (int32_t row = top; row < bottom; ++row) {
    const auto y = hn::Set(kFloats, static_cast<float>(row) - segment.from_y);
    const auto y_part = hn::Mul(y, along_y);
    int32_t* line = &field->squared[row * kGlyphSide];
    for (int32_t column = left; column < right; column += static_cast<int32_t>(Lanes(kFloats))) {
      const auto x =
          hn::Sub(hn::Iota(kFloats, static_cast<float>(column)), hn::Set(kFloats, segment.from_x));
      const auto position = hn::Mul(hn::Add(hn::Mul(x, along_x), y_part), inverse);
      // The nearest point of the segment, in [0, 1].
      const auto along =
          hn::Mul(hn::Set(kFloats, 0.5f),
                  hn::Add(hn::Sub(hn::Abs(position), hn::Abs(hn::Sub(position, one))), one));
      const auto ex = hn::Sub(x, hn::Mul(along, along_x));
      const auto ey = hn::Sub(y, hn::Mul(along, along_y));
      const auto distance = hn::ConvertTo(kInts, hn::Mul(hn::Add(hn::Mul(ex, ex), hn::Mul(ey, ey)),
                                                         hn::Set(kFloats, kDistanceOne)));
      const auto known = hn::LoadU(kInts, line + column);
      const auto valid = hn::FirstN(kInts, static_cast<size_t>(right - column));
      hn::StoreU(hn::IfThenElse(valid, hn::Min(known, distance), known), kInts, line + column);
    }
  }
}

void RunDrawSegments(std::span<const GlyphSegment> segments, const GlyphPen& pen,
                     std::span<const uint32_t> words, uint8_t* pixels) {
  DistanceField field(pen.radius + 0.5f);
  for (const GlyphSegment& segment : segments) AddSegment(segment, &field);

  // The noise is a sum of four uniform bytes: mean 510, standard deviation 148.
  const hn::Rebind<uint8_t, decltype(kFloats)> bytes;
  const hn::RebindToUnsigned<decltype(kFloats)> unsigned_ints;
  const auto outside = hn::Set(kFloats, field.reach * field.reach);
  const auto cover_scale = hn::Set(kFloats, 256 / (2 * pen.radius));
  const auto ink_scale = hn::Set(kFloats, pen.ink / 256);
  const auto noise_scale = hn::Set(kFloats, pen.noise / 148);
  const auto byte = hn::Set(unsigned_ints, 255);
  for (int64_t i = 0; i < kGlyphPixels; i += static_cast<int64_t>(Lanes(kFloats))) {
    const auto word = hn::LoadU(unsigned_ints, &words[static_cast<size_t>(i)]);
    const auto sum =
        hn::Add(hn::Add(hn::Add(hn::And(word, byte), hn::And(hn::ShiftRight<8>(word), byte)),
                        hn::And(hn::ShiftRight<16>(word), byte)),
                hn::ShiftRight<24>(word));
    const auto squared = hn::ConvertTo(kFloats, hn::LoadU(kInts, &field.squared[i]));
    const auto inside = hn::Sub(outside, hn::Mul(squared, hn::Set(kFloats, 1 / kDistanceOne)));
    const auto cover =
        hn::Min(hn::ConvertTo(kInts, hn::Mul(cover_scale, inside)), hn::Set(kInts, 256));
    const auto noise = hn::Sub(hn::BitCast(kInts, sum), hn::Set(kInts, 510));
    const auto value =
        hn::ConvertTo(kInts, hn::Add(hn::Mul(ink_scale, hn::ConvertTo(kFloats, cover)),
                                     hn::Mul(noise_scale, hn::ConvertTo(kFloats, noise))));
    hn::StoreU(hn::DemoteTo(bytes, value), bytes, pixels + i);  // clamps to 0 to 255
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {

HWY_EXPORT(RunDrawSegments);

}  // namespace

void DrawSegments(std::span<const GlyphSegment> segments, const GlyphPen& pen,
                  std::span<const uint32_t> words, uint8_t* pixels) {
  LOPT_DISPATCH(RunDrawSegments)(segments, pen, words, pixels);
}

}  // namespace lopt
#endif  // HWY_ONCE

#include "lopt/tasks/data/glyphs.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "lopt/base/parallel.h"
#include "lopt/tasks/data/glyphs_kernel.h"

namespace lopt {
namespace {

constexpr uint64_t kGlyphsSeed = 1;
constexpr int64_t kSide = Glyphs::kSide;
constexpr int64_t kPixels = kSide * kSide;
constexpr int64_t kImagesPerChunk = 100;

struct Point {
  float x, y;  // y points down; a digit fills about [-0.6, 0.6] x [-1, 1]
};

// A stroke goes through its points: straight between two corners, else as a Catmull-Rom curve.
struct Knot {
  Point at;
  bool corner = false;
};
using Stroke = std::span<const Knot>;

constexpr Knot kZero[] = {{{0, -1}},     {{-.45f, -.7f}}, {{-.6f, 0}},    {{-.45f, .7f}}, {{0, 1}},
                          {{.45f, .7f}}, {{.6f, 0}},      {{.45f, -.7f}}, {{0, -1}}};
constexpr Knot kOne[] = {{{-.35f, -.6f}, true}, {{.05f, -1}, true}, {{.05f, 1}, true}};
constexpr Knot kTwo[] = {{{-.55f, -.55f}}, {{-.25f, -.95f}},  {{.3f, -.9f}},      {{.5f, -.45f}},
                         {{.05f, .3f}},    {{-.6f, 1}, true}, {{.6f, .95f}, true}};
constexpr Knot kThree[] = {{{-.5f, -.8f}}, {{.05f, -1}},          {{.45f, -.6f}},
                           {{.3f, -.2f}},  {{-.1f, -.05f}, true}, {{.4f, .15f}},
                           {{.5f, .6f}},   {{.05f, 1}},           {{-.55f, .75f}}};
constexpr Knot kFourBar[] = {{{.1f, -1}, true}, {{-.6f, .3f}, true}, {{.6f, .3f}, true}};
constexpr Knot kFourStem[] = {{{.25f, -.35f}, true}, {{.2f, 1}, true}};
constexpr Knot kFive[] = {{{.5f, -1}, true}, {{-.4f, -1}, true}, {{-.45f, -.1f}, true},
                          {{.15f, -.25f}},   {{.5f, .25f}},      {{.3f, .85f}},
                          {{-.55f, .85f}}};
constexpr Knot kSix[] = {{{.4f, -1}},   {{-.2f, -.55f}}, {{-.5f, .2f}}, {{-.3f, .9f}},
                         {{.2f, .95f}}, {{.5f, .5f}},    {{.2f, .05f}}, {{-.4f, .3f}}};
constexpr Knot kSeven[] = {{{-.55f, -.95f}, true}, {{.55f, -1}, true}, {{-.15f, 1}, true}};
constexpr Knot kEight[] = {{{0, -.05f}},    {{.4f, -.4f}}, {{.3f, -.9f}}, {{-.3f, -.9f}},
                           {{-.4f, -.4f}},  {{0, -.05f}},  {{.5f, .4f}},  {{.35f, .95f}},
                           {{-.35f, .95f}}, {{-.5f, .4f}}, {{0, -.05f}}};
constexpr Knot kNine[] = {{{.45f, -.5f}}, {{.05f, -1}},         {{-.45f, -.65f}}, {{-.3f, -.1f}},
                          {{.2f, -.1f}},  {{.45f, -.5f}, true}, {{.4f, .3f}},     {{.15f, 1}}};

struct Digit {
  Stroke strokes[2];
};
constexpr Digit kDigits[Glyphs::kClasses] = {
    {{kZero, {}}}, {{kOne, {}}}, {{kTwo, {}}},   {{kThree, {}}}, {{kFourBar, kFourStem}},
    {{kFive, {}}}, {{kSix, {}}}, {{kSeven, {}}}, {{kEight, {}}}, {{kNine, {}}}};

// The random words of one image: first one noise word a pixel, then as many as the drawing takes.
constexpr int64_t kDrawingWords = 64;

class Draws {
 public:
  explicit Draws(std::span<const uint32_t> words) : words_(words) {}
  // Uniform on [low, high).
  float Between(float low, float high) {
    return low + (high - low) * (static_cast<float>(words_[next_++] >> 8) * 0x1p-24f);
  }
  int64_t Below(uint64_t n) { return static_cast<int64_t>(words_[next_++] * n >> 32); }

 private:
  std::span<const uint32_t> words_;
  size_t next_ = 0;
};

Point CatmullRom(Point a, Point b, Point c, Point d, float t) {
  const auto blend = [t](float p, float q, float r, float s) {
    return q + 0.5f * t * (r - p + t * (2 * p - 5 * q + 4 * r - s + t * (3 * (q - r) + s - p)));
  };
  return {blend(a.x, b.x, c.x, d.x), blend(a.y, b.y, c.y, d.y)};
}

// The straight pieces of an image's strokes.
class Segments {
 public:
  void Add(Point from, Point to) { segments_[count_++] = {from.x, from.y, to.x, to.y}; }
  std::span<const GlyphSegment> all() const { return std::span(segments_).first(count_); }

 private:
  std::array<GlyphSegment, 64> segments_;
  size_t count_ = 0;
};

void AddStroke(std::span<const Knot> knots, Segments* segments) {
  constexpr int kPieces = 4;
  for (size_t i = 0; i + 1 < knots.size(); ++i) {
    const Knot& from = knots[i];
    const Knot& to = knots[i + 1];
    if (from.corner && to.corner) {
      segments->Add(from.at, to.at);
      continue;
    }
    const Point before = i == 0 || from.corner ? from.at : knots[i - 1].at;
    const Point after = i + 2 == knots.size() || to.corner ? to.at : knots[i + 2].at;
    Point last = from.at;
    for (int piece = 1; piece <= kPieces; ++piece) {
      const Point next = CatmullRom(before, from.at, to.at, after,
                                    static_cast<float>(piece) / static_cast<float>(kPieces));
      segments->Add(last, next);
      last = next;
    }
  }
}

// Draws one image from its random words and returns its label.
uint8_t DrawGlyph(std::span<const uint32_t> words, uint8_t* pixels) {
  constexpr float kJitter = 0.12f;  // of each knot, in glyph units
  Draws draws(words.subspan(kPixels));
  const auto label = static_cast<uint8_t>(draws.Below(Glyphs::kClasses));

  // Pixels from glyph units: scale, slant, a small rotation, then a shift.
  const float height = draws.Between(7.5f, 10.5f);
  const float width = height * draws.Between(0.8f, 1.2f);
  const float slant = draws.Between(-0.38f, 0.38f);
  const float turn = draws.Between(-0.23f, 0.23f);
  const float centre_x = 13.5f + draws.Between(-1.8f, 1.8f);
  const float centre_y = 13.5f + draws.Between(-1.8f, 1.8f);
  const float radius = draws.Between(0.9f, 1.9f);
  const float ink = draws.Between(150, 255);
  const float noise = draws.Between(5, 35);

  Segments segments;
  for (const Stroke& stroke : kDigits[label].strokes) {
    std::array<Knot, 16> knots;
    for (size_t k = 0; k < stroke.size(); ++k) {
      const float x = width * (stroke[k].at.x + draws.Between(-kJitter, kJitter));
      const float y = height * (stroke[k].at.y + draws.Between(-kJitter, kJitter));
      const float slanted = x - slant * y;
      knots[k] = {{centre_x + slanted - turn * y, centre_y + y + turn * slanted}, stroke[k].corner};
    }
    AddStroke({knots.data(), stroke.size()}, &segments);
  }

  DrawSegments(segments.all(), {.radius = radius, .ink = ink, .noise = noise}, words.first(kPixels),
               pixels);
  return label;
}

}  // namespace

Glyphs DrawGlyphs(Key key, int64_t count) {
  Glyphs glyphs;
  glyphs.pixels.resize(static_cast<size_t>(count * kPixels));
  glyphs.labels.resize(static_cast<size_t>(count));
  ParallelFor((count + kImagesPerChunk - 1) / kImagesPerChunk, [&](int64_t chunk) {
    std::array<uint32_t, kPixels + kDrawingWords> words;
    const int64_t last = std::min(count, (chunk + 1) * kImagesPerChunk);
    for (int64_t i = chunk * kImagesPerChunk; i < last; ++i) {
      Bits(FoldIn(key, static_cast<uint64_t>(i)), words);
      glyphs.labels[i] = DrawGlyph(words, &glyphs.pixels[i * kPixels]);
    }
  });
  return glyphs;
}

RawImages GenerateImages() {
  Glyphs glyphs = DrawGlyphs(KeyFromSeed(kGlyphsSeed), Glyphs::kCount);
  RawImages all{.count = Glyphs::kCount,
                .height = kSide,
                .width = kSide,
                .pixels = std::move(glyphs.pixels),
                .labels = std::move(glyphs.labels),
                .splits = {}};
  std::ranges::copy(Glyphs::kSplits, all.splits);
  return all;
}

}  // namespace lopt

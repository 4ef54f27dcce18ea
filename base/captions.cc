#include "lopt/base/captions.h"

#include <algorithm>
#include <string_view>

#include "lopt/base/error.h"

namespace lopt {
namespace {

// Characters of 3 x 5 dots, drawn twice as large, with a space behind and above.
constexpr int64_t kDot = 2;
constexpr int64_t kCharacterWidth = 4 * kDot;
constexpr int64_t kLineHeight = 7 * kDot;
constexpr std::string_view kCharacters = "0123456789> ";
constexpr const char* kDots[] = {
    "###|# #|# #|# #|###", " # |## | # | # |###", "###|  #|###|#  |###", "###|  #|###|  #|###",
    "# #|# #|###|  #|  #", "###|#  |###|  #|###", "###|#  |###|# #|###", "###|  #| # | # | # ",
    "###|# #|###|# #|###", "###|# #|###|  #|###", "#  | # |  #| # |#  ", "   |   |   |   |   "};

// draw(y, x) for the pixels of a text from its upper left corner.
template <class Draw>
void DrawText(std::string_view text, const Draw& draw) {
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t character = kCharacters.find(text[i]);
    Require(character != std::string_view::npos, "captions cannot have the character '{}'",
            text[i]);
    for (int64_t y = 0; y < 5 * kDot; ++y) {
      for (int64_t x = 0; x < 3 * kDot; ++x) {
        if (kDots[character][y / kDot * 4 + x / kDot] != '#') continue;
        draw(y, static_cast<int64_t>(i) * kCharacterWidth + x);
      }
    }
  }
}

}  // namespace

Pictures WithCaptions(const Pictures& p, std::span<const Caption> captions) {
  RequireDrawable(p);
  Require(std::ssize(captions) == p.count, "pictures '{}': {} captions for {}", p.name,
          captions.size(), p.count);
  const int64_t scale = EnlargementOf(p);
  Pictures out{.name = p.name,
               .count = p.count,
               .height = scale * p.height + kLineHeight,
               .width = scale * p.width,
               .channels = 3};
  for (const Caption& caption : captions) {
    out.width = std::max(out.width, std::ssize(caption.text) * kCharacterWidth);
  }
  out.pixels.resize(static_cast<size_t>(out.count * out.height * out.width * 3));
  for (int64_t i = 0; i < p.count; ++i) {
    const auto pixel = [&](int64_t y, int64_t x) {
      return out.pixels.begin() + ((i * out.height + y) * out.width + x) * 3;
    };
    for (int64_t y = 0; y < scale * p.height; ++y) {
      for (int64_t x = 0; x < scale * p.width; ++x) {
        const int64_t from = (i * p.height + y / scale) * p.width + x / scale;
        for (int64_t c = 0; c < 3; ++c) {
          pixel(y, x)[c] = p.pixels[from * p.channels + std::min(c, p.channels - 1)];
        }
      }
    }
    DrawText(captions[i].text, [&](int64_t y, int64_t x) {
      std::ranges::copy(captions[i].colour, pixel(scale * p.height + 2 * kDot + y, x));
    });
  }
  return out;
}

}  // namespace lopt

#include <doctest/doctest.h>
#include <png.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "lopt/base/captions.h"
#include "lopt/base/error.h"
#include "lopt/base/pictures.h"
#include "lopt/base/png.h"
#include "tests/error_of.h"

namespace lopt {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// What libpng reads back.
Bitmap DecodePng(const std::string& bytes) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  REQUIRE(png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) != 0);
  Bitmap bitmap{.height = image.height,
                .width = image.width,
                .channels = PNG_IMAGE_PIXEL_CHANNELS(image.format),
                .pixels = std::vector<uint8_t>(PNG_IMAGE_SIZE(image))};
  REQUIRE(png_image_finish_read(&image, nullptr, bitmap.pixels.data(), 0, nullptr) != 0);
  return bitmap;
}

TEST_CASE("A grid lays pictures out as make_grid does: eight in a row, two black pixels around") {
  Pictures ones{.name = "ones", .count = 10, .height = 3, .width = 4, .channels = 1, .pixels = {}};
  ones.pixels.assign(10 * 3 * 4, 1.0f);
  const Bitmap grid = MakeGrid(ones);
  // 2 + 8 (4 + 2) and 2 + 2 (3 + 2): torchvision.utils.make_grid(torch.ones(10, 1, 3, 4)).
  CHECK(grid.width == 50);
  CHECK(grid.height == 12);
  CHECK(std::ranges::count(grid.pixels, 255) == 10 * 3 * 4);
  const auto at = [&](int64_t y, int64_t x) { return grid.pixels[y * grid.width + x]; };
  CHECK(at(1, 2) == 0);
  CHECK(at(2, 1) == 0);
  CHECK(at(2, 2) == 255);
  CHECK(at(4, 5) == 255);
  CHECK(at(5, 5) == 0);
  CHECK(at(7, 11) == 255);  // the last of ten
  CHECK(at(7, 12) == 0);
  CHECK(MakeGrid(ones, 20).width == 62);
}

TEST_CASE("Captions stand below enlarged pictures, in their colour") {
  const Pictures two{
      .name = "two", .count = 2, .height = 24, .width = 12, .pixels = std::vector(576, 0.5F)};
  const std::vector<Caption> captions = {{"1", {0, 1, 0}}, {"10>7", {1, 0, 0}}};
  const Pictures drawn = WithCaptions(two, captions);
  CHECK(drawn.height == 2 * 24 + 14);
  CHECK(drawn.width == 4 * 8);  // the text is wider than 2 * 12
  CHECK(drawn.channels == 3);
  std::string text;
  for (int64_t y = 52; y < 62; y += 2) {
    for (int64_t x = 0; x < 8; x += 2) {
      const float* const pixel = &drawn.pixels[(y * drawn.width + x) * 3];
      text += pixel[1] == 1 ? '#' : '.';
      CHECK(pixel[0] == 0);
    }
    text += '\n';
  }
  CHECK(text == ".#..\n##..\n.#..\n.#..\n###.\n");
  CHECK(drawn.pixels[0] == 0.5F);
  CHECK(drawn.pixels[24 * 3] == 0);
  // 8 + 12 + 5 + 7 dots of 2 x 2 in red: 1, 0, > and 7.
  const int64_t whole = drawn.height * drawn.width * 3;
  int64_t red = 0;
  for (int64_t i = whole; i < 2 * whole; i += 3) red += drawn.pixels[i] == 1 ? 1 : 0;
  CHECK(red == 4 * (8 + 12 + 5 + 7));
  CHECK(ErrorOf([&] { WithCaptions(two, std::vector<Caption>(1)); }) ==
        "pictures 'two': 1 captions for 2");
  const std::vector<Caption> unknown = {{"1", {}}, {"a", {}}};
  CHECK(ErrorOf([&] { WithCaptions(two, unknown); }) == "captions cannot have the character 'a'");
}

TEST_CASE("Values become grey levels, and pixels squares of the scale") {
  const Pictures one{.name = "one",
                     .count = 1,
                     .height = 1,
                     .width = 5,
                     .channels = 1,
                     .pixels = {-1.0f, 0.1f, 0.5f, 2.0f, kNan}};
  CHECK(MakeGrid(one, 8, 0).pixels == std::vector<uint8_t>{0, 26, 128, 255, 0});
  const Bitmap large = MakeGrid(one, 8, 0, 2);
  CHECK(large.height == 2);
  CHECK(large.pixels == std::vector<uint8_t>{0, 0, 26, 26, 128, 128, 255, 255, 0, 0,
                                             0, 0, 26, 26, 128, 128, 255, 255, 0, 0});
}

TEST_CASE("A contact sheet puts grids one above the other, grey ones in colour beside colour") {
  const Pictures grey{.name = "grey", .count = 1, .height = 48, .width = 48, .pixels = {}};
  Pictures dark = grey;
  dark.pixels.assign(48 * 48, 0.2f);
  const Pictures red{
      .name = "red", .count = 2, .height = 48, .width = 1, .channels = 3, .pixels = [] {
        std::vector<float> pixels;
        for (int i = 0; i < 96; ++i) pixels.insert(pixels.end(), {1, 0, 0});
        return pixels;
      }()};
  const Bitmap sheet = ContactSheet({dark, red});
  CHECK(sheet.width == 52);
  CHECK(sheet.height == 104);
  CHECK(sheet.channels == 3);
  const auto at = [&](int64_t y, int64_t x) {
    const uint8_t* pixel = &sheet.pixels[(y * sheet.width + x) * 3];
    return std::vector<int>(pixel, pixel + 3);
  };
  CHECK(at(2, 2) == std::vector<int>{51, 51, 51});
  CHECK(at(54, 2) == std::vector<int>{255, 0, 0});
  CHECK(at(54, 3) == std::vector<int>{0, 0, 0});
  CHECK(at(54, 5) == std::vector<int>{255, 0, 0});
  CHECK(ContactSheet({{.name = "small",
                       .count = 1,
                       .height = 10,
                       .width = 5,
                       .pixels = std::vector<float>(50)}})
            .height == 4 * (10 + 4));
}

TEST_CASE("Another reader of PNG finds the same pixels") {
  for (const int64_t channels : {1, 3}) {
    Bitmap bitmap{.height = 7, .width = 5, .channels = channels, .pixels = {}};
    for (int64_t i = 0; i < 35 * channels; ++i)
      bitmap.pixels.push_back(static_cast<uint8_t>(i * 7));
    const Bitmap read = DecodePng(EncodePng(bitmap));
    CHECK(read.height == 7);
    CHECK(read.width == 5);
    CHECK(read.channels == channels);
    CHECK(read.pixels == bitmap.pixels);
  }
}

TEST_CASE("What cannot be drawn is an error that says why") {
  CHECK(ErrorOf([] { MakeGrid({.name = "none"}); }) ==
        "pictures 'none': 0 of 0 x 0 with 1 channels cannot be drawn; wanted one at least, of 1 or "
        "3 channels");
  CHECK(ErrorOf([] {
          MakeGrid({.name = "few", .count = 2, .height = 1, .width = 2, .pixels = {1}});
        }) == "pictures 'few': 1 numbers for 2 pictures of 1 x 2 x 1");
  CHECK(ErrorOf([] { ContactSheet({}); }) == "there are no pictures to draw");
  CHECK(ErrorOf([] {
          EncodePng({.height = 1, .width = 1, .channels = 2, .pixels = {1, 2}});
        }) == "a PNG file has 1 or 3 channels here, got 2");
  CHECK(ErrorOf([] { EncodePng({}); }).starts_with("a picture of 0 x 0 cannot be written as PNG"));
}

}  // namespace
}  // namespace lopt

#include "lopt/base/png.h"

#include <png.h>

#include "lopt/base/error.h"

namespace lopt {

std::string EncodePng(const Bitmap& bitmap) {
  Require(bitmap.channels == 1 || bitmap.channels == 3,
          "a PNG file has 1 or 3 channels here, got {}", bitmap.channels);
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(bitmap.width);
  image.height = static_cast<png_uint_32>(bitmap.height);
  image.format = bitmap.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  const auto write = [&](void* memory, png_alloc_size_t* size) {
    const int done =
        png_image_write_to_memory(&image, memory, size, 0, bitmap.pixels.data(), 0, nullptr);
    Require(done != 0, "a picture of {} x {} cannot be written as PNG: {}", bitmap.height,
            bitmap.width, image.message);
  };
  png_alloc_size_t size = 0;
  write(nullptr, &size);
  std::string bytes(size, '\0');
  write(bytes.data(), &size);
  bytes.resize(size);
  return bytes;
}

}  // namespace lopt

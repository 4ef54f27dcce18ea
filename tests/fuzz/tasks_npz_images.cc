// Images as .npz, in an archive that is whole: the members "labels" and "images" as .npy.
#include "lopt/base/npy.h"
#include "lopt/base/npz.h"
#include "lopt/tasks/data/npz_images.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

void ReadNpzPair(std::string_view input) {
  const std::vector<std::string> parts = SplitParts(input, 2);
  NamedArrays arrays;
  arrays.Set("labels", ParseNpy(AsBytes(parts[0]), "labels"));
  arrays.Set("images", ParseNpy(AsBytes(parts[1]), "images"));
  const std::string directory = FreshDirectory();
  PutFile(directory, "images.npz", AsText(SerializeNpz(arrays)));
  ReadNpzImages(directory);
}

std::vector<std::string> NpzImagesSeeds() {
  const std::string labels = AsText(SerializeNpy(
      Array::Of<int64_t>({10, 1}, std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})));
  const auto images = [](Shape shape) {
    std::vector<uint8_t> pixels(static_cast<size_t>(NumElements(shape)));
    pixels[1] = 255;
    return AsText(SerializeNpy(Array::Of<uint8_t>(std::move(shape), pixels)));
  };
  return {JoinParts({labels, images({10, 2, 3})}), JoinParts({labels, images({10, 2, 2, 3})})};
}

const AddFuzzTarget npz_images_target({"tasks_npz_images", ReadNpzPair, NpzImagesSeeds});

}  // namespace
}  // namespace lopt

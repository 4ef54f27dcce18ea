#include <doctest/doctest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/error.h"
#include "lopt/base/safetensors.h"
#include "lopt/tasks/data/gzip_file.h"
#include "lopt/tasks/data/idx.h"
#include "lopt/tasks/data/image_data.h"
#include "lopt/tasks/image/image_task.h"
#include "tests/farthest.h"
#include "tests/golden_dir.h"
#include "tests/logged_lines.h"
#include "tests/mnist_dir.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

// A directory of its own for each test case, removed at its end.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::string& name)
      : path_(fs::temp_directory_path() /
              ("lopt_image_data_" + name + "_" + std::to_string(getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~TemporaryDirectory() { fs::remove_all(path_); }
  std::string File(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

Bytes Idx(uint32_t magic, const std::vector<uint32_t>& sizes, const Bytes& values) {
  Bytes bytes;
  const auto add = [&bytes](uint32_t word) {
    for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<uint8_t>(word >> shift));
  };
  add(magic);
  for (const uint32_t size : sizes) add(size);
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

void Write(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

void WriteGzipped(const std::string& path, const Bytes& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
}

// `count` images of 2 x 3 pixels whose first pixel and label are the number of the image.
Bytes SomeImages(uint32_t count, uint8_t first = 0) {
  Bytes pixels(count * 6);
  for (uint32_t i = 0; i < count; ++i) pixels[6 * i] = static_cast<uint8_t>(first + i);
  return Idx(0x803, {count, 2, 3}, pixels);
}
Bytes SomeLabels(uint32_t count) {
  Bytes labels(count);
  for (uint32_t i = 0; i < count; ++i) labels[i] = static_cast<uint8_t>(i % 7);
  return Idx(0x801, {count}, labels);
}

using Range = std::pair<int64_t, int64_t>;

TEST_CASE("Both pairs of files give the rows of the train file and then those of the t10k file") {
  const TemporaryDirectory directory("both");
  Write(directory.File("train-images-idx3-ubyte"), SomeImages(100));
  WriteGzipped(directory.File("train-labels-idx1-ubyte.gz"), SomeLabels(100));
  WriteGzipped(directory.File("t10k-images-idx3-ubyte.gz"), SomeImages(20, 200));
  Write(directory.File("t10k-labels-idx1-ubyte"), SomeLabels(20));
  const RawImages images = ReadImageDirectory(directory.path());
  CHECK(images.count == 120);
  CHECK(images.height == 2);
  CHECK(images.width == 3);
  CHECK(images.pixels.size() == 720);
  CHECK(images.pixels[6 * 99] == 99);
  CHECK(images.pixels[6 * 119] == 219);
  CHECK(images.labels[8] == 1);
  CHECK(images.splits[0] == Range(0, 80));
  CHECK(images.splits[1] == Range(80, 90));
  CHECK(images.splits[2] == Range(90, 100));
  CHECK(images.splits[3] == Range(100, 120));
  const ImageData data(images, 2);
  CHECK(data.range(Split::kInnerValid) == Range(80, 90));
  CHECK(data.classes() == 7);
}

TEST_CASE("A directory with one pair of files is split 70/10/10/10") {
  for (const std::string prefix : {"train", "t10k"}) {
    const TemporaryDirectory directory("one");
    Write(directory.File(prefix + "-images-idx3-ubyte"), SomeImages(50));
    Write(directory.File(prefix + "-labels-idx1-ubyte"), SomeLabels(50));
    const RawImages images = ReadImageDirectory(directory.path());
    CHECK(images.splits[0] == Range(0, 35));
    CHECK(images.splits[1] == Range(35, 40));
    CHECK(images.splits[2] == Range(40, 45));
    CHECK(images.splits[3] == Range(45, 50));
  }
}

TEST_CASE("A directory without images is an error that lists what was looked for") {
  const TemporaryDirectory directory("empty");
  CHECK_THROWS_WITH_AS(
      ReadImageDirectory(directory.path()),
      ("There are no images in " + directory.path() +
       ": looked for train-images-idx3-ubyte[.gz] with train-labels-idx1-ubyte[.gz] and for "
       "t10k-images-idx3-ubyte[.gz] with t10k-labels-idx1-ubyte[.gz]")
          .c_str(),
      Error);
}

TEST_CASE("Images without labels and labels without images are errors") {
  const TemporaryDirectory directory("half");
  const std::string images = directory.File("t10k-images-idx3-ubyte");
  const std::string labels = directory.File("t10k-labels-idx1-ubyte");
  Write(images, SomeImages(20));
  CHECK_THROWS_WITH_AS(ReadImageDirectory(directory.path()),
                       (images +
                        ": there are images, but no labels: looked for "
                        "t10k-labels-idx1-ubyte[.gz] in " +
                        directory.path())
                           .c_str(),
                       Error);
  fs::remove(images);
  Write(labels, SomeLabels(20));
  CHECK_THROWS_WITH_AS(ReadImageDirectory(directory.path()),
                       (labels +
                        ": there are labels, but no images: looked for "
                        "t10k-images-idx3-ubyte[.gz] in " +
                        directory.path())
                           .c_str(),
                       Error);
}

TEST_CASE("Counts of labels and images that differ are an error") {
  const TemporaryDirectory directory("counts");
  const std::string images = directory.File("train-images-idx3-ubyte");
  const std::string labels = directory.File("train-labels-idx1-ubyte");
  Write(images, SomeImages(20));
  Write(labels, SomeLabels(19));
  CHECK_THROWS_WITH_AS(ReadImageDirectory(directory.path()),
                       (labels + ": 19 labels for the 20 images of " + images).c_str(), Error);
}

TEST_CASE("Train and t10k images of different sizes are an error") {
  const TemporaryDirectory directory("sizes");
  Write(directory.File("train-images-idx3-ubyte"), SomeImages(10));
  Write(directory.File("train-labels-idx1-ubyte"), SomeLabels(10));
  Write(directory.File("t10k-images-idx3-ubyte"), Idx(0x803, {10, 1, 1}, Bytes(10)));
  Write(directory.File("t10k-labels-idx1-ubyte"), SomeLabels(10));
  CHECK_THROWS_WITH_AS(
      ReadImageDirectory(directory.path()),
      (directory.path() + ": the test images are 1 x 1 x 1, but the training images are 2 x 3 x 1")
          .c_str(),
      Error);
}

TEST_CASE("Too few images to split are an error") {
  const TemporaryDirectory directory("few");
  const std::string images = directory.File("train-images-idx3-ubyte");
  Write(images, SomeImages(9));
  Write(directory.File("train-labels-idx1-ubyte"), SomeLabels(9));
  CHECK_THROWS_WITH_AS(
      ReadImageDirectory(directory.path()),
      (directory.path() + ": 9 images are too few to be split, wanted at least 10").c_str(), Error);
  Write(images, SomeImages(0));
  Write(directory.File("train-labels-idx1-ubyte"), SomeLabels(0));
  CHECK_THROWS_WITH_AS(
      ReadImageDirectory(directory.path()),
      (images + ": holds images of shape [0, 2, 3], wanted at least 1 of at least 1 x 1").c_str(),
      Error);
}

TEST_CASE("A file that is not there is an error with the system's reason") {
  CHECK_THROWS_WITH_AS(ReadIdx("/nowhere/images", 3),
                       "/nowhere/images: cannot be read: No such file or directory", Error);
}

TEST_CASE("A truncated gzip file is an error, wherever it is cut") {
  const TemporaryDirectory directory("truncated");
  const std::string whole = directory.File("whole.gz");
  const std::string cut = directory.File("cut.gz");
  WriteGzipped(whole, SomeImages(30));
  const auto size = fs::file_size(whole);
  for (const uintmax_t kept : {size - 1, size - 8, size / 2, uintmax_t{20}}) {
    fs::copy_file(whole, cut, fs::copy_options::overwrite_existing);
    fs::resize_file(cut, kept);
    CHECK_THROWS_WITH_AS(ReadIdx(cut, 3),
                         (cut + ": the gzip data ends too early: the file is truncated").c_str(),
                         Error);
  }
}

TEST_CASE("A damaged gzip file is an error") {
  const TemporaryDirectory directory("damaged");
  const std::string path = directory.File("images.gz");
  WriteGzipped(path, SomeImages(30));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(path)) - 8);
  file.put('!');
  file.close();
  CHECK_THROWS_WITH_AS(
      ReadIdx(path, 3),
      (path + ": the gzip data is damaged: " + path + ": incorrect data check").c_str(), Error);
}

TEST_CASE("A file that is too large, or unpacks to too much, is an error") {
  const TemporaryDirectory directory("large");
  const std::string large = directory.File("zeros");
  Write(large, Bytes(3 << 20));
  const std::string path = directory.File("zeros.gz");
  WriteGzipped(path, Bytes(3 << 20));
  CHECK_EQ(ReadGzipFile(path, 3 << 20).size(), 3 << 20);
  for (const std::string& read : {path, large}) {
    CHECK_THROWS_WITH_AS(
        ReadGzipFile(read, (3 << 20) - 1),
        (read + ": more than 3145727 bytes, the most that a file of data may have").c_str(), Error);
  }
}

TEST_CASE("A wrong magic number is an error") {
  const TemporaryDirectory directory("magic");
  const std::string path = directory.File("images");
  Write(path, SomeLabels(30));
  CHECK_THROWS_WITH_AS(ReadIdx(path, 3),
                       (path + ": starts with magic number 0x00000801, wanted 0x00000803 (IDX, "
                               "unsigned bytes, 3 dimensions)")
                           .c_str(),
                       Error);
}

TEST_CASE("A length that is not what the header says is an error") {
  const TemporaryDirectory directory("length");
  const std::string path = directory.File("images");
  const auto check = [&path](const std::vector<uint32_t>& sizes, size_t data,
                             const std::string& message) {
    Write(path, Idx(0x803, sizes, Bytes(data)));
    CHECK_THROWS_WITH_AS(ReadIdx(path, 3), (path + ": the header says " + message).c_str(), Error);
  };
  check({30, 2, 3}, 179, "[30, 2, 3] bytes of data, but 179 follow it");
  // What comes after is not read.
  check({30, 2, 3}, 181, "[30, 2, 3] bytes of data, but at least 181 follow it");
  check({30, 2, 3}, 100000, "[30, 2, 3] bytes of data, but at least 181 follow it");
  const std::string most = " bytes of data; the most that a file of data may have are 4294967296";
  check({0xffffffff, 0xffffffff, 0xffffffff}, 100, "[4294967295, 4294967295, 4294967295]" + most);
  check({0x80000000, 0x80000000, 4}, 0, "[2147483648, 2147483648, 4]" + most);
  Write(path, Bytes(15));
  CHECK_THROWS_WITH_AS(
      ReadIdx(path, 3),
      (path + ": 15 bytes are too few for the header of an IDX file with 3 dimensions").c_str(),
      Error);
}

RawImages OneImage(int64_t height, int64_t width, Bytes pixels) {
  return {.count = 1,
          .height = height,
          .width = width,
          .pixels = std::move(pixels),
          .labels = {0},
          .splits = {}};
}

TEST_CASE("Resizing is bilinear with half-pixel centres and clamped edges") {
  SUBCASE("The same size changes nothing") {
    const ImageData data(OneImage(2, 2, {0, 51, 102, 255}), 2);
    CHECK(data.images()[0] == 0);
    CHECK(data.images()[1] == 51 / 255.0f);
    CHECK(data.images()[2] == 102 / 255.0f);
    CHECK(data.images()[3] == 1);
  }
  SUBCASE("Half the size takes the mean of four") {
    const ImageData data(OneImage(4, 4, {0, 4, 0, 0, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100}), 2);
    CHECK(data.images()[0] == 6 / 255.0f);
    CHECK(data.images()[3] == 25 / 255.0f);
  }
  SUBCASE("Twice the size keeps the corners") {
    const ImageData data(OneImage(1, 2, {0, 100}), 4);
    CHECK(data.images()[0] == 0);
    CHECK(data.images()[1] == 25 / 255.0f);
    CHECK(data.images()[2] == 75 / 255.0f);
    CHECK(data.images()[3] == 100 / 255.0f);
  }
  SUBCASE("A row is padded with zeros up to its stride") {
    const ImageData data(OneImage(1, 1, {255}), 5);
    CHECK(data.features() == 25);
    CHECK(data.stride() == 32);
    CHECK(reinterpret_cast<uintptr_t>(data.images()) % 64 == 0);
    for (int i = 0; i < 32; ++i) CHECK(data.images()[i] == (i < 25 ? 1.0f : 0.0f));
  }
}

// An image of 1 x 3 pixels in colour.
RawImages OneColourImage() {
  return {.count = 1,
          .height = 1,
          .width = 3,
          .channels = 3,
          .pixels = {255, 0, 0, 10, 200, 30, 1, 2, 4},
          .labels = {0},
          .splits = {}};
}

TEST_CASE("Every channel is resized like an image of its own") {
  RawImages raw{.count = 2,
                .height = 4,
                .width = 5,
                .channels = 3,
                .pixels = Bytes(2 * 4 * 5 * 3),
                .labels = {0, 1},
                .splits = {}};
  for (size_t i = 0; i < raw.pixels.size(); ++i) raw.pixels[i] = static_cast<uint8_t>(37 * i * i);
  for (const int64_t size : {0, 3, 7}) {
    const ImageData data(raw, size);
    CHECK(data.height() == (size == 0 ? 4 : size));
    CHECK(data.width() == (size == 0 ? 5 : size));
    CHECK(data.channels() == 3);
    CHECK(data.features() == data.height() * data.width() * 3);
    for (size_t c = 0; c < 3; ++c) {
      RawImages plane = raw;
      plane.channels = 1;
      plane.pixels.clear();
      for (size_t i = c; i < raw.pixels.size(); i += 3) plane.pixels.push_back(raw.pixels[i]);
      const ImageData alone(plane, size);
      for (int64_t image = 0; image < 2; ++image) {
        for (int64_t i = 0; i < alone.features(); ++i) {
          CHECK(data.images()[image * data.stride() + 3 * i + static_cast<int64_t>(c)] ==
                alone.images()[image * alone.stride() + i]);
        }
      }
    }
  }
}

TEST_CASE("Colour becomes grey by its luma, grey becomes colour by repetition") {
  RawImages images = OneColourImage();
  SetChannels(0, &images);
  CHECK(images.pixels == OneColourImage().pixels);
  SetChannels(1, &images);
  CHECK(images.channels == 1);
  // As Pillow 9.4 converts these pixels from RGB to L.
  CHECK(images.pixels == Bytes{76, 124, 2});
  SetChannels(3, &images);
  CHECK(images.channels == 3);
  CHECK(images.pixels == Bytes{76, 76, 76, 124, 124, 124, 2, 2, 2});
}

TEST_CASE("Other channels than grey and colour are an error") {
  RawImages images = OneColourImage();
  CHECK_THROWS_WITH_AS(SetChannels(2, &images),
                       "Images of 3 channels cannot be turned into images of 2: wanted 0 (as "
                       "stored), 1 (grey) or 3 (colour)",
                       Error);
  images.channels = 9;
  CHECK_THROWS_WITH_AS(
      SetChannels(3, &images),
      "Images of 9 channels cannot be turned into images of 3: wanted 0 (as stored), 9", Error);
}

TEST_CASE("A task's images have the channels that its options say") {
  const TaskResources resources("");
  CHECK(GetImages({}, resources)->channels() == 1);
  const auto colour = GetImages({.image_size = 0, .channels = 3}, resources);
  CHECK(colour->height() == 28);
  CHECK(colour->features() == 28 * 28 * 3);
  CHECK_THROWS_WITH_AS(ImageClassifierParts({.image_size = 0, .channels = 1}, *colour),
                       "image task: images of 3 channels, wanted 1", Error);
  CHECK_NOTHROW(ImageClassifierParts({.image_size = 0}, *colour));
}

TEST_CASE("Digits resized to 8 x 8 are those of the golden trace") {
  if (SkipsWithoutMnist()) return;
  const ImageData data(ReadImageDirectory(MnistDir()), 8);
  const NamedArrays golden =
      ReadArrayFile(GoldenPath("image_mlp_inner_training.safetensors")).arrays;
  const std::span<const int32_t> index = golden.At("index").As<int32_t>();
  const std::span<const float> images = golden.At("image0").As<float>();
  const std::span<const int32_t> labels = golden.At("label0").As<int32_t>();
  const int64_t test_rows = data.range(Split::kTrain).second > 10000 ? data.count() - 10000 : 0;
  float worst = 0;
  for (size_t b = 0; b < labels.size(); ++b) {
    const int64_t row = test_rows + index[b];
    CHECK(data.labels()[row] == labels[b]);
    for (int64_t i = 0; i < 64; ++i) {
      worst = Farther(worst, std::abs(data.images()[row * data.stride() + i] - images[64 * b + i]));
    }
  }
  CHECK(worst < 1e-7f);
}

TEST_CASE("Images are made once a run, and it is known whether the directory was used") {
  const TemporaryDirectory directory("store");
  Write(directory.File("train-images-idx3-ubyte"), SomeImages(50));
  Write(directory.File("train-labels-idx1-ubyte"), SomeLabels(50));
  const TaskResources drawn("");
  const auto glyphs = GetImages({.data = ImageSource::kGlyphs}, drawn);
  CHECK(glyphs->count() == 19000);
  CHECK(GetImages({.data = ImageSource::kDefault}, drawn) == glyphs);
  CHECK(GetImages({.image_size = 5}, drawn) != glyphs);
  CHECK_FALSE(drawn.data_dir_used());
  const TaskResources both(directory.path());
  CHECK(GetImages({.data = ImageSource::kGlyphs}, both)->count() == 19000);
  CHECK_FALSE(both.data_dir_used());
  const auto files = GetImages({.data = ImageSource::kDefault}, both);
  CHECK(files->count() == 50);
  CHECK(GetImages({.data = ImageSource::kIdx}, both) == files);
  CHECK(both.data_dir_used());
  CHECK_THROWS_WITH_AS(GetImages({.data = ImageSource::kIdx}, drawn),
                       "image task: data 'idx' is read from a directory (data_dir, --data-dir)",
                       Error);
  CHECK_THROWS_WITH_AS(
      GetImages({.data = static_cast<ImageSource>(20)}, drawn),
      "image task: data must be one of default, glyphs, coloured_glyphs, mnist1d, idx, "
      "cifar10, cifar100, csv, npz, got number 20",
      Error);
  CHECK_THROWS_WITH_AS(GetImages({.image_size = -1}, drawn),
                       "image task: image_size must be in [0, 256], got -1", Error);
}

TEST_CASE("Data sets may be asked for by several threads at once") {
  const TaskResources resources("");
  std::vector<std::shared_ptr<const ImageData>> got(4);
  std::vector<std::thread> threads;
  for (auto& data : got) {
    threads.emplace_back([&] { data = GetImages({.image_size = 4}, resources); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& data : got) CHECK(data == got[0]);
}

// Ten images of 1 x 2 with these labels.
RawImages TenImages(Bytes labels, Bytes pixels = Bytes(20, 0)) {
  if (pixels == Bytes(20, 0)) pixels[3] = 200;
  return {.count = 10,
          .height = 1,
          .width = 2,
          .pixels = std::move(pixels),
          .labels = std::move(labels),
          .splits = {}};
}

TEST_CASE("Images of one class, and images without a pixel that differs, are errors") {
  CHECK_THROWS_WITH_AS(JoinSets("here", TenImages(Bytes(10, 3)), std::nullopt),
                       "here: all 10 images have the label 3; wanted are images of at least 2 "
                       "classes",
                       Error);
  CHECK_THROWS_WITH_AS(
      JoinSets("here", TenImages({0, 1, 0, 1, 0, 1, 0, 1, 0, 1}, Bytes(20, 7)), std::nullopt),
      "here: all pixels of all images are 7", Error);
}

TEST_CASE("Labels that begin at 1, and pixels that were scaled, are warned of") {
  const LoggedLines log;
  JoinSets("good", TenImages({0, 1, 2, 0, 1, 2, 0, 1, 2, 0}), std::nullopt);
  CHECK(log.text().find("warning") == std::string::npos);
  JoinSets("from one", TenImages({1, 2, 3, 1, 2, 3, 1, 2, 3, 1}), std::nullopt);
  CHECK(log.text().find("from one: labels are wanted from 0 on without a gap, but no image has the "
                        "label 0: the task has 4 classes, of which 3 occur") != std::string::npos);
  Bytes scaled(20, 0);
  scaled[5] = 1;
  JoinSets("scaled", TenImages({0, 1, 2, 0, 1, 2, 0, 1, 2, 0}, scaled), std::nullopt);
  CHECK(log.text().find("scaled: the greatest pixel is 1, where 255 is white") !=
        std::string::npos);
}

// `count` different images of 2 x 2; image i has the label that the function gives.
RawImages ManyImages(int64_t count, const std::function<int64_t(int64_t)>& label) {
  RawImages images{.count = count, .height = 2, .width = 2};
  for (int64_t i = 0; i < count; ++i) {
    for (const int64_t pixel : {int64_t{255}, i % 256, i / 256, int64_t{0}}) {
      images.pixels.push_back(static_cast<uint8_t>(pixel));
    }
    images.labels.push_back(static_cast<uint8_t>(label(i)));
  }
  return images;
}

TEST_CASE("Files that cannot be meant as they are are warned of") {
  const auto warned = [](const RawImages& train, std::optional<RawImages> test = {}) {
    const LoggedLines log;
    JoinSets("here", train, std::move(test));
    std::string warnings;
    std::istringstream lines(log.text());
    for (std::string line; std::getline(lines, line);) {
      const size_t at = line.find("[warning] here: ");
      if (at != std::string::npos) warnings += line.substr(at + 16) + "\n";
    }
    return warnings;
  };
  const auto of_ten = [](int64_t i) { return i % 10; };
  const RawImages good = ManyImages(1000, of_ten);
  CHECK(warned(good) == "");
  // The label's column is another.
  CHECK(warned(ManyImages(1000, [](int64_t i) { return i < 950 ? 0 : i % 10; })) ==
        "955 of the 1000 images have the label 0: are these the labels?\n");
  CHECK(warned(ManyImages(1000, [](int64_t i) { return i % 200; })) ==
        "1000 images have 200 different labels: are these the labels?\n");
  // Values from 0 to 16, as scikit-learn's digits.
  RawImages dim = good;
  for (uint8_t& pixel : dim.pixels) pixel = static_cast<uint8_t>(pixel / 16);
  CHECK(warned(dim).starts_with("the greatest pixel is 15, where 255 is white"));
  // Rows by their labels.
  CHECK(warned(ManyImages(1000, [](int64_t i) { return i / 100; })) ==
        "the split train has no image with the label 7, 8, 9, which others have: are the images "
        "sorted by their labels?\n");
  // The same file twice, and one image again and again.
  CHECK(warned(good, good) == "1000 of the 1000 test images are also among the others\n");
  RawImages same = good;
  for (size_t i = 0; i < same.pixels.size(); ++i) same.pixels[i] = i % 4 == 0 ? 255 : 0;
  CHECK(warned(same, ManyImages(100, of_ten)) ==
        "of the 1000 images that are no test images only 1 are different\n");
  // Few images may be alike.
  RawImages few = TenImages({0, 1, 2, 0, 1, 2, 0, 1, 2, 0});
  CHECK(warned(few) == "");
}

}  // namespace
}  // namespace lopt

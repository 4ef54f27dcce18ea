#include <doctest/doctest.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/npz.h"
#include "lopt/tasks/data/cifar.h"
#include "lopt/tasks/data/coloured_glyphs.h"
#include "lopt/tasks/data/csv_images.h"
#include "lopt/tasks/data/npz_images.h"
#include "lopt/tasks/image/image_task.h"
#include "tests/error_of.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

using Bytes = std::vector<uint8_t>;
using Range = std::pair<int64_t, int64_t>;

void WriteBytes(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

void WriteText(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

void WriteGzipped(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
}

// CIFAR records; record i of a file has its first label i % classes, and in the planes' pixel p the
// values 1 + i + p, 2 + i + p and 3 + i + p.
Bytes CifarRecords(int64_t count, const std::vector<int>& classes) {
  Bytes bytes;
  for (int64_t i = 0; i < count; ++i) {
    for (const int n : classes) bytes.push_back(static_cast<uint8_t>(i % n));
    for (int64_t channel = 1; channel <= 3; ++channel) {
      for (int64_t p = 0; p < 1024; ++p) bytes.push_back(static_cast<uint8_t>(channel + i + p));
    }
  }
  return bytes;
}

void WriteCifar10(const TempDirectory& directory) {
  for (int64_t file = 1; file <= 5; ++file) {
    WriteBytes(directory / ("data_batch_" + std::to_string(file) + ".bin"),
               CifarRecords(10 + file, {10}));
  }
  WriteBytes(directory / "test_batch.bin", CifarRecords(7, {10}));
}

TEST_CASE("CIFAR-10 is five training files and a test file, planes become channels") {
  const TempDirectory directory;
  WriteCifar10(directory);
  const RawImages images = ReadCifar10(directory.path());
  CHECK(images.count == 65 + 7);
  CHECK(images.height == 32);
  CHECK(images.width == 32);
  CHECK(images.channels == 3);
  CHECK(images.splits[0] == Range(0, 52));
  CHECK(images.splits[1] == Range(52, 58));
  CHECK(images.splits[2] == Range(58, 65));
  CHECK(images.splits[3] == Range(65, 72));
  // Row 11 is record 0 of the second file, row 66 record 1 of the test file.
  for (const auto& [row, record] : {std::pair<int64_t, int64_t>{11, 0}, {66, 1}, {64, 14}}) {
    CHECK(images.labels[static_cast<size_t>(row)] == record % 10);
    for (int64_t i = 0; i < 3072; ++i) {
      CHECK(images.pixels[static_cast<size_t>(row * 3072 + i)] ==
            static_cast<uint8_t>(1 + i % 3 + record + i / 3));
    }
  }
}

// The pixels are unlike those of another order of the files, or of another set.
void CheckSameImages(const RawImages& images, const RawImages& wanted) {
  CHECK(images.pixels == wanted.pixels);
  CHECK(images.labels == wanted.labels);
  CHECK(std::ranges::equal(images.splits, wanted.splits));
}

TEST_CASE("CIFAR is read as its site gives it: the archive, or the folder that it unpacks to") {
  const TempDirectory files;
  WriteCifar10(files);
  const RawImages wanted = ReadCifar10(files.path());
  const TempDirectory site;
  const std::string folder = site / "cifar-10-batches-bin";
  std::filesystem::copy(files.path(), folder);
  WriteText(folder + "/readme.html", "<html>");
  for (const char* format : {"gnu", "ustar", "v7", "pax"}) {
    CAPTURE(format);
    const FinishedProcess tar =
        RunProcess({"/bin/tar", "-C", site.path(), "--format", format, "-czf",
                    site / "cifar-10-binary.tar.gz", "cifar-10-batches-bin"});
    REQUIRE_MESSAGE(tar.exit_code == 0, tar.errors);
    const TempDirectory alone;
    std::filesystem::copy(site / "cifar-10-binary.tar.gz", alone / "cifar-10-binary.tar.gz");
    CheckSameImages(ReadCifar10(alone.path()), wanted);
    CHECK(SourcesIn(alone.path()) == std::vector{ImageSource::kCifar10});
  }
  std::filesystem::remove(site / "cifar-10-binary.tar.gz");
  CheckSameImages(ReadCifar10(site.path()), wanted);
  CHECK(SourcesIn(site.path()) == std::vector{ImageSource::kCifar10});

  const TempDirectory hundred;
  std::filesystem::create_directory(hundred / "cifar-100-binary");
  WriteBytes(hundred / "cifar-100-binary/train.bin", CifarRecords(50, {20, 100}));
  WriteBytes(hundred / "cifar-100-binary/test.bin", CifarRecords(30, {20, 100}));
  CHECK(ReadCifar100(hundred.path()).count == 80);
  CHECK(SourcesIn(hundred.path()) == std::vector{ImageSource::kCifar100});
}

TEST_CASE("A CIFAR archive that is cut or lacks a file is an error") {
  const TempDirectory directory;
  WriteCifar10(directory);
  const std::string archive = directory / "cifar-10-binary.tar";
  const auto pack = [&](const std::string& last) {
    const FinishedProcess tar =
        RunProcess({"/bin/tar", "-C", directory.path(), "-cf", archive, "data_batch_1.bin", last});
    REQUIRE_MESSAGE(tar.exit_code == 0, tar.errors);
  };
  const auto error = [&] {
    const TempDirectory alone;
    std::filesystem::copy(archive, alone / "cifar-10-binary.tar");
    std::string text = ErrorOf([&] { ReadCifar10(alone.path()); });
    return text.replace(text.find(alone.path()), alone.path().size(), "DIR");
  };
  pack("test_batch.bin");
  CHECK(error() == "There is no data_batch_2.bin in DIR/cifar-10-binary.tar");
  std::filesystem::resize_file(archive, 20000);
  CHECK(error() == "DIR/cifar-10-binary.tar: the tar archive ends too early");
  std::filesystem::resize_file(archive, 100);
  CHECK(error() == "DIR/cifar-10-binary.tar: the tar archive ends too early");
  WriteText(archive, std::string(1000, 'x'));
  CHECK(error() == "DIR/cifar-10-binary.tar: this is no tar archive, or a damaged one");
}

TEST_CASE("CIFAR-100 has fine labels") {
  const TempDirectory directory;
  WriteBytes(directory / "train.bin", CifarRecords(50, {20, 100}));
  WriteBytes(directory / "test.bin", CifarRecords(30, {20, 100}));
  const RawImages images = ReadCifar100(directory.path());
  CHECK(images.count == 80);
  CHECK(images.labels[49] == 49);
  CHECK(images.labels[79] == 29);
  CHECK(images.pixels[3072 * 79] == 30);
  CHECK(images.splits[3] == Range(50, 80));
}

TEST_CASE("CIFAR files that are missing, cut, or have labels out of range are errors") {
  const TempDirectory directory;
  const auto error = [&] { return ErrorOf([&] { ReadCifar10(directory.path()); }); };
  CHECK(error() == "There is no data_batch_1.bin[.gz] in " + directory.path() +
                       ", no cifar-10-batches-bin/data_batch_1.bin[.gz] and no "
                       "cifar-10-binary.tar[.gz]");
  WriteCifar10(directory);
  const std::string path = directory / "data_batch_3.bin";
  Bytes records = CifarRecords(12, {10});
  records.pop_back();
  WriteBytes(path, records);
  CHECK(error() == path + ": 36875 bytes are not a number of whole records of 3073 bytes");
  WriteBytes(path, {});
  CHECK(error() == path + ": 0 bytes are not a number of whole records of 3073 bytes");
  records = CifarRecords(12, {10});
  records[4 * 3073] = 10;
  WriteBytes(path, records);
  CHECK(error() == path + ": record 4 has label 10, wanted 0 to 9");

  const TempDirectory hundred;
  WriteBytes(hundred / "train.bin", CifarRecords(50, {20, 101}));
  Bytes test = CifarRecords(20, {20, 100});
  test[3074 * 2] = 20;
  WriteBytes(hundred / "test.bin", test);
  CHECK(ErrorOf([&] { ReadCifar100(hundred.path()); }) ==
        hundred / "test.bin: record 2 has label 20, wanted 0 to 19");
}

// A CSV file of `count` images of four pixels: of image i the value i in each, and label i / 2.
std::string CsvOf(int64_t count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    const std::string value = std::to_string(i) + ",";
    text += value + value + value + value + std::to_string(i / 2) + "\n";
  }
  return text;
}

TEST_CASE("A CSV file has an image and its label in a line; its rows are shuffled, always alike") {
  const TempDirectory directory;
  WriteGzipped(directory / "train.csv.gz", CsvOf(100));
  const RawImages images = ReadCsvImages(directory.path(), {});
  CHECK(images.count == 100);
  CHECK(images.height == 2);
  CHECK(images.width == 2);
  CHECK(images.channels == 1);
  CHECK(images.splits[0] == Range(0, 70));
  CHECK(images.splits[3] == Range(90, 100));
  std::set<int64_t> rows;
  for (size_t row = 0; row < 100; ++row) {
    const uint8_t value = images.pixels[4 * row];
    for (size_t i = 1; i < 4; ++i) CHECK(images.pixels[4 * row + i] == value);
    CHECK(images.labels[row] == value / 2);
    rows.insert(value);
  }
  CHECK(rows.size() == 100);
  CHECK_FALSE(std::ranges::is_sorted(images.labels));
  CHECK(ReadCsvImages(directory.path(), {}).pixels == images.pixels);
}

TEST_CASE("A second CSV file is the test split; a shape and a white of one's own") {
  const TempDirectory directory;
  std::string train;
  for (int i = 0; i < 20; ++i) train += "0,1,8,15,16,16,1\r\n";
  WriteText(directory / "train.csv", train);
  WriteText(directory / "test.csv", "16,16,16,16,16,4,3");
  const RawImages images = ReadCsvImages(directory.path(), {.shape = {1, 2, 3}, .white = 16});
  CHECK(images.count == 21);
  CHECK(images.height == 1);
  CHECK(images.width == 2);
  CHECK(images.channels == 3);
  CHECK(images.splits[0] == Range(0, 16));
  CHECK(images.splits[3] == Range(20, 21));
  CHECK(std::equal(images.pixels.begin(), images.pixels.begin() + 6,
                   Bytes{0, 16, 128, 239, 255, 255}.begin()));
  CHECK(images.pixels.back() == 64);
  CHECK(images.labels.back() == 3);
}

// A text as UTF-16, the first byte of each character the low one or the high one.
std::string Utf16(const std::string& text, bool little) {
  std::string wide = little ? "\xFF\xFE" : "\xFE\xFF";
  for (const char c : text) {
    wide += little ? std::string{c, '\0'} : std::string{'\0', c};
  }
  return wide;
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

TEST_CASE("CSV files are read in every dialect of spreadsheet programs") {
  const TempDirectory directory;
  const std::string plain = CsvOf(20);
  const auto read = [&](const std::string& text, const CsvOptions& options = {}) {
    WriteText(directory / "train.csv", text);
    return ReadCsvImages(directory.path(), options);
  };
  const RawImages wanted = read(plain);
  const std::string mark = "\xEF\xBB\xBF";
  for (const std::string& text :
       {mark + plain, plain + "\n", plain + "\r\n\r\n", plain + ",,,,\r\n;;", plain + "  \n\t\n",
        plain.substr(0, plain.size() - 1), Replaced(plain, "\n", "\r\n"),
        Replaced(plain, "\n", "\r"), Replaced(plain, ",", ", "), Replaced(plain, ",", " ,\t"),
        Replaced(plain, ",", ";"), Replaced(plain, ",", "\t"), Replaced(plain, ",", "\t "),
        "\"" + Replaced(Replaced(plain.substr(0, plain.size() - 1), ",", "\",\""), "\n", "\"\n\"") +
            "\"\n",
        mark + Replaced(Replaced(plain, ",", "\" ; \" "), "\n", "\" \r\n\"").insert(0, "\""),
        Utf16(Replaced(plain, ",", "\t"), true), Utf16(plain, false)}) {
    CAPTURE(text);
    if (text.find(" ,\t") != std::string::npos) {
      // Which of the two separates columns?
      CHECK(ErrorOf([&] { read(text); }) ==
            directory /
                "train.csv: line 1 has several of the separators comma, semicolon and tab, "
                "wanted one: \"0 ,\\t0 ,\\t0 ,\\t0 ,\\t0\"");
      continue;
    }
    const RawImages images = read(text);
    CHECK(images.pixels == wanted.pixels);
    CHECK(images.labels == wanted.labels);
  }
  std::string first;
  for (int64_t i = 0; i < 20; ++i) first += fmt::format("{0},{1},{1},{1},{1}\n", i / 2, i);
  CHECK(read(first, {.label_column = 1}).pixels == wanted.pixels);
  CHECK(read(first, {.label_column = 1}).labels == wanted.labels);
  CHECK(read(plain, {.label_column = 5}).labels == wanted.labels);
  CHECK(ErrorOf([&] { read(plain, {.label_column = 6}); }) ==
        directory / "train.csv: csv_label_column is 6, but line 1 has 5 columns");
  CHECK(ErrorOf([&] { read("\xFF\xFE\x31\x01"); }) ==
        directory / "train.csv: character 1 is none of a file of numbers (the file is UTF-16)");
}

TEST_CASE("Every damage of a CSV file is an error that names the line") {
  const TempDirectory directory;
  const std::string path = directory / "train.csv";
  const auto error = [&](const std::string& text, const CsvOptions& options = {}) {
    WriteText(path, text);
    return ErrorOf([&] { ReadCsvImages(directory.path(), options); });
  };
  CHECK(ErrorOf([&] { ReadCsvImages(directory.path(), {}); }) ==
        "There is no train.csv[.gz] in " + directory.path());
  const std::string good = "1,2,3,4,5\n1,2,3,4,5\n";
  CHECK(error(good) == directory.path() + ": 2 images are too few to be split, wanted at least 10");
  CHECK(error(good + "1,2,3,4\n") == path + ": line 3 has 4 numbers, wanted 5 as in line 1");
  CHECK(error(good + "\n" + good) == path + ": line 3 has 1 numbers, wanted 5 as in line 1");
  CHECK(error("1,2,3,x4,5\n") == path + ": line 1, column 4: \"x4\" is not a whole number");
  CHECK(error("a,b,c,d,label\n" + good) ==
        path + ": line 1, column 1: \"a\" is not a whole number");
  CHECK(error(good + "1,2.5,3,4,5\n") ==
        path + ": line 3, column 2: \"2.5\" is not a whole number");
  CHECK(error("1,,3,4,5\n") == path + ": line 1, column 2: \"\" is not a whole number");
  CHECK(error("1,2,256,4,5\n") == path + ": line 1, column 3: value 256, wanted 0 to 255");
  CHECK(error("1,2,-1,4,5\n") == path + ": line 1, column 3: value -1, wanted 0 to 255");
  CHECK(error("1,2,17,4,5\n", {.white = 16}) ==
        path + ": line 1, column 3: value 17, wanted 0 to 16");
  CHECK(error("1,2,3,4,256\n") == path + ": line 1, column 5: label 256, wanted 0 to 255");
  CHECK(error("1,2,3,4,99999999999999999999\n") ==
        path + ": line 1, column 5: \"99999999999999999999\" is not a whole number");
  CHECK(error("") == path + ": the file is empty");
  CHECK(error("1,2,3\n") == path +
                                ": line 1 has 2 values beside the label, which make no square "
                                "image; csv_shape tells another shape");
  CHECK(error(good, {.shape = {3, 2}}) ==
        path + ": line 1 has 4 values beside the label, but csv_shape is [3, 2]");
  CHECK(error(good, {.shape = {4}}) ==
        "CSV images: csv_shape must be [], [height, width] or [height, width, channels], got [4]");
  for (const int64_t channels : {2, 4}) {
    CHECK(error(good, {.shape = {1, 4 / channels, channels}}) ==
          fmt::format("CSV images: csv_shape [1, {}, {}] has {} channels, wanted 1 or 3",
                      4 / channels, channels, channels));
  }
  CHECK(error(good, {.white = 0}) == "CSV images: csv_white must be in [1, 255], got 0");
}

TEST_CASE("A gzipped CSV file that is cut is an error") {
  const TempDirectory directory;
  const std::string path = directory / "train.csv.gz";
  WriteGzipped(path, CsvOf(100));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  CHECK(ErrorOf([&] { ReadCsvImages(directory.path(), {}); }) ==
        path + ": the gzip data ends too early: the file is truncated");
}

// `count` images of 2 x 3 whose pixels are all the image's number, and labels of type T.
template <class T>
void AddSet(const std::string& images, const std::string& labels, int64_t count, Shape label_shape,
            NamedArrays* arrays) {
  Bytes pixels;
  std::vector<T> numbers;
  for (int64_t i = 0; i < count; ++i) {
    pixels.insert(pixels.end(), 6, static_cast<uint8_t>(i));
    numbers.push_back(static_cast<T>(i / 3));
  }
  arrays->Set(images, Array::Of<uint8_t>({count, 2, 3}, pixels));
  arrays->Set(labels, Array::Of<T>(std::move(label_shape), numbers));
}

TEST_CASE("An npz file has one set of images, or Keras' two") {
  const TempDirectory directory;
  NamedArrays arrays;
  AddSet<int64_t>("images", "labels", 50, {50}, &arrays);
  WriteNpz(directory / "digits.npz", arrays);
  const RawImages one = ReadNpzImages(directory.path());
  CHECK(one.count == 50);
  CHECK(one.height == 2);
  CHECK(one.width == 3);
  CHECK(one.channels == 1);
  CHECK(one.splits[1] == Range(35, 40));
  CHECK_FALSE(std::ranges::is_sorted(one.labels));
  for (size_t row = 0; row < 50; ++row) CHECK(one.labels[row] == one.pixels[6 * row + 5] / 3);

  NamedArrays keras;
  AddSet<uint8_t>("x_train", "y_train", 40, {40, 1}, &keras);
  AddSet<uint8_t>("x_test", "y_test", 5, {5, 1}, &keras);
  WriteNpz(directory / "digits.npz", keras);
  const RawImages two = ReadNpzImages(directory.path());
  CHECK(two.count == 45);
  CHECK(two.splits[0] == Range(0, 32));
  CHECK(two.splits[3] == Range(40, 45));
}

TEST_CASE("Arrays that nobody asked for may have any type in an npz file") {
  const TempDirectory directory;
  std::filesystem::copy(SourcePath("tests/golden/numpy_other_arrays.npz"),
                        directory / "digits.npz");
  const RawImages images = ReadNpzImages(directory.path());
  CHECK(images.count == 12);
  std::set<int> labels(images.labels.begin(), images.labels.end());
  CHECK(labels == std::set<int>{0, 1, 2});
}

TEST_CASE("An npz file with channels") {
  const TempDirectory directory;
  NamedArrays arrays;
  Bytes pixels(60);
  pixels[7] = 255;
  arrays.Set("images", Array::Of<uint8_t>({10, 1, 2, 3}, pixels));
  arrays.Set("labels",
             Array::Of<int32_t>({10}, std::vector<int32_t>{0, 1, 0, 1, 0, 1, 0, 1, 0, 1}));
  WriteNpz(directory / "a.npz", arrays);
  CHECK(ReadNpzImages(directory.path()).channels == 3);
  // Channels first, as PyTorch has them.
  arrays.Set("images", Array::Of<uint8_t>({10, 3, 1, 2}, pixels));
  WriteNpz(directory / "a.npz", arrays);
  CHECK(ErrorOf([&] { ReadNpzImages(directory.path()); }) ==
        directory.path() +
            "/a.npz: array 'images' of shape [10, 3, 1, 2] has 2 channels, wanted 1 or 3; they "
            "come last, [images, height, width, channels]: turn it by transpose(0, 2, 3, 1)");
}

TEST_CASE("What is wrong with an npz file is an error that names the array") {
  const TempDirectory directory;
  const std::string path = directory / "a.npz";
  const auto error = [&](const NamedArrays& arrays) {
    WriteNpz(path, arrays);
    return ErrorOf([&] { ReadNpzImages(directory.path()); });
  };
  CHECK(ErrorOf([&] { ReadNpzImages(directory.path()); }) ==
        "There is no .npz file in " + directory.path());
  CHECK(ErrorOf([&] { ReadNpzImages("/nowhere"); }) == "There is no .npz file in /nowhere");
  NamedArrays other;
  other.Set("weights", Array::Of<float>({1}, std::vector<float>(1)));
  CHECK(error(other) == path +
                            ": there are no images: looked for arrays 'images' and 'labels', or "
                            "'x_train' and 'y_train'");
  NamedArrays arrays;
  AddSet<int64_t>("images", "labels", 12, {12}, &arrays);
  NamedArrays broken = arrays;
  broken.Set("labels", Array::Of<int64_t>({11}, std::vector<int64_t>(11)));
  CHECK(error(broken) == path + ": array 'labels' has shape [11], wanted [12] as there are images");
  std::vector<int64_t> labels(12);
  labels[3] = 256;
  broken.Set("labels", Array::Of<int64_t>({12}, labels));
  CHECK(error(broken) == path + ": array 'labels' has label 256 in row 3, wanted 0 to 255");
  labels[3] = -1;
  broken.Set("labels", Array::Of<int64_t>({12}, labels));
  CHECK(error(broken) == path + ": array 'labels' has label -1 in row 3, wanted 0 to 255");
  broken.Set("labels", Array::Of<float>({12}, std::vector<float>(12)));
  CHECK(error(broken) ==
        path + ": array 'labels' holds F32, wanted whole numbers (U8, I32, U32 or I64)");
  broken = arrays;
  broken.Set("images", Array::Of<float>({12, 1, 1}, std::vector<float>(12)));
  CHECK(error(broken) == path +
                             ": array 'images' is F32 [12, 1, 1], wanted U8 [images, height, "
                             "width] or [images, height, width, channels]");
  NamedArrays half;
  half.Set("x_train", arrays.At("images"));
  CHECK(error(half) == path + ": there is an array 'x_train', but no 'y_train'");
  WriteNpz(directory / "b.npz", arrays);
  CHECK(error(arrays) == "There are several .npz files in " + directory.path() +
                             ", wanted one: " + path + " and " + (directory / "b.npz"));
  std::filesystem::remove(directory / "b.npz");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  CHECK(ErrorOf([&] { ReadNpzImages(directory.path()); }).starts_with(path));
}

TEST_CASE("Training and test images of different sizes are an error") {
  const TempDirectory directory;
  WriteText(directory / "train.csv", CsvOf(10));
  WriteText(directory / "test.csv", "1,2\n");
  CHECK(ErrorOf([&] { ReadCsvImages(directory.path(), {}); }) ==
        directory.path() +
            ": the test images are 1 x 1 x 1, but the training images are 2 x 2 x 1");
}

TEST_CASE("Coloured glyphs are ink of one colour on a darker ground of another") {
  const RawImages images = DrawColouredGlyphs();
  CHECK(images.count == 19000);
  CHECK(images.channels == 3);
  CHECK(images.splits[0] == Range(0, 7000));
  CHECK(images.splits[3] == Range(9000, 19000));
  CHECK(images.pixels.size() == size_t{19000} * 28 * 28 * 3);
  std::vector<int64_t> labels(10);
  for (const uint8_t label : images.labels) ++labels[label];
  for (const int64_t n : labels) CHECK(std::abs(n - 1900) < 4 * 41);
  // The corner is ground, and somewhere is ink that is brighter in every channel.
  int64_t far = 0;
  std::set<std::array<uint8_t, 3>> grounds;
  for (size_t image = 0; image < 200; ++image) {
    const uint8_t* pixels = &images.pixels[image * 28 * 28 * 3];
    grounds.insert({pixels[0], pixels[1], pixels[2]});
    for (size_t p = 0; p < 28 * 28; ++p) {
      bool all = true;
      for (size_t c = 0; c < 3; ++c) all = all && pixels[3 * p + c] > pixels[c] + 40;
      if (all) {
        ++far;
        break;
      }
    }
  }
  CHECK(far == 200);
  CHECK(grounds.size() > 190);
}

TEST_CASE("A task names its source, and a source that reads files needs a directory") {
  const TaskResources none("");
  for (const auto& [source, name] : {std::pair{ImageSource::kIdx, "idx"},
                                     {ImageSource::kCifar10, "cifar10"},
                                     {ImageSource::kCifar100, "cifar100"},
                                     {ImageSource::kCsv, "csv"},
                                     {ImageSource::kNpz, "npz"}}) {
    CHECK(ErrorOf([&, &from = source] { GetImages({.data = from}, none); }) ==
          std::string("image task: data '") + name +
              "' is read from a directory (data_dir, --data-dir)");
  }
  const TempDirectory directory;
  WriteCifar10(directory);
  const TaskResources files(directory.path());
  const auto cifar = GetImages({.image_size = 0, .data = ImageSource::kCifar10}, files);
  CHECK(cifar->height() == 32);
  CHECK(cifar->channels() == 3);
  CHECK(cifar->images()[1] == 2 / 255.0F);
  CHECK(files.data_dir_used());
  const auto grey =
      GetImages({.image_size = 16, .channels = 1, .data = ImageSource::kCifar10}, files);
  CHECK(grey->features() == 256);
  WriteText(directory / "train.csv", CsvOf(10));
  const auto csv = GetImages({.image_size = 0, .data = ImageSource::kCsv}, files);
  CHECK(csv->features() == 4);
  CHECK(GetImages({.image_size = 0, .data = ImageSource::kCsv, .csv = {.white = 9}}, files) != csv);
  CHECK(ErrorOf([&] { GetImages({.csv = {.white = 16}}, none); }) ==
        "image task: csv_shape, csv_white and csv_label_column are for data 'csv', but it is "
        "'glyphs'");
  const auto coloured = GetImages({.data = ImageSource::kColouredGlyphs}, none);
  CHECK(coloured->channels() == 3);
  CHECK(coloured->features() == 192);
}

}  // namespace
}  // namespace lopt

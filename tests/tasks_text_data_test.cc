#include <doctest/doctest.h>
#include <zlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/tasks/data/text_data.h"
#include "lopt/tasks/data/word_source.h"
#include "tests/error_of.h"
#include "tests/skip.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

double Entropy(const std::vector<double>& probabilities) {
  double sum = 0;
  for (const double p : probabilities) sum -= p * std::log(p);
  return sum;
}

}  // namespace

TEST_CASE("Entropies of tiny texts are those computed by hand") {
  CHECK_EQ(UnigramEntropy({}), 0);
  CHECK_EQ(BigramEntropy({}), 0);
  CHECK_EQ(BigramEntropy(Bytes("a")), 0);
  CHECK_EQ(UnigramEntropy(Bytes("aaaa")), doctest::Approx(0));
  CHECK_EQ(UnigramEntropy(Bytes("abcdabcd")), doctest::Approx(std::log(4)));
  CHECK_EQ(UnigramEntropy(Bytes("aaab")), doctest::Approx(Entropy({.75, .25})));
  CHECK_EQ(BigramEntropy(Bytes("abababab")), doctest::Approx(0));
  // Pairs aa ab ba aa ab bb: after a, two of each; after b, one of each.
  CHECK_EQ(BigramEntropy(Bytes("aabaabb")), doctest::Approx(std::log(2)));
  // Pairs aa aa ab bb bb bb: after a, 2 and 1; after b, always b.
  CHECK_EQ(BigramEntropy(Bytes("aaabbbb")), doctest::Approx(Entropy({2.0 / 3, 1.0 / 3}) * 3 / 6));
  CHECK_EQ(BigramEntropy(std::vector<uint8_t>{0, 255, 0, 255, 0}), doctest::Approx(0));
}

TEST_CASE("Entropies of the GPL's text are the known ones") {
  const std::string path = "/usr/share/common-licenses/GPL-3";
  std::error_code error;
  if (std::filesystem::file_size(path, error) != 35149 || error) {
    SkipTest(path + " is not there in its known size");
    return;
  }
  const auto data = GetText({.text = path}, TaskResources(""));
  CHECK_EQ(data->bytes().size(), 35149);
  CHECK_EQ(UnigramEntropy(data->bytes()), doctest::Approx(3.169958028).epsilon(1e-9));
  CHECK_EQ(BigramEntropy(data->bytes()), doctest::Approx(2.422438181).epsilon(1e-9));
}

TEST_CASE("Entropies of tiny sources are those computed by hand") {
  // Independent letters.
  const WordSource letters({{{"a", "b"}, {{0, 1}}}});
  CHECK_EQ(letters.EntropyRate(), doctest::Approx(Entropy({2.0 / 3, 1.0 / 3})));
  CHECK_EQ(letters.BigramEntropy(), doctest::Approx(letters.EntropyRate()));
  // A chain over x and y that leaves x with probability .3 and y with .6.
  const WordSource chain({{{"x"}, {{0, .7}, {1, .3}}}, {{"y"}, {{0, .6}, {1, .4}}}});
  CHECK_EQ(chain.EntropyRate(),
           doctest::Approx(2.0 / 3 * Entropy({.7, .3}) + 1.0 / 3 * Entropy({.6, .4})));
  CHECK_EQ(chain.BigramEntropy(), doctest::Approx(chain.EntropyRate()));
  // "aab" and "b" in turn with "c", which has period 2. Every two words, 3 1/3 bytes, one choice
  // of 2/3 and 1/3. Bytes one by one: a (twice 2/3) is followed by a or b equally; b always by c; c
  // by a or b with 2/3 and 1/3.
  const WordSource words({{{"aab", "b"}, {{1, 1}}}, {{"c"}, {{0, 1}}}});
  const double choice = Entropy({2.0 / 3, 1.0 / 3});
  CHECK_EQ(words.EntropyRate(), doctest::Approx(choice / (10.0 / 3)));
  CHECK_EQ(words.BigramEntropy(), doctest::Approx((4.0 / 3 * std::log(2) + choice) / (10.0 / 3)));
}

TEST_CASE("Sources that are no sources are errors") {
  const auto error_of = [](const std::vector<WordClass>& classes) {
    return ErrorOf([&] { WordSource source(classes); });
  };
  CHECK_EQ(error_of({{{}, {{0, 1}}}}), "word source: class 0 has no word, or an empty one");
  CHECK_EQ(error_of({{{"a", ""}, {{0, 1}}}}), "word source: class 0 has no word, or an empty one");
  CHECK_EQ(error_of({{{"a"}, {{1, 1}}}}), "word source: class 0 goes on to class 1 of 1");
  CHECK_EQ(error_of({{{"a"}, {{0, .5}}}}),
           "word source: the probabilities after class 0 add up to 0.5, wanted 1");
}

TEST_CASE("Generated sentences have the entropies of their source and agree in number") {
  const WordSource source = SentenceSource();
  const std::vector<uint8_t> text = source.Generate(KeyFromSeed(1), 1000000);
  REQUIRE_EQ(text.size(), 1000000);
  CHECK_EQ(BigramEntropy(text), doctest::Approx(source.BigramEntropy()).epsilon(0.003));
  CHECK_LT(source.EntropyRate(), 0.3 * source.BigramEntropy());
  const std::string words(text.begin(), text.end());
  const auto count = [&](const std::string& piece) {
    int64_t found = 0;
    for (size_t at = 0; (at = words.find(piece, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  CHECK_GT(count("a ship waits"), 0);
  CHECK_GT(count("all old ships wait"), 0);
  CHECK_EQ(count("ship wait.") + count("ship wait "), 0);
  CHECK_EQ(count("ships waits"), 0);
  CHECK_EQ(count("\nall old ship "), 0);

  CHECK_EQ(source.Generate(KeyFromSeed(1), 1000), std::vector(text.begin(), text.begin() + 1000));
  CHECK_NE(source.Generate(KeyFromSeed(2), 1000), std::vector(text.begin(), text.begin() + 1000));
}

TEST_CASE("A text's splits follow one another and its windows predict every byte of them once") {
  const TextData data(Bytes(std::string(1234, 'x')));
  int64_t end = 0;
  for (const auto& [split, size] : std::vector<std::pair<Split, int64_t>>{{Split::kTrain, 863},
                                                                          {Split::kInnerValid, 124},
                                                                          {Split::kOuterValid, 123},
                                                                          {Split::kTest, 124}}) {
    CHECK_EQ(data.range(split), std::pair(end, end + size));
    end += size;
  }
  CHECK_EQ(end, 1234);
  const TextWindows windows({.length = 20}, data);
  CHECK_EQ(windows.splits[0], std::pair<int64_t, int64_t>(0, 43));
  CHECK_EQ(windows.splits[1], std::pair<int64_t, int64_t>(43, 49));
  CHECK_EQ(windows.splits[2], std::pair<int64_t, int64_t>(49, 55));
  CHECK_EQ(windows.splits[3], std::pair<int64_t, int64_t>(55, 61));
  REQUIRE_EQ(windows.starts.size(), 61);
  for (const Split split : kSplits) {
    const auto [first, last] = data.range(split);
    const auto [first_row, last_row] = windows.splits[static_cast<size_t>(split)];
    for (int64_t row = first_row; row < last_row; ++row) {
      CHECK_EQ(windows.starts[row], first + 20 * (row - first_row));
    }
    const int64_t behind = windows.starts[last_row - 1] + 21;
    CHECK_LE(behind, last);
    CHECK_GT(behind + 20, last);
  }
  // One byte more than the window is enough.
  CHECK_EQ(TextWindows({.length = 122}, data).starts.size(), 7 + 3);

  const TaskParts parts = BytePredictorParts({.length = 20, .batch_size = 3}, windows);
  CHECK_EQ(parts.data.batch_size, 3);
  CHECK_EQ(parts.data.splits[3], windows.splits[3]);
  CHECK_EQ(*parts.normalizer_maximum, doctest::Approx(1.5 * std::log(256.0)));
  CHECK_EQ(parts.aux, Layout({{"accuracy", Shape{}}}));
}

TEST_CASE("Texts are read plain or gzipped, generated without a file, and shared") {
  const TempDirectory directory;
  const TaskResources resources("");
  std::string all(256, ' ');
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i);
  const std::string plain = directory / "plain";
  const std::string packed = directory / "packed.gz";
  WriteText(plain, all);
  const gzFile file = gzopen(packed.c_str(), "wb");
  gzwrite(file, all.data(), static_cast<unsigned>(all.size()));
  gzclose(file);
  for (const std::string& path : {plain, packed}) {
    const auto data = GetText({.text = path}, resources);
    CHECK_EQ(std::string(data->bytes().begin(), data->bytes().end()), all);
    CHECK_EQ(GetText({.text = path, .length = 7}, resources), data);
  }
  const auto generated = GetText({}, resources);
  CHECK_EQ(generated->bytes().size(), 100000);
  CHECK_EQ(GetText({.batch_size = 2}, resources), generated);
  CHECK_FALSE(resources.data_dir_used());
}

TEST_CASE("Texts that are too short, absent or unreadable are errors that say so") {
  const TempDirectory directory;
  const TaskResources resources("");
  const auto error_of = [&](const TextOptions& options) {
    return ErrorOf([&] { TextWindows(options, *GetText(options, resources)); });
  };
  const std::string path = directory / "short";
  WriteText(path, std::string(319, 'x') + "y");
  CHECK_EQ(error_of({.text = path}),
           "text '" + path +
               "': of its 320 bytes the split inner_valid has 32, wanted at least 33: the option "
               "length (32) and a byte before it");
  CHECK_EQ(error_of({.text = path, .length = 31}), "no error");
  WriteText(directory / "same", std::string(320, 'x'));
  CHECK_EQ(error_of({.text = directory / "same"}),
           "text '" + directory.path() + "/same': all its 320 bytes are the same");
  WriteText(directory / "empty", "");
  CHECK_EQ(error_of({.text = directory / "empty", .length = 1}),
           "text '" + directory.path() +
               "/empty': of its 0 bytes the split train has 0, wanted at least 2: the option "
               "length (1) and a byte before it");
  CHECK_EQ(error_of({.text = "", .length = 10000}),
           "the generated text: of its 100000 bytes the split inner_valid has 10000, wanted at "
           "least 10001: the option length (10000) and a byte before it");
  CHECK_EQ(error_of({.text = directory / "none"}),
           directory.path() + "/none: cannot be read: No such file or directory");
  CHECK_EQ(error_of({.text = directory.path()}),
           directory.path() + ": cannot be read: Is a directory");
  CHECK_EQ(error_of({.length = 0}), "text: length must be in [1, 100000], got 0");
}

}  // namespace lopt

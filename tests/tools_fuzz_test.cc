// Every reader of bytes that someone else may have made, under fire: good inputs, those that
// fuzzing found (tests/fuzz/corpus), and changes of both that are always the same. CONTRIBUTING.md
// says how to search for more with libFuzzer.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/paths.h"

namespace lopt {
namespace {

// What this process may have of memory: a reader that makes room for what a file only says that it
// has gets std::bad_alloc, or the Error of an Array for which there is no room. Sanitizers need
// more.
void LimitMemory() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  constexpr rlim_t kBytes = rlim_t{3} << 30;
  rlimit limit = {};
  ::getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = std::min(limit.rlim_max, kBytes);
  ::setrlimit(RLIMIT_AS, &limit);
#endif
}

// What came of an input: empty if it was read, else the Error's words.
std::string Feed(const FuzzTarget& target, const std::string& input) {
  try {
    target.read(input);
    return "";
  } catch (const Error& error) {
    const std::string words = error.what();
    const bool has_room = words.find("no room for ") == std::string::npos;
    CHECK_MESSAGE(has_room, target.name << ": " << words << "; an input of " << input.size());
    return words;
  } catch (const std::exception& other) {
    std::string hex;
    for (const char c : input.substr(0, 4096)) {
      hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
    }
    FAIL_CHECK(target.name << ": " << std::string(other.what()) << "; the input, of "
                           << input.size() << " bytes, begins " << hex);
    return other.what();
  }
}

std::vector<std::string> CorpusOf(const FuzzTarget& target) {
  const std::string directory = SourcePath("tests/fuzz/corpus/" + target.name);
  std::vector<std::string> inputs;
  if (std::filesystem::exists(directory)) {
    for (const std::string& name : ListDirectory(directory)) {
      inputs.push_back(ReadTextFile(directory + "/" + name));
    }
  }
  return inputs;
}

// Changes an input as libFuzzer does: bytes, numbers that are special, pieces that go, come twice
// or come from another input.
std::string Mutated(std::string input, const std::string& other, std::mt19937_64* random) {
  const auto below = [&](size_t n) {
    return static_cast<size_t>((*random)() % std::max<size_t>(n, 1));
  };
  static constexpr std::array<uint64_t, 10> kSpecial = {0,
                                                        1,
                                                        0x7f,
                                                        0xff,
                                                        0x7fffffff,
                                                        0xffffffff,
                                                        0x100000000,
                                                        0x7fffffffffffffff,
                                                        0x8000000000000000,
                                                        0xffffffffffffffff};
  static constexpr std::array<const char*, 9> kTexts = {
      "{", "[", "\"", "-1", "9223372036854775807", "1e999", "null", "0", "\\u0000"};
  for (size_t changes = 1 + below(4); changes > 0; --changes) {
    const size_t at = below(input.size() + 1);
    switch (below(8)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>((*random)());
        break;
      case 1:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        break;
      case 2: {
        const uint64_t value = kSpecial[below(kSpecial.size())];
        const size_t width = size_t{1} << below(4);
        input.replace(at, width, reinterpret_cast<const char*>(&value), width);
        break;
      }
      case 3:
        input.resize(at);
        break;
      case 4:
        input.erase(at, 1 + below(16));
        break;
      case 5:
        input.insert(at, input.substr(below(input.size() + 1), 1 + below(64)));
        break;
      case 6:
        input.replace(at, below(16), kTexts[below(kTexts.size())]);
        break;
      default: {
        const size_t from = below(other.size() + 1);
        input = input.substr(0, at) + other.substr(from);
      }
    }
  }
  return input;
}

// Reads the seeds, the corpus and so many mutations of them, for each target.
void FeedAll(size_t mutations) {
  LimitMemory();
  spdlog::set_level(spdlog::level::off);
  REQUIRE(FuzzTargets().size() >= 15);
  for (const FuzzTarget& target : FuzzTargets()) {
    CAPTURE(target.name);
    std::vector<std::string> inputs = target.seeds();
    REQUIRE(!inputs.empty());
    for (const std::string& seed : inputs) CHECK(Feed(target, seed) == "");
    for (const std::string& input : CorpusOf(target)) {
      Feed(target, input);
      inputs.push_back(input);
    }
    std::mt19937_64 random(1);
    for (size_t i = 0; i < mutations; ++i) {
      const std::string& other = inputs[random() % inputs.size()];
      Feed(target, Mutated(inputs[i % inputs.size()], other, &random));
    }
  }
}

TEST_CASE("Readers take good inputs, and nothing but Error comes of any other") { FeedAll(600); }

TEST_SUITE("nightly") {
  TEST_CASE("Nothing but Error comes of thousands of other inputs") { FeedAll(5000); }
}

}  // namespace
}  // namespace lopt

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/key.h"
#include "tests/farthest.h"
#include "tests/golden_dir.h"

namespace lopt {
namespace {

nlohmann::json GoldenKeys() { return nlohmann::json::parse(ReadTextFile(GoldenPath("keys.json"))); }

Key KeyOf(const nlohmann::json& words) {
  return {words.at(0).get<uint32_t>(), words.at(1).get<uint32_t>()};
}

std::vector<float> Normals(Key key, size_t n, uint64_t first = 0) {
  std::vector<float> values(n);
  Normal(key, values, first);
  return values;
}

struct Moments {
  double mean;
  double variance;
};

Moments MomentsOf(const std::vector<float>& values) {
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double n = static_cast<double>(values.size());
  const double mean = sum / n;
  return {mean, squares / n - mean * mean};
}

double NormalDistribution(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// sqrt(n) times the largest distance between the values' distribution and `distribution`; above
// 1.95 with probability 0.001 (Kolmogorov).
template <class Distribution>
double KolmogorovStatistic(std::vector<float> values, const Distribution& distribution) {
  std::ranges::sort(values);
  const double n = static_cast<double>(values.size());
  double distance = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = distribution(values[i]);
    distance = Farther(distance, expected - static_cast<double>(i) / n);
    distance = Farther(distance, static_cast<double>(i + 1) / n - expected);
  }
  return std::sqrt(n) * distance;
}

// Fills [first, first + n) in one call and in uneven pieces and compares bit for bit.
template <class T, class Make>
void CheckPieces(uint64_t first, const Make& make) {
  std::vector<T> whole(1000);
  make(std::span(whole), first);
  for (const size_t piece : {1, 3, 7, 16, 17, 63, 64, 65, 999}) {
    std::vector<T> pieces(whole.size());
    for (size_t begin = 0; begin < pieces.size(); begin += piece) {
      const size_t n = std::min(piece, pieces.size() - begin);
      make(std::span(pieces).subspan(begin, n), first + begin);
    }
    CHECK(pieces == whole);
  }
}

TEST_CASE("Keys of seeds, folding and splitting equal the golden ones") {
  const nlohmann::json cases = GoldenKeys().at("cases");
  REQUIRE(!cases.empty());
  for (const auto& golden : cases) {
    const Key key = KeyFromSeed(golden.at("seed").get<uint64_t>());
    CHECK(key == KeyOf(golden.at("key")));
    for (const auto& [data, words] : golden.at("fold_in").items()) {
      CHECK(FoldIn(key, std::stoull(data)) == KeyOf(words));
    }
    const auto& split = golden.at("split3");
    const std::vector<Key> keys = SplitKey(key, 3);
    REQUIRE(keys.size() == split.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      CHECK(keys[i] == KeyOf(split[i]));
    }
  }
}

TEST_CASE("Bits, uniforms and integers equal the golden ones exactly, normals to 1e-6") {
  const nlohmann::json cases = GoldenKeys().at("cases");
  REQUIRE(!cases.empty());
  for (const auto& golden : cases) {
    const Key key = KeyFromSeed(golden.at("seed").get<uint64_t>());
    const auto bits5 = golden.at("bits5").get<std::vector<uint32_t>>();
    std::vector<uint32_t> bits(bits5.size());
    Bits(key, bits);
    CHECK(bits == bits5);

    bits.clear();
    for (const auto& row : golden.at("bits_2x3")) {
      for (const auto& word : row) {
        bits.push_back(word.get<uint32_t>());
      }
    }
    std::vector<uint32_t> matrix(bits.size());
    Bits(key, matrix);
    CHECK(matrix == bits);

    const auto uniform5 = golden.at("uniform5").get<std::vector<float>>();
    std::vector<float> uniforms(uniform5.size());
    Uniform(key, uniforms);
    CHECK(uniforms == uniform5);
    CHECK(Uniform(key) == uniform5[0]);

    const auto randint5 = golden.at("randint5_0_10000").get<std::vector<int32_t>>();
    std::vector<int32_t> integers(randint5.size());
    Randint(key, 0, 10000, integers);
    CHECK(integers == randint5);
    CHECK(Randint(key, 0, 10000) == randint5[0]);

    const auto normal5 = golden.at("normal5").get<std::vector<float>>();
    const std::vector<float> normals = Normals(key, normal5.size());
    for (size_t i = 0; i < normal5.size(); ++i) {
      CHECK(std::abs(normals[i] - normal5[i]) <= 1e-6f);
    }
  }
}

TEST_CASE("A long array of normals equals the golden one at its ends, extremes and sum") {
  const auto golden = GoldenKeys().at("normal4096");
  const std::vector<float> normals = Normals(KeyFromSeed(golden.at("seed").get<uint64_t>()), 4096);
  const auto first = golden.at("first").get<std::vector<float>>();
  const auto last = golden.at("last").get<std::vector<float>>();
  for (size_t i = 0; i < first.size(); ++i) {
    CHECK(std::abs(normals[i] - first[i]) <= 1e-6f);
  }
  for (size_t i = 0; i < last.size(); ++i) {
    CHECK(std::abs(normals[normals.size() - last.size() + i] - last[i]) <= 1e-6f);
  }
  CHECK(std::abs(*std::ranges::min_element(normals) - golden.at("min").get<float>()) <= 1e-6f);
  CHECK(std::abs(*std::ranges::max_element(normals) - golden.at("max").get<float>()) <= 1e-6f);
  double sum = 0;
  for (const float value : normals) {
    sum += value;
  }
  CHECK(std::abs(sum - golden.at("sum").get<double>()) <= 1e-4);
}

TEST_CASE("Any cut of an array into pieces gives the same bits") {
  const Key key = KeyFromSeed(5);
  // The second piece of the array crosses an index whose lower 32 bits carry.
  for (const uint64_t first : {uint64_t{0}, uint64_t{12345}, (uint64_t{1} << 32) - 500}) {
    CheckPieces<uint32_t>(first, [&](auto out, uint64_t at) { Bits(key, out, at); });
    CheckPieces<float>(first, [&](auto out, uint64_t at) { Uniform(key, out, at); });
    CheckPieces<float>(first, [&](auto out, uint64_t at) { Normal(key, out, at); });
    CheckPieces<float>(first, [&](auto out, uint64_t at) { TruncatedNormal(key, -2, 2, out, at); });
    CheckPieces<int32_t>(first, [&](auto out, uint64_t at) { Randint(key, -7, 8000, out, at); });
  }
}

TEST_CASE("Word i is the xor of the two words of threefry(key, i), also beyond 2^32") {
  const Key key = KeyFromSeed(0x123456789ABCDEF0u);
  const uint64_t first = (uint64_t{3} << 32) - 40;
  std::vector<uint32_t> bits(100);
  Bits(key, bits, first);
  for (size_t i = 0; i < bits.size(); ++i) {
    const Key block = FoldIn(key, first + i);
    CHECK(bits[i] == (block.hi ^ block.lo));
  }
}

TEST_CASE("No element outside the given span is written") {
  for (size_t n = 0; n <= 130; ++n) {
    std::vector<float> values(n + 2, 99.0f);
    Normal({1, 2}, std::span(values).subspan(1, n));
    CHECK(values.front() == 99.0f);
    CHECK(values.back() == 99.0f);
    CHECK(std::count(values.begin(), values.end(), 99.0f) == 2);
  }
}

TEST_CASE("Uniforms are multiples of 2^-23 from 0 to below 1 and follow the uniform law") {
  std::vector<float> values(1 << 20);
  Uniform(KeyFromSeed(7), values);
  for (const float value : values) {
    REQUIRE(value >= 0.0f);
    REQUIRE(value < 1.0f);
    REQUIRE(std::ldexp(value, 23) == std::floor(std::ldexp(value, 23)));
  }
  CHECK(KolmogorovStatistic(values, [](double x) { return x; }) < 1.95);
}

TEST_CASE("Normals follow the normal law and stay within 5.5") {
  const std::vector<float> values = Normals(KeyFromSeed(11), 1 << 20);
  const Moments moments = MomentsOf(values);
  const double n = static_cast<double>(values.size());
  CHECK(std::abs(moments.mean) < 4 / std::sqrt(n));
  CHECK(std::abs(moments.variance - 1) < 4 * std::sqrt(2 / n));
  CHECK(KolmogorovStatistic(values, NormalDistribution) < 1.95);
  CHECK(*std::ranges::max_element(values) < 5.5f);
  CHECK(*std::ranges::min_element(values) > -5.5f);
}

TEST_CASE("A normal is the inverse of the distribution function at its uniform") {
  const Key key = KeyFromSeed(13);
  const size_t n = 1 << 18;
  const std::vector<float> normals = Normals(key, n);
  std::vector<float> uniforms(n);
  Uniform(key, uniforms);
  double worst = 0;
  for (size_t i = 0; i < n; ++i) {
    const double u = static_cast<float>(2 * uniforms[i] + std::nextafter(-1.0f, 0.0f));
    const double error = std::erf(normals[i] / std::sqrt(2.0)) - u;
    // In units of what a rounding of u^2 and of the result may change.
    const double density = std::exp(-0.5 * normals[i] * normals[i]);
    worst = Farther(worst, std::abs(error) / (6e-8 + 4e-7 * density));
  }
  CHECK(worst < 1);
}

TEST_CASE("A normal truncated to -2 to 2 has standard deviation 0.87963") {
  std::vector<float> values(1000000);
  TruncatedNormal(KeyFromSeed(17), -2, 2, values);
  const Moments moments = MomentsOf(values);
  CHECK(std::sqrt(moments.variance) == doctest::Approx(0.8796256610342398).epsilon(0.003));
  CHECK(std::abs(moments.mean) < 4 * 0.88 / 1000);
  CHECK(*std::ranges::max_element(values) < 2.0f);
  CHECK(*std::ranges::min_element(values) > -2.0f);
  CHECK(*std::ranges::max_element(values) > 1.999f);
  const double outside = NormalDistribution(-2);
  CHECK(KolmogorovStatistic(values, [&](double x) {
          return (NormalDistribution(x) - outside) / (1 - 2 * outside);
        }) < 1.95);
}

TEST_CASE("A truncated normal is finite and inside its interval however wide that is") {
  std::vector<float> values(1 << 16);
  for (const auto& [low, high] : {std::pair{-100.0f, 100.0f}, std::pair{1.0f, 1.5f},
                                  std::pair{-100.0f, -3.0f}, std::pair{0.0f, 1e30f}}) {
    TruncatedNormal(KeyFromSeed(19), low, high, values);
    for (const float value : values) {
      REQUIRE(value > low);
      REQUIRE(value < high);
    }
  }
}

TEST_CASE("Integers are in their range, equally frequent, for small and for the widest range") {
  std::vector<int32_t> values(700000);
  Randint(KeyFromSeed(23), -3, 4, values);
  std::vector<int> counts(7);
  for (const int32_t value : values) {
    REQUIRE(value >= -3);
    REQUIRE(value < 4);
    ++counts[static_cast<size_t>(value + 3)];
  }
  double chi_squared = 0;
  for (const int count : counts) {
    chi_squared += (count - 100000.0) * (count - 100000.0) / 100000.0;
  }
  CHECK(chi_squared < 22.5);  // 6 degrees of freedom, probability 0.001

  Randint(KeyFromSeed(23), 5, 6, values);
  CHECK(std::ranges::all_of(values, [](int32_t value) { return value == 5; }));
}

TEST_CASE("Integers equal the 32-bit definition for every kind of span") {
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  const Key key = KeyFromSeed(29);
  std::vector<uint32_t> upper(600);
  std::vector<uint32_t> lower(600);
  Bits(FoldIn(key, 0), upper);
  Bits(FoldIn(key, 1), lower);
  std::vector<int32_t> values(600);
  for (const auto& [low, high] :
       {std::pair{0, 1}, std::pair{0, 2}, std::pair{-5, 12}, std::pair{0, 65535},
        std::pair{0, 65536}, std::pair{0, 65537}, std::pair{0, kMax}, std::pair{kMin, 0},
        std::pair{kMin, 5}, std::pair{kMin, kMax}}) {
    const uint32_t span = static_cast<uint32_t>(high) - static_cast<uint32_t>(low);
    uint32_t multiplier = 65536u % span;
    multiplier = multiplier * multiplier % span;
    Randint(key, low, high, values);
    CHECK(Randint(key, low, high) == values[0]);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t offset = (upper[i] % span * multiplier + lower[i] % span) % span;
      REQUIRE(values[i] == static_cast<int32_t>(static_cast<uint32_t>(low) + offset));
    }
  }
}

TEST_CASE("Different keys give different arrays") {
  CHECK(Normals(KeyFromSeed(0), 8) != Normals(KeyFromSeed(1), 8));
  CHECK(FoldIn(KeyFromSeed(0), 1) != FoldIn(KeyFromSeed(0), uint64_t{1} << 32));
}

TEST_CASE("Empty ranges are errors that name both bounds") {
  std::vector<int32_t> integers(1);
  std::vector<float> floats(1);
  CHECK_THROWS_WITH_AS(Randint({}, 3, 3, integers),
                       "Randint: low must be below high, got low 3 and high 3", Error);
  CHECK_THROWS_WITH_AS(Randint({}, 3, -3), "Randint: low must be below high, got low 3 and high -3",
                       Error);
  CHECK_THROWS_WITH_AS(TruncatedNormal({}, 2, -2, floats),
                       "TruncatedNormal: low must be below high, got low 2 and high -2", Error);
  CHECK_THROWS_WITH_AS(SplitKey({}, -1),
                       "SplitKey: the number of keys must not be negative, got -1", Error);
}

}  // namespace
}  // namespace lopt

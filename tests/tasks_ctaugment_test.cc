#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lopt/base/safetensors.h"
#include "lopt/tasks/augment/ctaugment/ctaugment.h"
#include "lopt/tasks/augment/ctaugment/operations.h"
#include "lopt/tasks/augment/ctaugment/policy.h"
#include "lopt/tasks/augment/ctaugment/rates.h"
#include "tests/error_of.h"
#include "tests/farthest.h"
#include "tests/golden_dir.h"

namespace lopt {
namespace {

using Json = nlohmann::json;

std::vector<uint8_t> Pixels(const Array& array) {
  const auto values = array.As<uint8_t>();
  return {values.begin(), values.end()};
}

ByteImage ImageOf(const Shape& shape, std::vector<uint8_t>* pixels) {
  return {.height = shape[0],
          .width = shape[1],
          .channels = shape.size() == 3 ? shape[2] : 1,
          .pixels = pixels->data()};
}

// Compares every "output/<image>/<operation>" of a file; returns how many images that were.
int CompareWithPillow(const std::string& file) {
  const ArrayFile golden = ReadArrayFile(GoldenPath(file));
  const Json centres = Json::parse(
      golden.metadata.contains("cutout_centre") ? golden.metadata.at("cutout_centre") : "{}");
  const std::span<const double> levels = golden.arrays.At("level").As<double>();
  Workspace scratch;
  int compared = 0;
  for (const auto& [name, input] : golden.arrays) {
    if (!name.starts_with("input/")) continue;
    const std::string image_name = name.substr(6);
    for (int n = 0; n < kOperationCount; ++n) {
      const std::string output = "output/" + image_name + "/" + std::string(kOperations[n].name);
      if (!golden.arrays.Contains(output)) continue;
      const std::vector<uint8_t> wanted = Pixels(golden.arrays.At(output));
      for (size_t i = 0; i < levels.size(); ++i) {
        INFO(output, " at level ", levels[i]);
        OperationCall call{.operation = static_cast<Operation>(n),
                           .levels = {levels[i], levels[(2 * i + 1) % levels.size()]}};
        if (call.operation == Operation::kCutout) {
          const Json& centre = centres.at(image_name + "/" + std::to_string(i));
          call.centre_x = centre[0];
          call.centre_y = centre[1];
        }
        std::vector<uint8_t> pixels = Pixels(input);
        Apply(call, TranslateUnit::kPixels, ImageOf(input.shape(), &pixels), scratch);
        const auto begin = wanted.begin() + static_cast<int64_t>(i * pixels.size());
        CHECK(std::equal(pixels.begin(), pixels.end(), begin));
        ++compared;
      }
    }
  }
  return compared;
}

TEST_CASE("Operations give the pixels of the published code, bit for bit") {
  CHECK(CompareWithPillow("ctaugment_ops.safetensors") == 3 * 19 * 6);
}

TEST_CASE("Operations give Pillow's pixels of images smaller than a filter and of single columns") {
  CHECK(CompareWithPillow("ctaugment_small_images.safetensors") == 4 * 17 * 6);
}

TEST_CASE(
    "In fractions translate moves by three tenths of the width or height, in pixels by none") {
  // 10 pixels wide, 20 high; a pixel's value is its number.
  std::vector<uint8_t> numbers(200);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint8_t>(i + 1);
  Workspace scratch;
  const auto moved = [&](Operation operation, double level, TranslateUnit unit) {
    std::vector<uint8_t> pixels = numbers;
    Apply({.operation = operation, .levels = {level}}, unit, ImageOf({20, 10}, &pixels), scratch);
    return pixels;
  };
  const auto shifted = [&](int x, int y) {
    std::vector<uint8_t> pixels(200);
    for (int line = 0; line < 20; ++line) {
      for (int column = 0; column < 10; ++column) {
        const bool inside = column + x >= 0 && column + x < 10 && line + y >= 0 && line + y < 20;
        if (inside) pixels[10 * line + column] = numbers[10 * (line + y) + column + x];
      }
    }
    return pixels;
  };
  CHECK(moved(Operation::kTranslateX, 1, TranslateUnit::kFraction) == shifted(3, 0));
  CHECK(moved(Operation::kTranslateX, 0, TranslateUnit::kFraction) == shifted(-3, 0));
  CHECK(moved(Operation::kTranslateX, 0.6, TranslateUnit::kFraction) == shifted(1, 0));
  CHECK(moved(Operation::kTranslateY, 1, TranslateUnit::kFraction) == shifted(0, 6));
  CHECK(moved(Operation::kTranslateY, 0.25, TranslateUnit::kFraction) == shifted(0, -3));
  for (const double level : {0.0, 0.3, 1.0}) {
    CHECK(moved(Operation::kTranslateX, level, TranslateUnit::kPixels) == numbers);
    CHECK(moved(Operation::kTranslateY, level, TranslateUnit::kPixels) == numbers);
  }
}

Json GoldenRates() {
  std::ifstream file(GoldenPath("ctaugment_rates.json"));
  return Json::parse(file);
}

Operation OperationOf(const std::string& name) {
  for (int n = 0; n < kOperationCount; ++n) {
    if (kOperations[n].name == name) return static_cast<Operation>(n);
  }
  FAIL("no operation " << name);
  return {};
}

// The 32 records of the golden file, those of its first rank before those of the second.
std::vector<OperationRecord> GoldenRecords(const Json& golden) {
  std::vector<OperationRecord> records;
  for (const Json& rank : golden.at("records")) {
    for (const Json& in : rank) {
      OperationRecord record{.operation = OperationOf(in.at("op")), .error = in.at("error")};
      std::ranges::copy(in.at("bins"), record.arguments);
      records.push_back(record);
    }
  }
  return records;
}

std::vector<float> InitialRates() {
  return std::vector<float>(static_cast<size_t>(RatesLayout().size()), 1.0F);
}

std::vector<float> RatesAfter(std::span<const OperationRecord> records) {
  std::vector<float> rates = InitialRates();
  UpdateRates(records, 0.99, rates);
  return rates;
}

TEST_CASE("Rates are 303 numbers in the bins of the published operations") {
  CHECK(RatesLayout().size() == 303);
  const Json golden = GoldenRates();
  for (int n = 0; n < kOperationCount; ++n) {
    const OperationEntry& entry = kOperations[n];
    CHECK(golden.at("sorted_ops")[n] == entry.name);
    const Json& bins = golden.at("bins").at(std::string(entry.name));
    REQUIRE(static_cast<int>(bins.size()) == entry.arguments);
    for (int a = 0; a < entry.arguments; ++a) {
      CHECK(bins[a] == entry.bins[a]);
      const LayoutEntry& tensor =
          RatesLayout().Find("rates/" + std::string(entry.name) + "/" + std::to_string(a));
      CHECK(tensor.size == entry.bins[a]);
      CHECK(tensor.offset == FirstBin(static_cast<Operation>(n), a));
    }
  }
}

TEST_CASE("The 32 published records change 31 rates to the published values") {
  const Json golden = GoldenRates();
  const std::vector<OperationRecord> records = GoldenRecords(golden);
  REQUIRE(records.size() == 32);
  std::vector<float> wanted = InitialRates();
  for (const auto& [name, arguments] : golden.at("changed_rates").items()) {
    for (size_t a = 0; a < arguments.size(); ++a) {
      for (const Json& change : arguments[a]) {
        const auto bin = FirstBin(OperationOf(name), static_cast<int>(a)) + change[0].get<int>();
        wanted[static_cast<size_t>(bin)] = change[1];
      }
    }
  }
  const std::vector<float> rates = RatesAfter(records);
  CHECK(rates == wanted);
  CHECK(std::ranges::count_if(rates, [](float rate) { return rate != 1; }) == 31);
  CHECK(rates[static_cast<size_t>(FirstBin(Operation::kTranslateX, 0) + 10)] == 0.9486404061F);
  CHECK(rates[static_cast<size_t>(FirstBin(Operation::kSolarize, 0) + 5)] == 0.9502210617F);
  CHECK(rates[static_cast<size_t>(FirstBin(Operation::kRescale, 1) + 4)] == 0.9508820176F);
}

TEST_CASE("Ranks that merge their records differ from the mean of their rates and other orders") {
  const Json golden = GoldenRates();
  const std::vector<OperationRecord> records = GoldenRecords(golden);
  const std::span<const OperationRecord> first = std::span(records).first(16);
  const std::span<const OperationRecord> second = std::span(records).subspan(16);
  const std::vector<float> rates = RatesAfter(records);
  const Json& not_this = golden.at("not_this");
  std::vector<float> mean = RatesAfter(first);
  const std::vector<float> alone = RatesAfter(second);
  for (size_t i = 0; i < mean.size(); ++i) mean[i] = (mean[i] + alone[i]) / 2;
  CHECK(Farthest(rates, mean) ==
        doctest::Approx(not_this.at("mean_of_ranks_largest_difference").get<double>()));
  std::vector<float> swapped = RatesAfter(second);
  UpdateRates(first, 0.99, swapped);
  CHECK(Farthest(rates, swapped) ==
        doctest::Approx(not_this.at("rank_1_first_largest_difference").get<double>()));
  std::vector<OperationRecord> reversed = records;
  std::ranges::reverse(reversed);
  CHECK(Farthest(rates, RatesAfter(reversed)) ==
        doctest::Approx(not_this.at("reversed_largest_difference").get<double>()));
}

TEST_CASE("The 400 records of four ranks give the published rates and probabilities") {
  const NamedArrays golden = ReadArrayFile(GoldenPath("ctaugment_merge.safetensors")).arrays;
  const std::span<const float> packed = golden.At("records").As<float>();
  std::vector<OperationRecord> records;
  for (size_t i = 0; i < packed.size(); i += kPackedRecord) {
    const auto one = packed.subspan(i).first<kPackedRecord>();
    records.push_back(Unpack(one));
    std::array<float, kPackedRecord> again{};
    Pack(records.back(), again);
    CHECK(std::ranges::equal(again, one));
  }
  REQUIRE(records.size() == 400);
  std::vector<float> wanted = InitialRates();
  RowFromArrays(RatesLayout(), golden, "", wanted);
  const std::vector<float> rates = RatesAfter(records);
  CHECK(rates == wanted);
  std::vector<float> learned = InitialRates();
  CtAugment({}, {.height = 8, .width = 8}).Learn(packed, learned);
  CHECK(learned == wanted);
  std::vector<double> probabilities(rates.size());
  BinProbabilities(rates, 0.99, 0.85, probabilities);
  for (const LayoutEntry& entry : RatesLayout().entries()) {
    const auto p = golden.At("p" + entry.name.substr(5)).As<double>();
    for (size_t bin = 0; bin < p.size(); ++bin) {
      const double got = probabilities[static_cast<size_t>(entry.offset) + bin];
      CHECK(got == doctest::Approx(p[bin]).epsilon(1e-6));
      CHECK((got == 0) == (p[bin] == 0));
    }
  }
}

TEST_CASE("Bins whose rate is far below the best are not trained with") {
  std::vector<float> rates = InitialRates();
  const auto solarize = static_cast<size_t>(FirstBin(Operation::kSolarize, 0));
  for (size_t bin = 0; bin < 17; ++bin) rates[solarize + bin] = 0.5F;
  rates[solarize + 4] = 0.99F;
  rates[solarize + 7] = 0.79F;  // (.79 + .01) / (.99 + .01) is the threshold
  rates[solarize + 9] = 0.78F;
  std::vector<double> probabilities(rates.size());
  BinProbabilities(rates, 0.99, 0.7999, probabilities);
  for (size_t bin = 0; bin < 17; ++bin) {
    CHECK((probabilities[solarize + bin] > 0) == (bin == 4 || bin == 7));
  }
  CHECK(probabilities[solarize + 4] == doctest::Approx(1 / 1.8).epsilon(1e-6));
  CHECK(probabilities[static_cast<size_t>(FirstBin(Operation::kRotate, 0))] ==
        doctest::Approx(1.0 / 17));

  // Policies that are drawn with them: 19 operations alike, arguments uniform in their bins.
  constexpr int kSteps = 200000;
  std::vector<float> draws(kSteps * kDrawsPerStep);
  Uniform(KeyFromSeed(1), draws);
  std::vector<int> operations(kOperationCount);
  std::vector<int> bins(17);
  double within = 0;
  for (size_t i = 0; i < draws.size(); i += kDrawsPerStep) {
    const PolicyStep step =
        TrainStep(std::span<const float>(draws).subspan(i, kDrawsPerStep), probabilities);
    ++operations[static_cast<size_t>(step.operation)];
    if (step.operation != Operation::kSolarize) continue;
    const double at = step.arguments[0] * 17;
    ++bins[static_cast<size_t>(at)];
    within += at - std::floor(at);
  }
  for (const int count : operations) {
    CHECK(count == doctest::Approx(kSteps / 19.0).epsilon(0.05));
  }
  const int solarized = operations[static_cast<size_t>(Operation::kSolarize)];
  CHECK(bins[4] + bins[7] == solarized);
  CHECK(bins[4] == doctest::Approx(solarized / 1.8).epsilon(0.03));
  CHECK(within / solarized == doctest::Approx(0.5).epsilon(0.03));
}

TEST_CASE("Probes try every operation in any strength, wherever the rates are") {
  constexpr int kSteps = 100000;
  std::vector<float> draws(kSteps * kDrawsPerStep);
  Uniform(KeyFromSeed(2), draws);
  std::vector<int> operations(kOperationCount);
  std::vector<int> tenths(10);
  for (size_t i = 0; i < draws.size(); i += kDrawsPerStep) {
    const PolicyStep step = ProbeStep(std::span<const float>(draws).subspan(i, kDrawsPerStep));
    ++operations[static_cast<size_t>(step.operation)];
    for (const double argument : step.arguments) ++tenths[static_cast<size_t>(argument * 10)];
  }
  for (const int count : operations) CHECK(count == doctest::Approx(kSteps / 19.0).epsilon(0.06));
  for (const int count : tenths) CHECK(count == doctest::Approx(kSteps / 5.0).epsilon(0.03));
}

constexpr ImageExtent kDigits{.height = 8, .width = 8};

TEST_CASE("Workers that share the probes of a step learn what one does that has them all") {
  const CtAugment augmentation({.depth = 3}, kDigits);
  const Key key = KeyFromSeed(3);
  std::vector<float> losses(12);
  Uniform(KeyFromSeed(4), losses);
  Workspace scratch;
  const auto records_of = [&](int64_t workers) {
    std::vector<float> gathered(losses.size() * 3 * kPackedRecord);
    const size_t probes = losses.size() / static_cast<size_t>(workers);
    const size_t size = gathered.size() / static_cast<size_t>(workers);
    for (int64_t worker = 0; worker < workers; ++worker) {
      const auto w = static_cast<size_t>(worker);
      augmentation.Record({.key = key, .index = worker, .count = workers},
                          std::span<const float>(losses).subspan(w * probes, probes),
                          std::span(gathered).subspan(w * size, size), scratch);
    }
    return gathered;
  };
  const std::vector<float> alone = records_of(1);
  CHECK(records_of(4) == alone);
  std::vector<float> rates = InitialRates();
  augmentation.Learn(alone, rates);
  CHECK(rates != InitialRates());
}

TEST_CASE("A record's error is twice what the label's probability lacks to 1") {
  const CtAugment augmentation({.depth = 1}, kDigits);
  Workspace scratch;
  const std::vector<float> losses = {0, std::log(4.0F), 1e9F, NAN, -INFINITY};
  std::vector<float> records(losses.size() * kPackedRecord);
  augmentation.Record({.key = KeyFromSeed(1)}, losses, records, scratch);
  const auto error = [&](size_t i) {
    return Unpack(std::span<const float>(records).subspan(i * kPackedRecord).first<kPackedRecord>())
        .error;
  };
  CHECK(error(0) == 0);
  CHECK(error(1) == doctest::Approx(1.5));
  for (const size_t i : {2, 3, 4}) CHECK(error(i) == 2);
}

TEST_CASE("Packed records that no operation makes are refused") {
  const auto error = [](std::array<float, kPackedRecord> packed) {
    return ErrorOf([&] { Unpack(packed); });
  };
  CHECK(error({19, 0, 1, -555, -555}) == "CTAugment: a record of operation 19, there are 19");
  CHECK(error({NAN, 0, 1, -555, -555}) == "CTAugment: a record of operation nan, there are 19");
  CHECK(error({0, 2, 1, 1, 1}) == "CTAugment: a record of autocontrast with 2 arguments, it has 1");
}

TEST_CASE("CTAugment names what is wrong with its options and images") {
  CHECK(ErrorOf([] { CtAugment({}, {.height = 8, .width = 8, .channels = 2}); }) ==
        "CTAugment: images have 2 channels, wanted 1 or 3");
  CHECK(ErrorOf([] { CtAugment({.decay = 1}, kDigits); }) ==
        "CTAugment: decay must be in (0, 1), got 1");
  CHECK(ErrorOf([] { CtAugment({.probes = 0}, kDigits); }) ==
        "CTAugment: probes must be in [1, 1000000], got 0");
}

}  // namespace
}  // namespace lopt

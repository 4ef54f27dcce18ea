#include "lopt/tasks/augment/ctaugment/rates.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"

namespace lopt {
namespace {

Layout MakeRatesLayout() {
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const OperationEntry& entry : kOperations) {
    for (int argument = 0; argument < entry.arguments; ++argument) {
      tensors.push_back({fmt::format("rates/{}/{}", entry.name, argument), {entry.bins[argument]}});
    }
  }
  return Layout(std::move(tensors));
}

constexpr float kPadding = -555;

using FirstBins = std::array<std::array<int64_t, 2>, kOperationCount>;

constexpr FirstBins MakeFirstBins() {
  FirstBins first{};
  int64_t next = 0;
  for (size_t operation = 0; operation < kOperationCount; ++operation) {
    for (size_t argument = 0; argument < 2; ++argument) {
      first[operation][argument] = next;
      next += kOperations[operation].bins[argument];
    }
  }
  return first;
}

constexpr FirstBins kFirstBins = MakeFirstBins();

// Of one argument.
void BinsOfArgument(std::span<const float> rates, double decay, double threshold,
                    std::span<double> probabilities) {
  const double largest = std::ranges::max(rates) + (1 - decay);
  double sum = 0;
  for (size_t bin = 0; bin < rates.size(); ++bin) {
    const double relative = (rates[bin] + (1 - decay)) / largest;
    probabilities[bin] = relative < threshold ? 0 : relative;
    sum += probabilities[bin];
  }
  for (double& probability : probabilities) probability /= sum;
}

}  // namespace

const Layout& RatesLayout() {
  static const Layout layout = MakeRatesLayout();
  return layout;
}

int64_t FirstBin(Operation operation, int argument) {
  return kFirstBins[static_cast<size_t>(operation)][static_cast<size_t>(argument)];
}

void Pack(const OperationRecord& record, std::span<float, kPackedRecord> packed) {
  const int arguments = EntryOf(record.operation).arguments;
  std::ranges::fill(packed, kPadding);
  packed[0] = static_cast<float>(record.operation);
  packed[1] = static_cast<float>(arguments);
  std::copy_n(record.arguments, arguments, packed.begin() + 2);
  packed.subspan(2)[static_cast<size_t>(arguments)] = record.error;
}

OperationRecord Unpack(std::span<const float, kPackedRecord> packed) {
  Require(packed[0] >= 0 && packed[0] < static_cast<float>(kOperationCount),
          "CTAugment: a record of operation {}, there are {}", packed[0], kOperationCount);
  OperationRecord record{.operation = static_cast<Operation>(packed[0])};
  const int arguments = EntryOf(record.operation).arguments;
  Require(packed[1] == static_cast<float>(arguments),
          "CTAugment: a record of {} with {} arguments, it has {}", EntryOf(record.operation).name,
          packed[1], arguments);
  std::copy_n(packed.begin() + 2, arguments, record.arguments);
  record.error = packed.subspan(2)[static_cast<size_t>(arguments)];
  return record;
}

void UpdateRates(std::span<const OperationRecord> records, double decay, std::span<float> rates) {
  for (const OperationRecord& record : records) {
    const OperationEntry& entry = EntryOf(record.operation);
    const double proximity = 1 - record.error / 2.0;
    for (int argument = 0; argument < entry.arguments; ++argument) {
      const auto bin =
          static_cast<int64_t>(double{record.arguments[argument]} * entry.bins[argument] * 0.999);
      float& rate = rates[static_cast<size_t>(FirstBin(record.operation, argument) + bin)];
      rate = rate * static_cast<float>(decay) + static_cast<float>(proximity * (1 - decay));
    }
  }
}

void BinProbabilities(std::span<const float> rates, double decay, double threshold,
                      std::span<double> probabilities) {
  for (int n = 0; n < kOperationCount; ++n) {
    for (int argument = 0; argument < kOperations[n].arguments; ++argument) {
      const auto first = static_cast<size_t>(FirstBin(static_cast<Operation>(n), argument));
      const auto bins = static_cast<size_t>(kOperations[n].bins[argument]);
      BinsOfArgument(rates.subspan(first, bins), decay, threshold,
                     probabilities.subspan(first, bins));
    }
  }
}

}  // namespace lopt

#include "lopt/tasks/check/draw_checks.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "lopt/tasks/check/task_rows.h"

namespace lopt::checks {
namespace {

struct DrawnTask {
  std::vector<float> config;
  std::vector<float> params;
  std::vector<float> model_state;
};

// What was drawn twice with one key, over different garbage, and once with another key.
struct ThreeDraws {
  const char* what;
  const Layout& layout;
  const std::vector<float>& first;
  const std::vector<float>& again;
  const std::vector<float>& other;
};

constexpr float kOtherGarbage = 7;

void ExpectFunctionOfKey(const ThreeDraws& drawn, Findings* findings) {
  for (size_t i = 0; i < drawn.first.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const bool left = std::isnan(drawn.first[i]) && drawn.again[i] == kOtherGarbage;
    if (!findings->Expect(!left, "{} {} is not written", drawn.what,
                          ElementName(drawn.layout, index))) {
      return;
    }
    if (!findings->Expect(std::isfinite(drawn.first[i]), "{} {} is {}", drawn.what,
                          ElementName(drawn.layout, index), drawn.first[i])) {
      return;
    }
  }
  findings->Expect(SameBits(drawn.first, drawn.again),
                   "{} drawn twice with the same key differs: it is not a function of the key",
                   drawn.what);
}

constexpr int64_t kFewestRanks = 10;

// The order of the numbers by size; empty where two are equal.
std::vector<size_t> Ranks(std::span<const float> numbers) {
  std::vector<size_t> order(numbers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return numbers[i]; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (numbers[order[i - 1]] == numbers[order[i]]) return {};
  }
  return order;
}

// Two tensors made from the same random numbers, whatever monotone function made them, have the
// same order: one chance in 10! for others.
void ExpectTensorsOfTheirOwn(const ThreeDraws& drawn, Findings* findings) {
  constexpr int64_t kMost = 64;
  const auto start_of = [&](const LayoutEntry& entry, const std::vector<float>& row, int64_t n) {
    return std::span(row).subspan(entry.offset, n);
  };
  const auto& entries = drawn.layout.entries();
  for (size_t a = 0; a < entries.size(); ++a) {
    for (size_t b = a + 1; b < entries.size(); ++b) {
      const int64_t n = std::min({entries[a].size, entries[b].size, kMost});
      if (n < kFewestRanks) continue;
      const std::vector<size_t> left = Ranks(start_of(entries[a], drawn.first, n));
      std::vector<size_t> right = Ranks(start_of(entries[b], drawn.first, n));
      const bool drawn_at_all = left != Ranks(start_of(entries[a], drawn.other, n));
      bool same = left == right;
      std::ranges::reverse(right);
      same = same || left == right;
      findings->Expect(left.empty() || !drawn_at_all || !same,
                       "{} '{}' and '{}' are made from the same random numbers: a key is used "
                       "twice; fold it in for each (FoldIn in base/key.h)",
                       drawn.what, entries[a].name, entries[b].name);
    }
  }
}

// A config may be the same for every key, as where a range has equal ends. But ten or more numbers
// that all differ look drawn.
void ExpectKeyIsUsed(const TaskFamily& task, const std::vector<float>& config, Findings* findings) {
  constexpr uint64_t kLastSeed = 65;  // from 2 on
  std::vector<float> other(config.size());
  for (uint64_t seed = 2; seed <= kLastSeed; ++seed) {
    task.Sample(KeyFromSeed(seed), other);
    if (!SameBits(config, other)) return;
  }
  for (const LayoutEntry& entry : task.config_layout().entries()) {
    if (entry.size < kFewestRanks) continue;
    findings->Expect(Ranks(std::span(config).subspan(entry.offset, entry.size)).empty(),
                     "config '{}' drawn with {} keys is the same: Sample does not use its key",
                     entry.name, kLastSeed);
  }
  findings->Measure("config is the same for every key");
}

}  // namespace

void CheckTaskLayouts(const TaskFamily& task, Findings* findings) {
  findings->Expect(task.params_layout().size() >= 1, "there are no params");
  findings->Expect(task.PreferredRows() >= 1 || task.PreferredRows() == TaskFamily::kAllRows,
                   "PreferredRows() is {}, wanted at least 1, or kAllRows", task.PreferredRows());
  for (const LayoutEntry& entry : task.aux_layout().entries()) {
    findings->Expect(entry.shape.empty(), "aux output '{}' has shape {}, wanted a scalar",
                     entry.name, ToString(entry.shape));
  }
  findings->Measure("{} params, {} config, {} model state", task.params_layout().size(),
                    task.config_layout().size(), task.model_state_layout().size());
}

void CheckTaskDraws(const TaskFamily& task, Findings* findings) {
  const auto draw = [&](Key key, float garbage) {
    DrawnTask drawn{std::vector<float>(task.config_layout().size(), garbage),
                    std::vector<float>(task.params_layout().size(), garbage),
                    std::vector<float>(task.model_state_layout().size(), garbage)};
    task.Sample(key, drawn.config);
    const std::vector<float> config = drawn.config;
    task.Init(drawn.config, key, drawn.params, drawn.model_state);
    findings->Expect(SameBits(config, drawn.config), "Init changed the config that it was given");
    return drawn;
  };
  const DrawnTask first = draw(KeyFromSeed(1), kNaN);
  const DrawnTask again = draw(KeyFromSeed(1), kOtherGarbage);
  const DrawnTask other = draw(KeyFromSeed(2), kNaN);
  const auto draws = [&](const char* what, const Layout& layout, auto member) {
    return ThreeDraws{what, layout, first.*member, again.*member, other.*member};
  };
  const ThreeDraws config = draws("config", task.config_layout(), &DrawnTask::config);
  const ThreeDraws params = draws("params", task.params_layout(), &DrawnTask::params);
  ExpectFunctionOfKey(config, findings);
  ExpectFunctionOfKey(params, findings);
  ExpectFunctionOfKey(draws("model_state", task.model_state_layout(), &DrawnTask::model_state),
                      findings);
  if (SameBits(params.first, params.other)) {
    findings->Measure("params are the same for every key");
  }
  if (!findings->passed()) return;
  if (!config.first.empty()) ExpectKeyIsUsed(task, config.first, findings);
  ExpectTensorsOfTheirOwn(config, findings);
  ExpectTensorsOfTheirOwn(params, findings);
}

}  // namespace lopt::checks

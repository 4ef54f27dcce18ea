#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/record.h"
#include "lopt/lopt/theta_file.h"

namespace lopt {
namespace {

constexpr int64_t kTimesLarger = 10;

// Says it of a record's numbers.
class RequireNotNegative {
 public:
  explicit RequireNotNegative(const std::string& source) : source_(source) {}
  void operator()(const std::string& name, int64_t value) const {
    Require(value >= 0, "{}: {} must be at least 0, got {}", source_, name, value);
  }

 private:
  const std::string& source_;
};

// 1234567 -> "1,234,567".
std::string InThousands(int64_t number) {
  const std::string digits = fmt::format("{}", number);
  std::string shown;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) shown += ',';
    shown += digits[i];
  }
  return shown;
}

}  // namespace

TrainedRange ParseTrainedRange(const std::string& text, const std::string& source) {
  auto range = ParseRecord<TrainedRange>(text, source);
  const RequireNotNegative check(source);
  range.VisitMembers(check);
  const auto ordered = [&](const char* low_name, int64_t low, const char* high_name, int64_t high) {
    Require(low <= high, "{}: {} must be at most {}, got {} and {}", source, low_name, high_name,
            low, high);
  };
  if (range.longest_training > 0) {  // unknown where some episodes have no end
    ordered("shortest_training", range.shortest_training, "longest_training",
            range.longest_training);
  }
  ordered("smallest_batch", range.smallest_batch, "largest_batch", range.largest_batch);
  ordered("fewest_params", range.fewest_params, "most_params", range.most_params);
  ordered("largest_tensor", range.largest_tensor, "most_params", range.most_params);
  return range;
}

std::string UnlikeTrained(const TrainedRange& range, int64_t num_steps,
                          std::span<const int64_t> tensors, int64_t batch_size) {
  std::vector<std::string> unlike;
  const auto compare = [&](fmt::format_string<std::string> what, int64_t here, int64_t least,
                           int64_t most, int64_t times_most) {
    if (here == 0) return;
    const bool is_less = here < least - least / 2;
    // Divided, since so many times as many may be more than there are numbers.
    const bool is_more = most > 0 && (here - 1) / times_most >= most;
    if (!is_less && !is_more) return;
    unlike.push_back(fmt::format("{} (there at {} {})", fmt::format(what, InThousands(here)),
                                 is_less ? "least" : "most", InThousands(is_less ? least : most)));
  };
  compare("num_steps {}", num_steps, range.shortest_training, range.longest_training, 1);
  compare("batches of {}", batch_size, range.smallest_batch, range.largest_batch, kTimesLarger);
  compare("{} parameters", std::reduce(tensors.begin(), tensors.end(), int64_t{0}), 0,
          range.most_params, kTimesLarger);
  compare("a tensor of {} numbers",
          tensors.empty() ? 0 : *std::max_element(tensors.begin(), tensors.end()), 0,
          range.largest_tensor, kTimesLarger);
  if (unlike.empty()) return "";
  return fmt::format("this training is unlike all that the optimizer was trained on: {}",
                     fmt::join(unlike, ", "));
}

}  // namespace lopt

#include "lopt/tools/fit/fit_verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/wrapped.h"
#include "lopt/evaluation/plain_table.h"
#include "lopt/tools/progress_line.h"

namespace lopt {
namespace {

const FitJudged* FindFitted(const std::vector<FitJudged>& judged) {
  const auto is_fitted = [](const FitJudged& one) { return one.contender.name == kFitted; };
  const auto found = std::ranges::find_if(judged, is_fitted);
  return found == judged.end() ? nullptr : &*found;
}

// Seeds in which the loss of `one` is lower.
int64_t SeedsBelow(const FitJudged& one, const FitJudged& other) {
  int64_t below = 0;
  for (size_t s = 0; s < one.test_loss.size(); ++s) {
    const double loss = one.test_loss[s];
    const double others = other.test_loss[s];
    if (std::isfinite(loss) && !(others <= loss)) ++below;  // one that is not a number is higher
  }
  return below;
}

// Trainings that diverged, and the mean of the others: what is less is better.
std::pair<int64_t, double> RankOf(const FitJudged& one) {
  int64_t diverged = 0;
  double sum = 0;
  for (const double loss : one.test_loss) {
    if (std::isfinite(loss)) {
      sum += loss;
    } else {
      ++diverged;
    }
  }
  return {diverged,
          sum / static_cast<double>(std::max<int64_t>(1, std::ssize(one.test_loss) - diverged))};
}

// "its loss is 2", or "it diverged with 1 of 3 seeds".
std::string LossInWords(const FitJudged& one, const char* has_loss, const char* who) {
  const int64_t diverged = RankOf(one).first;
  return diverged == 0
             ? fmt::format("{} {:.4g}", has_loss, one.Mean())
             : fmt::format("{} diverged with {} of {} seeds", who, diverged, one.test_loss.size());
}

// "Muon-cosine (learning_rate 0.03, weight_decay 0.1)".
std::string NameInWords(const FitContender& contender) {
  std::vector<std::string> values;
  for (const auto& [option, value] : contender.tuned) {
    values.push_back(fmt::format("{} {:.3g}", option, value));
  }
  return values.empty() ? contender.name
                        : fmt::format("{} ({})", contender.name, fmt::join(values, ", "));
}

std::string FitLossText(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.4g}", loss) : "diverged";
}

}  // namespace

double FitJudged::Mean() const {
  double sum = 0;
  for (const double loss : test_loss) {
    sum += std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity();
  }
  return sum / static_cast<double>(test_loss.size());
}

FitVerdict JudgeFit(const std::vector<FitJudged>& judged) {
  const FitJudged* fitted = FindFitted(judged);
  const FitJudged* best = nullptr;
  for (const FitJudged& one : judged) {
    if (&one != fitted && (best == nullptr || RankOf(one) < RankOf(*best))) best = &one;
  }
  Require(best != nullptr, "fit: there is nothing to compare with");
  if (fitted == nullptr) {
    return {.text = fmt::format(
                "Do not: on inner_valid nothing that fitting made was better than what it started "
                "from. On data that nothing was tuned on, {} has the lowest loss, {}.",
                NameInWords(best->contender), FitLossText(best->Mean()))};
  }
  const int64_t below = SeedsBelow(*fitted, *best);
  const int64_t seeds = std::ssize(fitted->test_loss);
  const bool take = below == seeds;
  return {
      .take = take,
      .text = fmt::format(
          "{}: on data that fitting never saw, {}; the best of the others is {}, {}. It is lower "
          "with {} of {} seeds.",
          take ? "Take it" : "Do not", LossInWords(*fitted, "its loss is", "it"),
          NameInWords(best->contender), LossInWords(*best, "with", "which"), below, seeds)};
}

std::string FitTable(const std::vector<FitJudged>& judged, size_t columns) {
  const FitJudged* fitted = FindFitted(judged);
  std::vector<const FitJudged*> order;
  for (const FitJudged& one : judged) order.push_back(&one);
  std::ranges::stable_sort(order, {}, [](const FitJudged* one) { return RankOf(*one); });
  PlainTable table({{.name = "optimizer", .least = 22},
                    {.name = "test loss"},
                    {.name = "fitted lower", .least = 13},
                    {.name = "trials", .least = 7},
                    {.name = "time", .least = 8}},
                   "  ");
  for (const FitJudged* one : order) {
    const FitContender& contender = one->contender;
    const bool compared = fitted != nullptr && one != fitted;
    table.Add(
        {contender.name, FitLossText(one->Mean()),
         compared ? fmt::format("{} of {}", SeedsBelow(*fitted, *one), one->test_loss.size()) : "",
         contender.trials > 0 ? FormatCount(static_cast<double>(contender.trials)) : "",
         FormatDuration(contender.seconds)},
        one == fitted ? "> " : "  ");
  }
  return table.Text(columns);
}

}  // namespace lopt

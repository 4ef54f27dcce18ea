#include "lopt/evaluation/tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "lopt/base/error.h"
#include "lopt/base/utf8.h"
#include "lopt/base/wrapped.h"
#include "lopt/evaluation/performance_profile.h"
#include "lopt/evaluation/summary_text.h"

namespace lopt {
namespace {

// --- Text -------------------------------------------------------------------------------------

std::string Bold(const std::string& text, bool bold) {
  return bold ? fmt::format("**{}**", text) : text;
}

std::string Shown(const Estimate& estimate, int digits, bool best) {
  std::string value = Bold(Rounded(estimate.value, digits), best);
  if (!HasInterval(estimate)) return value;
  return fmt::format("{} [{}, {}]", value, Rounded(estimate.interval.low, digits),
                     Rounded(estimate.interval.high, digits));
}

std::string ShownPercent(const Estimate& estimate, bool best) {
  std::string value = Bold(fmt::format("{:.1f}", 100 * estimate.value), best);
  if (!HasInterval(estimate)) return value;
  return fmt::format("{} [{:.1f}, {:.1f}]", value, 100 * estimate.interval.low,
                     100 * estimate.interval.high);
}

std::string Shown(Verdict verdict) { return verdict == Verdict::kNone ? "-" : ToString(verdict); }

// A Markdown table with aligned columns; all but the first are aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : lines_{std::move(header)} {}

  void Add(std::vector<std::string> line) { lines_.push_back(std::move(line)); }

  std::string Text() const {
    std::vector<size_t> widths;
    for (size_t c = 0; c < lines_.front().size(); ++c) {
      size_t width = 3;
      for (const auto& line : lines_) width = std::max(width, TextWidth(line[c]));
      widths.push_back(width);
    }
    std::string text;
    const auto out = std::back_inserter(text);
    for (size_t l = 0; l < lines_.size(); ++l) {
      for (size_t c = 0; c < widths.size(); ++c) {
        const std::string space(widths[c] - TextWidth(lines_[l][c]), ' ');
        fmt::format_to(out, "| {}{} ", c == 0 ? lines_[l][c] : space,
                       c == 0 ? space : lines_[l][c]);
      }
      text += "|\n";
      if (l > 0) continue;
      for (size_t c = 0; c < widths.size(); ++c) {
        fmt::format_to(out, "|{}{:-<{}}{}", c == 0 ? ':' : '-', "", widths[c], c == 0 ? '-' : ':');
      }
      text += "|\n";
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> lines_;
};

// --- One task and number of steps -------------------------------------------------------------

double TestLoss(const SummaryRow& row) { return row.test_loss.value; }
double TrainLoss(const SummaryRow& row) { return row.train_loss.value; }
double MeanTrainLoss(const SummaryRow& row) { return row.mean_train_loss.value; }
double StepsToAdam(const SummaryRow& row) {
  return row.steps_to_adam.value_or(std::numeric_limits<double>::infinity());
}
double TestError(const SummaryRow& row) {
  return row.test_accuracy ? -row.test_accuracy->value : std::numeric_limits<double>::infinity();
}

// Whether the row's figure is the lowest of all, equals included, and there is something to
// compare.
bool IsBest(const SummaryRow& row, SummaryRows rows, const RowFigure& figure) {
  return rows.size() > 1 && std::isfinite(figure(row)) &&
         std::ranges::all_of(rows,
                             [&](const SummaryRow& other) { return figure(row) <= figure(other); });
}

std::string ShownSeeds(SummaryRows rows) {
  const auto [fewest, most] = std::ranges::minmax(rows, {}, &SummaryRow::seeds);
  return fewest.seeds == most.seeds ? fmt::format("{} seeds", most.seeds)
                                    : fmt::format("{} to {} seeds", fewest.seeds, most.seeds);
}

// The optimizer's name, with a mark where its meta-training has trained on the task.
std::string ShownOptimizer(const SummaryRow& row) {
  return MarkdownName(row.optimizer) + (row.trained_on.value_or(false) ? " +" : "");
}

std::string ShownLearningRate(const SummaryRow& row) {
  if (!row.learning_rate && !row.step_multiplier) return "-";
  return fmt::format("{}{:.3g}{}", row.step_multiplier ? "steps x " : "",
                     row.step_multiplier ? *row.step_multiplier : *row.learning_rate,
                     row.at_edge ? "*" : "");
}

std::string ShownToAdam(const std::optional<double>& value) {
  if (!value) return "-";
  if (!std::isfinite(*value)) return "never";
  return *value < 9999.5 ? fmt::format("{:.4g}", *value) : fmt::format("{:.0f}", *value);
}

std::string Section(SummaryRows rows, bool has_adam) {
  const bool has_accuracy = std::ranges::any_of(
      rows, [](const SummaryRow& row) { return row.test_accuracy.has_value(); });
  std::vector<std::string> header = {"optimizer", "test loss", "train loss"};
  const bool has_best = std::ranges::any_of(rows, &SummaryRow::best_baseline);
  if (has_adam) header.emplace_back("test / train vs. Adam");
  if (has_best) header.emplace_back("test vs. best baseline");
  if (has_accuracy) header.emplace_back("test accuracy (%)");
  header.emplace_back("mean train loss");
  if (has_adam) {
    header.insert(header.end(), {"steps to Adam's loss", "speed-up in steps", "seconds to it",
                                 "speed-up in seconds"});
  }
  header.insert(header.end(), {"learning rate", "seconds", "diverged", "blown up"});
  Table table(header);
  const int test_digits = Digits(rows, &SummaryRow::test_loss);
  const int train_digits = Digits(rows, &SummaryRow::train_loss);
  const int mean_digits = Digits(rows, &SummaryRow::mean_train_loss);
  for (const SummaryRow& row : rows) {
    std::vector<std::string> line = {
        ShownOptimizer(row), Shown(row.test_loss, test_digits, IsBest(row, rows, TestLoss)),
        Shown(row.train_loss, train_digits, IsBest(row, rows, TrainLoss))};
    if (has_adam) {
      line.push_back(
          row.test_verdict == Verdict::kNone && row.train_verdict == Verdict::kNone
              ? "-"
              : fmt::format("{} / {}", Shown(row.test_verdict), Shown(row.train_verdict)));
    }
    if (has_best) line.push_back(row.best_baseline ? "the best" : Shown(row.best_verdict));
    if (has_accuracy) {
      line.push_back(
          row.test_accuracy ? ShownPercent(*row.test_accuracy, IsBest(row, rows, TestError)) : "-");
    }
    line.push_back(Shown(row.mean_train_loss, mean_digits, IsBest(row, rows, MeanTrainLoss)));
    if (has_adam) {
      line.push_back(ShownToAdam(row.steps_to_adam));
      for (const auto& value : {row.speedup, row.seconds_to_adam, row.seconds_speedup}) {
        line.push_back(value && std::isfinite(*value) && *value > 0 ? Rounded(*value, 3) : "-");
      }
    }
    line.push_back(ShownLearningRate(row));
    line.push_back(Rounded(row.seconds, 3));
    for (const int64_t count : {row.diverged, row.blown_up}) {
      line.push_back(count == 0 ? "0" : fmt::format("{} of {}", count, row.seeds));
    }
    table.Add(std::move(line));
  }
  return fmt::format("## {}, {} steps ({})\n\n{}", MarkdownName(rows.front().task),
                     rows.front().steps, ShownSeeds(rows), table.Text());
}

// In few columns.
std::string NarrowSection(SummaryRows rows) {
  Table table({"optimizer", "test loss", "train loss", "vs. Adam"});
  const int test_digits = Digits(rows, &SummaryRow::test_loss);
  for (const SummaryRow& row : rows) {
    table.Add({ShownOptimizer(row), Shown(row.test_loss, test_digits, /*best=*/false),
               Rounded(row.train_loss.value, 3), Shown(row.test_verdict)});
  }
  return fmt::format("## {}, {} steps ({})\n\n{}", MarkdownName(rows.front().task),
                     rows.front().steps, ShownSeeds(rows), table.Text());
}

// --- What is tuned, and what not --------------------------------------------------------------

std::string ShownMean(const std::optional<GeometricMean>& mean) {
  return mean ? fmt::format("{} ({})", Rounded(mean->estimate.value, 3), mean->count) : "-";
}

// Over all tasks, of the optimizers of the rows.
std::string AgainstBestTable(const Summary& summary, const std::vector<SummaryRow>& rows) {
  const bool has_best = HasBestBaseline(summary);
  std::vector<std::string> header = {"optimizer"};
  if (has_best) header.insert(header.end(), {"all", "trained on", "transfer"});
  header.insert(header.end(), {"speed-up", "failed"});
  Table table(header);
  for (const AggregateRow& row : summary.aggregate) {
    if (std::ranges::find(rows, row.optimizer, &SummaryRow::optimizer) == rows.end()) continue;
    std::vector<std::string> line = {MarkdownName(row.optimizer)};
    if (has_best) {
      line.push_back(row.best_ratio ? Rounded(row.best_ratio->value, 3) : "-");
      line.push_back(ShownMean(row.best_ratio_trained));
      line.push_back(ShownMean(row.best_ratio_transfer));
    }
    line.push_back(row.speedup ? Rounded(*row.speedup, 3) : "-");
    line.push_back(fmt::format("{}", row.diverged + row.blown_up));
    table.Add(std::move(line));
  }
  return table.Text();
}

std::string ProfileTable(const std::vector<ProfileCurve>& profile,
                         const std::vector<double>& factors) {
  std::vector<std::string> header = {"optimizer"};
  for (const double factor : factors) header.push_back(fmt::format("{}", factor));
  Table table(header);
  for (const ProfileCurve& curve : profile) {
    std::vector<std::string> line = {MarkdownName(curve.optimizer)};
    for (const double factor : factors) {
      line.push_back(fmt::format("{:.0f}", 100 * curve.Share(factor)));
    }
    table.Add(std::move(line));
  }
  return table.Text();
}

// How often the optimizers of the rows come near the best of them.
std::string Profiles(const std::vector<SummaryRow>& rows) {
  std::string text =
      Wrapped(
          "",
          "Of 100 tasks, those on which the test loss is at most so many times the lowest here:") +
      "\n" + ProfileTable(PerformanceProfile(rows, TestLoss), {1, 1.02, 1.05, 1.1, 1.25, 1.5, 2});
  if (std::ranges::any_of(rows,
                          [](const SummaryRow& row) { return row.steps_to_adam.has_value(); })) {
    text += "\nThe same for the steps to tuned Adam's loss, and the fewest here:\n\n" +
            ProfileTable(PerformanceProfile(rows, StepsToAdam), {1, 1.25, 1.5, 2, 3, 5});
  }
  return text;
}

// The optimizers that are tuned, or the others, over all tasks.
std::string GroupTables(const Summary& summary, bool tuned,
                        const std::vector<SummaryRows>& sections) {
  std::vector<SummaryRow> rows;
  std::ranges::copy_if(summary.rows, std::back_inserter(rows),
                       [&](const SummaryRow& row) { return row.tuned == tuned; });
  if (rows.empty()) return "";
  std::string text = fmt::format("## {} ({})\n\n", NameOfGroup(tuned), NumberOfSections(sections));
  if (!summary.aggregate.empty()) text += AgainstBestTable(summary, rows) + "\n";
  if (sections.size() > 1 && rows.size() > sections.size()) text += Profiles(rows) + "\n";
  return text;
}

std::string StartNotes(const Summary& summary) {
  std::string text;
  for (const OptimizerInfo& info : summary.optimizers) {
    if (!info.start_seed || info.step_multiplier || info.tuned) continue;
    text += Wrapped(
        "", fmt::format("{} has weights before meta-training, drawn with the seed of {}, {}.",
                        MarkdownName(info.name), MarkdownName(info.theta.value_or("")),
                        *info.start_seed));
  }
  return text;
}

// Both groups, and how to read them.
std::string TwoTables(const Summary& summary, const std::vector<SummaryRows>& sections) {
  std::string text = GroupTables(summary, /*tuned=*/false, sections) +
                     GroupTables(summary, /*tuned=*/true, sections);
  const bool has_best = HasBestBaseline(summary);
  std::string notes;
  if (has_best) {
    notes +=
        "All, trained on, transfer: test losses as fractions of the best tuned baseline's, in the "
        "geometric mean over all tasks, over those that the meta-training has trained on, and over "
        "the others, with the number of these. ";
  }
  if (HasReference(summary)) {
    notes +=
        "Speed-up: interquartile mean over tasks of the speed-up in steps to tuned Adam's loss, 0 "
        "where it is never reached. Failed: trainings that diverged or blew up. ";
  }
  if (std::ranges::any_of(summary.rows,
                          [](const SummaryRow& row) { return row.trained_on.value_or(false); })) {
    notes += "An optimizer with + in the table of a task: its meta-training has trained on it.";
  }
  return text + Wrapped("", notes) + StartNotes(summary) + "\n";
}

// --- All tasks --------------------------------------------------------------------------------

// "image-mlp", or "image-mlp at 300 steps" where a task has several numbers of steps.
std::string SectionName(SummaryRows rows, const std::vector<SummaryRows>& sections) {
  const auto of_task = std::ranges::count_if(
      sections, [&](SummaryRows other) { return other.front().task == rows.front().task; });
  return of_task == 1 ? rows.front().task
                      : fmt::format("{} at {} steps", rows.front().task, rows.front().steps);
}

constexpr const char* kNotTested = "no verdicts, as there are too few seeds";

// Where an optimizer is better than Adam and where worse, in sentences, for one of the losses.
std::string Balance(const std::string& optimizer, const std::vector<SummaryRows>& sections,
                    const char* loss_name, const RowFigure& loss, Verdict SummaryRow::*verdict) {
  int64_t better = 0;
  int64_t unclear = 0;
  int64_t lowest = 0;
  int64_t judged = 0;
  int64_t present = 0;
  std::vector<std::string> defeats;
  for (const SummaryRows rows : sections) {
    const auto row = std::ranges::find(rows, optimizer, &SummaryRow::optimizer);
    if (row == rows.end()) continue;
    ++present;
    lowest += IsBest(*row, rows, loss) ? 1 : 0;
    if ((*row).*verdict == Verdict::kNone) continue;
    ++judged;
    better += (*row).*verdict == Verdict::kBetter ? 1 : 0;
    unclear += (*row).*verdict == Verdict::kUnclear ? 1 : 0;
    if ((*row).*verdict == Verdict::kWorse)
      defeats.push_back(MarkdownName(SectionName(rows, sections)));
  }
  const std::string lowest_on =
      fmt::format("the lowest of all optimizers on {} of {}.", lowest, present);
  if (judged == 0) return fmt::format("{} loss: {}; {}", loss_name, kNotTested, lowest_on);
  return fmt::format("{} loss: better than Adam on {} of {}, worse on {}{}, unclear on {}; {}",
                     loss_name, better, judged, defeats.size(),
                     defeats.empty() ? "" : fmt::format(" ({})", fmt::join(defeats, ", ")), unclear,
                     lowest_on);
}

// A paragraph for each optimizer that is no baseline.
std::string Balances(const Summary& summary, const std::vector<SummaryRows>& sections) {
  std::string text;
  for (const AggregateRow& aggregate : summary.aggregate) {
    const std::string& optimizer = aggregate.optimizer;
    const auto row = std::ranges::find(summary.rows, optimizer, &SummaryRow::optimizer);
    if (row->learning_rate || optimizer == kReferenceBaseline) continue;
    text += fmt::format("- {}\n", MarkdownName(optimizer));
    if (HasReference(summary)) {
      text +=
          fmt::format("  - {}\n  - {}\n",
                      Balance(optimizer, sections, "Test", TestLoss, &SummaryRow::test_verdict),
                      Balance(optimizer, sections, "Train", TrainLoss, &SummaryRow::train_verdict));
    }
    if (aggregate.best_ratio) {
      const int64_t judged = aggregate.best_better + aggregate.best_worse + aggregate.best_unclear;
      text += fmt::format(
          "  - Test loss against the best baseline of each task: {}; geometric mean of the "
          "fractions "
          "{}.\n",
          judged == 0
              ? kNotTested
              : fmt::format("better on {} of {}, worse on {}, unclear on {}", aggregate.best_better,
                            judged, aggregate.best_worse, aggregate.best_unclear),
          Shown(*aggregate.best_ratio, 3, false));
    }
  }
  return text.empty() ? text : text + "\n";
}

std::string AllTasks(const Summary& summary, const std::vector<SummaryRows>& sections) {
  std::vector<std::string> header = {"optimizer"};
  const bool has_adam = HasReference(summary);
  if (has_adam) {
    header.insert(header.end(),
                  {"test loss / Adam's", "train loss / Adam's", ToString(Verdict::kBetter),
                   ToString(Verdict::kWorse), ToString(Verdict::kUnclear)});
  }
  const bool has_best = HasBestBaseline(summary);
  if (has_best) {
    header.insert(header.end(), {"test loss / best baseline's", "better than it", "worse than it",
                                 "unclear against it"});
  }
  header.insert(header.end(), {"diverged", "blown up"});
  Table table(header);
  const auto lowest = [&](Estimate AggregateRow::*ratio, const AggregateRow& row) {
    return summary.aggregate.size() > 1 && std::isfinite((row.*ratio).value) &&
           std::ranges::all_of(summary.aggregate, [&](const AggregateRow& other) {
             return !((other.*ratio).value < (row.*ratio).value);
           });
  };
  const int test_digits = Digits(summary.aggregate, &AggregateRow::test_ratio);
  const int train_digits = Digits(summary.aggregate, &AggregateRow::train_ratio);
  int64_t left_out = 0;
  for (const AggregateRow& row : summary.aggregate) {
    left_out = std::max(left_out, row.left_out);
    std::vector<std::string> line = {MarkdownName(row.optimizer)};
    const auto add_counts = [&](int64_t better, int64_t worse, int64_t unclear) {
      const bool tested = better + worse + unclear > 0;
      for (const int64_t n : {better, worse, unclear}) {
        line.push_back(tested ? fmt::format("{}", n) : "-");
      }
    };
    if (has_adam) {
      line.insert(line.end(),
                  {Shown(row.test_ratio, test_digits, lowest(&AggregateRow::test_ratio, row)),
                   Shown(row.train_ratio, train_digits, lowest(&AggregateRow::train_ratio, row))});
      add_counts(row.better, row.worse, row.unclear);
    }
    if (has_best) {
      line.push_back(row.best_ratio ? Shown(*row.best_ratio, 3, false) : "-");
      add_counts(row.best_better, row.best_worse, row.best_unclear);
    }
    for (const int64_t n : {row.diverged, row.blown_up}) line.push_back(fmt::format("{}", n));
    table.Add(std::move(line));
  }
  std::string text = fmt::format("## All tasks ({})\n\n{}\n", sections.size(), table.Text());
  if (has_adam) {
    text +=
        "Losses are fractions of tuned Adam's on the same task and steps. Better, worse and "
        "unclear count the tasks by test loss.";
  }
  if (has_adam && left_out > 0) {
    text += fmt::format(
        " Where Adam's loss is not a positive number ({} of {}) there are no fractions.", left_out,
        sections.size());
  }
  if (has_best) {
    text += has_adam ? " " : "";
    text += fmt::format(
        "The best baseline of a task has the lowest loss on inner_valid of all when they are "
        "tuned. Against it, the fraction is the geometric mean of those that are above 0, and "
        "better and worse are counted after Holm's correction for the number of tasks, at 5 %, of "
        "{} seeds or more.",
        kVerdictSeeds);
  }
  return text + "\n\n" + Balances(summary, sections);
}

std::string Notes(const Summary& summary) {
  std::string text =
      fmt::format(
          "Interquartile means over seeds with 95 % bootstrap intervals in brackets (from {} seeds "
          "on), of seeds and, for test losses, of the examples of the test split; the best of a "
          "table is bold. ",
          kIntervalSeeds) +
      "A training that diverged counts as infinite loss and accuracy 0; one that "
      "blew up ends with "
      "train losses of more than 5 times the best that it had. " +
      LossesNote();
  if (HasReference(summary)) {
    text += fmt::format(
        " Better or worse than Adam, whose learning rate is tuned for each task: the 95 % interval "
        "of the difference, with the same seeds and examples, does not hold 0; unclear: it does; "
        "-: fewer than {} seeds. Speed-ups are those over the "
        "whole training of tuned Adam, for the loss that it ends with, where it is reached and "
        "kept.",
        kVerdictSeeds);
  }
  if (std::ranges::any_of(summary.rows,
                          [](const SummaryRow& row) { return row.step_multiplier.has_value(); })) {
    text +=
        " Where a row has \"steps x\", the steps of a learned optimizer are multiplied by a number "
        "that is tuned for the task as the learning rates of baselines are; it is no baseline.";
  }
  text += "\n\n";
  const auto edges =
      std::ranges::count_if(summary.rows, [](const SummaryRow& row) { return row.at_edge; });
  if (edges > 0) {
    text += fmt::format(
        "A learning rate or step multiplier with * is the lowest or highest that was tried, so a "
        "better one may lie beyond ({} of {} rows).\n\n",
        edges, summary.rows.size());
  }
  return text;
}

// --- One optimizer and the best baselines -------------------------------------------------------

// What an optimizer does against the best baselines.
struct AgainstBest {
  Table table{{"task", "steps", "test loss", "best baseline", "its test loss", "verdict"}};
  std::vector<std::string> defeats = {};
  int64_t compared = 0;
  int64_t alone = 0;  // without a best baseline
};

void Compare(const SummaryRow& own, SummaryRows rows, AgainstBest* against) {
  const auto best = std::ranges::find(rows, true, &SummaryRow::best_baseline);
  const std::string name = MarkdownName(own.task);
  const std::string steps = fmt::format("{}", own.steps);
  if (best == rows.end()) {
    ++against->alone;
    against->table.Add({name, steps, Shown(own.test_loss, 3, false), "-", "-", "-"});
    return;
  }
  ++against->compared;
  const int digits = Digits(rows, &SummaryRow::test_loss);
  const std::string loss = Shown(own.test_loss, digits, false);
  const std::string best_loss = Shown(best->test_loss, digits, false);
  const std::string best_name = MarkdownName(best->optimizer);
  against->table.Add({name, steps, loss, best_name, best_loss, Shown(own.best_verdict)});
  if (TestLoss(own) <= TestLoss(*best)) return;
  against->defeats.push_back(fmt::format(
      "- {}, {} steps: {}, {} has {}{}\n", name, steps, loss, best_name, best_loss,
      own.best_verdict == Verdict::kNone ? "" : fmt::format(" ({})", Shown(own.best_verdict))));
}

// --- CSV --------------------------------------------------------------------------------------

std::string Quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string doubled;
  for (const char c : text) doubled.append(c == '"' ? 2 : 1, c);
  return fmt::format("\"{}\"", doubled);
}

std::string Number(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}

std::string Flag(const std::optional<bool>& flag) { return flag ? (*flag ? "true" : "false") : ""; }

std::string Numbers(const std::optional<Estimate>& estimate) {
  if (!estimate) return ",,";
  if (!HasInterval(*estimate)) return fmt::format("{},,", estimate->value);
  return fmt::format("{},{},{}", estimate->value, estimate->interval.low, estimate->interval.high);
}

}  // namespace

std::string MarkdownName(const std::string& name) {
  const auto in_word = [&](size_t i) {
    return i < name.size() && std::isalnum(static_cast<unsigned char>(name[i])) != 0;
  };
  std::string escaped;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool marks = c == '_' && !(i > 0 && in_word(i - 1) && in_word(i + 1));  // a_b is plain
    if (marks || std::string_view("|*`<\\[]~&").find(c) != std::string_view::npos) escaped += '\\';
    escaped += std::iscntrl(static_cast<unsigned char>(c)) != 0 ? ' ' : c;
  }
  // What of other control characters is more than a byte.
  return PlainText(escaped, std::string::npos);
}

std::string LossesNote() {
  return fmt::format(
      "Train losses are means of the last {} batch losses, each before its update, test losses "
      "those after the last update on the whole test split. A task without a data set has no such "
      "split: there the two differ by the last updates and by draws, which is no gap of "
      "generalization.",
      kFinalSteps);
}

std::string NarrowTables(const Summary& summary) {
  if (summary.rows.empty()) return "There are no results.\n";
  const std::vector<SummaryRows> sections = Sections(summary);
  std::string text = TwoTables(summary, sections);
  for (const SummaryRows rows : sections) text += NarrowSection(rows) + "\n";
  return text +
         Wrapped("",
                 fmt::format(
                     "Losses are interquartile means over seeds, with 95 % bootstrap intervals. "
                     "Better or worse than tuned Adam: the interval of the difference of test "
                     "losses leaves out 0; -: fewer than {} seeds.",
                     kVerdictSeeds));
}

std::string MarkdownTable(const Summary& summary) {
  if (summary.rows.empty()) return "There are no results.\n";
  const std::vector<SummaryRows> sections = Sections(summary);
  std::string text = Notes(summary) + TwoTables(summary, sections);
  if (HasReference(summary) || HasBestBaseline(summary)) text += AllTasks(summary, sections);
  for (const SummaryRows rows : sections) {
    const bool has_adam =
        std::ranges::find(rows, kReferenceBaseline, &SummaryRow::optimizer) != rows.end();
    text += Section(rows, has_adam) + "\n";
  }
  text.pop_back();
  return text;
}

std::string CsvTable(const Summary& summary) {
  std::string text =
      "task,optimizer,steps,seeds,diverged,blown_up,"
      "train_loss,train_loss_low,train_loss_high,test_loss,test_loss_low,test_loss_high,"
      "mean_train_loss,mean_train_loss_low,mean_train_loss_high,"
      "train_accuracy,train_accuracy_low,train_accuracy_high,"
      "test_accuracy,test_accuracy_low,test_accuracy_high,"
      "learning_rate,step_multiplier,at_edge,seconds,steps_to_adam,seconds_to_adam,speedup,seconds_"
      "speedup,"
      "train_verdict,test_verdict,best_baseline,best_verdict,best_p_value,trained_on\n";
  for (const SummaryRow& row : summary.rows) {
    fmt::format_to(std::back_inserter(text),
                   "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
                   Quoted(row.task), Quoted(row.optimizer), row.steps, row.seeds, row.diverged,
                   row.blown_up, Numbers(row.train_loss), Numbers(row.test_loss),
                   Numbers(row.mean_train_loss), Numbers(row.train_accuracy),
                   Numbers(row.test_accuracy), Number(row.learning_rate),
                   Number(row.step_multiplier),
                   row.learning_rate || row.step_multiplier ? (row.at_edge ? "true" : "false") : "",
                   Number(row.seconds), Number(row.steps_to_adam), Number(row.seconds_to_adam),
                   Number(row.speedup), Number(row.seconds_speedup), ToString(row.train_verdict),
                   ToString(row.test_verdict), Flag(row.best_baseline), ToString(row.best_verdict),
                   Number(row.best_p_value), Flag(row.trained_on));
  }
  return text;
}

std::string TableAgainstBest(const Summary& summary, const std::string& optimizer) {
  AgainstBest against;
  SummaryRows sample;
  for (const SummaryRows rows : Sections(summary)) {
    const auto own = std::ranges::find(rows, optimizer, &SummaryRow::optimizer);
    if (own == rows.end()) continue;
    Compare(*own, rows, &against);
    sample = {&*own, 1};
  }
  Require(!sample.empty(), "the evaluation has no result of {}", optimizer);
  std::string text = against.table.Text() + "\n";
  text += fmt::format(
      "Interquartile means over {} with 95 % bootstrap intervals. Better or worse: the interval of "
      "the difference leaves out 0; unclear: it holds 0; -: fewer than {} seeds. The best baseline "
      "of a task is chosen without its test loss. {}\n",
      ShownSeeds(sample), kVerdictSeeds, LossesNote());
  text += "\n### Defeats\n\n";
  if (against.compared > 0) {
    text +=
        against.defeats.empty()
            ? fmt::format(
                  "None: its test loss is nowhere above the best baseline's ({} "
                  "compared).\n",
                  against.compared)
            : fmt::format("Its test loss is above the best baseline's on {} of {}:\n\n{}",
                          against.defeats.size(), against.compared, fmt::join(against.defeats, ""));
  }
  if (against.alone > 0) {
    text += fmt::format(
        "{}There is no best baseline on {} of {}, since fewer than two baselines were tuned: "
        "nothing is known of defeats there.\n",
        against.compared > 0 ? "\n" : "", against.alone, against.alone + against.compared);
  }
  return text;
}

}  // namespace lopt

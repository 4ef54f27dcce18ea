#include "lopt/evaluation/narrow_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "lopt/base/utf8.h"
#include "lopt/base/wrapped.h"
#include "lopt/evaluation/performance_profile.h"
#include "lopt/evaluation/plain_table.h"
#include "lopt/evaluation/summary_text.h"

namespace lopt {
namespace {

// --- How the optimizers stand -----------------------------------------------------------------

// Whose losses the others are compared with.
enum class Unit { kBestBaseline, kAdam, kLowest };

// One optimizer over all tasks and numbers of steps, which are its sections.
struct Standing {
  std::string optimizer;
  bool learned = false;
  bool tuned = false;
  int64_t trainings = 0;
  int64_t diverged = 0;                // of the trainings
  Estimate loss = {};                  // test loss in its first section
  std::optional<Estimate> mean = {};   // of test losses as fractions of the unit's
  std::optional<Estimate> ratio = {};  // `mean`, or that of the only section; none without a unit
  int64_t counted = 0;                 // sections in the mean
  int64_t lower = 0;                   // sections in which its test loss is below the unit's
  int64_t higher = 0;                  // likewise, above
  int64_t better = 0;                  // sections in which that is beyond chance
  int64_t worse = 0;                   // likewise
  int64_t unclear = 0;                 // all others that were tested

  bool tested() const { return better + worse + unclear > 0; }
};

struct Standings {
  Unit unit = Unit::kLowest;
  std::vector<SummaryRows> sections = {};
  std::vector<Standing> all = {};  // the best first; equals in the order of the results
  int64_t fewest_seeds = 0;

  bool single() const { return sections.size() == 1; }
  bool has_intervals() const { return fewest_seeds >= kIntervalSeeds; }
  bool has_verdicts() const { return fewest_seeds >= kVerdictSeeds; }
};

Unit UnitOf(const Summary& summary) {
  if (std::ranges::any_of(summary.rows, &SummaryRow::best_baseline)) return Unit::kBestBaseline;
  return HasReference(summary) ? Unit::kAdam : Unit::kLowest;
}

// Null where the section has none.
const SummaryRow* UnitRow(SummaryRows section, Unit unit) {
  const auto row = std::ranges::find_if(section, [&](const SummaryRow& candidate) {
    return unit == Unit::kBestBaseline
               ? candidate.best_baseline
               : unit == Unit::kAdam && candidate.optimizer == kReferenceBaseline;
  });
  return row == section.end() ? nullptr : &*row;
}

// Counts a section in the optimizer's standing.
void AddSection(const SummaryRow& row, const SummaryRow* unit, Standing* standing) {
  if (standing->trainings == 0) {
    standing->learned = !row.learning_rate;
    standing->tuned = row.tuned;
    standing->loss = row.test_loss;
    standing->ratio = row.test_ratio;
  }
  standing->trainings += row.seeds;
  standing->diverged += row.diverged;
  if (unit == nullptr) return;
  standing->lower += row.test_loss.value < unit->test_loss.value ? 1 : 0;
  standing->higher += row.test_loss.value > unit->test_loss.value ? 1 : 0;
}

// What the summary has tested.
void AddTests(const Summary& summary, Unit unit, Standing* standing) {
  const auto row =
      std::ranges::find(summary.aggregate, standing->optimizer, &AggregateRow::optimizer);
  if (row == summary.aggregate.end()) return;
  const bool best = unit == Unit::kBestBaseline;
  standing->mean = best ? row->best_ratio : row->test_ratio;
  standing->counted = best ? row->best_compared : row->compared;
  standing->better = best ? row->best_better : row->better;
  standing->worse = best ? row->best_worse : row->worse;
  standing->unclear = best ? row->best_unclear : row->unclear;
}

// Geometric means of test losses as multiples of the lowest in each section where that is above 0:
// of others there are no multiples.
void AddMultiplesOfLowest(const std::vector<SummaryRows>& sections,
                          std::vector<Standing>* standings) {
  std::vector<SummaryRow> rows;
  for (const SummaryRows section : sections) {
    const auto has_multiples = [](const SummaryRow& row) { return !(row.test_loss.value <= 0); };
    if (std::ranges::all_of(section, has_multiples)) {
      rows.insert(rows.end(), section.begin(), section.end());
    }
  }
  const std::vector<ProfileCurve> profile =
      PerformanceProfile(rows, [](const SummaryRow& row) { return row.test_loss.value; });
  for (const ProfileCurve& curve : profile) {
    double log_sum = 0;
    for (const double ratio : curve.ratios) log_sum += std::log(ratio);
    const auto count = std::ssize(curve.ratios);
    Standing& standing = *std::ranges::find(*standings, curve.optimizer, &Standing::optimizer);
    standing.counted = count;
    standing.mean = Estimate{.value = std::exp(log_sum / static_cast<double>(count))};
  }
}

// What standings are sorted by: what is not a number comes last.
std::pair<bool, double> Rank(const Standing& standing, bool single) {
  const std::optional<Estimate> figure = single ? standing.loss : standing.mean;
  if (!figure || std::isnan(figure->value)) return {true, 0};
  return {false, figure->value};
}

// The mean, with an interval where there are seeds enough.
std::optional<Estimate> RatioOfMean(const Standing& standing, const Standings& standings) {
  std::optional<Estimate> ratio = standing.mean;
  if (ratio && !standings.has_intervals()) {
    ratio->interval = {.low = std::nan(""), .high = std::nan("")};
  }
  return ratio;
}

Standings StandingsOf(const Summary& summary) {
  Standings standings{.unit = UnitOf(summary), .sections = Sections(summary)};
  for (const SummaryRows section : standings.sections) {
    const SummaryRow* unit = UnitRow(section, standings.unit);
    for (const SummaryRow& row : section) {
      auto standing = std::ranges::find(standings.all, row.optimizer, &Standing::optimizer);
      if (standing == standings.all.end()) {
        standings.all.push_back({.optimizer = row.optimizer});
        standing = standings.all.end() - 1;
      }
      AddSection(row, unit, &*standing);
    }
  }
  if (standings.unit == Unit::kLowest) {
    AddMultiplesOfLowest(standings.sections, &standings.all);
  } else {
    for (Standing& standing : standings.all) {
      AddTests(summary, standings.unit, &standing);
    }
  }
  if (standings.single() && standings.unit == Unit::kAdam) {
    // Of one section the same fraction has an interval of pairs, as the verdict has.
    for (Standing& standing : standings.all) {
      if (standing.mean && std::isfinite(standing.mean->value) && standing.ratio &&
          !std::isnan(standing.ratio->interval.low)) {
        standing.mean = standing.ratio;
      }
    }
  }
  standings.fewest_seeds = std::ranges::min(summary.rows, {}, &SummaryRow::seeds).seeds;
  if (!standings.single() && standings.unit != Unit::kLowest) {
    for (Standing& standing : standings.all) standing.ratio = RatioOfMean(standing, standings);
  }
  std::ranges::stable_sort(standings.all, {}, [&](const Standing& standing) {
    return Rank(standing, standings.single());
  });
  return standings;
}

// --- Words ------------------------------------------------------------------------------------

std::string NumberOf(int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// The best baseline if it is one on all tasks, else empty.
std::string NameOfBest(const Standings& standings) {
  std::set<std::string> names;
  for (const SummaryRows section : standings.sections) {
    const SummaryRow* best = UnitRow(section, Unit::kBestBaseline);
    names.insert(best == nullptr ? "" : best->optimizer);
  }
  return names.size() == 1 ? PlainText(*names.begin()) : "";
}

// Whose losses ratios are fractions of; empty where that is none in particular.
std::string UnitName(const Standings& standings) {
  if (standings.unit == Unit::kLowest) return "";
  if (standings.unit == Unit::kAdam) return "tuned Adam";
  const std::string name = NameOfBest(standings);
  return name.empty() ? "the best tuned baseline of each task" : "the best tuned baseline, " + name;
}

// Of a fraction: as many as show on which side of 1 each end of its interval is.
int DigitsOfFraction(const Estimate& fraction) {
  int digits = Digits(std::vector{fraction}, [](const Estimate& self) { return self; });
  if (!HasInterval(fraction)) return digits;
  for (const double end : {fraction.interval.low, fraction.interval.high}) {
    while (digits < 8 && end != 1 && std::stod(Rounded(end, digits)) == 1) ++digits;
  }
  return digits;
}

std::string ShownInterval(const Interval& interval, int digits) {
  return fmt::format("{} to {}", Rounded(interval.low, digits), Rounded(interval.high, digits));
}

// --- The table --------------------------------------------------------------------------------

// Of a row of one section.
std::string VerdictWord(const Standing& standing) {
  return !standing.tested()    ? "-"
         : standing.better > 0 ? ToString(Verdict::kBetter)
         : standing.worse > 0  ? ToString(Verdict::kWorse)
                               : ToString(Verdict::kUnclear);
}

bool AnyTested(const Standings& standings) {
  return std::ranges::any_of(standings.all, &Standing::tested);
}

// Test losses of one task and number of steps, and how they compare with the unit's.
void AddLosses(const Standings& standings, OptimizerComparison* comparison) {
  const bool has_mean = standings.unit != Unit::kLowest;
  std::vector<std::string>& header = comparison->header;
  header = {"optimizer", "test loss"};
  if (standings.has_intervals()) header.emplace_back("95 % interval");
  if (has_mean) header.emplace_back("ratio");
  if (AnyTested(standings)) header.emplace_back("verdict");
  header.emplace_back("diverged");
  const int digits = standings.has_intervals() ? Digits(standings.all, &Standing::loss) : 3;
  for (const Standing& standing : standings.all) {
    std::vector<std::string> cells = {Rounded(standing.loss.value, digits)};
    if (standings.has_intervals()) {
      cells.push_back(ShownInterval(standing.loss.interval, digits));
    }
    if (has_mean) cells.push_back(standing.mean ? Rounded(standing.mean->value, 3) : "-");
    if (AnyTested(standings)) cells.push_back(VerdictWord(standing));
    cells.push_back(fmt::format("{}", standing.diverged));
    comparison->rows.push_back({.optimizer = standing.optimizer,
                                .learned = standing.learned,
                                .tuned = standing.tuned,
                                .cells = std::move(cells),
                                .ratio = standing.ratio});
  }
}

// Means over all tasks, and on how many the optimizers are better or worse.
void AddMeans(const Standings& standings, OptimizerComparison* comparison) {
  const bool has_intervals = standings.has_intervals() && standings.unit != Unit::kLowest;
  std::vector<std::string>& header = comparison->header;
  header = {"optimizer", "mean"};
  if (has_intervals) header.emplace_back("95 % interval");
  header.emplace_back("tasks");
  if (AnyTested(standings)) header.insert(header.end(), {"better", "worse"});
  header.emplace_back("diverged");
  for (const Standing& standing : standings.all) {
    const Estimate mean = standing.mean.value_or(Estimate{.value = std::nan("")});
    // The unit itself is known for sure.
    const bool has_interval = has_intervals && mean.interval.low < mean.interval.high;
    const int digits = has_interval ? DigitsOfFraction(mean) : 3;
    std::vector<std::string> cells = {Rounded(mean.value, digits)};
    if (has_intervals) {
      cells.push_back(has_interval ? ShownInterval(mean.interval, digits) : "-");
    }
    cells.push_back(fmt::format("{}", standing.counted));
    if (AnyTested(standings)) {
      for (const int64_t count : {standing.better, standing.worse}) {
        cells.push_back(standing.tested() ? fmt::format("{}", count) : "-");
      }
    }
    cells.push_back(fmt::format("{}", standing.diverged));
    comparison->rows.push_back({.optimizer = standing.optimizer,
                                .learned = standing.learned,
                                .tuned = standing.tuned,
                                .cells = std::move(cells),
                                .ratio = standing.ratio});
  }
}

// What the numbers of the table are.
std::string CaptionOf(const Standings& standings) {
  const SummaryRow& first = standings.sections.front().front();
  const std::string seeds = NumberOf(standings.fewest_seeds, "seed");
  if (standings.single()) {
    return fmt::format("Test losses on {} after {}, {}{}", PlainText(first.task),
                       NumberOf(first.steps, "step"),
                       standings.fewest_seeds > 1 ? "interquartile means over " : "", seeds);
  }
  const char* what = standings.unit == Unit::kBestBaseline
                         ? "fractions of the best tuned baseline's"
                     : standings.unit == Unit::kAdam ? "fractions of tuned Adam's"
                                                     : "multiples of the lowest here";
  return fmt::format("Test losses as {}, {} means over {}, {}", what,
                     standings.unit == Unit::kAdam ? "interquartile" : "geometric",
                     NumberOfSections(standings.sections), seeds);
}

// What the columns are.
std::string Legend(const Standings& standings) {
  std::vector<std::string> parts;
  const bool best = standings.unit == Unit::kBestBaseline;
  if (standings.single() && standings.unit != Unit::kLowest) {
    parts.push_back(fmt::format(
        "ratio{}: against {}", AnyTested(standings) ? ", verdict" : "",
        best ? NameOfBest(standings) + ", the best tuned baseline" : std::string("tuned Adam")));
  } else if (AnyTested(standings)) {
    parts.push_back(fmt::format("better, worse: on so many tasks beyond chance ({})",
                                best ? "Holm's correction, 5 %" : "each by itself, 5 %"));
  }
  if (!standings.single() && std::ranges::any_of(standings.all, [&](const Standing& standing) {
        return standing.counted != std::ssize(standings.sections);
      })) {
    parts.emplace_back("tasks: those in the mean, which needs losses above 0");
  }
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
  return text;
}

// --- The sentence -----------------------------------------------------------------------------

// Why nothing was tested; empty if it was.
std::string WhyUntested(const Standings& standings) {
  if (standings.has_verdicts() || AnyTested(standings)) return "";
  return standings.fewest_seeds == 1
             ? "; one seed gives no interval, so this may be chance"
             : fmt::format("; {} seeds are too few for {}, so this may be chance",
                           standings.fewest_seeds,
                           standings.has_intervals() ? "a verdict" : "an interval");
}

std::string ShownDiverged(const Standing& standing) {
  return standing.diverged == 0 ? ""
                                : fmt::format("; {} of its {} diverged", standing.diverged,
                                              NumberOf(standing.trainings, "training"));
}

// "Muon-cosine has", or "Muon-cosine and SGD have" where several share the first place.
std::string FirstHave(const std::vector<const Standing*>& standings, bool single) {
  const auto shared = std::ranges::count_if(standings, [&](const Standing* standing) {
    return Rank(*standing, single) == Rank(*standings.front(), single);
  });
  const std::string first = PlainText(standings.front()->optimizer);
  if (shared == 1) return first + " has";
  if (shared == 2) return fmt::format("{} and {} have", first, PlainText(standings[1]->optimizer));
  return fmt::format("{} and {} others have", first, shared - 1);
}

// Of optimizers of one kind, none of which is to be compared with another kind.
std::string SentenceOnOneKind(const Standings& standings, const std::vector<const Standing*>& all,
                              bool learned) {
  const std::string begin = learned ? "" : "No learned optimizer is judged here; ";
  const std::string count = NumberOf(std::ssize(all), learned ? "learned optimizer" : "baseline");
  if (all.size() == 1) {
    return fmt::format("{}{} is the only {}, so there is nothing to compare it with{}.", begin,
                       PlainText(all[0]->optimizer), learned ? "optimizer here" : "baseline",
                       ShownDiverged(*all[0]));
  }
  const auto has_no_mean = [](const Standing* standing) { return !standing->mean; };
  if (!standings.single() && std::ranges::all_of(all, has_no_mean)) {
    return fmt::format("{}{} task has a lowest test loss above 0, so there are no means.", begin,
                       learned ? "No" : "no");
  }
  const auto [unknown, lowest] = Rank(*all[0], standings.single());
  if (unknown || !std::isfinite(lowest)) {
    return fmt::format("{}{} of {} has a finite {}test loss.", begin, learned ? "None" : "none",
                       count, standings.single() ? "" : "mean ");
  }
  return fmt::format(
      "{}{} {} {} the lowest test loss{}{}.", begin, learned ? "Of" : "of", count,
      FirstHave(all, standings.single()),
      standings.single() ? "" : " over " + NumberOfSections(standings.sections),
      learned ? "; without baselines no difference is tested" : WhyUntested(standings));
}

// "ahead of", "behind" or "level with".
std::string Position(int64_t lower, int64_t higher) {
  return lower > higher ? "ahead of" : lower < higher ? "behind" : "level with";
}

// The one that the sentence is about, as its subject.
std::string Subject(const Standing& standing, size_t learned) {
  const std::string name = PlainText(standing.optimizer);
  return learned == 1
             ? name
             : fmt::format("{}, by these losses the best of {} learned optimizers,", name, learned);
}

// Where no baseline is there that differences are tested against.
std::string SentenceWithoutUnit(const Standings& standings,
                                const std::vector<const Standing*>& learned,
                                const std::vector<const Standing*>& baselines) {
  const Standing& ours = *learned[0];
  const Standing& theirs = *baselines[0];
  int64_t lower = 0;
  int64_t higher = 0;
  for (const SummaryRows section : standings.sections) {
    const auto mine = std::ranges::find(section, ours.optimizer, &SummaryRow::optimizer);
    const auto other = std::ranges::find(section, theirs.optimizer, &SummaryRow::optimizer);
    if (mine == section.end() || other == section.end()) continue;
    lower += mine->test_loss.value < other->test_loss.value ? 1 : 0;
    higher += mine->test_loss.value > other->test_loss.value ? 1 : 0;
  }
  const std::string rival =
      fmt::format("{}, {},", PlainText(theirs.optimizer),
                  baselines.size() == 1
                      ? "the only baseline"
                      : fmt::format("by these losses the best of {} baselines", baselines.size()));
  const std::string where = standings.single()
                                ? fmt::format("{} {}", Position(lower, higher), rival)
                                : fmt::format("ahead of {} on {} of {} and behind on {},", rival,
                                              lower, NumberOfSections(standings.sections), higher);
  return fmt::format(
      "{} is {} which may be chance: differences are tested against the best of several tuned "
      "baselines or tuned Adam{}.",
      Subject(ours, learned.size()), where, ShownDiverged(ours));
}

// "its test loss is 0.910 times the best baseline's (95 % interval 0.840 to 0.980)".
std::string MeanInWords(const Standings& standings, const Standing& ours,
                        const std::string& whose) {
  if (!ours.mean || !std::isfinite(ours.mean->value)) return "";
  const bool has_interval = standings.has_intervals() && HasInterval(*ours.mean);
  const int digits = has_interval ? DigitsOfFraction(*ours.mean) : 3;
  std::vector<std::string> notes;
  if (!standings.single()) {
    notes.emplace_back(standings.unit == Unit::kAdam ? "interquartile mean" : "geometric mean");
  }
  if (has_interval) {
    notes.push_back("95 % interval " + ShownInterval(ours.mean->interval, digits));
  }
  std::string note;
  for (const std::string& part : notes) note += (note.empty() ? " (" : ", ") + part;
  return fmt::format("its test loss is {} times {}{}", Rounded(ours.mean->value, digits), whose,
                     note.empty() ? "" : note + ")");
}

std::string SentenceOnOneTask(const Standings& standings, const Standing& ours,
                              const std::string& subject, const std::string& unit,
                              const std::string& whose) {
  const std::string position = Position(ours.lower, ours.higher);
  std::string chance;
  if (ours.better > 0 || ours.worse > 0) chance = ", beyond chance";
  if (ours.unclear > 0 && ours.lower != ours.higher) chance = ", but not beyond chance";
  std::string losses = MeanInWords(standings, ours, whose);
  if (losses.empty()) {
    losses =
        fmt::format("its test loss is {}, {} {}", Rounded(ours.loss.value, 3), whose,
                    Rounded(UnitRow(standings.sections[0], standings.unit)->test_loss.value, 3));
  }
  return fmt::format("{} is {} {}{}: {}{}{}.", subject, position, unit, chance, losses,
                     ShownDiverged(ours), WhyUntested(standings));
}

// On how many sections it is ahead, or behind: "ahead of it on 5, beyond chance on 3".
std::string OnHowMany(const Standing& ours, bool ahead, const std::string& of_whom,
                      const std::string& of_all) {
  const int64_t count = ahead ? ours.lower : ours.higher;
  const int64_t sure = ahead ? ours.better : ours.worse;
  std::string text =
      fmt::format("{}{} on {}{}", ahead ? "ahead" : "behind", of_whom, count, of_all);
  if (ours.tested()) {
    text += ", beyond chance on " + (sure == 0 ? "none" : fmt::format("{}", sure));
  }
  return text;
}

std::string SentenceOnTasks(const Standings& standings, const Standing& ours,
                            const std::string& subject, const std::string& unit,
                            const std::string& whose) {
  const std::string sections = NumberOfSections(standings.sections);
  const std::string comma = unit.find(',') == std::string::npos ? "" : ",";
  const bool ahead = ours.lower >= ours.higher;
  std::string text = fmt::format("{} is ", subject);
  if (ours.lower + ours.higher == 0) {
    text += fmt::format("level with {}{} on all {}", unit, comma, sections);
  } else {
    text += OnHowMany(ours, ahead, (ahead ? " of " : " ") + unit + comma, " of " + sections);
    if ((ahead ? ours.higher : ours.lower) > 0) text += ", and " + OnHowMany(ours, !ahead, "", "");
    if (standings.unit == Unit::kAdam && ours.tested()) text += " (each task by itself)";
  }
  const std::string mean = MeanInWords(standings, ours, whose);
  const std::string why_untested = WhyUntested(standings);
  if (!mean.empty()) {
    text += fmt::format(
        "; over {} of them {}",
        ours.counted == std::ssize(standings.sections) ? "all" : fmt::format("{}", ours.counted),
        mean);
    const Interval& interval = ours.mean->interval;
    if (why_untested.empty() && standings.has_intervals() && interval.low <= 1 &&
        interval.high >= 1) {
      text += ", which may be chance";
    }
  }
  return text + ShownDiverged(ours) + why_untested + ".";
}

// The table of the optimizers that are tuned, or of the others.
std::string TableOfGroup(const OptimizerComparison& comparison, bool tuned, size_t width) {
  std::vector<PlainTable::Column> header;
  for (const std::string& name : comparison.header) header.push_back({.name = name});
  PlainTable table(std::move(header), "  ");
  for (const OptimizerComparison::Row& row : comparison.rows) {
    if (row.tuned != tuned) continue;
    std::vector<std::string> line = {PlainText(row.optimizer)};
    line.insert(line.end(), row.cells.begin(), row.cells.end());
    table.Add(std::move(line), row.learned ? "> " : "  ");
  }
  return table.Text(width);
}

}  // namespace

OptimizerComparison CompareOptimizers(const Summary& summary) {
  if (summary.rows.empty()) return {};
  const Standings standings = StandingsOf(summary);
  OptimizerComparison comparison{
      .caption = CaptionOf(standings), .legend = Legend(standings), .unit = UnitName(standings)};
  (standings.single() ? AddLosses : AddMeans)(standings, &comparison);
  return comparison;
}

std::string NarrowTable(const Summary& summary, int columns) {
  if (summary.rows.empty()) return "There are no results.\n";
  const OptimizerComparison comparison = CompareOptimizers(summary);
  std::string legend = comparison.legend;
  if (std::ranges::any_of(comparison.rows, &OptimizerComparison::Row::learned)) {
    legend = "learned optimizers have a >" + (legend.empty() ? "" : "; " + legend);
  }
  const auto width = static_cast<size_t>(std::max(columns, 0));
  const auto tuned = std::ranges::count(comparison.rows, true, &OptimizerComparison::Row::tuned);
  const bool both = tuned > 0 && tuned < std::ssize(comparison.rows);
  std::string text = Wrapped("", comparison.caption + ":", width);
  for (const bool group : {false, true}) {
    if (!both && group != (tuned > 0)) continue;
    text += "\n";
    if (both) text += Wrapped("", std::string(NameOfGroup(group)) + ":", width);
    text += TableOfGroup(comparison, group, width);
  }
  return text + (legend.empty() ? "" : "\n" + Wrapped("", legend, width));
}

std::string VerdictSentence(const Summary& summary) {
  if (summary.rows.empty()) return "There are no results.";
  const Standings standings = StandingsOf(summary);
  std::vector<const Standing*> learned;
  std::vector<const Standing*> baselines;
  for (const Standing& standing : standings.all) {
    (standing.learned ? learned : baselines).push_back(&standing);
  }
  if (learned.empty()) return SentenceOnOneKind(standings, baselines, /*learned=*/false);
  if (baselines.empty()) return SentenceOnOneKind(standings, learned, /*learned=*/true);
  if (standings.unit == Unit::kLowest) return SentenceWithoutUnit(standings, learned, baselines);
  return (standings.single() ? SentenceOnOneTask : SentenceOnTasks)(
      standings, *learned[0], Subject(*learned[0], learned.size()), UnitName(standings),
      standings.unit == Unit::kBestBaseline ? "the best baseline's" : "Adam's");
}

}  // namespace lopt

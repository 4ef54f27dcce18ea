#include "lopt/tools/distill/distilled.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "lopt/base/choices.h"
#include "lopt/base/eigen.h"
#include "lopt/base/key.h"
#include "lopt/base/parallel.h"
#include "lopt/base/wrapped.h"
#include "lopt/evaluation/evaluate.h"
#include "lopt/evaluation/evaluated_optimizers.h"
#include "lopt/evaluation/inner_training.h"
#include "lopt/evaluation/plain_table.h"
#include "lopt/evaluation/statistics.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/registry.h"
#include "lopt/tools/progress_line.h"
#include "lopt/tools/report/html.h"
#include "lopt/tools/report/page.h"

namespace lopt {

namespace {

constexpr const char* kNetwork = "network";
constexpr const char* kFormula = "formula";

// What an evaluation's seed is folded with, so that what is fitted is not what is judged.
constexpr uint64_t kDistillDomain = std::numeric_limits<uint64_t>::max() - 1;

std::vector<SchedulerRecord> RecordTraining(const LearnedOptimizer& optimizer,
                                            const ThetaFile& file, const TaskFamily& task,
                                            int64_t steps, Key key) {
  std::vector<SchedulerRecord> records;
  const int64_t recorded = std::min(steps, kRecordedSteps);
  const auto place = [&](int64_t step) { return step * recorded / steps; };
  const auto rule = RecordSchedulerSteps(
      optimizer.Bind(task.params_layout(), AsSpan(file.theta)), [&](const SchedulerRecord& record) {
        if (record.step > 0 && place(record.step) == place(record.step - 1)) return;
        records.push_back(record);
      });
  Workspace scratch;
  TrainTask(task, *rule, {&steps, 1}, Split::kInnerValid, {.key = key}, scratch);
  return records;
}

std::vector<SchedulerRecord> OfKind(const std::vector<SchedulerRecord>& records, TensorKind kind) {
  std::vector<SchedulerRecord> some;
  std::ranges::copy_if(records, std::back_inserter(some),
                       [&](const SchedulerRecord& record) { return record.kind == kind; });
  return some;
}

std::vector<double> Middles() {
  std::vector<double> middles;
  for (int64_t bin = 0; bin < StepCurve::kBins; ++bin) {
    middles.push_back(100 * (static_cast<double>(bin) + 0.5) / StepCurve::kBins);
  }
  return middles;
}

// The formula's sizes in the middles of the bins.
std::vector<double> FormulaCurve(const StepFormula& formula, const RateSchedule& schedule,
                                 int64_t num_steps, bool vector) {
  std::vector<double> sizes;
  for (const double middle : Middles()) {
    const auto step = static_cast<int64_t>(middle / 100 * static_cast<double>(num_steps));
    sizes.push_back(formula.Size(schedule, step, num_steps, vector));
  }
  return sizes;
}

constexpr auto kThousand = static_cast<int64_t>(StepFormula::kLength);

// --- The text ---------------------------------------------------------------------------------

void AddSizes(const std::string& name, const std::vector<double>& sizes, PlainTable* table) {
  std::vector<std::string> cells = {name};
  for (const size_t bin : {0, 5, 10, 15, 19}) cells.push_back(fmt::format("{:.3g}", sizes[bin]));
  table->Add(std::move(cells));
}

std::string CurveTable(const Distilled& distilled, const std::vector<SchedulerRecord>& records,
                       const RateSchedule& schedule) {
  std::vector<PlainTable::Column> header = {{.name = "step size after", .least = 22}};
  for (const char* progress : {"0 %", "25 %", "50 %", "75 %", "95 %"}) {
    header.push_back({.name = progress, .least = 8});
  }
  PlainTable table(std::move(header));
  for (const auto& [kind, name] : kTensorKinds) {
    const std::vector<SchedulerRecord> some = OfKind(records, kind);
    if (!some.empty()) AddSizes(name, CurveOf(some, distilled.formula.length_power).mean, &table);
  }
  for (const bool vector : {false, true}) {
    AddSizes(vector ? "formula: vectors" : "formula: matrices",
             FormulaCurve(distilled.formula, schedule, kThousand, vector), &table);
  }
  return table.Text();
}

std::string NumberLines(const Distilled& distilled) {
  const StepFormula& formula = distilled.formula;
  struct Line {
    const char* name;
    double value;
    const char* text;
  };
  std::string text;
  for (const Line& line :
       {Line{"step_size", formula.step_size, "first steps of matrices in 1,000 steps"},
        Line{"length_power", formula.length_power, "steps shrink with the length to this power"},
        Line{"end", formula.end, "what the last steps are multiplied by"},
        Line{"vectors", formula.vectors, "steps of vectors, of those of matrices"},
        Line{"weight_decay", formula.weight_decay,
             "of matrices, as a fraction of the step size"}}) {
    const bool fitted =
        std::ranges::find(distilled.not_fitted, line.name) == distilled.not_fitted.end();
    text += fmt::format("  {:<14}{:>10.3g}  {}{}\n", line.name, line.value, line.text,
                        fitted ? "" : "; not fitted");
  }
  return text;
}

std::string LossText(const std::optional<double>& loss) {
  return loss ? fmt::format("{:.4g}", *loss) : "diverged";
}

std::string RatioText(const std::optional<double>& ratio) {
  return ratio ? fmt::format("{:.3g}", *ratio) : "-";
}

std::string LossTable(const Distilled& distilled) {
  PlainTable table({{.name = "test loss", .least = 20},
                    {.name = "steps", .least = 6},
                    {.name = kNetwork, .least = 10},
                    {.name = kFormula, .least = 10},
                    {.name = "ratio", .least = 8}});
  for (const DistilledTask& task : distilled.tasks) {
    table.Add({task.task, fmt::format("{}", task.steps), LossText(task.network),
               LossText(task.formula), RatioText(task.Ratio())});
  }
  return table.Text();
}

std::string VerdictText(const Distilled& distilled) {
  constexpr double kDiverged = std::numeric_limits<double>::infinity();
  int64_t lower = 0;
  int64_t higher = 0;
  int64_t compared = 0;  // by their ratio
  for (const DistilledTask& task : distilled.tasks) {
    const double network = task.network.value_or(kDiverged);
    const double formula = task.formula.value_or(kDiverged);
    if (formula < network) ++lower;
    if (formula > network) ++higher;
    if (task.Ratio()) ++compared;
  }
  const auto tasks = std::ssize(distilled.tasks);
  std::string text = fmt::format(
      "With the formula in place of the network the test loss is lower on {} of {} and higher on "
      "{} ({} each).",
      lower, Counted(tasks, "task"), higher, Counted(distilled.seeds, "seed"));
  if (compared > 0) {
    text += fmt::format(
        " It is {:.3g} of the network's on the median task and {:.3g} in the geometric mean{}.",
        *distilled.median_ratio, *distilled.mean_ratio,
        compared == tasks ? ""
                          : fmt::format(", without {} where one of them is 0 or diverged",
                                        Counted(tasks - compared, "task")));
  }
  return text;
}

// --- The page ---------------------------------------------------------------------------------

Figure KindsFigure(const Distilled& distilled, const std::vector<SchedulerRecord>& records,
                   const RateSchedule& schedule) {
  const double power = distilled.formula.length_power;
  Figure figure{.title = "Step size by kind of tensor",
                .caption = fmt::format("Geometric means over tasks, tensors and seeds, with their "
                                       "quartiles, each times (length / 1000)^{:.3g}. Dashed: the "
                                       "formula.",
                                       power),
                .x_label = "progress (%)",
                .y_label = "step size"};
  for (const auto& [kind, name] : kTensorKinds) {
    const std::vector<SchedulerRecord> some = OfKind(records, kind);
    if (some.empty()) continue;
    StepCurve curve = CurveOf(some, power);
    figure.curves.push_back({.label = name,
                             .x = Middles(),
                             .y = std::move(curve.mean),
                             .low = std::move(curve.low),
                             .high = std::move(curve.high),
                             .color = static_cast<int>(kind)});
  }
  for (const bool vector : {false, true}) {
    figure.curves.push_back({.label = vector ? "formula: vectors" : "formula: matrices",
                             .x = Middles(),
                             .y = FormulaCurve(distilled.formula, schedule, kThousand, vector),
                             .color = vector ? static_cast<int>(TensorKind::kVector) : 0,
                             .dash = 1});
  }
  return figure;
}

Figure LengthsFigure(const Distilled& distilled, const std::vector<SchedulerRecord>& records,
                     const RateSchedule& schedule) {
  std::map<int64_t, std::vector<SchedulerRecord>> by_length;
  for (const SchedulerRecord& record : records) {
    if (record.kind != TensorKind::kVector) by_length[record.num_steps].push_back(record);
  }
  Figure figure{.title = "Step size of matrices by length of training",
                .caption = "Geometric means over tasks, tensors and seeds. Dashed: the formula.",
                .x_label = "progress (%)",
                .y_label = "step size",
                .ordered = true};
  int color = 0;
  for (const auto& [length, some] : by_length) {
    figure.curves.push_back({.label = fmt::format("{} steps", length),
                             .x = Middles(),
                             .y = CurveOf(some, 0).mean,
                             .color = color});
    figure.curves.push_back({.x = Middles(),
                             .y = FormulaCurve(distilled.formula, schedule, length, false),
                             .color = color++,
                             .dash = 1});
  }
  return figure;
}

}  // namespace

std::optional<double> DistilledTask::Ratio() const {
  if (!(network && formula && *network > 0 && *formula > 0)) return std::nullopt;
  return *formula / *network;
}

std::vector<SchedulerRecord> RecordTrainings(const ThetaFile& file,
                                             const EvaluationConfig& config) {
  const auto optimizer = OptimizerRegistry().Make(file.learned_optimizer);
  const TaskResources resources(config.data_dir);
  std::vector<std::shared_ptr<const TaskFamily>> families;
  for (const EvaluationTask& task : config.tasks) {
    families.push_back(TaskRegistry().Make(task.task, resources));
  }
  const Key key = FoldIn(KeyFromSeed(static_cast<uint64_t>(config.seed)), kDistillDomain);
  std::vector<std::vector<SchedulerRecord>> all(config.tasks.size() *
                                                static_cast<size_t>(config.seeds));
  ParallelFor(std::ssize(all), [&](int64_t i) {
    const auto task = static_cast<size_t>(i / config.seeds);
    const std::vector<int64_t>& own = config.tasks[task].steps;
    all[static_cast<size_t>(i)] =
        RecordTraining(*optimizer, file, *families[task], (own.empty() ? config.steps : own).back(),
                       FoldIn(key, static_cast<uint64_t>(i % config.seeds)));
  });
  std::vector<SchedulerRecord> records;
  for (const auto& of_training : all) {
    records.insert(records.end(), of_training.begin(), of_training.end());
  }
  return records;
}

std::vector<DistilledTask> CompareFormula(const ThetaFile& network, const ThetaFile& formula,
                                          const EvaluationConfig& config) {
  Evaluation evaluation(config, {.learned = {NamedLearnedOptimizerOf(kNetwork, network, ""),
                                             NamedLearnedOptimizerOf(kFormula, formula, "")}});
  std::map<std::string, std::map<std::string, std::vector<double>>> losses;
  std::vector<DistilledTask> tasks;
  for (const RunResult& result : evaluation.Run().results) {
    losses[result.task][result.optimizer].push_back(result.Diverged(result.steps.size() - 1)
                                                        ? std::numeric_limits<double>::infinity()
                                                        : result.test_loss.back());
    if (tasks.empty() || tasks.back().task != result.task) {
      tasks.push_back({.task = result.task, .steps = result.steps.back()});
    }
  }
  for (DistilledTask& task : tasks) {
    const auto mean = [&](const char* optimizer) -> std::optional<double> {
      const double loss = InterquartileMean(losses[task.task][optimizer]);
      return std::isfinite(loss) ? std::optional(loss) : std::nullopt;
    };
    task.network = mean(kNetwork);
    task.formula = mean(kFormula);
  }
  return tasks;
}

void SumUp(Distilled* distilled) {
  std::vector<double> logs;
  for (const DistilledTask& task : distilled->tasks) {
    if (const std::optional<double> ratio = task.Ratio()) logs.push_back(std::log(*ratio));
  }
  if (logs.empty()) return;
  double sum = 0;
  for (const double log : logs) sum += log;
  std::ranges::sort(logs);
  distilled->mean_ratio = std::exp(sum / static_cast<double>(logs.size()));
  distilled->median_ratio = std::exp(Quantile(logs, 0.5));
}

StepCurve CurveOf(const std::vector<SchedulerRecord>& records, double length_power) {
  std::vector<std::vector<double>> logs(StepCurve::kBins);
  for (const SchedulerRecord& record : records) {
    if (!(record.size > 0)) continue;
    const double length = static_cast<double>(record.num_steps) / StepFormula::kLength;
    logs[static_cast<size_t>(record.step * StepCurve::kBins / record.num_steps)].push_back(
        std::log(record.size) + length_power * std::log(length));
  }
  StepCurve curve;
  for (std::vector<double>& bin : logs) {
    if (bin.empty()) {
      for (auto* sizes : {&curve.mean, &curve.low, &curve.high}) sizes->push_back(std::nan(""));
      continue;
    }
    std::ranges::sort(bin);
    double sum = 0;
    for (const double log : bin) sum += log;
    curve.mean.push_back(std::exp(sum / static_cast<double>(bin.size())));
    curve.low.push_back(std::exp(Quantile(bin, 0.25)));
    curve.high.push_back(std::exp(Quantile(bin, 0.75)));
  }
  return curve;
}

std::string DistilledText(const Distilled& distilled, const std::vector<SchedulerRecord>& records,
                          const RateSchedule& schedule) {
  return CurveTable(distilled, records, schedule) +
         fmt::format(
             "Sizes are those of trainings of 1,000 steps, by the power of the formula.\n"
             "\nThe formula, off by a factor of {:.3g} in the root mean square:\n",
             std::exp(distilled.log_error)) +
         NumberLines(distilled) + "\n" + LossTable(distilled) + "\n" +
         Wrapped("", VerdictText(distilled));
}

std::string DistilledPage(const Distilled& distilled, const std::vector<SchedulerRecord>& records,
                          const RateSchedule& schedule, const std::string& version) {
  ReportPage page;
  page.AddVerdict(VerdictText(distilled));
  page.AddFigure(KindsFigure(distilled, records, schedule));
  page.AddFigure(LengthsFigure(distilled, records, schedule));
  page.AddDetails("The formula", NumberLines(distilled));
  std::vector<HtmlRow> rows;
  for (const DistilledTask& task : distilled.tasks) {
    rows.push_back(
        {.cells = {EscapeHtml(task.task), fmt::format("{}", task.steps), LossText(task.network),
                   LossText(task.formula), RatioText(task.Ratio())}});
  }
  page.AddHtml(HtmlTable("Test losses", {"task", "steps", kNetwork, kFormula, "ratio"}, rows, 1));
  return page.Render("Steps of " + distilled.theta, "Distilled by lopt " + version);
}

}  // namespace lopt

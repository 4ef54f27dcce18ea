#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/option_words.h"
#include "lopt/base/parallel.h"
#include "lopt/base/wrapped.h"
#include "lopt/evaluation/evaluate.h"
#include "lopt/evaluation/evaluation_config.h"
#include "lopt/evaluation/evaluation_directory.h"
#include "lopt/evaluation/evaluation_run.h"
#include "lopt/evaluation/narrow_table.h"
#include "lopt/evaluation/presets.h"
#include "lopt/evaluation/results_file.h"
#include "lopt/evaluation/summary.h"
#include "lopt/evaluation/tables.h"
#include "lopt/evaluation/trained_on.h"
#include "lopt/learner/starts.h"
#include "lopt/python/src/bind.h"
#include "lopt/python/src/convert.h"
#include "lopt/python/src/long_call.h"
#include "lopt/tools/build_info.h"
#include "lopt/tools/report/report.h"

namespace lopt::python {

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT(google-build-using-namespace)

namespace {

nb::object EstimateOf(const Estimate& estimate) {
  nb::dict dict;
  dict["value"] = estimate.value;
  dict["low"] = HasInterval(estimate) ? nb::cast(estimate.interval.low) : nb::none();
  dict["high"] = HasInterval(estimate) ? nb::cast(estimate.interval.high) : nb::none();
  return dict;
}

nb::object EstimateOf(const std::optional<Estimate>& estimate) {
  return estimate ? EstimateOf(*estimate) : nb::none();
}

nb::dict RowOf(const SummaryRow& row) {
  nb::dict dict;
  dict["task"] = row.task;
  dict["optimizer"] = row.optimizer;
  dict["steps"] = row.steps;
  dict["seeds"] = row.seeds;
  dict["diverged"] = row.diverged;
  dict["blown_up"] = row.blown_up;
  dict["train_loss"] = EstimateOf(row.train_loss);
  dict["test_loss"] = EstimateOf(row.test_loss);
  dict["mean_train_loss"] = EstimateOf(row.mean_train_loss);
  dict["train_accuracy"] = EstimateOf(row.train_accuracy);
  dict["test_accuracy"] = EstimateOf(row.test_accuracy);
  dict["learning_rate"] = row.learning_rate;
  dict["step_multiplier"] = row.step_multiplier;
  dict["at_edge"] = row.at_edge;
  dict["seconds"] = row.seconds;
  dict["steps_to_adam"] = row.steps_to_adam;
  dict["seconds_to_adam"] = row.seconds_to_adam;
  dict["speedup"] = row.speedup;
  dict["seconds_speedup"] = row.seconds_speedup;
  dict["train_verdict"] = ToString(row.train_verdict);
  dict["test_verdict"] = ToString(row.test_verdict);
  dict["best_baseline"] = row.best_baseline;
  dict["best_verdict"] = ToString(row.best_verdict);
  dict["best_p_value"] = row.best_p_value;
  dict["trained_on"] = row.trained_on;
  return dict;
}

template <class Member>
nb::object MemberOf(const Member& member) {
  return nb::cast(member);
}
// float32 [n].
nb::object MemberOf(const std::vector<float>& curve) {
  return ToPython(
      Eigen::VectorXf(Eigen::Map<const Eigen::VectorXf>(curve.data(), std::ssize(curve))));
}
// None where a number of steps is 0, as in results.jsonl.
nb::object MemberOf(const std::vector<int64_t>& steps) {
  nb::list list;
  for (const int64_t number : steps) list.append(number == 0 ? nb::none() : nb::cast(number));
  return list;
}

nb::dict RunOf(const RunResult& run) {
  nb::dict dict;
  VisitMembers(run, [&](const char* name, const auto& member) { dict[name] = MemberOf(member); });
  nb::list diverged;
  for (size_t i = 0; i < run.steps.size(); ++i) diverged.append(run.Diverged(i));
  dict["diverged"] = diverged;
  return dict;
}

ExistingEvaluation ExistingOf(bool resume, bool overwrite, const std::string& out) {
  Require(!(resume && overwrite), "resume and overwrite exclude each other");
  Require(!out.empty() || !(resume || overwrite),
          "resume and overwrite need an output directory ({})", OptionWords("out"));
  return resume      ? ExistingEvaluation::kKeep
         : overwrite ? ExistingEvaluation::kReplace
                     : ExistingEvaluation::kRefuse;
}

// Members of lopt.Evaluation. `thetas` are (name, lopt.Theta, where it is from).
nb::dict Evaluate(nb::handle config, const nb::list& thetas, const std::string& baselines,
                  bool start, bool unknown_length, bool tune_learned, const std::string& out,
                  nb::handle threads, const std::optional<std::string>& isa, bool resume,
                  bool overwrite, bool allow_isa_change, nb::handle on_progress) {
  const ExistingEvaluation existing = ExistingOf(resume, overwrite, out);
  const EvaluationConfig read =
      ReadEvaluationConfig(ConfigOf(config, EvaluationPresets(), "config"));
  EvaluatedOptimizers optimizers;
  for (const nb::handle item : thetas) {
    const auto [name, theta, source] =
        nb::cast<std::tuple<nb::object, nb::object, std::string>>(item);
    const std::string who = TextOf(name, "a name of trained");
    optimizers.learned.push_back(
        NamedLearnedOptimizerOf(who, UsableThetaFileOf(theta, "evaluate: " + who), source));
  }
  optimizers.baselines = BaselinesNamed(baselines);

  LongCall call("evaluate");
  const auto tell = [&](const EvaluationProgress& progress) {
    call.Back([&] {
      on_progress(progress.task, progress.stage, progress.task_number, progress.tasks,
                  progress.done);
    });
  };
  const int thread_count = ThreadsOf(threads);
  std::vector<RunResult> results;
  Summary summary;
  call.Run([&] {
    if (isa) call.PinIsa(*isa);
    if (start) AddStarts(&optimizers);  // draws weights
    if (unknown_length) AddUnknownLengths(&optimizers);
    if (tune_learned) AddTunedSteps(&optimizers);
    if (!out.empty()) {
      summary = RunEvaluation(read, optimizers,
                              {.out_dir = out,
                               .threads = thread_count,
                               .existing = existing,
                               .allow_isa_change = allow_isa_change,
                               .command = "lopt.evaluate, in Python",
                               .version = VersionAndCommit(GetBuildInfo()),
                               .on_progress = tell,
                               .stop = call.stop()})
                    .summary;
      results = ReadResults(out + "/results.jsonl").runs;
      return;
    }
    WarnBeyondHorizons(read, optimizers);
    ThreadPool(thread_count).Run([&] {
      results =
          Evaluation(read, optimizers).Run({.on_progress = tell, .stop = call.stop()}).results;
    });
    SetTrainedOn(read, &optimizers);
    summary = Summarize(results, InfoOf(optimizers));
  });

  nb::list rows;
  for (const SummaryRow& row : summary.rows) rows.append(RowOf(row));
  nb::list runs;
  for (const RunResult& run : results) runs.append(RunOf(run));
  nb::dict members;
  members["rows"] = rows;
  members["runs"] = runs;
  members["markdown"] = MarkdownTable(summary);
  const std::string verdict = VerdictSentence(summary);
  members["verdict"] = verdict;
  members["narrow"] =
      NarrowTable(summary, static_cast<int>(kTerminalColumns)) + "\n" + Wrapped("", verdict);
  return members;
}

}  // namespace

void BindEvaluation(nb::module_& m) {
  m.def("evaluate", Evaluate, "config"_a, "thetas"_a, "baselines"_a, "start"_a, "unknown_length"_a,
        "tune_learned"_a, "out"_a, "threads"_a.none(), "isa"_a.none(), "resume"_a, "overwrite"_a,
        "allow_isa_change"_a, "on_progress"_a,
        nb::sig("def evaluate(config: dict | str | os.PathLike, thetas: list[tuple], "
                "baselines: str, start: bool, unknown_length: bool, tune_learned: bool, out: str, "
                "threads: int | None, "
                "isa: str | None, resume: bool, overwrite: bool, allow_isa_change: bool, "
                "on_progress: collections.abc.Callable[[str, str, int, int, float], object]) -> "
                "dict"),
        "What lopt.evaluate runs. Returns the members of lopt.Evaluation.");
  m.def(
      "write_report",
      [](std::vector<std::string> directories, const std::string& out) {
        const nb::gil_scoped_release released;
        WrittenReport report = WriteReport(std::move(directories), out);
        return std::pair(std::move(report.path), std::move(report.damage));
      },
      "directories"_a, "out"_a,
      nb::sig("def write_report(directories: collections.abc.Sequence[str], out: str) -> "
              "tuple[str, list[str]]"),
      "Writes the page of these directories; empty `out`: where `lopt report` would. Returns the\n"
      "page's path and what was damaged.");
}

}  // namespace lopt::python

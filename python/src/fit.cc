#include "lopt/tools/fit/fit.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/python/src/bind.h"
#include "lopt/python/src/convert.h"
#include "lopt/python/src/long_call.h"
#include "lopt/tools/build_info.h"
#include "lopt/tools/fit/fit_defaults.h"

namespace lopt::python {

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT(google-build-using-namespace)

namespace {

nb::dict JudgedOf(const FitJudged& judged) {
  nb::dict dict;
  dict["optimizer"] = judged.contender.name;
  dict["test_loss"] = judged.test_loss;
  dict["mean_test_loss"] = judged.Mean();
  dict["trials"] = judged.contender.trials;
  dict["tuned"] = judged.contender.tuned;
  dict["seconds"] = judged.contender.seconds;
  return dict;
}

// Members of lopt.Fit. `task` is None on resume.
nb::dict RunTheFit(nb::handle task, nb::handle start, const std::string& start_name,
                   std::optional<int64_t> steps, std::optional<double> minutes,
                   std::optional<int64_t> updates, std::optional<int64_t> trials,
                   std::optional<int64_t> seeds, std::optional<int64_t> seed,
                   const std::string& data_dir, const std::string& out, nb::handle threads,
                   const std::optional<std::string>& isa, bool resume, bool overwrite,
                   nb::handle on_progress) {
  Require(!(resume && overwrite), "resume and overwrite exclude each other");
  FitRequest request{.data_dir = data_dir,
                     .start = start_name,
                     .minutes = minutes,
                     .updates = updates,
                     .trials = trials};
  request.steps = steps.value_or(request.steps);
  request.seeds = seeds.value_or(request.seeds);
  request.seed = seed.value_or(request.seed);
  SetFitMinutes(&request);
  if (!resume) request.task = ConfigOfDict(task, "task");
  const ThetaFile file = ThetaFileOf(start);
  LongCall call("fit");
  FitOptions options{.out_dir = out,
                     .threads = ThreadsOf(threads),
                     .existing = resume      ? ExistingFit::kResume
                                 : overwrite ? ExistingFit::kReplace
                                             : ExistingFit::kRefuse,
                     .version = VersionAndCommit(GetBuildInfo()),
                     .stop = call.stop()};
  options.on_progress = [&](const FitProgress& progress) {
    call.Back([&] { on_progress(progress.phase, progress.done, progress.seconds_left); });
  };
  FitResult result;
  call.Run([&] {
    if (isa) call.PinIsa(*isa);
    result = RunFit(request, file, options);
  });
  nb::list judged;
  for (const FitJudged& one : result.judged) judged.append(JudgedOf(one));
  nb::dict members;
  members["theta"] = ToPython(std::move(result.theta));
  members["take"] = result.record.take.value_or(false);
  members["verdict"] = result.record.verdict;
  members["judged"] = judged;
  members["updates"] = result.record.measured ? result.record.measured->updates : 0;
  members["seconds"] = result.record.FittingSeconds();
  members["report"] = result.report;
  return members;
}

}  // namespace

void BindFit(nb::module_& m) {
  m.def(
      "fit", RunTheFit, "task"_a.none(), "start"_a, "start_name"_a, "steps"_a.none(),
      "minutes"_a.none(), "updates"_a.none(), "trials"_a.none(), "seeds"_a.none(), "seed"_a.none(),
      "data_dir"_a, "out"_a, "threads"_a.none(), "isa"_a.none(), "resume"_a, "overwrite"_a,
      "on_progress"_a,
      nb::sig("def fit(task: object, start: object, start_name: str, steps: int | None, "
              "minutes: float | None, updates: int | None, trials: int | None, seeds: int | None, "
              "seed: int | None, data_dir: str, out: str, threads: int | None, isa: str | None, "
              "resume: bool, overwrite: bool, "
              "on_progress: collections.abc.Callable[[str, float, float | None], object]) -> "
              "dict"),
      "What lopt.fit runs. Returns the members of lopt.Fit but `out`.");
}

}  // namespace lopt::python

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/learner/experiment.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/python/src/bind.h"
#include "lopt/python/src/convert.h"
#include "lopt/tools/build_info.h"

namespace lopt::python {

namespace nb = nanobind;
namespace fs = std::filesystem;

namespace {

ThetaFile ThetaOfCheckpoint(const std::string& directory) {
  const Checkpoint checkpoint = ReadCheckpoint(directory, WorkerStates::kWindows);
  return Experiment(ReadOptions<MetaTrainConfig>(checkpoint.config), nullptr)
      .ThetaOf(checkpoint.learner, VersionAndCommit(GetBuildInfo()));
}

// The newest theta of a run: its theta file, or its newest checkpoint where that is newer.
ThetaFile ThetaOfRun(const RunDirectory& directory, FailedCheck failed_check) {
  const CheckpointStore checkpoints(directory.CheckpointPath(), {});
  const std::vector<int64_t> steps = checkpoints.Steps();
  if (Exists(directory.ThetaPath())) {
    ThetaFile file = ReadThetaFile(directory.ThetaPath(), {}, failed_check);
    if (steps.empty() || steps.back() <= file.meta_steps) return file;
  }
  Require(!steps.empty(), "{} has neither {} nor checkpoints", directory.path(),
          RunDirectory::kTheta);
  return ThetaOfCheckpoint(checkpoints.Path(steps.back()));
}

ThetaFile ReadTheta(const std::string& path, const std::optional<Config>& learned_optimizer,
                    FailedCheck failed_check) {
  if (!IsDirectory(path)) return ReadThetaFile(path, learned_optimizer, failed_check);
  Require(!learned_optimizer,
          "{} is a directory; its config names the learned optimizer, so none is to be given",
          path);
  return Exists(path + "/learner.safetensors") ? ThetaOfCheckpoint(path)
                                               : ThetaOfRun(RunDirectory(path), failed_check);
}

std::optional<Config> OptimizerOf(nb::handle learned_optimizer) {
  if (learned_optimizer.is_none()) return std::nullopt;
  return ConfigOfDict(learned_optimizer, "learned_optimizer");
}

}  // namespace

void BindTheta(nb::module_& m) {
  m.def(
      "read_theta",
      [](nb::handle path, nb::handle learned_optimizer, bool despite_failed_check) {
        const std::string from = PathOf(path, "path");
        const std::optional<Config> optimizer = OptimizerOf(learned_optimizer);
        ThetaFile file;
        {
          const nb::gil_scoped_release released;
          file = ReadTheta(from, optimizer,
                           despite_failed_check ? FailedCheck::kWarn : FailedCheck::kError);
        }
        file.config = InTodaysKeys(file.config);
        return ToPython(std::move(file));
      },
      nb::arg("path"), nb::arg("learned_optimizer") = nb::none(),
      nb::arg("despite_failed_check") = false,
      "The members of lopt.Theta that a theta file, a run or a checkpoint holds.");
  m.def(
      "golden_deviations",
      [](nb::handle path, nb::handle learned_optimizer) {
        const std::string from = PathOf(path, "path");
        const std::optional<Config> optimizer = OptimizerOf(learned_optimizer);
        std::vector<GoldenDeviation> found;
        {
          const nb::gil_scoped_release released;
          found = CheckThetaFile(from, optimizer);
        }
        nb::list deviations;
        for (const GoldenDeviation& one : found) {
          deviations.append(nb::make_tuple(one.reader, one.tensor, one.element, one.wanted, one.got,
                                           one.deviation, one.limit, one.within));
        }
        return deviations;
      },
      nb::arg("path"), nb::arg("learned_optimizer") = nb::none(),
      nb::sig("def golden_deviations(path: object, learned_optimizer: dict | None = None) -> "
              "list[tuple[str, str, int, float, float, float, float, bool]]"),
      "The members of a lopt.GoldenDeviation of each reader.");
  m.def(
      "write_theta",
      [](nb::handle theta, nb::handle path) {
        const ThetaFile file = ThetaFileOf(theta);
        const std::string to = PathOf(path, "path");
        const nb::gil_scoped_release released;
        WriteThetaFile(to, file);
      },
      nb::arg("theta"), nb::arg("path"), "Writes a lopt.Theta as a theta file.");
  m.def(
      "theta_layout",
      [](nb::handle learned_optimizer) {
        const auto optimizer =
            OptimizerRegistry().Make(ConfigOfDict(learned_optimizer, "learned_optimizer"));
        nb::list tensors;
        for (const LayoutEntry& entry : optimizer->theta_layout().entries()) {
          nb::list shape;
          for (const int64_t size : entry.shape) shape.append(size);
          tensors.append(nb::make_tuple(entry.name, nb::tuple(shape)));
        }
        return tensors;
      },
      nb::arg("learned_optimizer"),
      nb::sig("def theta_layout(learned_optimizer: dict) -> list[tuple[str, tuple[int, ...]]]"),
      "Names and shapes of the tensors of theta, in the order of its numbers.");
  m.def(
      "resolve_optimizer",
      [](nb::handle learned_optimizer) {
        return ToPython(ResolvedOptimizer(ConfigOfDict(learned_optimizer, "learned_optimizer")));
      },
      nb::arg("learned_optimizer"),
      nb::sig("def resolve_optimizer(learned_optimizer: dict) -> dict"),
      "Type and all options, schedules by their short names where they have one.");
  m.def(
      "init_theta",
      [](nb::handle learned_optimizer, int64_t seed) {
        const auto optimizer =
            OptimizerRegistry().Make(ConfigOfDict(learned_optimizer, "learned_optimizer"));
        return ToPython(optimizer->InitTheta(ThetaKey(KeyFromSeed(static_cast<uint64_t>(seed)))));
      },
      nb::arg("learned_optimizer"), nb::arg("seed"),
      nb::sig("def init_theta(learned_optimizer: dict, seed: int) -> numpy.ndarray[dtype=float32]"),
      "The numbers [D] that a run with this seed begins with.");
}

}  // namespace lopt::python

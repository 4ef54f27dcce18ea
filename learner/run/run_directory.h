#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "lopt/base/config.h"

namespace lopt {

// What a run's manifest.json says.
struct RunManifest {
  static constexpr const char* kFormat = "lopt run 1";
  static constexpr const char* kRunning = "running";

  // starting until there is a checkpoint, then running, at the end interrupted, finished or failed.
  std::string status = {};
  std::optional<std::string> error = {};  // why it failed
  std::string version = {};
  std::string isa = {};
  std::optional<std::string> device = {};  // the model; none: the processor, or not known yet
  int64_t seed = 0;
  int64_t threads = 0;
  int64_t updates = 0;  // of theta; while running, those at the start of the process

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("status", status);
    visit("updates", updates);
    visit("version", version);
    visit("isa", isa);
    visit("device", device);
    visit("seed", seed);
    visit("threads", threads);
    visit("error", error);
  }
};

// Whose run it is: that of meta-training or of training a model.
enum class RunKind { kMetaTraining, kTraining };

// The files of one run in its output directory (listed in learner/job/meta_trainer.h and
// learner/train/trainer.h).
class RunDirectory {
 public:
  // `kind`: of the run that is to be in it; none: of either.
  explicit RunDirectory(std::string path, std::optional<RunKind> kind = std::nullopt)
      : path_(std::move(path)), kind_(kind) {}

  const std::string& path() const { return path_; }
  std::string CheckpointPath() const { return path_ + "/checkpoints"; }
  static constexpr const char* kTheta = "theta.safetensors";
  std::string ThetaPath() const { return path_ + "/" + kTheta; }
  static constexpr const char* kModel = "model.safetensors";
  std::string ModelPath() const { return path_ + "/" + kModel; }
  std::string JournalPath() const { return path_ + "/windows.bin"; }

  // Whether it holds files with the names of a run's, which may be another program's.
  bool HoldsRun() const;
  // Whether some of them are of no other program.
  bool HoldsRunOfLopt() const;
  // Throws Error if it holds what another command of lopt made, or a file that the run would
  // replace and that is of no run of lopt. Files that both kinds have, as a run leaves them that
  // died before its first checkpoint, tell no kind.
  void RequireNoOther() const;
  // Throws Error as RequireNoOther does, and, with the ways out, if it holds a run.
  void RequireNoRun() const;
  // Makes the directory where there is none. Throws Error (path and reason) if that fails or if
  // nothing can be written in it.
  void Create() const;
  // Removes the run's files, and no others. Throws Error as RequireNoOther does.
  void RemoveRun() const;
  // Removes what a killed write of a file left beside it.
  void RemoveUnfinished() const;

  void WriteConfig(const Config& config) const;
  void WriteManifest(const RunManifest& manifest) const;
  std::string ManifestPath() const { return path_ + "/manifest.json"; }
  RunManifest ReadManifest() const;

 private:
  std::string path_;
  std::optional<RunKind> kind_;
};

}  // namespace lopt

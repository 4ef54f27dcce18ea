#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/evaluation/evaluated_optimizers.h"
#include "lopt/evaluation/evaluation_config.h"
#include "lopt/evaluation/run_result.h"
#include "lopt/evaluation/summary.h"

namespace lopt {

struct ArrayFile;
class RunLock;

// In the order of results, the copies as ReadStoredEvaluation finds them.
std::vector<OptimizerInfo> InfoOf(const EvaluatedOptimizers& optimizers);

// What an evaluation's manifest.json says.
struct EvaluationManifest {
  static constexpr const char* kFormat = "lopt evaluation 1";  // the first key of the file

  std::string status = {};               // running, interrupted, finished or failed
  std::string command = {};              // that repeats it
  std::string version = {};              // of the program
  std::string isa = {};                  // instruction set of the kernels
  std::optional<std::string> data = {};  // TaskResources::DataChecksums; none: not known
  std::optional<int64_t> tuner = {};     // kTunerVersion (evaluation/trials.h); none: not known
  int64_t threads = 0;                   // of the pool that it ran on
  double seconds = 0;  // up to the last finished task, all parts of a resumed evaluation together
  std::vector<OptimizerInfo> optimizers = {};  // see InfoOf
  std::optional<std::string> error = {};       // why it failed

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("status", status);
    visit("command", command);
    visit("version", version);
    visit("isa", isa);
    visit("data", data);
    visit("tuner", tuner);
    visit("threads", threads);
    visit("seconds", seconds);
    visit("optimizers", optimizers);
    visit("error", error);
  }
};

// What is needed to go on with an evaluation, besides its results.
struct StoredEvaluation {
  EvaluationConfig config;         // every key with its value
  EvaluatedOptimizers optimizers;  // with their weights
  EvaluationManifest manifest;     // as it was written last
};

// Throws Error if the directory holds no evaluation or a run of another command, or a file is
// missing or damaged.
StoredEvaluation ReadStoredEvaluation(const std::string& path);

// What becomes of an evaluation that is in the output directory.
enum class ExistingEvaluation { kRefuse, kReplace, kKeep };

// What is done in the output directory; a replay cannot be gone on with.
enum class EvaluationUse { kEvaluation, kReplay };

// The files of one evaluation in its output directory: config.json (every key with its value),
// thetas/<i>.safetensors (the weights of the i-th learned optimizer), results.jsonl
// (evaluation/results_file.h), manifest.json and, when it has ended, table.md and table.csv
// (evaluation/tables.h). Keeps other processes out of the directory while it lives. What writes
// throws Error if another process has taken the directory over.
class EvaluationDirectory {
 public:
  // Makes the directory where there is none. Throws Error if it holds a run of meta-training or of
  // training a model, or a fit; if it holds an evaluation that is to be refused, or none that could
  // be kept; if one of its files has the name of an evaluation's and is of none; if another process
  // is in it; if it cannot be made or written.
  EvaluationDirectory(std::string path, ExistingEvaluation existing,
                      EvaluationUse use = EvaluationUse::kEvaluation);
  ~EvaluationDirectory();

  // Writes all but the manifest, which is to be there already: by it the files are known. The
  // results are empty.
  void Begin(const EvaluationConfig& config, const EvaluatedOptimizers& optimizers);
  // Throws Error as ReadResults does. A line that is cut off is left out with a warning.
  std::vector<RunResult> Results() const;
  // Goes on after `results`, which replace those that are there.
  void GoOn(const EvaluationConfig& config, const std::vector<RunResult>& results);

  // Replaces it. Throws Error, as the next two do, if it cannot be written.
  void WriteManifest(const EvaluationManifest& manifest) const;
  // Appends the lines and hands them to the system.
  void AddResults(const std::vector<RunResult>& results);
  // table.md and table.csv.
  void WriteTables(const Summary& summary) const;
  // replay.safetensors.
  void WriteReplay(const ArrayFile& replay) const;

 private:
  std::string path_;
  std::unique_ptr<RunLock> lock_;
  std::ofstream results_;
};

}  // namespace lopt

#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "evaluation/evaluation_config.h"
#include "evaluation/run_result.h"
#include "evaluation/summary.h"

namespace lopt {

// One optimizer of an evaluation, for its manifest.
struct ContenderInfo {
  std::string name = {};
  // Of a learned optimizer:
  std::optional<std::string> theta = {};  // its file
  std::optional<Config> learned_optimizer = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("name", name);
    visit("theta", theta);
    visit("learned_optimizer", learned_optimizer);
  }
};

// What an evaluation's manifest.json says.
struct EvaluationManifest {
  static constexpr const char* kFormat = "lopt evaluation 1";

  std::string status = {};   // running, interrupted, finished or failed
  std::string command = {};  // that repeats it
  std::string version = {};
  std::string isa = {};
  int64_t threads = 0;
  double seconds = 0;
  std::vector<ContenderInfo> optimizers = {};
  std::optional<std::string> error = {};  // why it failed

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("status", status);
    visit("command", command);
    visit("version", version);
    visit("isa", isa);
    visit("threads", threads);
    visit("seconds", seconds);
    visit("optimizers", optimizers);
    visit("error", error);
  }
};

// The files of one evaluation in its output directory: config.json (every key with its value),
// manifest.json, results.jsonl (evaluation/results_file.h) and, when it has ended, table.md and
// table.csv (evaluation/summary.h).
class EvaluationDirectory {
 public:
  // Makes the directory where there is none. Throws Error if it holds a meta-training run, or one
  // of these files and not `overwrite`, or if it cannot be made or written.
  EvaluationDirectory(std::string path, bool overwrite);

  // Writes the config and an empty results.jsonl.
  void Begin(const EvaluationConfig& config);
  void WriteManifest(const EvaluationManifest& manifest);
  // Appends the lines and hands them to the system.
  void AddResults(const std::vector<RunResult>& results);
  void WriteTables(const Summary& summary);

 private:
  std::string path_;
  std::ofstream results_;
};

}  // namespace lopt

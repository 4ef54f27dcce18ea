#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "evaluation/evaluation_config.h"
#include "evaluation/run_result.h"
#include "evaluation/summary.h"

namespace lopt {

// One optimizer of an evaluation, for its manifest.
struct ContenderInfo {
  std::string name = {};
  std::string theta_path = {};         // empty for baselines
  std::string learned_optimizer = {};  // its config; empty for baselines
};

// What an evaluation's manifest.json says.
struct EvaluationManifest {
  std::string status = {};   // running, interrupted, finished or failed
  std::string error = {};    // why it failed
  std::string command = {};  // that repeats it
  std::string version = {};
  std::string isa = {};
  int64_t threads = 0;
  double seconds = 0;
  std::vector<ContenderInfo> contenders = {};
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

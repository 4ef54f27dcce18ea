#include "evaluation/evaluation_directory.h"

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/record.h"
#include "evaluation/results_file.h"
#include "evaluation/tables.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFiles[] = {"config.json", "manifest.json", "results.jsonl",
                                  "table.md",    "table.csv",     "replay.safetensors"};

}  // namespace

EvaluationDirectory::EvaluationDirectory(std::string path, bool overwrite)
    : path_(std::move(path)) {
  Require(!fs::exists(path_ + "/checkpoints"),
          "{} holds a meta-training run; choose another directory for the evaluation", path_);
  std::error_code error;
  fs::create_directories(path_, error);
  Require(!error, "cannot create the output directory {}: {}", path_, error.message());
  for (const char* name : kFiles) {
    const std::string file = path_ + "/" + name;
    Require(overwrite || !fs::exists(file),
            "{} is there already: replace what is in the directory (--overwrite), or choose "
            "another",
            file);
    fs::remove(file, error);
    Require(!error, "cannot remove {}: {}", file, error.message());
  }
}

void EvaluationDirectory::Begin(const EvaluationConfig& config) {
  WriteTextFile(path_ + "/config.json", WriteEvaluationConfig(config).Dump() + "\n");
  results_.open(path_ + "/results.jsonl", std::ios::trunc);
  Require(results_.is_open(), "cannot write to {}/results.jsonl", path_);
}

void EvaluationDirectory::WriteManifest(const EvaluationManifest& manifest) {
  WriteRecordFile(path_ + "/manifest.json", manifest);
}

void EvaluationDirectory::AddResults(const std::vector<RunResult>& results) {
  for (const RunResult& result : results) results_ << ResultLine(result) << '\n';
  results_.flush();
  Require(results_.good(), "cannot write to {}/results.jsonl", path_);
}

void EvaluationDirectory::WriteTables(const Summary& summary) {
  WriteTextFile(path_ + "/table.md", MarkdownTable(summary));
  WriteTextFile(path_ + "/table.csv", CsvTable(summary));
}

}  // namespace lopt

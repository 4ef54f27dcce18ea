#include "lopt/evaluation/evaluation_directory.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/option_words.h"
#include "lopt/base/output_directory.h"
#include "lopt/base/record.h"
#include "lopt/base/run_lock.h"
#include "lopt/base/safetensors.h"
#include "lopt/evaluation/results_file.h"
#include "lopt/evaluation/tables.h"
#include "lopt/lopt/theta_file.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kReplayFile = "replay.safetensors";
// The manifest, by which an evaluation is known, is the last: it is removed last.
constexpr std::array<std::string_view, 7> kOwnFiles = {"config.json",  "results.jsonl", "thetas",
                                                       "table.md",     "table.csv",     kReplayFile,
                                                       "manifest.json"};

bool IsUnfinishedOfOurs(std::string_view name) {
  return std::ranges::any_of(kOwnFiles,
                             [&](std::string_view file) { return IsUnfinished(name, file); });
}

// The directory's files may be those of a run of another command (learner/run/run_directory.h).
void RequireNoRun(const std::string& path) {
  const bool meta_training = Exists(path + "/windows.bin");
  Require(!meta_training && !Exists(path + "/checkpoints"),
          "{} holds a {} run; choose another directory for the evaluation", path,
          meta_training ? "meta-training" : "training");
  for (const char* file : {"/model.safetensors", "/fit.json", "/search.pickle"}) {
    Require(!Exists(path + file) || Exists(path + "/results.jsonl"),
            "{} holds a run of another command; choose another directory for the evaluation", path);
  }
}

bool IsReplay(const std::string& file) {
  try {
    return ReadArrayFile(file).metadata.contains("replay");
  } catch (const Error&) {
    return false;
  }
}

// Files with the names of an evaluation's may be other programs'.
void RequireOurs(const std::string& path) {
  if (HoldsRecord(path + "/manifest.json", "lopt evaluation")) return;
  for (const std::string_view name : kOwnFiles) {
    const std::string file = fmt::format("{}/{}", path, name);
    Require(!Exists(file) || (name == kReplayFile && IsReplay(file)),
            "{} holds {}, which is of no evaluation of lopt; choose another directory", path, name);
  }
}

std::string ThetaFileName(size_t i) { return fmt::format("thetas/{}.safetensors", i); }

}  // namespace

std::vector<OptimizerInfo> InfoOf(const EvaluatedOptimizers& optimizers) {
  std::vector<OptimizerInfo> infos;
  for (const Baseline& baseline : optimizers.baselines) {
    infos.push_back({.name = baseline.name, .baseline = baseline.Definition()});
  }
  for (size_t i = 0; i < optimizers.learned.size(); ++i) {
    const NamedLearnedOptimizer& learned = optimizers.learned[i];
    OptimizerInfo& info = infos.emplace_back(OptimizerInfo{.name = learned.name,
                                                           .theta = learned.source,
                                                           .copy = ThetaFileName(i),
                                                           .learned_optimizer = learned.config,
                                                           .trained_on = learned.trained_on});
    if (learned.tuned) info.tuned = true;
    if (learned.unknown_length) info.unknown_length = true;
    if (learned.is_start) info.start_seed = learned.seed;
    if (learned.trained_before) info.trained_before = true;
    if (learned.step_multiplier != 1) info.step_multiplier = learned.step_multiplier;
  }
  return infos;
}

StoredEvaluation ReadStoredEvaluation(const std::string& path) {
  RequireNoRun(path);
  const std::string manifest = path + "/manifest.json";
  Require(Exists(manifest), "cannot resume: {} holds no evaluation (there is no {})", path,
          manifest);
  StoredEvaluation stored;
  stored.manifest = ReadRecordFile<EvaluationManifest>(manifest);
  for (const char* file : {"config.json", "results.jsonl"}) {  // the last that it begins with
    Require(Exists(fmt::format("{}/{}", path, file)),
            "cannot resume: the evaluation in {} had not begun (there is no {}); begin anew ({})",
            path, file, FlagWords("overwrite"));
  }
  stored.config = ReadEvaluationConfig(Config::Load(path + "/config.json"));
  for (const OptimizerInfo& info : stored.manifest.optimizers) {
    if (!info.copy) {
      stored.optimizers.baselines.push_back(BaselinesNamed(info.name).at(0));
      continue;
    }
    stored.optimizers.learned.push_back(NamedLearnedOptimizerOf(
        info.name, ReadThetaFile(path + "/" + *info.copy), info.theta.value_or("")));
    NamedLearnedOptimizer& learned = stored.optimizers.learned.back();
    learned.tuned = info.tuned.value_or(false);
    learned.unknown_length = info.unknown_length.value_or(false);
    learned.is_start = info.start_seed.has_value();
    learned.step_multiplier = info.step_multiplier.value_or(1);
  }
  return stored;
}

EvaluationDirectory::EvaluationDirectory(std::string path, ExistingEvaluation existing,
                                         EvaluationUse use)
    : path_(std::move(path)) {
  RequireNoRun(path_);
  const auto holds_evaluation = [&] {
    return std::ranges::any_of(
        kOwnFiles, [&](std::string_view file) { return Exists(fs::path(path_) / file); });
  };
  Require(existing != ExistingEvaluation::kKeep || holds_evaluation(),
          "cannot resume: {} holds no evaluation", path_);
  MakeOutputDirectory(path_);
  lock_ = std::make_unique<RunLock>(path_);
  if (existing != ExistingEvaluation::kKeep) RequireOurs(path_);
  Require(existing != ExistingEvaluation::kRefuse || !holds_evaluation(),
          "{} holds an evaluation already: {}replace it ({}), or choose another directory", path_,
          use == EvaluationUse::kReplay ? "" : fmt::format("resume it ({}), ", FlagWords("resume")),
          FlagWords("overwrite"));
  if (existing == ExistingEvaluation::kReplace) {
    for (const std::string_view name : kOwnFiles) RemoveAll(fmt::format("{}/{}", path_, name));
  }
  RemoveMatching(path_, IsUnfinishedOfOurs);
}

EvaluationDirectory::~EvaluationDirectory() = default;

void EvaluationDirectory::Begin(const EvaluationConfig& config,
                                const EvaluatedOptimizers& optimizers) {
  lock_->RequireHeld();
  for (size_t i = 0; i < optimizers.learned.size(); ++i) {
    const NamedLearnedOptimizer& learned = optimizers.learned[i];
    MakeOutputDirectory(path_ + "/thetas");
    WriteThetaFile(path_ + "/" + ThetaFileName(i), {.learned_optimizer = learned.config,
                                                    .theta = learned.theta,
                                                    .config = learned.meta_training,
                                                    .seed = learned.seed,
                                                    .trained_horizon = learned.trained_horizon,
                                                    .trained_range = learned.trained_range});
  }
  GoOn(config, {});
}

std::vector<RunResult> EvaluationDirectory::Results() const {
  lopt::Results results = ReadResults(path_ + "/results.jsonl");
  if (!results.damage.empty()) spdlog::warn("{}", results.damage);
  return std::move(results.runs);
}

void EvaluationDirectory::GoOn(const EvaluationConfig& config,
                               const std::vector<RunResult>& results) {
  lock_->RequireHeld();
  WriteTextFile(path_ + "/config.json", WriteEvaluationConfig(config).Dump() + "\n");
  std::string lines;
  for (const RunResult& result : results) lines += ResultLine(result) + '\n';
  WriteTextFile(path_ + "/results.jsonl", lines);
  results_.open(path_ + "/results.jsonl", std::ios::app);
  Require(results_.is_open(), "cannot write to {}/results.jsonl: {}", path_, SystemReason(errno));
}

void EvaluationDirectory::WriteManifest(const EvaluationManifest& manifest) const {
  lock_->RequireHeld();
  WriteRecordFile(path_ + "/manifest.json", manifest);
}

void EvaluationDirectory::AddResults(const std::vector<RunResult>& results) {
  lock_->RequireHeld();
  for (const RunResult& result : results) results_ << ResultLine(result) << '\n';
  results_.flush();
  Require(results_.good(), "cannot write to {}/results.jsonl: {}", path_, SystemReason(errno));
}

void EvaluationDirectory::WriteTables(const Summary& summary) const {
  lock_->RequireHeld();
  WriteTextFile(path_ + "/table.md", MarkdownTable(summary));
  WriteTextFile(path_ + "/table.csv", CsvTable(summary));
}

void EvaluationDirectory::WriteReplay(const ArrayFile& replay) const {
  lock_->RequireHeld();
  WriteArrayFile(fmt::format("{}/{}", path_, kReplayFile), replay);
}

}  // namespace lopt

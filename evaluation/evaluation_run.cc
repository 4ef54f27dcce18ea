#include "lopt/evaluation/evaluation_run.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/base/option_words.h"
#include "lopt/base/parallel.h"
#include "lopt/evaluation/evaluate.h"
#include "lopt/evaluation/trained_on.h"
#include "lopt/evaluation/trials.h"
#include "lopt/tasks/data/data_checksums.h"

namespace lopt {
namespace {

// Keys of the config that may change when an evaluation is resumed.
const std::vector<std::string>& FreeKeys() {
  static const std::vector<std::string> keys = {"name", "data_dir"};
  return keys;
}

void CheckConfig(const std::string& path, const EvaluationConfig& stored,
                 const EvaluationConfig& now) {
  const std::vector<std::string> differences = WriteEvaluationConfig(stored).Differences(
      WriteEvaluationConfig(now), FreeKeys(), "in the directory", "now");
  Require(differences.empty(),
          "cannot resume {}: the config has changed: {}. On resume only these keys may change: {}",
          path, fmt::join(differences, "; "), fmt::join(FreeKeys(), ", "));
}

void CheckOptimizers(const std::string& path, const EvaluatedOptimizers& stored,
                     const EvaluatedOptimizers& now) {
  const std::vector<std::string> names = NamesOf(now);
  Require(NamesOf(stored) == names,
          "cannot resume {}: the optimizers have changed: {} in the directory, {} now", path,
          fmt::join(NamesOf(stored), ", "), fmt::join(names, ", "));
  Require(stored.learned.size() == now.learned.size(),
          "cannot resume {}: {} learned optimizers in the directory, {} now", path,
          stored.learned.size(), now.learned.size());
  for (size_t i = 0; i < now.learned.size(); ++i) {
    const NamedLearnedOptimizer& then = stored.learned[i];
    const NamedLearnedOptimizer& learned = now.learned[i];
    const std::vector<std::string> differences =
        then.config.Differences(learned.config, {}, "in the directory", "now");
    Require(differences.empty(), "cannot resume {}: the optimizer '{}' has changed: {}", path,
            learned.name, fmt::join(differences, "; "));
    Require(then.tuned == learned.tuned,
            "cannot resume {}: the steps of '{}' are {} in the directory, {} now", path,
            learned.name, then.tuned ? "tuned" : "not tuned",
            learned.tuned ? "tuned" : "not tuned");
    Require(then.step_multiplier == learned.step_multiplier,
            "cannot resume {}: the steps of '{}' are multiplied by {} in the directory, by {} now",
            path, learned.name, then.step_multiplier, learned.step_multiplier);
    Require(then.theta.size() == learned.theta.size() &&
                std::memcmp(then.theta.data(), learned.theta.data(),
                            static_cast<size_t>(then.theta.size()) * sizeof(float)) == 0,
            "cannot resume {0}: the weights of '{1}'{2} are not those that it began with; go on "
            "with its own copy of them, in {0}/thetas",
            path, learned.name, learned.source.empty() ? "" : " in " + learned.source);
  }
}

// What to do where another version of the program began the evaluation.
std::string WaysOutOf(const EvaluationManifest& stored) {
  return fmt::format(
      "go on with the program that began it ({}), choose another directory ({}), or replace the "
      "evaluation ({})",
      stored.version, OptionWords("out"), FlagWords("overwrite"));
}

void CheckBaselines(const std::string& path, const EvaluationManifest& stored,
                    const std::vector<Baseline>& now) {
  for (size_t i = 0; i < now.size(); ++i) {
    const std::optional<Config>& then = stored.optimizers[i].baseline;
    if (!then) continue;  // not known
    const std::vector<std::string> differences =
        then->Differences(now[i].Definition(), {}, "in the directory", "now");
    Require(differences.empty(),
            "cannot resume {0}: {0}/manifest.json: the baseline '{1}' has changed: {2}; {3}", path,
            now[i].name, fmt::join(differences, "; "), WaysOutOf(stored));
  }
}

void CheckTuner(const std::string& path, const EvaluationManifest& stored,
                const std::vector<RunResult>& finished) {
  const auto is_tuned = [](const RunResult& result) { return result.trials > 0; };
  if (stored.tuner == kTunerVersion || std::ranges::none_of(finished, is_tuned)) return;
  Fail(
      "cannot resume {0}: its results were tuned by {1} ('tuner' in {0}/manifest.json), and this "
      "program has version {2} of the tuner, so tasks would be tuned in two ways: {3}",
      path, stored.tuner ? fmt::format("version {}", *stored.tuner) : "a version that is not named",
      kTunerVersion, WaysOutOf(stored));
}

void CheckIsa(const std::string& path, const std::string& stored, bool allow_change) {
  if (stored == CurrentIsa()) return;
  Require(allow_change,
          "cannot resume {}: it was computed on instruction set {}, this process uses {}, so the "
          "results would have other bits; pin it ({}), or allow the change ({})",
          path, stored, CurrentIsa(), OptionWords("isa"), FlagWords("allow-isa-change"));
  spdlog::warn("the instruction set changes from {} to {}: results have other bits", stored,
               CurrentIsa());
}

// The results that the evaluation in the directory goes on after.
std::vector<RunResult> FinishedResults(const EvaluationDirectory& directory,
                                       const Evaluation& evaluation, const std::string& path) {
  std::vector<RunResult> all = directory.Results();
  const size_t written = all.size();
  std::vector<RunResult> whole;
  try {
    whole = evaluation.WholeTasks(std::move(all));
  } catch (const Error& error) {
    Fail("cannot resume {}: results.jsonl: {}", path, error.what());
  }
  if (whole.size() < written) {
    spdlog::warn("{}/results.jsonl: {} results of a task that had not ended are left out", path,
                 written - whole.size());
  }
  return whole;
}

}  // namespace

EvaluationRunResult RunEvaluation(const EvaluationConfig& config,
                                  const EvaluatedOptimizers& optimizers,
                                  const EvaluationRunOptions& options) {
  ThreadPool pool(options.threads);  // its errors come before anything is removed
  Evaluation evaluation(config, optimizers);
  EvaluatedOptimizers with_training = optimizers;
  SetTrainedOn(config, &with_training);
  const std::string& path = options.out_dir;
  EvaluationDirectory directory(path, options.existing);
  EvaluationManifest manifest{.status = "running",
                              .command = options.command,
                              .version = options.version,
                              .isa = CurrentIsa(),
                              .data = evaluation.data(),
                              .tuner = kTunerVersion,
                              .threads = options.threads,
                              .optimizers = InfoOf(with_training)};
  EvaluateOptions evaluate{.on_progress = options.on_progress, .stop = options.stop};
  if (options.existing == ExistingEvaluation::kKeep) {
    const StoredEvaluation stored = ReadStoredEvaluation(path);
    CheckConfig(path, stored.config, config);
    CheckOptimizers(path, stored.optimizers, optimizers);
    CheckBaselines(path, stored.manifest, optimizers.baselines);
    RequireSameData(path, stored.manifest.data, evaluation.data());
    CheckIsa(path, stored.manifest.isa, options.allow_isa_change);
    manifest.command = stored.manifest.command;
    manifest.seconds = stored.manifest.seconds;
    evaluate.finished = FinishedResults(directory, evaluation, path);
    CheckTuner(path, stored.manifest, evaluate.finished);
    directory.GoOn(config, evaluate.finished);
    directory.WriteManifest(manifest);
  } else {
    directory.WriteManifest(manifest);
    directory.Begin(config, optimizers);
  }
  WarnBeyondHorizons(config, optimizers);

  const int64_t results_of_task = std::ssize(NamesOf(optimizers)) * config.seeds;
  EvaluationRunResult result{.tasks = std::ssize(config.tasks),
                             .tasks_before = std::ssize(evaluate.finished) / results_of_task};
  const double seconds_before = manifest.seconds;
  const auto start = std::chrono::steady_clock::now();
  evaluate.on_task = [&](const std::vector<RunResult>& results) {
    directory.AddResults(results);
    manifest.seconds =
        seconds_before +
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    directory.WriteManifest(manifest);
  };
  EvaluationOutcome outcome;
  try {
    pool.Run([&] { outcome = evaluation.Run(evaluate); });
    if (!outcome.results.empty()) {
      result.summary = Summarize(outcome.results, manifest.optimizers);
      directory.WriteTables(result.summary);
    }
  } catch (const std::exception& error) {
    manifest.status = "failed";
    manifest.error = error.what();
    try {
      directory.WriteManifest(manifest);
    } catch (const Error& second) {
      spdlog::error("{}", second.what());
    }
    throw;
  }
  manifest.status = outcome.interrupted ? "interrupted" : "finished";
  directory.WriteManifest(manifest);
  result.tasks_ended = std::ssize(outcome.results) / results_of_task;
  result.seconds = manifest.seconds;
  return result;
}

}  // namespace lopt

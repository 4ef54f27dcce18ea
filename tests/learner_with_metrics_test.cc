// What a task and a learned optimizer note comes out in the metrics of every kind of run.
#include <doctest/doctest.h>

#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/mode.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/registry.h"
#include "tests/learner_local_job.h"
#include "tests/learner_runs.h"
#include "tests/noting_types.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

struct NoOptions {
  void Visit(FieldVisitor&) {}
};

// Windows are whole episodes of 5 steps, so that the mean of the inner steps is 2, that of the
// optimizer's updates 3. Only the last estimator tells nothing.
MetaTrainConfig Noting(int64_t workers, int64_t meta_steps = 6) {
  static const bool added = [] {
    TaskRegistry().Add<NoOptions>("Noting", "Notes its steps.", [](const NoOptions&, const auto&) {
      return std::make_shared<NotingTask>();
    });
    OptimizerRegistry().Add<NoOptions>("NotingSgd", "Notes its updates.", [](const NoOptions&) {
      return std::make_shared<NotingSgd>();
    });
    return true;
  }();
  CHECK(added);
  Config json = Config::Parse(R"({
    "learned_optimizer": {"type": "NotingSgd"}, "theta_opt": {"type": "SGD", "learning_rate": 1e-3},
    "estimators": [
      {"type": "TruncatedPES", "num_tasks": 2, "trunc_length": 5},
      {"type": "TruncatedES", "num_tasks": 2, "trunc_length": 5, "meta_loss": "same_data"},
      {"type": "FullES", "num_tasks": 2, "loss_type": "last_recompute"},
      {"type": "TruncatedNRES", "num_tasks": 2, "trunc_length": 5},
      {"type": "GPESK", "K": 5, "num_tasks": 2, "trunc_length": 5}],
    "windows_per_update": 2, "seed": 4, "checkpoint_seconds": 0, "checkpoint_steps": 2})",
                              "test");
  for (int e = 0; e < 5; ++e) {
    const std::string estimator = "estimators." + std::to_string(e);
    json = json.With(estimator + ".task", R"({"type": "Noting"})")
               .With(estimator + ".lengths",
                     R"({"type": "ConstantTruncationSchedule", "total_length": 5})")
               .With(estimator + ".with_metrics", e < 4 ? "true" : "false");
  }
  auto config = ReadOptions<MetaTrainConfig>(json);
  config.workers = workers;
  config.meta_steps = meta_steps;
  return config;
}

MetaTrainConfig Silent(MetaTrainConfig config) {
  for (Config& estimator : config.estimators) estimator = estimator.With("with_metrics", "false");
  return config;
}

// Every line has the numbers that are known of the estimators that tell, and no others.
void CheckKnown(const std::string& directory, int64_t updates) {
  std::istringstream lines(MetricsLines(directory));
  int64_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    CAPTURE(line);
    for (const char* e : {"0_Noting", "1_Noting", "2_Noting", "3_Noting"}) {
      CHECK(line.find("\"task/step/" + std::string(e) + "\":2.0,") != std::string::npos);
      CHECK(line.find("\"task/draw/" + std::string(e) + "\":0.") != std::string::npos);
      CHECK(line.find("\"optimizer/updates/" + std::string(e) + "\":3.0,") != std::string::npos);
    }
    CHECK(line.find("/4_Noting") != std::string::npos);
    CHECK(line.find("task/step/4_Noting") == std::string::npos);
  }
  CHECK(count == updates);
}

TEST_CASE("Noted numbers have the same bits on any ranks and threads, and after a resume") {
  const TempDirectory one;
  RunMetaTraining(Noting(3), {.out_dir = one.path()});
  CheckKnown(one.path(), 6);
  for (const int ranks : {2, 3}) {
    const TempDirectory many;
    const LocalJob job = RunLocalJob(Noting(3), ranks, {.out_dir = many.path(), .threads = 2});
    CHECK(job.errors == std::vector<std::string>(static_cast<size_t>(ranks)));
    CHECK(MetricsLines(many.path()) == MetricsLines(one.path()));
  }
  const TempDirectory parts;
  RunMetaTraining(Noting(3, 3), {.out_dir = parts.path()});
  CHECK(RunLocalJob(Noting(3), 2, {.out_dir = parts.path(), .resume = true}).errors ==
        std::vector<std::string>(2));
  CHECK(MetricsLines(parts.path()) == MetricsLines(one.path()));
}

TEST_CASE("Who notes changes nothing else: the same theta, and the other metrics byte by byte") {
  const TempDirectory telling;
  const TempDirectory silent;
  RunMetaTraining(Noting(2), {.out_dir = telling.path()});
  RunMetaTraining(Silent(Noting(2)), {.out_dir = silent.path()});
  CHECK(FinalTheta(telling.path()) == FinalTheta(silent.path()));
  static const std::regex noted("\"(task|optimizer)/[^,}]*,");
  CHECK(MetricsLines(silent.path()) == std::regex_replace(MetricsLines(telling.path()), noted, ""));
  CHECK(MetricsLines(silent.path()) != MetricsLines(telling.path()));
}

TEST_CASE("Noted numbers are those of the gradients that an update takes, in every mode") {
  for (const Config& mode :
       {WriteOptions("Async", AsyncOptions{.batch_size = 2, .staleness = 3}),
        WriteOptions("Sync", SyncOptions{.deadline_seconds = 1e-9, .quorum = 2})}) {
    const TempDirectory directory;
    MetaTrainConfig config = Noting(4);
    config.mode = mode;
    CHECK(RunLocalJob(config, 3, {.out_dir = directory.path()}).errors ==
          std::vector<std::string>(3));
    CheckKnown(directory.path(), 6);
  }
  const TempDirectory tree;
  MetaTrainConfig config = Noting(4);
  config.gradient_sum = GradientSum::kTree;
  CHECK(RunLocalJob(config, 2, {.out_dir = tree.path()}).errors == std::vector<std::string>(2));
  CheckKnown(tree.path(), 6);
}

TEST_CASE("A config whose estimator has nothing to note is an error before the run") {
  MetaTrainConfig config = SmallExperiment(1);
  config.estimators[0] = config.estimators[0].With("with_metrics", "true");
  const TempDirectory directory;
  const std::string out = directory / "run";
  const LocalJob job = RunLocalJob(config, 1, {.out_dir = out});
  CHECK(job.errors[0].find("with_metrics is true, but the task has no aux outputs") !=
        std::string::npos);
}

}  // namespace
}  // namespace lopt

// The trained optimizers that come with the project.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lopt/base/parallel.h"
#include "lopt/evaluation/evaluate.h"
#include "lopt/evaluation/presets.h"
#include "lopt/evaluation/summary.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "tests/paths.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;

NamedLearnedOptimizer Load(const std::string& name) {
  const ThetaFile file = ReadThetaFile(SourcePath("trained/" + name + ".safetensors"));
  return {name, OptimizerRegistry().Make(file.learned_optimizer), file.theta};
}

TEST_CASE("Every trained optimizer passes its golden steps, is small and says how it was made") {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(SourcePath("trained"))) {
    if (entry.path().extension() != ".safetensors") continue;
    CAPTURE(entry.path().string());
    const ThetaFile file = ReadThetaFile(entry.path().string());
    CHECK(file.theta.allFinite());
    CHECK_FALSE(file.config.empty());
    CHECK(file.meta_steps > 0);
    CHECK(file.version.find("dirty") == std::string::npos);
    CHECK(entry.file_size() < 100'000);
    ++files;
  }
  CHECK(files == 6);
}

TEST_CASE("fast, mlp, mlp-fast and recommended beat tuned Adam on the 8x8 image MLP") {
  EvaluatedOptimizers optimizers{.baselines = BaselinesNamed("Adam")};
  for (const char* name : {"fast", "mlp", "mlp-fast", "recommended"})
    optimizers.learned.push_back(Load(name));
  EvaluationOutcome outcome;
  ThreadPool(2).Run([&] {
    outcome =
        Evaluation(ReadEvaluationConfig(EvaluationPresets().Find("image-mlp")), optimizers).Run();
  });
  const Summary summary = Summarize(outcome.results);
  REQUIRE(summary.rows.size() == 5);
  for (const SummaryRow& row : summary.rows) {
    if (row.optimizer == kReferenceBaseline) continue;
    CAPTURE(row.optimizer);
    CHECK(row.test_verdict == Verdict::kBetter);
    if (row.optimizer == "fast") CHECK(row.train_verdict == Verdict::kBetter);
    CHECK(row.diverged == 0);
  }
}

}  // namespace
}  // namespace lopt

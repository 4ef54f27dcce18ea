#include <doctest/doctest.h>

#include <string>

#include "lopt/base/config.h"
#include "lopt/base/file.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/meta_train_presets.h"
#include "lopt/tools/describe.h"
#include "tests/paths.h"

namespace lopt {

TEST_CASE("docs/config.md is what lopt describe prints") {
  CHECK_MESSAGE(ReadTextFile(SourcePath("docs/config.md")) == DescribeEverything(),
                "run: build/lopt describe > docs/config.md");
}

TEST_CASE("An optimizer is described with the keys that theta_opt adds, and in every kind") {
  const std::string adam = DescribeTypeNamed("Adam");
  CAPTURE(adam);
  const size_t of_theta = adam.find("As `theta_opt`");
  REQUIRE(of_theta != std::string::npos);
  CHECK(adam.starts_with("## Learned optimizers\n\n### Adam\n\n"));
  CHECK(adam.find("| `clip_by_value` | number or null |") > of_theta);
  CHECK(adam.find("| `clip_by_global_norm` | number or null |") < adam.size());
  CHECK(adam.find("## Optimizers of trainings\n\n### Adam\n\n") < adam.size());
  const std::string task = DescribeTypeNamed("QuadraticTask");
  CHECK(task.starts_with("## Tasks\n\n### QuadraticTask\n\n"));
  CHECK(task.find("theta_opt") == std::string::npos);
  CHECK(task.find("##", task.find("###") + 3) == std::string::npos);
}

TEST_CASE("Every preset is a valid config that carries its name") {
  CHECK_GE(MetaTrainPresets().all().size(), 4);
  for (const Preset& preset : MetaTrainPresets().all()) {
    CHECK_EQ(ReadOptions<MetaTrainConfig>(preset.config).name, preset.name);
  }
}

}  // namespace lopt

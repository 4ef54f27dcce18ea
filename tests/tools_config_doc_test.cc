#include <doctest/doctest.h>

#include <string>

#include "lopt/base/config.h"
#include "lopt/base/describe_fields.h"
#include "lopt/base/file.h"
#include "lopt/base/type_table.h"
#include "lopt/estimators/registry.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/meta_train_presets.h"
#include "lopt/lopt/rate_schedule.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/registry.h"
#include "lopt/tools/describe.h"
#include "tests/paths.h"
#include "tests/text_parts.h"

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
  CHECK_NE(adam.find("\n- `clip_by_value`: null or number", of_theta), std::string::npos);
  CHECK_NE(adam.find("\n- `clip_by_global_norm`: null or number", of_theta), std::string::npos);
  CHECK(adam.find("## Optimizers of trainings\n\n### Adam\n\n") < adam.size());
  const std::string task = DescribeTypeNamed("QuadraticTask");
  CHECK(task.starts_with("## Tasks\n\n### QuadraticTask\n\n"));
  CHECK(task.find("theta_opt") == std::string::npos);
  CHECK(task.find("##", task.find("###") + 3) == std::string::npos);
}

namespace {

// What docs/config.md says of a type.
std::string SectionOf(const std::string& page, const std::string& type) {
  const size_t begin = page.find("\n### " + type + "\n");
  REQUIRE_NE(begin, std::string::npos);
  return page.substr(begin, page.find("\n##", begin + 1) - begin);
}

}  // namespace

TEST_CASE("A key that several types take alike is described once, and each type names its keys") {
  const std::string page = DescribeEverything();
  CHECK_EQ(Count(page, "- `csv_shape`: "), 1);
  CHECK_EQ(Count(page, "- `strides`: "), 1);
  CHECK_EQ(Count(page, "- `keep_last`: "), 1);
  const std::string conv = SectionOf(page, "TorchImageConv");
  CHECK_NE(conv.find("As in [ImageConv](#imageconv): `channels`, `strides`"), std::string::npos);
  CHECK_NE(conv.find("[Shared keys](#keys-of-several-tasks): `image_size`"), std::string::npos);
  CHECK_NE(SectionOf(page, "Lion").find("`learning_rate` (default `0.0001`)"), std::string::npos);
  for (const TypeTable* table : {&OptimizerRegistry().table(), &TaskRegistry().table(),
                                 &EstimatorRegistry().table(), &RateScheduleTypes()}) {
    for (const TypeEntry& entry : table->entries()) {
      const std::string section = SectionOf(page, entry.type);
      for (const FieldRow& row : FieldRows(entry.fields)) {
        CHECK_MESSAGE(section.find(row.key) != std::string::npos, entry.type, " ", row.key);
      }
    }
  }
}

TEST_CASE("The description of one type has all its keys") {
  const std::string conv = DescribeTypeNamed("TorchImageConv");
  CHECK_NE(conv.find("- `strides`: list of integers in [1, 256]; default `[2,1]`."),
           std::string::npos);
  CHECK_NE(conv.find("- `csv_shape`: "), std::string::npos);
  CHECK_NE(DescribeTypeNamed("Lion").find("- `learning_rate`: number above 0; default `0.0001`."),
           std::string::npos);
}

TEST_CASE("Types that differ in their names alone have one section") {
  CHECK_EQ(Count(DescribeEverything(), "\n### SGD, SGDM, Adam, AdamW, SGD-cosine"), 1);
}

TEST_CASE("Every preset is a valid config that carries its name") {
  CHECK_GE(MetaTrainPresets().all().size(), 4);
  for (const Preset& preset : MetaTrainPresets().all()) {
    CHECK_EQ(ReadOptions<MetaTrainConfig>(preset.config).name, preset.name);
  }
}

}  // namespace lopt

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

TEST_CASE("Every preset is a valid config that carries its name") {
  CHECK_GE(MetaTrainPresets().all().size(), 4);
  for (const Preset& preset : MetaTrainPresets().all()) {
    CHECK_EQ(ReadOptions<MetaTrainConfig>(preset.config).name, preset.name);
  }
}

}  // namespace lopt

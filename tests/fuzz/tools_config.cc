// A config file: JSON with comments, then the keys of meta-training or of an evaluation.
#include <nlohmann/json.hpp>

#include "lopt/base/config.h"
#include "lopt/base/options.h"
#include "lopt/evaluation/evaluation_config.h"
#include "lopt/evaluation/presets.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/meta_train_presets.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

void ReadConfig(std::string_view input) {
  const Config config = Config::Parse(input, "config");
  config.Differences(Config::Parse("{}", "none"), {}, "here", "there");
  if (config.json().contains("estimators")) {
    CheckConfig(Resolved(ReadOptions<MetaTrainConfig>(config)));
  } else {
    WriteEvaluationConfig(ReadEvaluationConfig(config));
  }
}

std::vector<std::string> ConfigSeeds() {
  std::vector<std::string> seeds;
  for (const Preset& preset : MetaTrainPresets().all()) seeds.push_back(preset.config.Dump());
  for (const Preset& preset : EvaluationPresets().all()) {
    seeds.push_back("// a comment\n" + preset.config.Dump(-1) + "/* and one more */");
  }
  return seeds;
}

const AddFuzzTarget config_target({"tools_config", ReadConfig, ConfigSeeds});

}  // namespace
}  // namespace lopt

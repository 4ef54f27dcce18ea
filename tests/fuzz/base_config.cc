// JSON with comments, and one value of it replaced: the first part is its key and the new value.
#include <stdexcept>

#include "lopt/base/config.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/paths.h"

namespace lopt {
namespace {

void ReadJson(std::string_view input) {
  const std::vector<std::string> parts = SplitParts(input, 2);
  const Config config = Config::Parse(parts[1], "config");
  const Config again = Config::Parse(config.Dump(-1), "again");
  if (!config.Differences(again, {}, "here", "there").empty()) {
    throw std::logic_error("config: written and read again it is another");
  }
  if (parts[0].empty()) return;
  const size_t equals = parts[0].find('=');
  Require(equals != std::string::npos, "there is no '=' in {}", parts[0]);
  config.With(parts[0].substr(0, equals), parts[0].substr(equals + 1));
}

std::vector<std::string> JsonSeeds() {
  const std::string text = ReadTextFile(SourcePath("learner/presets/smoke.json"));
  return {JoinParts({"", "{}"}), JoinParts({"", "/* a */ {\"a\": [1, -2.5e3, null, \"\\u00e9\"]}"}),
          JoinParts({"estimators.0.std=0.1", text}),
          JoinParts({"estimators[1].task.hidden={\"a\": true}", text})};
}

const AddFuzzTarget json_target({"base_config", ReadJson, JsonSeeds});

}  // namespace
}  // namespace lopt

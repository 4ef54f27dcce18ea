#include <doctest/doctest.h>

#include "lopt/base/option_words.h"

namespace lopt {
namespace {

TEST_CASE("Options have the words of whoever calls") {
  CHECK(FlagWords("allow-isa-change") == "--allow-isa-change");
  CHECK(OptionWords("out") == "--out");
  CHECK(OptionWords("from", "STEP") == "--from STEP");
  CHECK(KeyWords("data_dir") == "data_dir, --data-dir");

  SetCaller(Caller::kPython);
  CHECK(FlagWords("allow-isa-change") == "allow_isa_change=True");
  CHECK(OptionWords("out") == "out=");
  CHECK(OptionWords("from", "STEP") == "from_step=STEP");
  CHECK(KeyWords("data_dir") == "data_dir");

  SetCaller(Caller::kCommandLine);
  CHECK(FlagWords("resume") == "--resume");
}

}  // namespace
}  // namespace lopt

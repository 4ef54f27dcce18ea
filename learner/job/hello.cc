#include "lopt/learner/job/hello.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "lopt/base/config.h"
#include "lopt/base/error.h"
#include "lopt/base/option_words.h"
#include "lopt/base/utf8.h"

namespace lopt {

void CompareHellos(const Hello& learner, const std::string& who, const Hello& other,
                   bool allow_isa_change) {
  Require(other.version == learner.version,
          "{} runs version '{}' of the program, rank 0 ({}) version '{}'", who,
          PlainText(other.version), learner.host, learner.version);
  if (other.config != learner.config) {
    const auto differences =
        Config::Parse(learner.config, "rank 0")
            .Differences(Config::Parse(other.config, "another rank"), {}, "on rank 0", "on " + who);
    Fail("{} has another config than rank 0 ({}): {}", who, learner.host,
         fmt::join(differences, "; "));
  }
  if (other.isa != learner.isa) {
    Require(allow_isa_change,
            "{} computes with instruction set {}, rank 0 ({}) with {}, so the result would depend "
            "on who computes what; pin it ({}), or allow the difference ({})",
            who, PlainText(other.isa), learner.host, learner.isa, KeyWords("isa"),
            FlagWords("allow-isa-change"));
    spdlog::warn("{} computes with instruction set {}, rank 0 with {}", who, PlainText(other.isa),
                 learner.isa);
  }
  const bool both_compute = !other.device.empty() && !learner.device.empty();
  if (both_compute && other.device != learner.device) {
    Require(allow_isa_change,
            "the windows of {} run on the device {}, those of the run on {}, so the result would "
            "depend on who computes what; give all ranks one model ({}), or allow the difference "
            "({})",
            who, PlainText(other.device), learner.device, OptionWords("devices"),
            FlagWords("allow-isa-change"));
    spdlog::warn("the windows of {} run on the device {}, those of the run on {}", who,
                 PlainText(other.device), learner.device);
  }
}

}  // namespace lopt

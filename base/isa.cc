#include "base/isa.h"

#include <fmt/format.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "base/error.h"

namespace lopt {
namespace {

std::string IsaName(int64_t target) {
  std::string name = hwy::TargetName(target);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

// Those of the machine and the build, best first, whatever is pinned.
const std::vector<int64_t>& SupportedTargetList() {
  static const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  return targets;
}

}  // namespace

std::vector<std::string> SupportedIsas() {
  std::vector<std::string> names;
  for (const int64_t target : SupportedTargetList()) {
    names.push_back(IsaName(target));
  }
  return names;
}

std::string CurrentIsa() { return IsaName(hwy::SupportedAndGeneratedTargets().front()); }

void PinIsa(std::string_view name) {
  for (const int64_t target : SupportedTargetList()) {
    if (IsaName(target) == name) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      return;
    }
  }
  Fail("this machine has no instruction set '{}' that the program was built for; there are: {}",
       name, fmt::join(SupportedIsas(), ", "));
}

}  // namespace lopt

#include "base/isa.h"

#include <fmt/format.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
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

// 0: none is pinned. To ask the machine takes a while, and this never changes else.
std::atomic<int64_t> pinned_target = 0;

}  // namespace

std::vector<std::string> SupportedIsas() {
  std::vector<std::string> names;
  for (const int64_t target : SupportedTargetList()) {
    names.push_back(IsaName(target));
  }
  return names;
}

std::string CurrentIsa() {
  const int64_t pinned = pinned_target;
  return IsaName(pinned != 0 ? pinned : SupportedTargetList().front());
}

void PinIsa(std::string_view name) {
  for (const int64_t target : SupportedTargetList()) {
    if (IsaName(target) == name) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      pinned_target = target;
      return;
    }
  }
  Fail("this machine has no instruction set '{}' that the program was built for; there are: {}",
       name, fmt::join(SupportedIsas(), ", "));
}

}  // namespace lopt

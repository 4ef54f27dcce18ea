#include "lopt/base/isa.h"

#include <fmt/format.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <optional>

#include "lopt/base/dispatch.h"
#include "lopt/base/error.h"
#include "lopt/base/print.h"
#include "lopt/base/processor.h"

namespace lopt {
namespace {

std::string IsaName(int64_t target) {
  std::string name = hwy::TargetName(target);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

constexpr char kAllKernels[] = "`cmake --preset release && cmake --build build` builds all kernels";

// Those of the machine and the build, best first, whatever is pinned. Warns once if the build is
// for another kind of processor, so that only its slowest kernels run here.
const std::vector<int64_t>& SupportedTargetList() {
  static const std::vector<int64_t> targets = [] {
    std::vector<int64_t> found = hwy::SupportedAndGeneratedTargets();
    const int64_t built = HWY_TARGETS & -HWY_TARGETS;
    if (KernelsAreNative() && found.front() != built) {
      PrintErr(
          "Warning: lopt has kernels only for {}, which this processor lacks. It runs many times "
          "more slowly; {}\n",
          IsaName(built), kAllKernels);
    }
    return found;
  }();
  return targets;
}

int64_t TargetOf(std::string_view name) {
  for (const int64_t target : SupportedTargetList()) {
    if (IsaName(target) == name) return target;
  }
  Fail("this machine has no instruction set '{}' that the program was built for; there are: {}{}",
       name, fmt::join(SupportedIsas(), ", "),
       KernelsAreNative() ? fmt::format(" ({})", kAllKernels) : "");
}

// What an IsaScope points its thread to, one for each target.
class TargetsOfScopes {
 public:
  TargetsOfScopes() {
    for (const int64_t target : SupportedTargetList()) chosen_[target].Update(target);
  }
  const hwy::ChosenTarget& Of(int64_t target) const { return chosen_.at(target); }
  int64_t TargetOf(const hwy::ChosenTarget* chosen) const {
    return std::ranges::find_if(chosen_, [&](const auto& of) { return &of.second == chosen; })
        ->first;
  }

 private:
  std::map<int64_t, hwy::ChosenTarget> chosen_;
};

const TargetsOfScopes& ScopedTargets() {
  static const TargetsOfScopes targets;
  return targets;
}

thread_local const hwy::ChosenTarget* of_scope = nullptr;

std::optional<bool> scope_paces_stores;     // a PacedStoresScope's
std::optional<bool> scope_has_small_tiles;  // a SmallTilesScope's

// Of the supported targets, those for which `question` is true on this processor.
int64_t TargetsWith(bool (*question)(const Processor&, std::string_view)) {
  const Processor processor = ThisProcessor();
  int64_t targets = 0;
  for (const int64_t supported : SupportedTargetList()) {
    if (question(processor, IsaName(supported))) targets |= supported;
  }
  return targets;
}

}  // namespace

bool KernelsAreNative() {
#ifdef LOPT_NATIVE_KERNELS
  return true;
#else
  return false;
#endif
}

const hwy::ChosenTarget& ChosenTargetOfThread() {
  return of_scope != nullptr ? *of_scope : hwy::GetChosenTarget();
}

bool PacesStores(int64_t target) {
  static const int64_t targets = TargetsWith(PacesStores);
  return scope_paces_stores.value_or((targets & target) != 0);
}

PacedStoresScope::PacedStoresScope(bool paced) { scope_paces_stores = paced; }
PacedStoresScope::~PacedStoresScope() { scope_paces_stores = std::nullopt; }

SmallTilesScope::SmallTilesScope(bool small) { scope_has_small_tiles = small; }
SmallTilesScope::~SmallTilesScope() { scope_has_small_tiles = std::nullopt; }

bool HasSmallTiles(int64_t target) {
  static const int64_t targets = TargetsWith(HasSmallTiles);
  return scope_has_small_tiles.value_or((targets & target) != 0);
}

std::vector<std::string> SupportedIsas() {
  std::vector<std::string> names;
  for (const int64_t target : SupportedTargetList()) {
    names.push_back(IsaName(target));
  }
  return names;
}

std::string CurrentIsa() {
  SupportedTargetList();  // for its warning
  return IsaName(of_scope != nullptr ? ScopedTargets().TargetOf(of_scope)
                                     : hwy::SupportedAndGeneratedTargets().front());
}

void PinIsa(std::string_view name) {
  const int64_t target = TargetOf(name);
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

IsaScope::IsaScope(std::string_view name) : before_(of_scope) {
  of_scope = &ScopedTargets().Of(TargetOf(name));
}

IsaScope::~IsaScope() { of_scope = static_cast<const hwy::ChosenTarget*>(before_); }

}  // namespace lopt

#pragma once

// Included by kernels alone, behind <hwy/highway.h>.
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <cstdint>

namespace lopt {

// The instruction set that base/isa.h says this thread's kernels use.
const hwy::ChosenTarget& ChosenTargetOfThread();

// What base/processor.h says of this machine's processor and `target`, a HWY_TARGET.
bool PacesStores(int64_t target);
bool HasSmallTiles(int64_t target);

}  // namespace lopt

// The function that HWY_EXPORT(FUNC) has made a table of, for the thread's instruction set: as
// HWY_DYNAMIC_DISPATCH, which knows the process's alone.
#if HWY_IDE || ((HWY_TARGETS & (HWY_TARGETS - 1)) == 0)
#define LOPT_DISPATCH(FUNC) HWY_STATIC_DISPATCH(FUNC)
#else
#define LOPT_DISPATCH(FUNC) (*(HWY_DISPATCH_TABLE(FUNC)[lopt::ChosenTargetOfThread().GetIndex()]))
#endif

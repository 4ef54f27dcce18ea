#pragma once

#include <cstdint>

#include "base/key.h"

namespace lopt {

// What the key of a replica of a LoptProblem is folded with, for each purpose. The draws of a start
// and of a restart are those of an episode's own key.
enum ReplicaDraw : uint64_t {
  kTaskDraw = 0,
  kParamsDraw = 1,
  kLengthDraw = 2,
  kOffsetDraw = 3,
  kDataDraw = 4,
  kMetaDataDraw = 5,
  kUpdateDraw = 6,
  kRestartDraw = 7,
  kOrderDraw = 8,
};

inline Key FoldIn2(Key key, ReplicaDraw draw, int64_t number) {
  return FoldIn(FoldIn(key, draw), static_cast<uint64_t>(number));
}

}  // namespace lopt

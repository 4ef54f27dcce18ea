#pragma once

#include <cstdint>

#include "lopt/base/key.h"

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
  kRestartDraw = 7,
  kOrderDraw = 8,
};

inline Key FoldIn2(Key key, ReplicaDraw draw, int64_t number) {
  return FoldIn(FoldIn(key, draw), static_cast<uint64_t>(number));
}

// What a replica draws from within one episode, each folded with the inner step; the orders are
// those of Sampling::kEpoch. `order` is that of its state.
struct EpisodeKeys {
  Key data;
  Key meta_data;
  Key order;
  Key meta_order;
};

inline EpisodeKeys KeysOfEpisode(Key key, int64_t episode, int64_t order) {
  const Key order_key = KeyFromSeed(static_cast<uint64_t>(order));
  return {.data = FoldIn2(key, kDataDraw, episode),
          .meta_data = FoldIn2(key, kMetaDataDraw, episode),
          .order = FoldIn(order_key, kDataDraw),
          .meta_order = FoldIn(order_key, kMetaDataDraw)};
}

}  // namespace lopt

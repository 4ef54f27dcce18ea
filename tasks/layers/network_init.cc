#include "lopt/tasks/layers/network_init.h"

#include <algorithm>
#include <cmath>

namespace lopt {

void InitNetwork(const Layout& layout, Key key, std::span<float> params) {
  uint64_t tensor = 0;
  for (const LayoutEntry& entry : layout.entries()) {
    const std::span<float> values = params.subspan(entry.offset, entry.size);
    if (entry.shape.size() < 2) {
      std::ranges::fill(values, entry.name.ends_with("/scale") ? 1.0f : 0.0f);
      continue;
    }
    TruncatedNormal(FoldIn(key, tensor++), -2, 2, values);
    const int64_t fan_in = entry.size / entry.shape.back();
    const float scale = 1 / std::sqrt(static_cast<float>(fan_in));
    for (float& value : values) value *= scale;
  }
}

}  // namespace lopt

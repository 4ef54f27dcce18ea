#include "lopt/tasks/table/drawn_columns.h"

#include <algorithm>

namespace lopt {

std::vector<float> DrawNormals(Key key, int64_t count) {
  std::vector<float> drawn(static_cast<size_t>(count));
  Normal(key, drawn);
  return drawn;
}

std::vector<int64_t> DrawRareValues(Key key, int64_t values, int64_t count) {
  std::vector<double> ends;
  for (int64_t v = 0; v < values; ++v) {
    ends.push_back((v == 0 ? 0.0 : ends.back()) + 1 / static_cast<double>(v + 1));
  }
  std::vector<float> uniforms(static_cast<size_t>(count));
  Uniform(key, uniforms);
  std::vector<int64_t> drawn;
  for (const float u : uniforms) {
    const auto at = std::ranges::upper_bound(ends, double{u} * ends.back());
    drawn.push_back(std::min<int64_t>(at - ends.begin(), values - 1));
  }
  return drawn;
}

std::pair<int64_t, int64_t> RangeOfRows(Split split, int64_t train, int64_t held_out) {
  if (split == Split::kTrain) return {0, train};
  const int64_t before = static_cast<int64_t>(split) - 1;
  return {train + before * held_out, train + (before + 1) * held_out};
}

}  // namespace lopt

#include "estimators/theta_rows.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"

namespace lopt {

Perturbations::Perturbations(std::vector<Key> keys, double std, int64_t dimension)
    : Perturbations(std::move(keys), {}, std, dimension) {}

Perturbations::Perturbations(std::vector<Key> keys, std::vector<int64_t> episodes, double std,
                             int64_t dimension)
    : keys_(std::move(keys)),
      episodes_(std::move(episodes)),
      std_(std),
      dimension_(dimension),
      rows_(keys_.size() * static_cast<size_t>(dimension)),
      made_(new std::once_flag[keys_.size()]) {
  Require(!keys_.empty(), "perturbations: no keys, wanted one for each pair");
  Require(episodes_.empty() || episodes_.size() == keys_.size(),
          "perturbations: {} numbers of episodes for {} pairs", episodes_.size(), keys_.size());
}

Key Perturbations::KeyOf(int64_t pair, int64_t restarts) const {
  const Key key = keys_[static_cast<size_t>(pair)];
  return per_episode()
             ? FoldIn(key, static_cast<uint64_t>(episodes_[static_cast<size_t>(pair)] + restarts))
             : key;
}

void Perturbations::Draw(int64_t pair, int64_t restarts, std::span<float> out) const {
  Normal(KeyOf(pair, restarts), out);
  const auto scale = static_cast<float>(std_);
  for (float& value : out) {
    value *= scale;
  }
}

std::span<const float> Perturbations::Row(int64_t pair) const {
  const std::span row(rows_.data() + pair * dimension_, static_cast<size_t>(dimension_));
  std::call_once(made_[static_cast<size_t>(pair)], [&] { Draw(pair, 0, row); });
  return row;
}

std::span<const float> Perturbations::Rows() const {
  ParallelFor(pairs(), [&](int64_t n) { Row(n); });
  return rows_;
}

void ThetaRows::Row(int64_t row, int64_t restarts, std::span<float> out) const {
  Require(out.size() == theta.size(), "theta row: room for {} numbers, theta has {}", out.size(),
          theta.size());
  if (perturbations == nullptr) {
    std::ranges::copy(theta, out.begin());
    return;
  }
  const int64_t pairs = perturbations->pairs();
  const int64_t pair = row % pairs;
  std::span<const float> perturbation = out;
  if (restarts == 0 || !perturbations->per_episode()) {
    perturbation = perturbations->Row(pair);
  } else {
    perturbations->Draw(pair, restarts, out);
  }
  const float sign = row < pairs ? 1.0F : -1.0F;
  for (size_t i = 0; i < theta.size(); ++i) {
    out[i] = theta[i] + sign * perturbation[i];
  }
}

}  // namespace lopt

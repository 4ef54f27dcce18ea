#include "lopt/estimators/theta_rows.h"

#include <Eigen/Core>
#include <algorithm>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/parallel.h"

namespace lopt {

void VisitDirections(FieldVisitor& v, Directions* directions) {
  v.Choice(
      "directions", directions, kDirections,
      "How the pairs' perturbations are drawn: each by itself, or orthogonal to each other. "
      "Orthogonal ones lower the gradient's variance, the more so the more pairs there are for "
      "theta's size. TruncatedNRES, GPESK and GPUs refuse them.");
}

Perturbations::Perturbations(std::vector<Key> keys, double std, int64_t dimension,
                             Directions directions)
    : keys_(std::move(keys)),
      std_(std),
      dimension_(dimension),
      directions_(directions),
      rows_(std::make_unique_for_overwrite<float[]>(keys_.size() * static_cast<size_t>(dimension))),
      made_(new std::once_flag[keys_.size()]) {
  Require(!keys_.empty(), "perturbations: no keys, wanted one for each pair");
}

Perturbations::Perturbations(std::vector<Key> keys, std::vector<int64_t> episodes,
                             PerturbationClock clock, double std, int64_t dimension)
    : keys_(std::move(keys)),
      episodes_(std::move(episodes)),
      clock_(clock),
      std_(std),
      dimension_(dimension) {
  Require(!keys_.empty(), "perturbations: no keys, wanted one for each pair");
  Require(episodes_.size() == keys_.size(), "perturbations: {} numbers of episodes for {} pairs",
          episodes_.size(), keys_.size());
  Require(clock_.block >= 1, "perturbations: blocks of {} inner steps, wanted at least 1",
          clock_.block);
}

Key Perturbations::KeyOf(int64_t pair, const WindowStep& at) const {
  const Key key = keys_[static_cast<size_t>(pair)];
  if (clock_.block == PerturbationClock::kWindow) {
    return key;
  }
  const int64_t episode = episodes_[static_cast<size_t>(pair)] + at.restarts;
  return FoldIn(FoldIn(key, static_cast<uint64_t>(episode)),
                static_cast<uint64_t>(at.inner_step / clock_.block));
}

void Perturbations::Make(Key key, std::span<float> out) const {
  Normal(key, out);
  const auto scale = static_cast<float>(std_);
  for (float& value : out) {
    value *= scale;
  }
}

void Perturbations::MakeOrthogonal() const {
  const size_t dimension = static_cast<size_t>(dimension_);
  Eigen::MatrixXd basis(dimension_, std::min(pairs(), dimension_));
  for (int64_t pair = 0; pair < pairs(); ++pair) {
    const std::span row(rows_.get() + pair * dimension_, dimension);
    Normal(keys_[static_cast<size_t>(pair)], row);
    const Eigen::Map<const Eigen::VectorXf> drawn(row.data(), dimension_);
    Eigen::VectorXd direction = drawn.cast<double>();
    const double norm = direction.norm();
    const int64_t before = pair % dimension_;
    // Twice, since what rounding leaves of the others weighs more in a small rest.
    for (int round = 0; round < 2; ++round) {
      direction -= basis.leftCols(before) * (basis.leftCols(before).transpose() * direction);
    }
    direction.normalize();
    basis.col(before) = direction;
    for (int64_t i = 0; i < dimension_; ++i) {
      row[static_cast<size_t>(i)] = static_cast<float>(std_ * norm * direction[i]);
    }
  }
}

std::span<const float> Perturbations::Row(int64_t pair) const {
  Require(clock_.block == PerturbationClock::kWindow,
          "perturbations: they last for blocks of episodes, not for the window");
  const std::span row(rows_.get() + pair * dimension_, static_cast<size_t>(dimension_));
  if (directions_ == Directions::kOrthogonal) {
    std::call_once(made_[0], [&] { MakeOrthogonal(); });
  } else {
    std::call_once(made_[static_cast<size_t>(pair)],
                   [&] { Make(keys_[static_cast<size_t>(pair)], row); });
  }
  return row;
}

std::span<const float> Perturbations::Rows() const {
  ParallelFor(pairs(), [&](int64_t n) { Row(n); });
  return {rows_.get(), keys_.size() * static_cast<size_t>(dimension_)};
}

void Perturbations::Draw(int64_t pair, const WindowStep& at, std::span<float> out) const {
  if (clock_.block == PerturbationClock::kWindow) {
    std::ranges::copy(Row(pair), out.begin());
  } else {
    Make(KeyOf(pair, at), out);
  }
}

void ThetaRows::Row(int64_t row, const WindowStep& at, std::span<float> out) const {
  Require(out.size() == theta.size(), "theta row: room for {} numbers, theta has {}", out.size(),
          theta.size());
  if (perturbations == nullptr) {
    std::ranges::copy(theta, out.begin());
    return;
  }
  const int64_t pairs = perturbations->pairs();
  perturbations->Draw(row % pairs, at, out);
  const float sign = row < pairs ? 1.0F : -1.0F;
  for (size_t i = 0; i < theta.size(); ++i) {
    out[i] = theta[i] + sign * out[i];
  }
}

}  // namespace lopt

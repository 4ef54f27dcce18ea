#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/key.h"

namespace lopt {

// The perturbations of theta that N antithetic pairs run under, named by keys: std times the
// standard normal numbers of a pair's key. A device makes its own from the names; on the host a row
// is made when it is first used and then kept. Thread-safe.
class Perturbations {
 public:
  // The same for all that a pair runs: pair n has those of keys[n].
  Perturbations(std::vector<Key> keys, double std, int64_t dimension);
  // New ones for every episode: pair n begins with those of FoldIn(keys[n], episodes[n]), and once
  // r episodes have begun inside the window has those of FoldIn(keys[n], episodes[n] + r). The keys
  // must be the same in every window: take them from the key of InitWorkerState and keep them in
  // the state. episodes[n] is how many of pair n's episodes ended before the window; after it add
  // the number of is_last in column n, that of the last step included.
  Perturbations(std::vector<Key> keys, std::vector<int64_t> episodes, double std,
                int64_t dimension);

  int64_t pairs() const { return static_cast<int64_t>(keys_.size()); }
  int64_t dimension() const { return dimension_; }  // D
  double std() const { return std_; }
  bool per_episode() const { return !episodes_.empty(); }
  // The key of pair n's perturbation after `restarts` restarts inside the window.
  Key KeyOf(int64_t pair, int64_t restarts = 0) const;

  // Pair n's at the start of the window, [D]; those of all pairs, [N, D].
  std::span<const float> Row(int64_t pair) const;
  std::span<const float> Rows() const;
  // Pair n's after `restarts` restarts, [D].
  void Draw(int64_t pair, int64_t restarts, std::span<float> out) const;

 private:
  std::vector<Key> keys_;
  std::vector<int64_t> episodes_;
  double std_;
  int64_t dimension_;
  // Rows at the start of the window, made once each.
  mutable std::vector<float> rows_;
  std::unique_ptr<std::once_flag[]> made_;
};

// The theta that each of B replicas runs under, by name. Without perturbations every row is theta;
// with those of N pairs B = 2N, and row n is theta + perturbation n, row N + n its antithetic twin
// theta - perturbation n.
struct ThetaRows {
  std::span<const float> theta = {};             // [D]
  int64_t rows = 0;                              // B
  const Perturbations* perturbations = nullptr;  // or null

  // Row `row` once `restarts` episodes have begun inside the window, [D].
  void Row(int64_t row, int64_t restarts, std::span<float> out) const;
  // Whether a replica's row changes when an episode begins.
  bool ChangeAtRestart() const { return perturbations != nullptr && perturbations->per_episode(); }
};

}  // namespace lopt

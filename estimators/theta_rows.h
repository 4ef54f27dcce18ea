#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "lopt/base/choices.h"
#include "lopt/base/fields.h"
#include "lopt/base/key.h"

namespace lopt {

// When a pair's perturbation gives way to a new one: with every window, or at inner steps 0, block,
// 2 block, ... of every episode.
struct PerturbationClock {
  static constexpr int64_t kWindow = 0;  // a new one in every window
  static constexpr int64_t kEpisode =
      std::numeric_limits<int64_t>::max();  // one for a whole episode

  int64_t block = kWindow;  // in inner steps, or one of the above

  // Whether a new one begins at this inner step wherever in a window it comes.
  bool BeginsAt(int64_t inner_step) const { return block != kWindow && inner_step % block == 0; }
};

// Where a replica stands inside a window.
struct WindowStep {
  int64_t restarts = 0;    // episodes begun inside the window
  int64_t inner_step = 0;  // of the running episode, 0-based
};

// How a window's N perturbations, vectors of D numbers, lie to each other. kIndependent draws each
// by itself. kOrthogonal makes those of pairs [0, D), [D, 2D), ... orthogonal and keeps their norms
// (Choromanski et al. 2018, arXiv 1804.02395). The gradient stays unbiased. If the loss is linear
// and N <= D, its variance is (D + 2 - N) / (D + 1) of that of independent ones.
enum class Directions { kIndependent, kOrthogonal };
inline constexpr Named<Directions> kDirections[] = {{Directions::kIndependent, "independent"},
                                                    {Directions::kOrthogonal, "orthogonal"}};

// The option "directions" of estimators whose perturbations may be orthogonal.
void VisitDirections(FieldVisitor& v, Directions* directions);

// The perturbations of theta that N antithetic pairs run under, named by keys: std times the
// standard normal numbers of a key. A device makes its own from the names; on the host those of a
// whole window are made when they are first used and then kept, others each time that they are
// asked for. Thread-safe.
class Perturbations {
 public:
  // The same for all that a pair runs: pair n has those of keys[n], made orthogonal if so. No
  // device can make orthogonal ones.
  Perturbations(std::vector<Key> keys, double std, int64_t dimension,
                Directions directions = Directions::kIndependent);
  // New ones for every block of an episode: at inner step t of an episode pair n has those of
  // FoldIn(FoldIn(keys[n], e), t / clock.block), e being episodes[n] and how many episodes have
  // begun inside the window. The keys must be the same in every window: take them from the key of
  // InitWorkerState and keep them in the state. episodes[n] is how many of pair n's episodes ended
  // before the window; after it add the number of is_last in column n, that of the last step
  // included. Throws Error under the clock kWindow.
  Perturbations(std::vector<Key> keys, std::vector<int64_t> episodes, PerturbationClock clock,
                double std, int64_t dimension);

  // N.
  int64_t pairs() const { return static_cast<int64_t>(keys_.size()); }
  int64_t dimension() const { return dimension_; }  // D
  // Standard deviation of each number.
  double std() const { return std_; }
  // [N], as they were given.
  const std::vector<Key>& keys() const { return keys_; }
  // [N], likewise; empty where they last for the window.
  const std::vector<int64_t>& episodes() const { return episodes_; }
  // How they lie to each other.
  Directions directions() const { return directions_; }
  // How long they last.
  const PerturbationClock& clock() const { return clock_; }
  // The key of pair n's perturbation at a step of the window. Orthogonal ones are made of the
  // numbers of this key and of the keys before it in the block of D.
  Key KeyOf(int64_t pair, const WindowStep& at) const;

  // Pair n's for the whole window, [D]. Throws Error if they last for blocks of episodes.
  std::span<const float> Row(int64_t pair) const;
  // Those of all pairs, [N, D]. Throws Error as Row does.
  std::span<const float> Rows() const;
  // Pair n's at a step of the window, [D].
  void Draw(int64_t pair, const WindowStep& at, std::span<float> out) const;

 private:
  void Make(Key key, std::span<float> out) const;
  // All rows of a window.
  void MakeOrthogonal() const;

  std::vector<Key> keys_;
  std::vector<int64_t> episodes_;
  PerturbationClock clock_;
  double std_;
  int64_t dimension_;
  Directions directions_ = Directions::kIndependent;
  // Rows of a whole window, made once each, or orthogonal ones all with the first.
  std::unique_ptr<float[]> rows_;
  std::unique_ptr<std::once_flag[]> made_;
};

// The theta that each of B replicas runs under, by name. Without perturbations every row is theta;
// with those of N pairs B = 2N, and row n is theta + perturbation n, row N + n its antithetic
// partner theta - perturbation n.
struct ThetaRows {
  std::span<const float> theta = {};             // [D]
  int64_t rows = 0;                              // B
  const Perturbations* perturbations = nullptr;  // or null

  // Row `row` at a step of the window, [D].
  void Row(int64_t row, const WindowStep& at, std::span<float> out) const;
  // Whether a replica's row is another from this inner step of an episode on.
  bool ChangesAt(int64_t inner_step) const {
    return perturbations != nullptr && perturbations->clock().BeginsAt(inner_step);
  }
};

}  // namespace lopt

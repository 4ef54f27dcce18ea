#pragma once

#include <cstdint>
#include <span>

#include "lopt/estimators/inner_problem.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/estimators/replica_keys.h"

namespace lopt {

// Row `row` of an array of rows of `size` numbers; `rows` of them from there.
template <class T>
std::span<T> RowsOf(std::span<T> array, int64_t row, int64_t size, int64_t rows = 1) {
  return array.subspan(static_cast<size_t>(row * size), static_cast<size_t>(rows * size));
}

// What an unroll state of a LoptProblem counts, for each of B replicas: it is with the host,
// whatever windows run on.
struct LoptCounters {
  std::span<int64_t> inner_step;  // all [B]
  std::span<int64_t> length;
  std::span<int64_t> episode;
  std::span<int64_t> horizon;
  std::span<int64_t> order;

  // Throws Error, which names the array, if `state` is not one of `replicas` replicas.
  LoptCounters(int64_t replicas, UnrollState* state);
  // What replica b, which draws from `key`, draws its episode's numbers from.
  EpisodeKeys Keys(Key key, int64_t b) const { return KeysOfEpisode(key, episode[b], order[b]); }
  // StepInfo::num_steps of its episode.
  int64_t NumSteps(int64_t b) const;
  // Counts replica b's step k of a window. Returns whether its episode has ended and another
  // follows, whose steps count from 0.
  bool CountStep(int64_t k, int64_t b, UnrollTrace* trace) const;
  // That other.
  void FollowWith(int64_t b, const LoptProblem::Episode& next) const;
};

// All of its arrays, looked up and checked once, where all are with the host.
struct LoptState : LoptCounters {
  std::span<float> config;           // [B, C]
  std::span<float> params;           // [B, P]
  std::span<float> model_state;      // [B, M]
  std::span<float> optimizer_state;  // [B, S]

  // Throws Error, which names the array, if `state` is not one of `problem`.
  LoptState(const LoptProblem& problem, int64_t replicas, UnrollState* state);
  LoptProblem::ReplicaRow Row(const LoptProblem& problem, int64_t replica) const;
};

// The arrays, all zeros.
UnrollState MakeLoptState(const LoptProblem& problem, int64_t replicas);

}  // namespace lopt

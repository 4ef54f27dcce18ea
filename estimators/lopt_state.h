#pragma once

#include <cstdint>
#include <span>

#include "estimators/inner_problem.h"
#include "estimators/lopt_problem.h"

namespace lopt {

// Row `row` of an array of rows of `size` numbers; `rows` of them from there.
template <class T>
std::span<T> RowsOf(std::span<T> array, int64_t row, int64_t size, int64_t rows = 1) {
  return array.subspan(static_cast<size_t>(row * size), static_cast<size_t>(rows * size));
}

// The arrays of an unroll state of a LoptProblem, looked up and checked once.
struct LoptState {
  std::span<float> config;           // [B, C]
  std::span<float> params;           // [B, P]
  std::span<float> model_state;      // [B, M]
  std::span<float> optimizer_state;  // [B, S]
  std::span<int64_t> inner_step;     // the rest [B]
  std::span<int64_t> length;
  std::span<int64_t> episode;
  std::span<int64_t> horizon;
  std::span<int64_t> order;

  // Throws Error, which names the array, if `state` is not one of `problem`.
  LoptState(const LoptProblem& problem, int64_t replicas, UnrollState* state);
  LoptProblem::ReplicaRow Row(const LoptProblem& problem, int64_t replica) const;
};

// The arrays, all zeros.
UnrollState MakeLoptState(const LoptProblem& problem, int64_t replicas);

}  // namespace lopt

#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/key.h"
#include "base/parallel.h"
#include "estimators/inner_problem.h"
#include "tests/contracts/check.h"

namespace lopt::contracts {

// What every InnerProblem promises (estimators/inner_problem.h); used for every task trained by
// every optimizer. Failures name no problem: the caller does, with INFO.

inline bool SameBits(const UnrollTrace& a, const UnrollTrace& b) {
  return SameBits(a.loss, b.loss) && SameBits(a.is_last, b.is_last) &&
         SameBits(a.non_finite, b.non_finite) && SameBits(a.iteration, b.iteration);
}

// Replicas in the middle of their training, with what one window needs.
struct Unroll {
  std::vector<float> theta;
  std::shared_ptr<const Perturbations> perturbations;  // or null
  std::vector<Key> keys;
  OuterState outer;
  UnrollState state;

  ThetaRows rows() const {
    return {.theta = theta,
            .rows = static_cast<int64_t>(keys.size()),
            .perturbations = perturbations.get()};
  }
  Window window(int64_t steps, UnrollTrace* trace) {
    return {.theta = rows(),
            .outer = outer,
            .keys = keys,
            .steps = steps,
            .state = &state,
            .trace = trace};
  }
  UnrollTrace Run(const InnerProblem& problem, int64_t steps) {
    UnrollTrace trace;
    problem.Run(window(steps, &trace));
    return trace;
  }
};

// Keys of `pairs` pairs, each twice.
inline std::vector<Key> Twice(Key key, int64_t pairs) {
  std::vector<Key> keys = SplitKey(key, pairs);
  keys.insert(keys.end(), keys.begin(), keys.begin() + pairs);
  return keys;
}

// `pairs` antithetic pairs whose perturbations have the standard deviation `std`.
inline Unroll StartPairs(const InnerProblem& problem, std::vector<float> theta, int64_t pairs,
                         double std, std::optional<int64_t> horizon = {}) {
  const int64_t dimension = std::ssize(theta);
  Unroll unroll{.theta = std::move(theta),
                .perturbations = std::make_shared<Perturbations>(SplitKey(KeyFromSeed(12), pairs),
                                                                 std, dimension),
                .keys = Twice(KeyFromSeed(11), pairs),
                .outer = {.outer_step = 3},
                .state = {}};
  unroll.state = problem.Start(unroll.rows(), unroll.outer, Twice(KeyFromSeed(13), pairs), horizon);
  return unroll;
}

// One run of 50 steps is two of 25 under the same keys, on any number of threads.
inline void CheckRunSplits(const InnerProblem& problem, const std::vector<float>& theta) {
  const Unroll start = StartPairs(problem, theta, 2, 0.01);
  Unroll whole = start;
  const UnrollTrace trace = whole.Run(problem, 50);
  Unroll halves = start;
  UnrollTrace first;
  UnrollTrace second;
  ThreadPool(8).Run([&] {
    first = halves.Run(problem, 25);
    second = halves.Run(problem, 25);
  });
  CHECK(SameBits(Eigen::ArrayXXd(trace.loss.topRows(25)), first.loss));
  CHECK(SameBits(Eigen::ArrayXXd(trace.loss.bottomRows(25)), second.loss));
  CHECK((trace.is_last.topRows(25) == first.is_last).all());
  CHECK((trace.is_last.bottomRows(25) == second.is_last).all());
  CHECK((trace.iteration.topRows(25) == first.iteration).all());
  CHECK((trace.iteration.bottomRows(25) == second.iteration).all());
  CHECK((trace.non_finite.bottomRows(25) == second.non_finite).all());
  CHECK(whole.state == halves.state);
  CHECK_FALSE(whole.state == start.state);
  CHECK(trace.is_last.any() == problem.EpisodesEnd());
}

// Twins differ by nothing at all where their perturbation is 0, and by little where it is small.
inline void CheckTwins(const InnerProblem& problem, const std::vector<float>& theta) {
  const int64_t pairs = 3;
  const auto differences = [&](double std) -> Eigen::ArrayXXd {
    const UnrollTrace trace = StartPairs(problem, theta, pairs, std).Run(problem, 30);
    return (trace.loss.leftCols(pairs) - trace.loss.rightCols(pairs)) /
           (1 + trace.loss.leftCols(pairs).abs());
  };
  CHECK((differences(0) == 0).all());
  CHECK((differences(1e-6).abs() < 1e-3).all());
}

// When episodes end does not depend on theta, and what a trace says of them fits together.
inline void CheckEpisodes(const InnerProblem& problem, const std::vector<float>& theta,
                          const std::vector<float>& other_theta) {
  const UnrollTrace trace = StartPairs(problem, theta, 2, 0).Run(problem, 40);
  const UnrollTrace other = StartPairs(problem, other_theta, 2, 0.1).Run(problem, 40);
  CHECK(SameBits(trace.is_last, other.is_last));
  CHECK(SameBits(trace.iteration, other.iteration));
  CHECK_FALSE(SameBits(trace.loss, other.loss));
  for (int64_t b = 0; b < trace.loss.cols(); ++b) {
    for (int64_t k = 0; k < trace.loss.rows(); ++k) {
      const int64_t expected =
          k == 0 || trace.is_last(k - 1, b) ? 0 : trace.iteration(k - 1, b) + 1;
      CHECK(trace.iteration(k, b) == expected);
    }
  }

  // Under a horizon one episode ends, once, and nothing restarts.
  const UnrollTrace horizon = StartPairs(problem, theta, 2, 0, 7).Run(problem, 20);
  for (int64_t k = 0; k < horizon.loss.rows(); ++k) {
    CHECK((horizon.iteration.row(k) == k).all());
    CHECK((horizon.is_last.row(k) == (k == 6)).all());
  }
}

// A replica does not know which other replicas run beside it. For problems that advance one
// replica at a time.
inline void CheckReplicasAreIndependent(const InnerProblem& problem,
                                        const std::vector<float>& theta) {
  const int64_t replicas = 3;
  const auto start_with = [&](uint64_t seed) {
    return problem.Start({.theta = theta, .rows = replicas}, {},
                         SplitKey(KeyFromSeed(seed), replicas));
  };
  Unroll all{.theta = theta,
             .perturbations = {},
             .keys = SplitKey(KeyFromSeed(21), replicas),
             .outer = {},
             .state = start_with(22)};
  const UnrollState start = all.state;
  CHECK(start == start_with(22));
  CHECK_FALSE(start == start_with(23));
  const UnrollTrace together = all.Run(problem, 20);
  for (int64_t b = 0; b < replicas; ++b) {
    Unroll alone{.theta = theta,
                 .perturbations = {},
                 .keys = {all.keys[b]},
                 .outer = {},
                 .state = TakeRows(start, b, 1)};
    const UnrollTrace trace = alone.Run(problem, 20);
    CHECK(SameBits(trace.loss, Eigen::ArrayXXd(together.loss.col(b))));
    CHECK(alone.state == TakeRows(all.state, b, 1));
  }
}

inline void CheckMetaLoss(const InnerProblem& problem, const std::vector<float>& theta) {
  Unroll unroll = StartPairs(problem, theta, 2, 0);
  unroll.Run(problem, 3);
  std::vector<double> losses(4);
  std::vector<double> again(4);
  problem.MetaLoss(unroll.rows(), unroll.keys, unroll.state, losses);
  ThreadPool(8).Run([&] { problem.MetaLoss(unroll.rows(), unroll.keys, unroll.state, again); });
  CHECK(SameBits(losses, again));
  CHECK(AllFinite(losses));
  CHECK(losses[0] == losses[2]);  // twins
  CHECK(losses[1] == losses[3]);
}

inline void CheckWrongRowsThrow(const InnerProblem& problem, const std::vector<float>& theta) {
  const Unroll good = StartPairs(problem, theta, 2, 0.01);
  const auto expect = [&](const char* word, const auto& spoil) {
    Unroll spoilt = good;
    ThetaRows rows = spoilt.rows();
    spoil(spoilt, rows);
    UnrollTrace trace;
    std::vector<double> losses(4);
    CheckThrows(word, [&] {
      Window window = spoilt.window(2, &trace);
      window.theta = rows;
      problem.Run(window);
    });
    CheckThrows(word, [&] { problem.MetaLoss(rows, spoilt.keys, spoilt.state, losses); });
  };
  const auto dimension = std::ssize(theta);
  const Perturbations short_ones(SplitKey(Key{}, 2), 0.01, dimension - 1);
  const Perturbations of_three(SplitKey(Key{}, 3), 0.01, dimension);
  expect("theta", [](Unroll&, ThetaRows& rows) { rows.theta = rows.theta.subspan(1); });
  expect("perturbations", [&](Unroll&, ThetaRows& rows) { rows.perturbations = &short_ones; });
  expect("perturbations", [&](Unroll&, ThetaRows& rows) { rows.perturbations = &of_three; });
  expect("perturbations", [](Unroll&, ThetaRows& rows) { rows.rows = 2; });
  expect("keys", [](Unroll& u, ThetaRows&) { u.keys.pop_back(); });
  expect("replicas", [](Unroll& u, ThetaRows&) { u.state = TakeRows(u.state, 0, 3); });
  expect("replicas", [](Unroll& u, ThetaRows&) {
    u.state.Set(u.state.begin()->first, Array(DType::kFloat32, {5, 1}));
  });
  expect("no arrays", [](Unroll& u, ThetaRows&) { u.state = {}; });
  for (const auto& [name, array] : good.state) {
    INFO("array ", name);
    const std::string& spoilt_name = name;
    expect(name.c_str(), [&](Unroll& u, ThetaRows&) {
      u.state.Set(spoilt_name, Array(DType::kUint8, u.state.At(spoilt_name).shape()));
    });
  }
  Unroll unroll = good;
  CheckThrows("steps", [&] { unroll.Run(problem, 0); });
  std::vector<double> few(3);
  CheckThrows("losses", [&] { problem.MetaLoss(good.rows(), good.keys, good.state, few); });
  CheckThrows("rows", [&] { problem.Start({.theta = theta, .rows = 0}, {}, {}); });
  CheckThrows("keys", [&] { problem.Start({.theta = theta, .rows = 2}, {}, SplitKey(Key{}, 1)); });
  CheckThrows("horizon",
              [&] { problem.Start({.theta = theta, .rows = 1}, {}, SplitKey(Key{}, 1), 0); });
}

}  // namespace lopt::contracts

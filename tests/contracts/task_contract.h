#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/key.h"
#include "base/parallel.h"
#include "base/pictures.h"
#include "tasks/task_family.h"
#include "tests/contracts/check.h"

namespace lopt::contracts {

// What every TaskFamily promises (tasks/task_family.h). Families that are evaluated in lockstep
// (PreferredRows) may differ by rounding between different numbers of rows; the others may not.
// Failures name no task: the caller does, with INFO.

// n tasks of a family, each somewhere near its initial params.
struct TaskRows {
  int64_t rows = 0;
  std::vector<float> config;
  std::vector<float> params;
  std::vector<float> model_state;
  std::vector<Key> keys;
};

inline TaskRows DrawRows(const TaskFamily& task, int64_t rows, uint64_t seed) {
  const int64_t config_size = task.config_layout().size();
  const int64_t params_size = task.params_layout().size();
  const int64_t model_state_size = task.model_state_layout().size();
  TaskRows drawn{.rows = rows,
                 .config = std::vector<float>(rows * config_size),
                 .params = std::vector<float>(rows * params_size),
                 .model_state = std::vector<float>(rows * model_state_size),
                 .keys = SplitKey(KeyFromSeed(seed), rows)};
  std::vector<float> noise(params_size);
  for (int64_t row = 0; row < rows; ++row) {
    const Key key = drawn.keys[row];
    const std::span config = std::span(drawn.config).subspan(row * config_size, config_size);
    const std::span params = std::span(drawn.params).subspan(row * params_size, params_size);
    task.Sample(FoldIn(key, 1), config);
    task.Init(config, FoldIn(key, 2), params,
              std::span(drawn.model_state).subspan(row * model_state_size, model_state_size));
    Normal(FoldIn(key, 3), noise);
    for (int64_t i = 0; i < params_size; ++i) params[i] += 0.1F * noise[i];
  }
  return drawn;
}

inline TaskRows TakeRow(const TaskRows& all, int64_t row) {
  const auto take = [&](const std::vector<float>& values) {
    const auto size = static_cast<int64_t>(values.size()) / all.rows;
    return std::vector<float>(values.begin() + row * size, values.begin() + (row + 1) * size);
  };
  return {.rows = 1,
          .config = take(all.config),
          .params = take(all.params),
          .model_state = take(all.model_state),
          .keys = {all.keys[row]}};
}

struct TaskResults {
  std::vector<float> losses;
  std::vector<float> gradients;
  std::vector<float> aux;
  std::vector<float> model_state;
};

inline bool SameBits(const TaskResults& a, const TaskResults& b) {
  return SameBits(a.losses, b.losses) && SameBits(a.gradients, b.gradients) &&
         SameBits(a.aux, b.aux) && SameBits(a.model_state, b.model_state);
}

struct HowToEvaluate {
  Split split = Split::kTrain;
  std::span<const int32_t> examples = {};
  bool gradients = true;
  float garbage = kNaN;  // what outputs and scratch memory hold before
};

inline TaskResults EvaluateRows(const TaskFamily& task, const TaskRows& rows,
                                const HowToEvaluate& how = {}) {
  const int64_t gradients = how.gradients ? rows.rows * task.params_layout().size() : 0;
  TaskResults results{.losses = std::vector<float>(rows.rows, how.garbage),
                      .gradients = std::vector<float>(gradients, how.garbage),
                      .aux = std::vector<float>(rows.rows * task.aux_layout().size(), how.garbage),
                      .model_state = rows.model_state};
  Workspace scratch;
  Dirty(scratch, how.garbage);
  task.Evaluate(
      {.rows = rows.rows,
       .config = rows.config,
       .params = rows.params,
       .model_state = results.model_state,
       .split = how.split,
       .keys = how.examples.empty() ? std::span<const Key>(rows.keys) : std::span<const Key>(),
       .examples = how.examples,
       .losses = results.losses,
       .gradients = results.gradients,
       .aux = results.aux},
      scratch);
  return results;
}

inline bool HasDataSet(const TaskFamily& task) {
  return task.ExampleRange(Split::kTrain).second > 0;
}

inline bool RowsAreExact(const TaskFamily& task) {
  return task.PreferredRows() != TaskFamily::kAllRows;
}

// Slopes of the loss of one task along `direction`, to either side.
struct LossSlopes {
  double forward = 0;
  double backward = 0;

  double Central() const { return (forward + backward) / 2; }
};

inline LossSlopes SlopesOfLoss(const TaskFamily& task, const TaskRows& at,
                               const std::vector<float>& direction, double step) {
  const auto loss_at = [&](double distance) {
    TaskRows moved = at;
    for (size_t i = 0; i < direction.size(); ++i) {
      moved.params[i] = static_cast<float>(moved.params[i] + distance * direction[i]);
    }
    return double{EvaluateRows(task, moved, {.gradients = false}).losses[0]};
  };
  const double here = loss_at(0);
  return {.forward = (loss_at(step) - here) / step, .backward = (here - loss_at(-step)) / step};
}

// Directions of length 1: some random ones and, of a small task, every coordinate.
inline std::vector<std::vector<float>> Directions(int64_t size, Key key) {
  constexpr uint64_t kRandom = 8;
  constexpr int64_t kSmall = 256;
  std::vector<std::vector<float>> directions;
  for (uint64_t n = 0; n < kRandom; ++n) {
    std::vector<float>& direction = directions.emplace_back(size);
    Normal(FoldIn(key, n), direction);
    const double square =
        std::inner_product(direction.begin(), direction.end(), direction.begin(), 0.0);
    for (float& value : direction) value /= static_cast<float>(std::sqrt(square));
  }
  for (int64_t i = 0; size <= kSmall && i < size; ++i) {
    directions.emplace_back(size)[i] = 1;
  }
  return directions;
}

inline double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// The loss is float32 and may have kinks (ReLU), so no single step size suits every direction: a
// short step loses digits, a long one meets a kink. Where a kink is too close for any step, the
// slope lies between those to either side, which short steps accept. A wrong gradient disagrees at
// all of them. The tolerance is relative to the root mean square of the gradient's elements.
inline void CheckGradientAgainstDifferences(const TaskFamily& task) {
  constexpr double kTolerance = 0.02;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const TaskRows at = DrawRows(task, 1, seed);
    const std::vector<float> gradient = EvaluateRows(task, at).gradients;
    REQUIRE(AllFinite(gradient));
    const double scale = std::sqrt(Dot(gradient, gradient) / static_cast<double>(gradient.size()));
    CHECK(scale > 0);
    double worst = 0;
    for (const auto& direction : Directions(task.params_layout().size(), KeyFromSeed(seed))) {
      double best = std::numeric_limits<double>::infinity();
      for (const double step : {0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4}) {
        const LossSlopes slopes = SlopesOfLoss(task, at, direction, step);
        const double slope = Dot(gradient, direction);
        const double central = std::abs(slopes.Central() - slope);
        const double beside = std::max({0.0, std::min(slopes.forward, slopes.backward) - slope,
                                        slope - std::max(slopes.forward, slopes.backward)});
        best = std::min(best, step <= 0.003 ? beside : central);
      }
      worst = std::max(worst, best);
    }
    CHECK_MESSAGE(worst <= kTolerance * scale, "gradient and differences of the loss are ",
                  worst / scale, " of the gradient's size apart");
  }
}

// The same for a gradient with noise of mean 0: the mean over many keys, in standard errors.
inline void CheckNoisyGradientAgainstDifferences(const TaskFamily& task) {
  constexpr int kKeys = 400;
  TaskRows at = DrawRows(task, 1, 0);
  const std::vector<float> direction = Directions(task.params_layout().size(), KeyFromSeed(5))[0];
  double sum = 0;
  double square_sum = 0;
  for (const Key key : SplitKey(KeyFromSeed(6), kKeys)) {
    at.keys = {key};
    const double error = Dot(EvaluateRows(task, at).gradients, direction) -
                         SlopesOfLoss(task, at, direction, 0.01).Central();
    sum += error;
    square_sum += error * error;
  }
  const double mean = sum / kKeys;
  const double deviation = std::sqrt(square_sum / kKeys - mean * mean);
  CHECK(deviation > 0);
  CHECK(std::abs(mean) <= 4.5 * deviation / std::sqrt(kKeys));
}

inline void CheckDataIsFunctionOfKey(const TaskFamily& task, bool noisy_gradient) {
  TaskRows rows = DrawRows(task, 3, 1);
  const TaskResults results = EvaluateRows(task, rows);
  CHECK(SameBits(results, EvaluateRows(task, rows, {.garbage = 7})));

  TaskRows other_keys = rows;
  other_keys.keys = SplitKey(KeyFromSeed(2), rows.rows);
  const TaskResults other = EvaluateRows(task, other_keys);
  if (HasDataSet(task)) {
    CHECK_FALSE(SameBits(results.losses, other.losses));
    for (const Split split : {Split::kInnerValid, Split::kOuterValid, Split::kTest}) {
      INFO("split ", ToString(split));
      CHECK_FALSE(SameBits(results.losses, EvaluateRows(task, rows, {.split = split}).losses));
    }
  }
  if (noisy_gradient) {
    CHECK((HasDataSet(task) || SameBits(results.losses, other.losses)));
    CHECK_FALSE(SameBits(results.gradients, other.gradients));
  }

  // Rows with equal keys and equal params see the same data.
  const TaskRows row = TakeRow(rows, 0);
  const auto twice = [](std::vector<float> values) {
    const size_t size = values.size();
    values.resize(2 * size);
    std::copy_n(values.begin(), size, values.begin() + static_cast<int64_t>(size));
    return values;
  };
  const TaskRows twins{.rows = 2,
                       .config = twice(row.config),
                       .params = twice(row.params),
                       .model_state = twice(row.model_state),
                       .keys = {row.keys[0], row.keys[0]}};
  const TaskResults pair = EvaluateRows(task, twins);
  CHECK(SameBits(std::span(pair.losses).first(1), std::span(pair.losses).last(1)));
  const size_t size = pair.gradients.size() / 2;
  CHECK(SameBits(std::span(pair.gradients).first(size), std::span(pair.gradients).last(size)));
  const size_t state_size = pair.model_state.size() / 2;
  CHECK(SameBits(std::span(pair.model_state).first(state_size),
                 std::span(pair.model_state).last(state_size)));
}

inline void CheckRowsAreIndependent(const TaskFamily& task) {
  const int64_t rows = 5;
  const TaskRows all = DrawRows(task, rows, 3);
  const TaskResults together = EvaluateRows(task, all);
  const auto cut = [&](const std::vector<float>& values, int64_t row) {
    const auto size = static_cast<int64_t>(values.size()) / rows;
    return std::vector<float>(values.begin() + row * size, values.begin() + (row + 1) * size);
  };
  for (int64_t row = 0; row < rows; ++row) {
    const TaskResults alone = EvaluateRows(task, TakeRow(all, row));
    const TaskResults part{.losses = cut(together.losses, row),
                           .gradients = cut(together.gradients, row),
                           .aux = cut(together.aux, row),
                           .model_state = cut(together.model_state, row)};
    if (RowsAreExact(task)) {
      CHECK(SameBits(part, alone));
    } else {
      CHECK(Distance(part.losses, alone.losses) <= 1e-6);
      CHECK(Distance(part.gradients, alone.gradients) <= 1e-6);
      CHECK(Distance(part.aux, alone.aux) <= 1e-6);
      CHECK(Distance(part.model_state, alone.model_state) <= 1e-6);
    }
  }
}

inline void CheckLossesWithoutGradients(const TaskFamily& task) {
  const TaskRows rows = DrawRows(task, 4, 4);
  const TaskResults with = EvaluateRows(task, rows);
  const TaskResults without = EvaluateRows(task, rows, {.gradients = false});
  CHECK(Distance(with.losses, without.losses) <= 1e-6);
  CHECK(Distance(with.aux, without.aux) <= 1e-6);
  if (RowsAreExact(task)) {
    CHECK(SameBits(with.losses, without.losses));
    CHECK(SameBits(with.aux, without.aux));
    CHECK(SameBits(with.model_state, without.model_state));
  }
}

inline void CheckThreadsGiveTheSameBits(const TaskFamily& task) {
  constexpr int64_t kCalls = 48;
  const auto call = [&](int64_t n) {
    return EvaluateRows(task, DrawRows(task, 1 + n % 2, static_cast<uint64_t>(n)));
  };
  std::vector<TaskResults> together(kCalls);
  ThreadPool(8).Run([&] { ParallelFor(kCalls, [&](int64_t n) { together[n] = call(n); }); });
  for (int64_t n = 0; n < kCalls; ++n) {
    CHECK(SameBits(together[n], call(n)));
  }
}

inline void CheckWrongSizesOfTasksThrow(const TaskFamily& task) {
  const int64_t rows = 2;
  struct Buffers {
    TaskRows in;
    TaskResults out;
    std::vector<int32_t> examples;
  };
  const TaskRows drawn = DrawRows(task, rows, 5);
  const Buffers good{drawn, EvaluateRows(task, drawn), {}};
  const auto expect = [&](const char* span, const auto& spoil) {
    Buffers b = good;
    spoil(b);
    Workspace scratch;
    CheckThrows(span, [&] {
      task.Evaluate({.rows = rows,
                     .config = b.in.config,
                     .params = b.in.params,
                     .model_state = b.out.model_state,
                     .keys = b.in.keys,
                     .examples = b.examples,
                     .losses = b.out.losses,
                     .gradients = b.out.gradients,
                     .aux = b.out.aux},
                    scratch);
    });
  };
  expect("config", [](Buffers& b) { b.in.config.emplace_back(); });
  expect("params", [](Buffers& b) { b.in.params.emplace_back(); });
  expect("params", [](Buffers& b) { b.in.params.pop_back(); });
  expect("model_state", [](Buffers& b) { b.out.model_state.emplace_back(); });
  expect("losses", [](Buffers& b) { b.out.losses.pop_back(); });
  expect("losses", [](Buffers& b) { b.out.losses.clear(); });
  expect("gradients", [](Buffers& b) { b.out.gradients.pop_back(); });
  expect("aux", [](Buffers& b) { b.out.aux.emplace_back(); });
  expect("keys", [](Buffers& b) { b.in.keys.pop_back(); });
  expect("keys", [](Buffers& b) { b.in.keys.clear(); });
  expect("example", [](Buffers& b) { b.examples = {0, 1, 2}; });
  expect("example", [](Buffers& b) { b.examples = {0, -1}; });
  const auto behind = static_cast<int32_t>(task.ExampleRange(Split::kTest).second);
  expect("example", [&](Buffers& b) { b.examples = {0, behind}; });

  TaskRows one = TakeRow(drawn, 0);
  const auto longer = [](std::vector<float> values) {
    values.emplace_back();
    return values;
  };
  std::vector<float> config = longer(one.config);
  std::vector<float> params = longer(one.params);
  std::vector<float> model_state = longer(one.model_state);
  CheckThrows("config", [&] { task.Sample(Key{}, config); });
  CheckThrows("config", [&] { task.Init(config, Key{}, one.params, one.model_state); });
  CheckThrows("params", [&] { task.Init(one.config, Key{}, params, one.model_state); });
  CheckThrows("model_state", [&] { task.Init(one.config, Key{}, one.params, model_state); });
}

inline void CheckDrawsAreFunctionsOfKey(const TaskFamily& task) {
  struct Drawn {
    std::vector<float> config;
    std::vector<float> params;
    std::vector<float> model_state;
  };
  const auto draw = [&](Key key, float garbage) {
    Drawn drawn{std::vector<float>(task.config_layout().size(), garbage),
                std::vector<float>(task.params_layout().size(), garbage),
                std::vector<float>(task.model_state_layout().size(), garbage)};
    task.Sample(key, drawn.config);
    task.Init(drawn.config, key, drawn.params, drawn.model_state);
    return drawn;
  };
  const Drawn first = draw(KeyFromSeed(1), kNaN);
  const Drawn again = draw(KeyFromSeed(1), 7);
  const Drawn other = draw(KeyFromSeed(2), kNaN);
  CHECK(SameBits(first.config, again.config));
  CHECK(SameBits(first.params, again.params));
  CHECK(SameBits(first.model_state, again.model_state));
  CHECK(AllFinite(first.config));
  CHECK(AllFinite(first.params));
  CHECK(AllFinite(first.model_state));
  CHECK_FALSE(SameBits(first.params, other.params));
  CHECK((first.config.empty() || !SameBits(first.config, other.config)));
}

inline void CheckNormalizer(const TaskFamily& task) {
  const TaskRows rows = DrawRows(task, 1, 6);
  const std::optional<double> maximum = task.NormalizerMaximum();
  double previous = -std::numeric_limits<double>::infinity();
  for (const double loss :
       {-1e30, -1e3, -2.0, -1e-3, 0.0, 1e-6, 0.1, 1.0, 2.0, 3.0, 10.0, 1e6, 1e30}) {
    INFO("loss ", loss);
    const double normalized = task.Normalize(rows.config, loss);
    CHECK(std::isfinite(normalized));
    CHECK(normalized >= previous);
    CHECK((!maximum || normalized <= *maximum));
    previous = normalized;
  }
  CHECK((!maximum || std::isfinite(*maximum)));
}

// A model state changes on the train split and on no other.
inline void CheckModelState(const TaskFamily& task) {
  const TaskRows rows = DrawRows(task, 3, 8);
  for (const Split split : kSplits) {
    if (split != Split::kTrain && !HasDataSet(task)) continue;
    INFO("split ", ToString(split));
    for (const bool gradients : {true, false}) {
      const TaskResults results =
          EvaluateRows(task, rows, {.split = split, .gradients = gradients});
      CHECK(AllFinite(results.model_state));
      CHECK(SameBits(results.model_state, rows.model_state) ==
            (split != Split::kTrain || rows.model_state.empty()));
    }
  }
}

// Splits follow one another, and the loss of explicit examples is the mean over them (where they
// train a task with a model state it may depend on statistics of all of them), as is the gradient
// if it is the loss's.
inline void CheckExamples(const TaskFamily& task, bool gradients = true) {
  int64_t end = 0;
  for (const Split split : kSplits) {
    INFO("split ", ToString(split));
    const auto [first, last] = task.ExampleRange(split);
    CHECK(first == end);
    end = last;
    if (!HasDataSet(task)) {
      CHECK(last == 0);
      continue;
    }
    REQUIRE(first < last);
    const int64_t count = std::min<int64_t>(last - first, 203);
    const int64_t share = count / 3;
    std::vector<int32_t> examples(count);
    std::iota(examples.begin(), examples.end(), static_cast<int32_t>(last - count));
    const TaskRows row = DrawRows(task, 1, 7);
    const auto evaluate = [&](std::span<const int32_t> some) {
      return EvaluateRows(task, row, {.split = split, .examples = some, .gradients = gradients});
    };
    const TaskResults whole = evaluate(examples);
    const TaskResults left = evaluate(std::span(examples).first(share));
    const TaskResults right = evaluate(std::span(examples).subspan(share));
    const bool averaged = split != Split::kTrain || task.model_state_layout().size() == 0;
    const auto mean = [&](const std::vector<float>& a, const std::vector<float>& b) {
      std::vector<float> values(a.size());
      for (size_t i = 0; i < a.size(); ++i) {
        values[i] = static_cast<float>((double{a[i]} * static_cast<double>(share) +
                                        double{b[i]} * static_cast<double>(count - share)) /
                                       static_cast<double>(count));
      }
      return values;
    };
    if (averaged) {
      CHECK(Distance(whole.losses, mean(left.losses, right.losses)) <= 1e-5);
      CHECK(Distance(whole.gradients, mean(left.gradients, right.gradients)) <= 1e-5);
      CHECK(Distance(whole.aux, mean(left.aux, right.aux)) <= 1e-5);
    }
    CHECK_FALSE(SameBits(left.losses, right.losses));
    std::ranges::reverse(examples);
    CHECK(Distance(whole.losses, evaluate(examples).losses) <= 1e-5);
    // Two rows share the examples out in order.
    const int64_t half = count / 2;
    const TaskRows two = DrawRows(task, 2, 7);
    const std::span shared = std::span(examples).first(2 * half);
    const TaskResults both =
        EvaluateRows(task, two, {.split = split, .examples = shared, .gradients = gradients});
    for (int64_t r = 0; r < 2; ++r) {
      const TaskResults alone = EvaluateRows(
          task, TakeRow(two, r),
          {.split = split, .examples = shared.subspan(r * half, half), .gradients = gradients});
      CHECK(Distance({both.losses[r]}, alone.losses) <= 1e-6);
    }
  }
}

// What a family shows can be drawn, on any split, and showing it changes nothing.
inline void CheckPictures(const TaskFamily& task) {
  for (const Split split : kSplits) {
    if (split != Split::kTrain && !HasDataSet(task)) continue;
    const TaskRows row = DrawRows(task, 1, 8);
    const auto show = [&](int64_t rows) {
      std::vector<float> model_state = row.model_state;
      Workspace scratch;
      Dirty(scratch, kNaN);
      std::vector<Pictures> pictures = task.Show({.rows = rows,
                                                  .config = row.config,
                                                  .params = row.params,
                                                  .model_state = model_state,
                                                  .split = split,
                                                  .keys = row.keys},
                                                 scratch);
      CHECK(SameBits(model_state, row.model_state));
      return pictures;
    };
    const std::vector<Pictures> pictures = show(1);
    const std::vector<Pictures> again = show(1);
    REQUIRE(pictures.size() == again.size());
    for (size_t p = 0; p < pictures.size(); ++p) {
      INFO("pictures ", pictures[p].name);
      CHECK(MakeGrid(pictures[p]).pixels == MakeGrid(again[p]).pixels);
      CHECK(AllFinite(pictures[p].pixels));
    }
    CHECK_THROWS_AS(show(2), Error);
  }
}

inline void CheckShape(const TaskFamily& task) {
  CHECK(task.params_layout().size() >= 1);
  CHECK((task.PreferredRows() >= 1 || task.PreferredRows() == TaskFamily::kAllRows));
  for (const LayoutEntry& entry : task.aux_layout().entries()) {
    INFO("aux ", entry.name);
    CHECK(entry.shape.empty());
  }
}

}  // namespace lopt::contracts

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/permutation.h"
#include "lopt/tasks/wrappers/sampled_family.h"
#include "tests/row_task.h"

namespace lopt {
namespace {

const Key kOrder = KeyFromSeed(7);

// The rows of each replica's batch, one after the other.
std::vector<int64_t> Batches(const TaskFamily& task, const std::vector<Key>& keys,
                             const std::vector<EpisodeStep>& steps, Split split = Split::kTrain) {
  Workspace scratch;
  const auto rows = std::ssize(keys);
  const std::vector<float> params(keys.size());
  std::vector<float> losses(keys.size());
  std::vector<float> aux(static_cast<size_t>(rows * task.aux_layout().size()));
  task.Evaluate({.rows = rows,
                 .params = params,
                 .split = split,
                 .keys = keys,
                 .steps = steps,
                 .losses = losses,
                 .aux = aux},
                scratch);
  return {aux.begin(), aux.end()};
}

std::vector<int64_t> Batch(const TaskFamily& task, int64_t step, Key order = kOrder) {
  return Batches(task, {Key{}}, {{order, step}});
}

std::vector<int64_t> Steps(const TaskFamily& task, int64_t first, int64_t last) {
  std::vector<int64_t> rows;
  for (int64_t step = first; step < last; ++step) {
    const std::vector<int64_t> batch = Batch(task, step);
    rows.insert(rows.end(), batch.begin(), batch.end());
  }
  return rows;
}

TEST_CASE("A step below 0 is an error") {
  const RowTask task(12, 4, Sampling::kEpoch);
  CHECK_THROWS_WITH_AS(Batch(task, -5), "TaskFamily: step -5 of an episode, wanted at least 0",
                       Error);
}

TEST_CASE("Keys beside examples are one for each replica, or none") {
  const RowTask task(12, 4, Sampling::kEpoch);
  const std::vector<Key> keys(2);
  const std::vector<int32_t> examples = {1, 2};
  const std::vector<float> params(2);
  std::vector<float> losses(2);
  Workspace scratch;
  TaskEvaluation evaluation{
      .rows = 2, .params = params, .keys = keys, .examples = examples, .losses = losses};
  task.Evaluate(evaluation, scratch);
  CHECK(losses == std::vector<float>{1, 2});
  evaluation.keys = {};
  CHECK_NOTHROW(task.Evaluate(evaluation, scratch));
  evaluation.keys = std::span(keys).first(1);
  CHECK_THROWS_WITH_AS(task.Evaluate(evaluation, scratch),
                       "TaskFamily: keys has 1 numbers, wanted 2 or none", Error);
}

TEST_CASE("Every row is taken once an epoch, in another order each epoch") {
  const RowTask task(12, 4, Sampling::kEpoch);
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<int64_t> rows = Steps(task, 3 * epoch, 3 * epoch + 3);
    orders.insert(rows);
    std::ranges::sort(rows);
    std::vector<int64_t> all(12);
    std::iota(all.begin(), all.end(), 0);
    CHECK(rows == all);
  }
  CHECK(orders.size() == 5);
}

TEST_CASE("Epoch e is the permutation of the order's key folded with e") {
  const RowTask task(12, 4, Sampling::kEpoch);
  Workspace scratch;
  for (const int64_t epoch : {0, 1, 70}) {
    const Permutation order(FoldIn(kOrder, static_cast<uint64_t>(epoch)), 12, scratch);
    const std::vector<int64_t> rows = Steps(task, 3 * epoch, 3 * epoch + 3);
    for (int64_t i = 0; i < 12; ++i) CHECK(rows[static_cast<size_t>(i)] == order(i));
  }
}

TEST_CASE("An epoch's last batch is filled up from the epoch's beginning") {
  const RowTask task(10, 4, Sampling::kEpoch);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> rows = Steps(task, 3 * epoch, 3 * epoch + 3);
    CHECK(rows[10] == rows[0]);
    CHECK(rows[11] == rows[1]);
    rows.resize(10);
    CHECK(std::set<int64_t>(rows.begin(), rows.end()).size() == 10);
  }
  CHECK(Batch(task, 3) != Batch(task, 0));
}

TEST_CASE("A batch larger than the split goes through it several times") {
  const RowTask task(3, 8, Sampling::kEpoch);
  const std::vector<int64_t> rows = Batch(task, 2);
  for (size_t i = 3; i < 8; ++i) CHECK(rows[i] == rows[i - 3]);
  CHECK(std::set<int64_t>(rows.begin(), rows.end()).size() == 3);
}

TEST_CASE("Replicas of one order have the same batches, however they are grouped") {
  const RowTask task(100, 6, Sampling::kEpoch);
  const Key other = KeyFromSeed(8);
  const std::vector<Key> keys = SplitKey(KeyFromSeed(1), 3);
  const std::vector<int64_t> together =
      Batches(task, keys, {{kOrder, 40}, {other, 3}, {kOrder, 40}});
  const auto row = [&](int64_t r) {
    return std::vector<int64_t>(together.begin() + 6 * r, together.begin() + 6 * (r + 1));
  };
  CHECK(row(0) == Batch(task, 40));
  CHECK(row(1) == Batch(task, 3, other));
  CHECK(row(2) == row(0));
  CHECK(Batch(task, 40, other) != row(0));
}

TEST_CASE("A key without a step takes the first batch of its own first epoch") {
  const RowTask task(50, 7, Sampling::kEpoch);
  const Key key = KeyFromSeed(3);
  const std::vector<int64_t> rows = Batches(task, {key}, {});
  CHECK(rows == Batch(task, 0, key));
  CHECK(std::set<int64_t>(rows.begin(), rows.end()).size() == 7);
}

TEST_CASE("Families of a mix go through their own data by epochs") {
  const SampledFamily mix({std::make_shared<RowTask>(5, 1, Sampling::kEpoch),
                           std::make_shared<RowTask>(9, 1, Sampling::kEpoch)},
                          {});
  Workspace scratch;
  const std::vector<float> config(static_cast<size_t>(mix.config_layout().size()), 1);
  const float x = 0;
  std::set<float> rows;
  for (int64_t step = 9; step < 18; ++step) {
    const Key key = FoldIn(kOrder, static_cast<uint64_t>(step));
    const EpisodeStep at = {kOrder, step};
    float row = 0;
    float aux = 0;
    mix.Evaluate({.config = config,
                  .params = {&x, 1},
                  .keys = {&key, 1},
                  .steps = {&at, 1},
                  .losses = {&row, 1},
                  .aux = {&aux, 1}},
                 scratch);
    rows.insert(row);
  }
  CHECK(rows.size() == 9);
}

TEST_CASE("Other splits have epochs of their own rows") {
  const RowTask task(50, 3, Sampling::kEpoch);
  CHECK(Batches(task, {Key{}}, {{kOrder, 9}}, Split::kTest) == std::vector<int64_t>{52, 52, 52});
}

TEST_CASE("With replacement the batch is the key's, whatever the step") {
  const RowTask task(1000, 5, Sampling::kReplacement);
  const Key key = KeyFromSeed(3);
  std::vector<int32_t> wanted(5);
  Randint(FoldIn(key, 0), 0, 1000, wanted);
  const std::vector<int64_t> rows = Batches(task, {key}, {{kOrder, 4}});
  CHECK(rows == std::vector<int64_t>(wanted.begin(), wanted.end()));
  CHECK(Batches(task, {key}, {}) == rows);
}

TEST_CASE("Another number of steps than of rows is an error") {
  const RowTask task(10, 2, Sampling::kEpoch);
  CHECK_THROWS_WITH_AS(Batches(task, {Key{}}, {{kOrder, 1}, {kOrder, 2}}),
                       "TaskFamily: steps has 2 numbers, wanted 1 or none", Error);
}

}  // namespace
}  // namespace lopt

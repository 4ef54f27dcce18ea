#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "lopt/learner/train/batches.h"
#include "tests/error_of.h"

namespace lopt {
namespace {

using Rows = std::vector<int32_t>;

// Rows [0, rows) to train on, in batches that have `batch` rows for each worker.
DataRows DataOf(int64_t rows, int64_t workers, int64_t batch) {
  return {.splits = {{0, rows}, {rows, rows + 1}, {rows + 1, rows + 2}, {rows + 2, rows + 3}},
          .batch_size = workers * batch};
}

// The batches of one worker at steps [0, steps).
std::vector<Rows> BatchesOf(const ShardedEpochs& epochs, int64_t rows, int64_t workers,
                            int64_t worker, int64_t batch, int64_t steps) {
  std::vector<Rows> batches;
  Workspace scratch;
  for (int64_t step = 0; step < steps; ++step) {
    const Workspace::Frame frame(scratch);
    const auto examples = ExamplesOfWorker(epochs, DataOf(rows, workers, batch), workers, worker,
                                           {}, {.order = KeyFromSeed(7), .step = step}, scratch);
    batches.emplace_back(examples.begin(), examples.end());
  }
  return batches;
}

}  // namespace

// The expected rows are what torch 1.13's DataLoader(range(rows), batch, sampler =
// DistributedSampler(range(rows), workers, worker, shuffle = False, drop_last = ...), drop_last =
// ...) gives.
TEST_CASE("Shards are filled up as PyTorch's DistributedSampler does") {
  const ShardedEpochs epochs{.shuffle = false};
  CHECK_EQ(BatchesOf(epochs, 10, 3, 0, 2, 2), std::vector<Rows>{{0, 3}, {6, 9}});
  CHECK_EQ(BatchesOf(epochs, 10, 3, 1, 2, 2), std::vector<Rows>{{1, 4}, {7, 0}});
  CHECK_EQ(BatchesOf(epochs, 10, 3, 2, 2, 2), std::vector<Rows>{{2, 5}, {8, 1}});
  // The last batch is smaller; then the next epoch begins.
  CHECK_EQ(BatchesOf(epochs, 10, 3, 2, 3, 3), std::vector<Rows>{{2, 5, 8}, {1}, {2, 5, 8}});
  // More padding than rows.
  CHECK_EQ(BatchesOf(epochs, 2, 5, 3, 1, 1), std::vector<Rows>{{1}});
  CHECK_EQ(BatchesOf(epochs, 2, 5, 4, 1, 1), std::vector<Rows>{{0}});
}

TEST_CASE("With drop_last they are cut as PyTorch's are") {
  const ShardedEpochs epochs{.shuffle = false, .drop_last = true};
  CHECK_EQ(BatchesOf(epochs, 10, 3, 0, 2, 2), std::vector<Rows>{{0, 3}, {0, 3}});
  CHECK_EQ(BatchesOf(epochs, 10, 3, 2, 3, 2), std::vector<Rows>{{2, 5, 8}, {2, 5, 8}});
  CHECK_EQ(BatchesOf(epochs, 12, 3, 1, 2, 3), std::vector<Rows>{{1, 4}, {7, 10}, {1, 4}});
  CHECK_EQ(ErrorOf([&] { CheckBatches(epochs, DataOf(10, 3, 4), 3); }),
           "batches: an epoch of 10 rows over 3 workers has no batch of 4 for each with "
           "drop_last; wanted a smaller batch_size, or drop_last false");
}

TEST_CASE("The shards of a shuffled epoch are all rows once, in another order each epoch") {
  constexpr int64_t kRows = 24;
  std::vector<Rows> seen;
  for (const int64_t epoch : {0, 1}) {
    Rows all;
    for (int64_t worker = 0; worker < 4; ++worker) {
      const auto batches = BatchesOf({}, kRows, 4, worker, 3, 4);
      for (const int64_t batch : {2 * epoch, 2 * epoch + 1}) {
        all.insert(all.end(), batches[batch].begin(), batches[batch].end());
      }
    }
    seen.push_back(all);
    std::ranges::sort(all);
    Rows rows(kRows);
    std::iota(rows.begin(), rows.end(), 0);
    CHECK_EQ(all, rows);
  }
  CHECK_NE(seen[0], seen[1]);
}

TEST_CASE("What has no data set has no epochs") {
  CHECK_EQ(ErrorOf([] { CheckBatches(ShardedEpochs(), {}, 2); }),
           "batches is Epochs, but the task has no data set to go through; valid choices: Split");
}

}  // namespace lopt

#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "lopt/base/fields.h"
#include "lopt/base/key.h"
#include "lopt/base/registry.h"
#include "lopt/base/workspace.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// How the logical workers of a training get their examples: the key "batches" of its config.

// Each batch as the task draws it, worker w having the w-th of equal parts.
struct SplitBatches {
  void Visit(FieldVisitor& v);
};

// Each worker goes through a shard of the split, epoch by epoch, as in PyTorch's
// DistributedSampler and DataLoader: of the rows of an epoch in their order, worker w of W has
// those at the places w, w + W, w + 2 W, ... Without drop_last the order begins again at its end
// until all shards have ceil(rows / W) rows, and the last batch of an epoch may be smaller; with it
// shards have floor(rows / W) rows and what does not fill a batch is left out.
struct ShardedEpochs {
  bool shuffle = true;
  bool drop_last = false;
  void Visit(FieldVisitor& v);
};

// One of the two.
using Batches = std::variant<SplitBatches, ShardedEpochs>;

// "Split" and "Epochs".
Registry<Batches>& BatchesRegistry();

// Rows of the epochs of one shard.
int64_t ShardRows(const ShardedEpochs& epochs, int64_t rows, int64_t workers);
// Batches of `batch` rows that an epoch makes of them.
int64_t BatchesOfEpoch(const ShardedEpochs& epochs, int64_t rows, int64_t workers, int64_t batch);

// Throws Error unless the workers can share batches of so many examples evenly.
void CheckShares(int64_t batch_size, int64_t workers);
// Throws Error unless the workers can share the batches of such data, each worker having
// batch_size / workers examples of a step, and epochs have batches at all.
void CheckBatches(const Batches& batches, const DataRows& data, int64_t workers);

// The examples of a worker at an inner step, rows of Split::kTrain, in scratch memory of the
// caller's frame; none for families without a data set. `key` is the step's. An epoch's order is
// that of the Permutation of FoldIn(at.order, epoch), without shuffle that of the rows.
std::span<const int32_t> ExamplesOfWorker(const Batches& batches, const DataRows& data,
                                          int64_t workers, int64_t worker, Key key,
                                          const EpisodeStep& at, Workspace& scratch);

}  // namespace lopt

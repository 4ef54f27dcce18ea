#pragma once

#include <cstdint>
#include <span>

#include "lopt/base/fields.h"
#include "lopt/base/key.h"
#include "lopt/base/workspace.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// A batch of a split, as a family's evaluations draw it: examples [batch] are rows of the data set.
// With replacement they are drawn from FoldIn(key, 0); by epochs, step t is batch t mod n of epoch
// t / n, n = ceil(rows / batch), and epoch e is the Permutation of FoldIn(at.order, e), whose
// beginning fills up the last batch. Throws Error if the split has no rows.
void DrawBatch(const DataRows& data, Split split, Key key, const EpisodeStep& at,
               Workspace& scratch, std::span<int32_t> examples);

// The rows of `data`, which says its range(Split), in batches of `batch_size`.
template <class Data>
DataRows RowsInBatches(const Data& data, int64_t batch_size, Sampling sampling) {
  DataRows rows{.batch_size = batch_size, .sampling = sampling};
  for (const Split split : kSplits) rows.splits[static_cast<size_t>(split)] = data.range(split);
  return rows;
}

// The option "sampling" of families that draw batches so.
void VisitSampling(FieldVisitor& v, Sampling* sampling);

}  // namespace lopt

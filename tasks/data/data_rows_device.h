#pragma once

#include <cstdint>

#include "lopt/base/key_device.h"
#include "lopt/base/permutation_device.h"
#include "lopt/base/replica_device.h"

namespace lopt {

// DataRows (task_family.h) on a device.
struct DeviceRows {
  struct Part {
    RandintRange range;           // rows of a Split
    PermutationNetwork by_epoch;  // of as many
  };

  Part splits[4];
  int batch_size;
  bool epochs;  // Sampling::kEpoch
};

// The batch of an evaluation, of which any row is known without the others: the same rows as on the
// host.
class DeviceBatch {
 public:
  LOPT_DEVICE DeviceBatch(const DeviceRows& rows, const DeviceEvaluation& e)
      : part_(rows.splits[e.split]), epochs_(rows.epochs) {
    if (!epochs_) {
      key_ = Threefry(e.key, 0);
      return;
    }
    const uint32_t batches = (part_.range.span + rows.batch_size - 1) / rows.batch_size;
    key_ = Threefry(e.order, static_cast<uint64_t>(e.step / batches));
    first_ = static_cast<uint32_t>(e.step % batches) * rows.batch_size;
  }

  // Row i of the batch, as a row of the data set.
  LOPT_DEVICE int32_t operator()(int i) const {
    if (!epochs_) return RandintAt(key_, part_.range, static_cast<uint64_t>(i));
    return part_.range.low +
           part_.by_epoch.At((first_ + i) % part_.by_epoch.count,
                             [this](uint32_t index, uint32_t modulus) {
                               return PermutationNetwork::Below(BitsAt(key_, index), modulus);
                             });
  }

 private:
  const DeviceRows::Part& part_;
  bool epochs_;
  Key key_;
  uint32_t first_ = 0;  // place in the epoch
};

}  // namespace lopt

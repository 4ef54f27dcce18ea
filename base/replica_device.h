#pragma once

#include <cstdint>

#include "lopt/base/block_device.h"
#include "lopt/base/key.h"

namespace lopt {

// What the functions that tasks and rules of optimizers contribute to a device's kernels see of a
// replica. A task is a type with
//
//   struct Args { ... };   // plain data; pointers are to the device's memory
//   // Floats of Replica::scratch that Evaluate uses.
//   static int64_t ScratchFloats(const Args&, int threads);
//   // Writes *replica.loss and, where it has one, *replica.aux and, where asked for,
//   // replica.gradient, all of it.
//   static LOPT_DEVICE_INLINE void Evaluate(const Block&, const Args&, const DeviceEvaluation&,
//                                           const Replica&);
//
// and a rule one with
//
//   struct Args { ... };
//   static int64_t WeightFloats(const Args&);   // of Replica::weights
//   static int64_t ScratchFloats(const Args&, int threads);
//   static int64_t StateFloats(const Args&);    // of Replica::state of a resident replica
//   // Packs theta, of which row(i) is number i, into replica.weights.
//   template <class Row>
//   static LOPT_DEVICE_INLINE void Bind(const Block&, const Args&, const Row& row, const Replica&);
//   // The place of number i of the optimizer's state in the state of a resident replica.
//   static LOPT_DEVICE int64_t PlaceOfState(const Args&, int64_t i);
//   // One update of replica.params and state, from gradient and loss.
//   static LOPT_DEVICE_INLINE void Update(const Block&, const Args&, const DeviceStep&,
//                                         const Replica&);
//
// A state begins as zeros. Each function is made of phases of the block (block_device.h).

// Threads of a block at most.
constexpr int kMostThreads = 256;

// Places in the memory that a block shares, in floats; each a multiple of 4.
struct ReplicaPlan {
  // Whether these three are there; else they are in the device's memory.
  bool resident = false;
  int params = 0;
  int gradient = 0;
  int state = 0;
  int result = 0;  // loss and aux
  int weights = 0;
  int scratch = 0;  // lent to whoever runs
  int total = 0;
};

// A replica's arrays. A resident one has all in the memory that its block shares, where its state
// is ordered as the rule likes it; another's state is ordered as between windows.
struct Replica {
  bool resident;
  float* params;    // [P]
  float* gradient;  // [P]
  float* state;
  // In the shared memory of any replica.
  float* loss;  // one number, as is aux: outputs of the last evaluation
  float* aux;
  float* weights;
  float* scratch;
};

// As TaskEvaluation, of one replica.
struct DeviceEvaluation {
  const float* config;  // [C]
  int split;
  Key key;
  Key order;
  int64_t step;
  bool gradient;        // whether it is wanted
  int64_t replica = 0;  // its place among those of the window
};

// As StepInfo; the loss is the replica's.
struct DeviceStep {
  int64_t step;
  int64_t num_steps;
};

}  // namespace lopt

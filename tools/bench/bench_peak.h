#pragma once

namespace lopt {

// The rate of fused multiply-adds that the machine reaches right now, in GFLOP/s (a multiply-add is
// two), on the current instruction set: independent chains in registers on each of the
// CurrentThreads() threads of the pool around the call. Takes about 5 ms.
double MeasurePeakGflops();

}  // namespace lopt

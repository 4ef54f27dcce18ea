#pragma once

namespace lopt {

// Seconds from some beginning: of processor time that this thread has had, which others on a busy
// machine do not lengthen, or of time.
enum class BenchClock { kProcessor, kWall };
double SecondsOn(BenchClock clock);

// The rate of fused multiply-adds that the machine reaches right now, in GFLOP/s (a multiply-add is
// two), on the current instruction set: independent chains in registers on each of the
// CurrentThreads() threads of the pool around the call, one where the clock is kProcessor. Takes
// about 5 ms.
double MeasurePeakGflops(BenchClock clock);

}  // namespace lopt

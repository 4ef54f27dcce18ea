#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lopt {

// One thing that `lopt bench` times.
struct Workload {
  std::string name = "";
  bool all_threads = false;  // runs on the bench's pool; otherwise on one thread
  bool own_process = false;  // runs in another process, whose memory is not measured
  std::string unit = "";     // what `call` makes `units` of
  double units = 1;
  double flop = 0;  // of one call; 0 if not counted
  // Throws Error if the result is not that of the machine's simplest instruction set, to rounding;
  // empty: nothing to compare.
  std::function<void()> check = {};
  std::function<void()> call = {};
  // In place of `call`, for what has threads and a clock of its own: makes as many calls and
  // returns the seconds that they took.
  std::function<double(int64_t calls)> timed = {};
};

// A workload by name, made when it is its turn so that memory is measured for each.
struct WorkloadMaker {
  std::string name;
  std::function<Workload()> make;
  std::string skipped = "";  // why it cannot be made here; empty: it can
};

struct BenchOptions {
  int threads = 1;
  int repeats = 7;
  double seconds = 0.2;  // of one repeat, at least
};

struct BenchResult {
  std::string name = "";
  std::string skipped = "";  // why it was not timed; then there is nothing else
  std::string failed = "";   // what it ended with; the same
  int threads = 1;
  double seconds = 0;  // median of one call; of processor time on one thread, if FLOP are counted
  double flop = 0;     // of one call
  double gflops = 0;
  double fraction_of_peak = 0;  // of the peak measured beside each repeat, with as many threads
  double per_second = 0;        // units
  std::string unit = "";
  // Of this process while the workload was made and run; none if it ran in another.
  std::optional<int64_t> peak_memory_bytes = {};
};

// Checks, warms up and times one workload. An Error of it becomes a part of the result, so that it
// costs no other row.
BenchResult RunWorkload(const WorkloadMaker& maker, const BenchOptions& options);

}  // namespace lopt

#include "lopt/tools/bench/bench_workload.h"

#include <algorithm>
#include <cmath>

#include "lopt/base/error.h"
#include "lopt/base/parallel.h"
#include "lopt/base/platform.h"
#include "lopt/tools/bench/bench_peak.h"

namespace lopt {
namespace {

double SecondsOf(int64_t calls, const std::function<void()>& call, BenchClock clock) {
  const double start = SecondsOn(clock);
  for (int64_t i = 0; i < calls; ++i) {
    call();
  }
  return SecondsOn(clock) - start;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

BenchResult Time(const WorkloadMaker& maker, const BenchOptions& options) {
  ResetPeakMemory();
  Workload workload;
  {
    ThreadPool making(options.threads);
    making.Run([&] { workload = maker.make(); });
  }
  const int threads = workload.all_threads ? options.threads : 1;
  ThreadPool pool(threads);
  const BenchClock clock = !workload.all_threads && !workload.timed && workload.flop > 0
                               ? BenchClock::kProcessor
                               : BenchClock::kWall;
  const auto time = [&](int64_t calls) {
    if (workload.timed) {
      return workload.timed(calls);
    }
    double seconds = 0;
    pool.Run([&] { seconds = SecondsOf(calls, workload.call, clock); });
    return seconds;
  };
  const auto peak = [&] {
    double gflops = 0;
    pool.Run([&] { gflops = MeasurePeakGflops(clock); });
    return gflops;
  };

  if (workload.check) {
    pool.Run(workload.check);
  }
  const double once = time(1);
  const auto calls =
      std::max<int64_t>(1, static_cast<int64_t>(std::ceil(options.seconds / std::max(once, 1e-9))));
  std::vector<double> seconds;
  std::vector<double> fractions;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    const double before = peak();
    seconds.push_back(time(calls) / static_cast<double>(calls));
    const double around = 0.5 * (before + peak());
    fractions.push_back(workload.flop / seconds.back() / 1e9 / around);
  }

  const double median = Median(seconds);
  return {
      .name = workload.name,
      .threads = threads,
      .seconds = median,
      .flop = workload.flop,
      .gflops = workload.flop / median / 1e9,
      .fraction_of_peak = Median(fractions),
      .per_second = workload.units / median,
      .unit = workload.unit,
      .peak_memory_bytes = workload.own_process ? std::nullopt : std::optional(PeakMemoryBytes())};
}

}  // namespace

BenchResult RunWorkload(const WorkloadMaker& maker, const BenchOptions& options) {
  if (!maker.skipped.empty()) return {.name = maker.name, .skipped = maker.skipped};
  try {
    return Time(maker, options);
  } catch (const Error& error) {
    return {.name = maker.name, .failed = error.what()};
  }
}

}  // namespace lopt

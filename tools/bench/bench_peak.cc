#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/tools/bench/bench_peak.cc"
#include "lopt/tools/bench/bench_peak.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <atomic>
#include <cstdint>
#include <ctime>

#include "lopt/base/dispatch.h"
#include "lopt/base/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains: enough to hide the latency of a multiply-add, few enough for sixteen registers.
// Returns the number of FLOP.
double FmaChains(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999F);
  const auto term = hn::Set(d, 0.001F);
  auto a = hn::Set(d, 0.1F), b = hn::Set(d, 0.2F), c = hn::Set(d, 0.3F), e = hn::Set(d, 0.4F);
  auto f = hn::Set(d, 0.5F), g = hn::Set(d, 0.6F), h = hn::Set(d, 0.7F), i = hn::Set(d, 0.8F);
  auto j = hn::Set(d, 0.9F), k = hn::Set(d, 1.1F), l = hn::Set(d, 1.2F), m = hn::Set(d, 1.3F);
  for (int64_t round = 0; round < rounds; ++round) {
    a = hn::MulAdd(a, factor, term);
    b = hn::MulAdd(b, factor, term);
    c = hn::MulAdd(c, factor, term);
    e = hn::MulAdd(e, factor, term);
    f = hn::MulAdd(f, factor, term);
    g = hn::MulAdd(g, factor, term);
    h = hn::MulAdd(h, factor, term);
    i = hn::MulAdd(i, factor, term);
    j = hn::MulAdd(j, factor, term);
    k = hn::MulAdd(k, factor, term);
    l = hn::MulAdd(l, factor, term);
    m = hn::MulAdd(m, factor, term);
  }
  const auto sum =
      hn::Add(hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)), hn::Add(hn::Add(f, g), hn::Add(h, i))),
              hn::Add(hn::Add(j, k), hn::Add(l, m)));
  *sink = hn::GetLane(hn::SumOfLanes(d, sum));
  return 2.0 * 12.0 * static_cast<double>(rounds) * static_cast<double>(hn::Lanes(d));
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {

HWY_EXPORT(FmaChains);

}  // namespace

double SecondsOn(BenchClock clock) {
  timespec time{};
  clock_gettime(clock == BenchClock::kProcessor ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double MeasurePeakGflops(BenchClock clock) {
  constexpr int64_t kRounds = 1500000;
  const int threads = CurrentThreads();
  std::atomic<double> flop = 0;
  const double start = SecondsOn(clock);
  ParallelFor(threads, [&](int64_t) {
    volatile float kept = 0;
    float sink = 0;
    flop += LOPT_DISPATCH(FmaChains)(kRounds, &sink);
    kept = sink;
    static_cast<void>(kept);
  });
  return flop / (SecondsOn(clock) - start) / 1e9;
}

}  // namespace lopt
#endif

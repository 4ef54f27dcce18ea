#include "lopt/lopt/rules/learned_scheduler_kernel.h"

#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/lopt/rules/learned_scheduler_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"
#include "lopt/lopt/network/lanes-inl.h"
#include "lopt/lopt/network/sums.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// Eight sums in float64, as SumInLanes has them.
using D64 = hn::CappedTag<double, kSumLanes>;
using V64 = hn::Vec<D64>;
using DHalf = hn::Rebind<float, D64>;
using VHalf = hn::Vec<DHalf>;
constexpr D64 d64;
constexpr DHalf d_half;
constexpr int kWideLanes = static_cast<int>(hn::MaxLanes(D64()));
constexpr int kParts = kSumLanes / kWideLanes;

constexpr int kSums = 6;  // in the order of SchedulerSums

// sums[k] = the lanes of sum k over [0, end), a multiple of kSumLanes.
HWY_NOINLINE void SumWhole(const float* HWY_RESTRICT g, const float* HWY_RESTRICT p,
                           const float* HWY_RESTRICT u, const float* HWY_RESTRICT l, int64_t end,
                           double (&sums)[kSums][kSumLanes]) {
  for (int part = 0; part < kParts; ++part) {
    V64 gg = hn::Zero(d64);
    V64 gs = gg;
    V64 gl = gg;
    V64 ss = gg;
    V64 ll = gg;
    V64 pp = gg;
    for (int64_t i = part * kWideLanes; i < end; i += kSumLanes) {
      const VHalf before = hn::LoadU(d_half, p + i);
      const V64 x = hn::PromoteTo(d64, hn::LoadU(d_half, g + i));
      const V64 step = hn::PromoteTo(d64, hn::Sub(before, hn::LoadU(d_half, u + i)));
      const V64 last = hn::PromoteTo(d64, hn::LoadU(d_half, l + i));
      const V64 param = hn::PromoteTo(d64, before);
      gg = hn::Add(gg, hn::Mul(x, x));
      gs = hn::Add(gs, hn::Mul(x, step));
      gl = hn::Add(gl, hn::Mul(x, last));
      ss = hn::Add(ss, hn::Mul(step, step));
      ll = hn::Add(ll, hn::Mul(last, last));
      pp = hn::Add(pp, hn::Mul(param, param));
    }
    const V64 all[kSums] = {gg, gs, gl, ss, ll, pp};
    for (int k = 0; k < kSums; ++k) hn::StoreU(all[k], d64, sums[k] + part * kWideLanes);
  }
}

SchedulerSums Sums(const float* g, const float* p, const float* u, const float* l, int64_t size) {
  double sums[kSums][kSumLanes];
  const int64_t whole = size / kSumLanes * kSumLanes;
  SumWhole(g, p, u, l, whole, sums);
  for (int64_t i = whole; i < size; ++i) {
    const double x = g[i];
    const double step = p[i] - u[i];
    const double last = l[i];
    const double param = p[i];
    const double terms[kSums] = {x * x,       x * step,    x * last,
                                 step * step, last * last, param * param};
    for (int k = 0; k < kSums; ++k) sums[k][i - whole] += terms[k];
  }
  double totals[kSums] = {};
  for (int k = 0; k < kSums; ++k) {
    for (const double sum : sums[k]) totals[k] += sum;
  }
  return {totals[0], totals[1], totals[2], totals[3], totals[4], totals[5]};
}

void Step(float scale, float decay, const float* before, float* after, float* last, int64_t size) {
  ForVectors(size, [&]<bool kWhole>(int64_t i, int64_t n) HWY_ATTR {
    const V p = LoadSome<kWhole>(before + i, n);
    const V step = hn::Mul(hn::Set(d, scale), hn::Sub(p, LoadSome<kWhole>(after + i, n)));
    StoreSome<kWhole>(step, last + i, n);
    StoreSome<kWhole>(hn::Sub(hn::Sub(p, step), hn::Mul(hn::Set(d, decay), p)), after + i, n);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {
HWY_EXPORT(Sums);
HWY_EXPORT(Step);
}  // namespace

SchedulerSums SumsOfScheduler(std::span<const float> gradient, std::span<const float> before,
                              std::span<const float> after, std::span<const float> last) {
  return LOPT_DISPATCH(Sums)(gradient.data(), before.data(), after.data(), last.data(),
                             std::ssize(gradient));
}

void StepOfScheduler(float scale, float decay, std::span<const float> before,
                     std::span<float> after, std::span<float> last) {
  LOPT_DISPATCH(Step)(scale, decay, before.data(), after.data(), last.data(), std::ssize(last));
}

}  // namespace lopt
#endif  // HWY_ONCE

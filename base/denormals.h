#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace lopt {

// Numbers that are too small to be normal, in float32 those below 1.2e-38, take an x86 processor of
// Intel's some hundred cycles in a product. A moment of a parameter that gets no gradient any more
// falls to them and stays there: 0.9 times the smallest is rounded to the smallest.
//
// Has the thread take them for 0, as operands and as results, while this lives, or not, as
// `flushed` says; then as before. x86-64 and AArch64 can do so, elsewhere it has no effect.
class FlushDenormals {
 public:
  explicit FlushDenormals(bool flushed = true) : before_(Read()) {
    const Mode now = flushed ? before_ | kFlushed : before_ & ~kFlushed;
    changed_ = now != before_;
    if (changed_) Write(now);
  }
  ~FlushDenormals() {
    if (changed_) Write(before_);
  }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

  // Whether the thread does so now.
  static bool Active() { return (Read() & kFlushed) != 0; }

 private:
#if defined(__x86_64__)
  using Mode = unsigned int;
  static constexpr Mode kFlushed = 0x8040;  // of MXCSR: results, operands
  static Mode Read() { return _mm_getcsr(); }
  static void Write(Mode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
  using Mode = uint64_t;
  static constexpr Mode kFlushed = uint64_t{1} << 24;  // of FPCR
  static Mode Read() {
    Mode mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void Write(Mode mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
  using Mode = unsigned int;
  static constexpr Mode kFlushed = 0;
  static Mode Read() { return 0; }
  static void Write(Mode) {}
#endif

  Mode before_;
  bool changed_;
};

}  // namespace lopt

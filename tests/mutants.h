#pragma once

#include <type_traits>
#include <utility>

// What tests/mutate_readers puts into copies of the sources of lopt/, which are compiled once: each
// call is a mutant by its number, of which one at a time does something else than the source says.
namespace lopt_mutants {

inline constexpr int kMost = 1 << 16;
enum Reached : unsigned char { kNot, kRun, kSame };  // kSame: cannot be another thing
inline int active = -1;
inline Reached reached[kMost] = {};

inline bool RunTime(int id) {
  reached[id] = kRun;
  return id == active;
}

// Whether the mutant is the active one. What the compiler computes is never changed.
constexpr bool Is(int id) {
  if (std::is_constant_evaluated()) return false;
  return RunTime(id);
}

// A number, 1 % greater: at least 1 of a whole number, and 0.01 where it is 0.
template <class T>
constexpr T M(int id, T x) {
  if (!Is(id)) return x;
  if constexpr (std::is_floating_point_v<T>) {
    return x == 0 ? T(.01) : x * T(1.01);
  } else {
    const T part = x / 100;
    T changed = x + (part > 1 ? part : 1);
    asm(""
        : "+r"(changed));  // else an index beyond the end tells the compiler that this is not run
    return changed;
  }
}

constexpr int S(int id) { return Is(id) ? -1 : 1; }  // a factor
constexpr int I(int id) { return Is(id) ? 1 : 0; }   // a term

// One schedule for another.
template <class Schedule>
constexpr Schedule E(int id, Schedule schedule) {
  using Type = decltype(schedule.type);
  if (Is(id)) schedule.type = static_cast<Type>((static_cast<int>(schedule.type) + 3) % 4);
  return schedule;
}

// b in the place of a, where they are of one type.
template <class A, class B>
constexpr A&& W(int id, A&& a, B&& b) {
  if constexpr (std::is_same_v<A, B>) {
    if (Is(id)) return std::forward<A>(b);
  } else if (!std::is_constant_evaluated()) {
    reached[id] = kSame;
  }
  return std::forward<A>(a);
}

}  // namespace lopt_mutants

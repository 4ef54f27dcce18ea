#pragma once

#include <cstdint>
#include <string>

namespace lopt {

// How large tasks on sequences may be; `who` names the task in messages.

// The most places that a sequence may have.
inline constexpr int64_t kMostPlaces = 1024;

// Throws Error if the option "length" of a task on bytes is larger.
void RequireLength(const std::string& who, int64_t length);

// Throws Error if these options make more than 2^28 params.
void RequireParams(const std::string& who, int64_t width, int64_t layers, int64_t params);

// Throws Error if a kernel would take more than 2^28 numbers of scratch memory.
void RequireScratch(const std::string& who, double numbers);

}  // namespace lopt

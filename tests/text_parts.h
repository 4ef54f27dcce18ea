#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <string_view>

namespace lopt {

// Whether the text has the part.
inline bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// How often the text has the part.
inline int Count(std::string_view text, std::string_view part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

// Where the part is, which must be there: what text.find() says of one that is missing is behind
// everything.
inline size_t At(std::string_view text, std::string_view part, size_t from = 0) {
  const size_t at = text.find(part, from);
  REQUIRE_MESSAGE(at != std::string_view::npos, "\"", part, "\" is not in: ", text);
  return at;
}

}  // namespace lopt

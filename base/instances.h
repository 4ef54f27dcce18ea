#pragma once

#include <fmt/format.h>

// json.hpp has an operator "" _json that is no template, so every file that reads it would
// instantiate the parser: half a second. Here the operator is declared only, and what was its body
// is that of a template.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
#define _json(text, size) \
  _json(text, size);      \
  template <class>        \
  nlohmann::json FromLiteral(text, size)
#include <nlohmann/json.hpp>
#undef _json
#include <string>

// Templates of other libraries that many files use are compiled once, in instances.cc. This header
// is one of the precompiled ones: no file includes it, and a file compiled without it has its own.

// NOLINTBEGIN(bugprone-macro-parentheses)
#define LOPT_JSON_INSTANCES(EXTERN, JSON)                                           \
  EXTERN template class nlohmann::detail::serializer<JSON>;                         \
  EXTERN template class nlohmann::detail::json_sax_dom_parser<JSON>;                \
  EXTERN template class nlohmann::detail::lexer<                                    \
      JSON, nlohmann::detail::iterator_input_adapter<std::string::const_iterator>>; \
  EXTERN template class nlohmann::detail::parser<                                   \
      JSON, nlohmann::detail::iterator_input_adapter<std::string::const_iterator>>;

#define LOPT_INSTANCES(EXTERN)                                                                     \
  LOPT_JSON_INSTANCES(EXTERN, nlohmann::json)                                                      \
  LOPT_JSON_INSTANCES(EXTERN, nlohmann::ordered_json)                                              \
  EXTERN template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view, \
                                                     fmt::format_args, fmt::detail::locale_ref);
// NOLINTEND(bugprone-macro-parentheses)

LOPT_INSTANCES(extern)

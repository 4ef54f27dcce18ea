#include "lopt/estimators/diagnostic.h"

#include <fmt/core.h>

#include <charconv>
#include <system_error>

namespace lopt {
namespace {

// Takes a number off the front; false if there is none.
bool TakeNumber(std::string_view* text, int64_t* number) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return error == std::errc();
}

}  // namespace

std::string MetricName(const Diagnostic& diagnostic) {
  return diagnostic.steps ? fmt::format("{}_{}-{}", diagnostic.name, diagnostic.steps->first,
                                        diagnostic.steps->last)
                          : diagnostic.name;
}

Diagnostic DiagnosticOfMetric(std::string_view metric) {
  Diagnostic diagnostic;
  diagnostic.name = metric;
  const size_t underscore = metric.rfind('_');
  if (underscore == std::string_view::npos) {
    return diagnostic;
  }
  std::string_view rest = metric.substr(underscore + 1);
  StepRange steps;
  const bool has_first = TakeNumber(&rest, &steps.first) && rest.starts_with('-');
  if (has_first) {
    rest.remove_prefix(1);
    if (TakeNumber(&rest, &steps.last) && rest.empty()) {
      diagnostic.name = metric.substr(0, underscore);
      diagnostic.steps = steps;
    }
  }
  return diagnostic;
}

}  // namespace lopt

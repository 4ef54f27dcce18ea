#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lopt/base/options.h"
#include "lopt/base/type_table.h"

namespace lopt {

// What a description says about the types that are valid: their names, unless told otherwise.
using NameTypes = std::function<std::string(const TypeTable&)>;
std::string ListTypes(const TypeTable& types);

// What is said of a key, as Markdown.
struct FieldRow {
  std::string key;
  std::string value;          // its kind and the valid values
  std::string default_value;  // or "required"
  std::string meaning;

  bool operator==(const FieldRow&) const = default;
};

// A row for each field, in their order.
std::vector<FieldRow> FieldRows(const VisitFields& fields, const NameTypes& name = ListTypes);

// Such rows as a list of Markdown.
std::string FieldList(const std::vector<FieldRow>& rows);

// A list of all fields.
std::string DescribeFields(const VisitFields& fields, const NameTypes& name = ListTypes);

}  // namespace lopt

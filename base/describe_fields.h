#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lopt/base/options.h"
#include "lopt/base/type_table.h"

namespace lopt {

// What a cell of a table says about the types that are valid: their names, unless told otherwise.
using NameTypes = std::function<std::string(const TypeTable&)>;
std::string ListTypes(const TypeTable& types);

// Markdown: a row of a table for each field, with its name, kind, default, valid values and
// meaning.
std::vector<std::string> FieldRows(const VisitFields& fields, const NameTypes& name = ListTypes);

// Such rows as a table.
std::string FieldTable(const std::vector<std::string>& rows);

// A table of all fields.
std::string DescribeFields(const VisitFields& fields, const NameTypes& name = ListTypes);

}  // namespace lopt

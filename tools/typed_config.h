#pragma once

#include <string>

#include "lopt/base/config.h"
#include "lopt/base/type_table.h"

namespace lopt {

// The config of one thing as a command line names it in `option`, such as "--task": a
// config, a file with one, or a type, which has its defaults. Throws Error, with the types, if it
// is none of these.
Config ReadTypedConfig(const std::string& option, const std::string& text, const TypeTable& table);

}  // namespace lopt

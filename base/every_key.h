#pragma once

#include "lopt/base/config.h"

namespace lopt {

class TypeTable;

// A config of one of the types with every key, also those that it leaves at their defaults; `key`
// is what errors call it. Throws Error as WriteFields (base/options.h) does.
Config WithEveryKey(const char* key, Config config, const TypeTable& types);

}  // namespace lopt

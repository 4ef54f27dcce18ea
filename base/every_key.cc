#include "lopt/base/every_key.h"

#include <nlohmann/json.hpp>
#include <string>

#include "lopt/base/fields.h"
#include "lopt/base/options.h"

namespace lopt {

Config WithEveryKey(const char* key, Config config, const TypeTable& types) {
  const std::string path = config.path();
  const Config resolved =
      WriteFields("", [&](FieldVisitor& v) { v.Typed(key, &config, types, ""); });
  return Config::FromJson(resolved.json().at(key), path);
}

}  // namespace lopt

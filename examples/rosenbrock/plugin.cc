// The same task for the program `lopt`: lopt meta-train --plugin rosenbrock_plugin.so ...
#include "lopt/learner/plugin.h"

#include "rosenbrock.h"

LOPT_PLUGIN(types) {
  types.tasks.Add<RosenbrockOptions>(
      "Rosenbrock", "A curved valley with a flat floor.",
      [](const RosenbrockOptions& o, const auto&) { return std::make_shared<Rosenbrock>(o); });
}

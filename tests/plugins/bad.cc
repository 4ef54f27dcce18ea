// Registers a type and then does what the environment variable LOPT_TEST_PLUGIN names.
#include <cstdlib>
#include <string>

#include "lopt/base/error.h"
#include "lopt/learner/plugin.h"
#include "lopt/tasks/quadratic/quadratic.h"

LOPT_PLUGIN(types) {
  const auto add = [&](const char* type) {
    types.tasks.Add<lopt::QuadraticOptions>(type, "Bad.", [](const auto& options, const auto&) {
      return std::make_shared<lopt::QuadraticTask>(options);
    });
  };
  add("BadTask");
  const std::string how = std::getenv("LOPT_TEST_PLUGIN");
  if (how == "throws an Error") lopt::Fail("the weather is {}", "bad");
  if (how == "throws an exception") throw std::out_of_range("too far");
  if (how == "throws a number") throw 7;
  if (how == "has a name twice") add("BadTask");
  if (how == "has a name of the program") add("QuadraticTask");
  if (how == "has a name of another plug-in") add("PluginTask");
  if (how == "has a name of the program in another kind") {
    types.optimizers.Add<lopt::QuadraticOptions>(
        "Adam", "Bad.", [](const auto&) { return std::shared_ptr<lopt::LearnedOptimizer>(); });
  }
}

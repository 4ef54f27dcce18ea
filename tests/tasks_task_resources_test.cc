#include <doctest/doctest.h>

#include <stdexcept>
#include <string>

#include "lopt/tasks/task_resources.h"

namespace lopt {
namespace {

TEST_CASE("A data set is loaded once for each type and name") {
  const TaskResources resources("");
  int loads = 0;
  const auto text = [&](const std::string& name) {
    return resources.Get<std::string>(name, [&] {
      ++loads;
      return std::make_shared<std::string>("text of " + name);
    });
  };
  const auto first = text("a");
  CHECK(*first == "text of a");
  CHECK(text("a") == first);
  CHECK(*text("b") == "text of b");
  CHECK(loads == 2);
  CHECK(*resources.Get<int>("a", [] { return std::make_shared<int>(7); }) == 7);
  CHECK(text("a") == first);
  CHECK(*TaskResources("").Get<std::string>("a", [] {
    return std::make_shared<std::string>("of another run");
  }) == "of another run");
}

TEST_CASE("A data set that cannot be loaded is loaded when it is asked for again") {
  const TaskResources resources("");
  CHECK_THROWS_AS(resources.Get<int>(
                      "a", []() -> std::shared_ptr<int> { throw std::runtime_error("no disk"); }),
                  std::runtime_error);
  CHECK(*resources.Get<int>("a", [] { return std::make_shared<int>(1); }) == 1);
}

TEST_CASE("A data set may be made of others") {
  const TaskResources resources("");
  const auto sum = resources.Get<int>("sum", [&] {
    const auto one = resources.Get<int>("one", [] { return std::make_shared<int>(1); });
    return std::make_shared<int>(*one + 1);
  });
  CHECK(*sum == 2);
}

TEST_CASE("The data directory counts as used when there is one and a task asks for it") {
  const TaskResources none("");
  CHECK(none.UseDataDir().empty());
  CHECK_FALSE(none.data_dir_used());
  const TaskResources some("digits");
  CHECK_FALSE(some.data_dir_used());
  CHECK(some.UseDataDir() == "digits");
  CHECK(some.data_dir_used());
}

}  // namespace
}  // namespace lopt

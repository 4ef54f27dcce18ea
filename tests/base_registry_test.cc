#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "lopt/base/describe_fields.h"
#include "lopt/base/error.h"
#include "lopt/base/registry.h"

namespace lopt {
namespace {

class Shape2d {
 public:
  virtual ~Shape2d() = default;
  virtual double Area() const = 0;
};

struct SquareOptions {
  double side = 2;

  void Visit(FieldVisitor& v) { v.Field("side", &side, Above(0), "Length of a side."); }
};

class Square : public Shape2d {
 public:
  Square(double side, double unit) : side_(side), unit_(unit) {}
  double Area() const override { return side_ * side_ * unit_ * unit_; }

 private:
  double side_;
  double unit_;
};

using ShapeRegistry = Registry<Shape2d, double>;

ShapeRegistry Shapes() {
  ShapeRegistry registry("shape");
  registry.Add<SquareOptions>(
      "Square", "Four equal sides.",
      [](const SquareOptions& o, double unit) { return std::make_shared<Square>(o.side, unit); });
  return registry;
}

}  // namespace

TEST_CASE("a registry makes what the config names, with its options and arguments") {
  CHECK(Shapes().Make(Config::FromJson({{"type", "Square"}, {"side", 3}}), 10)->Area() == 900);
  CHECK(Shapes().Make(Config::FromJson({{"type", "Square"}}), 1)->Area() == 4);
}

TEST_CASE("a registry gives Errors with the path of the config") {
  CHECK_THROWS_WITH_AS(Shapes().Make(Config::FromJson({{"type", "Circle"}}, "shapes[1]"), 1),
                       "config: 'shapes[1].type' is 'Circle'; valid types of shape: Square", Error);
  CHECK_THROWS_WITH_AS(
      Shapes().Make(Config::FromJson({{"type", "Square"}, {"side", 0}}, "shapes[1]"), 1),
      "config: 'shapes[1].side' must be a number above 0, got 0", Error);
  CHECK_THROWS_WITH_AS(Shapes().Make(Config(), 1),
                       "config: 'type' is missing; valid types of shape: Square", Error);
}

TEST_CASE("a type that is added twice is an Error") {
  ShapeRegistry registry = Shapes();
  CHECK_THROWS_WITH_AS(registry.Add<SquareOptions>("Square", "Again.",
                                                   [](const SquareOptions& o, double unit) {
                                                     return std::make_shared<Square>(o.side, unit);
                                                   }),
                       "shape type 'Square' is registered already", Error);
}

TEST_CASE("a registry's table describes its types in the order they were added") {
  ShapeRegistry registry("shape");
  const auto make = [](const SquareOptions& o, double unit) {
    return std::make_shared<Square>(o.side, unit);
  };
  registry.Add<SquareOptions>("Z", "Last letter.", make);
  registry.Add<SquareOptions>("A", "First letter.", make);
  REQUIRE(registry.table().entries().size() == 2);
  CHECK(registry.table().kind() == "shape");
  CHECK(registry.table().entries()[0].type == "Z");
  CHECK(registry.table().entries()[1].summary == "First letter.");
  CHECK(DescribeFields(registry.table().entries()[1].fields).find("- `side`: ") !=
        std::string::npos);
}

}  // namespace lopt

#include <doctest/doctest.h>

#include "lopt/base/error.h"
#include "lopt/base/layout.h"

namespace lopt {
namespace {

TEST_CASE("A layout places its tensors one after the other") {
  const Layout layout({{"w", {2, 3}}, {"scale", {}}, {"none", {0, 5}}, {"b", {3}}});
  CHECK(layout.size() == 10);
  REQUIRE(layout.entries().size() == 4);
  CHECK(layout.entries()[0] == LayoutEntry{"w", {2, 3}, 0, 6});
  CHECK(layout.entries()[1] == LayoutEntry{"scale", {}, 6, 1});
  CHECK(layout.entries()[2] == LayoutEntry{"none", {0, 5}, 7, 0});
  CHECK(layout.entries()[3] == LayoutEntry{"b", {3}, 7, 3});
  CHECK(layout.Find("b").offset == 7);
  CHECK(Layout().size() == 0);
}

TEST_CASE("Layouts are equal if names, shapes and order are") {
  const Layout layout({{"w", {2, 3}}, {"b", {3}}});
  CHECK(layout == Layout({{"w", {2, 3}}, {"b", {3}}}));
  CHECK(layout != Layout({{"b", {3}}, {"w", {2, 3}}}));
  CHECK(layout != Layout({{"w", {3, 2}}, {"b", {3}}}));
}

TEST_CASE("Shapes count their elements and print as lists") {
  CHECK(NumElements({}) == 1);
  CHECK(NumElements({4, 5, 6}) == 120);
  CHECK(NumElements({4, 0}) == 0);
  CHECK(ToString(Shape{}) == "[]");
  CHECK(ToString(Shape{2, 3}) == "[2, 3]");
}

TEST_CASE("Sizes of 2^63 elements or more are errors") {
  constexpr int64_t k2To31 = int64_t{1} << 31;
  CHECK(NumElements({k2To31, k2To31, 1}) == int64_t{1} << 62);
  CHECK_THROWS_WITH_AS(NumElements({k2To31, k2To31, 2}),
                       "shape [2147483648, 2147483648, 2] has 2^63 elements or more", Error);
  CHECK(NumElements({k2To31, k2To31, 2, 0}) == 0);
  CHECK_THROWS_WITH_AS(Layout({{"a", {k2To31, k2To31}}, {"b", {k2To31, k2To31}}}),
                       "Layout: with tensor 'a' it has more than 4294967296 numbers", Error);
}

TEST_CASE("The elements of a shape are counted in a time linear in its dimensions") {
  // 400,000 dimensions, each printed for every other one, would take hours.
  CHECK(NumElements(Shape(400'000, 1)) == 1);
}

TEST_CASE("A bad layout is an error that says which tensor and why") {
  CHECK_THROWS_WITH_AS(NumElements({2, -1}), "shape [2, -1] has a negative dimension", Error);
  CHECK_THROWS_WITH_AS(NumElements({0, -1}), "shape [0, -1] has a negative dimension", Error);
  CHECK_THROWS_WITH_AS(Layout({{"w", {-2}}}), "shape [-2] has a negative dimension", Error);
  CHECK_THROWS_WITH_AS(Layout({{"w", {2}}, {"", {2}}}), "Layout: tensor 1 has no name", Error);
  CHECK_THROWS_WITH_AS(Layout({{"w", {2}}, {"w", {3}}}), "Layout: two tensors are named 'w'",
                       Error);
  CHECK_THROWS_WITH_AS(Layout({{"w", {2}}, {"b", {2}}}).Find("c"),
                       "Layout: no tensor named 'c'; there are: w, b", Error);
}

}  // namespace
}  // namespace lopt

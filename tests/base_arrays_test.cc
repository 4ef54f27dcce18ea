#include <doctest/doctest.h>

#include <array>

#include "lopt/base/arrays.h"

namespace lopt {
namespace {

Array Floats(Shape shape, std::vector<float> values) {
  return Array::Of<float>(std::move(shape), values);
}

Layout TwoTensors() { return Layout({{"w", {2, 2}}, {"b", {}}}); }

}  // namespace

TEST_CASE("a new array is zeros of its shape") {
  const Array array(DType::kInt64, {2, 3});
  CHECK(array.size() == 6);
  CHECK(array.bytes().size() == 48);
  for (int64_t value : array.As<int64_t>()) {
    CHECK(value == 0);
  }
  CHECK(Array(DType::kFloat32, {}).size() == 1);
  CHECK(Array(DType::kUint8, {4, 0}).size() == 0);
  CHECK(Array().size() == 0);
  CHECK_THROWS_WITH_AS(Array(DType::kFloat32, {2, -1}), "shape [2, -1] has a negative dimension",
                       Error);
}

TEST_CASE("an array holds a copy of what it is made from") {
  std::vector<uint32_t> values = {1, 2, 3};
  Array array = Array::Of<uint32_t>({3}, values);
  values[0] = 9;
  CHECK(array.As<uint32_t>()[0] == 1);
  Array copy = array;
  CHECK(copy == array);
  copy.As<uint32_t>()[2] = 4;
  CHECK(copy != array);
  CHECK(array.As<uint32_t>()[2] == 3);
}

TEST_CASE("arrays of equal bytes differ by shape and by dtype") {
  const std::vector<float> zeros = {0, 0};
  CHECK(Floats({2}, zeros) != Floats({1, 2}, zeros));
  CHECK(Array(DType::kFloat32, {2}) != Array(DType::kInt32, {2}));
}

TEST_CASE("an array of the wrong number of values is an Error") {
  CHECK_THROWS_WITH_AS(Floats({2, 3}, {1, 2, 3, 4, 5}),
                       "array of shape [2, 3] holds 6 values, got 5", Error);
}

TEST_CASE("reading an array as another dtype is an Error") {
  const Array array(DType::kInt32, {2});
  CHECK_THROWS_WITH_AS(array.As<float>(), "array of I32 [2] was read as F32", Error);
}

TEST_CASE("every dtype has its safetensors name and its size") {
  CHECK(ToString(DTypeOf<float>()) == "F32");
  CHECK(ToString(DTypeOf<double>()) == "F64");
  CHECK(ToString(DTypeOf<int32_t>()) == "I32");
  CHECK(ToString(DTypeOf<int64_t>()) == "I64");
  CHECK(ToString(DTypeOf<uint32_t>()) == "U32");
  CHECK(ToString(DTypeOf<uint8_t>()) == "U8");
  CHECK(ItemSize(DType::kFloat32) == 4);
  CHECK(ItemSize(DType::kFloat64) == 8);
  CHECK(ItemSize(DType::kInt32) == 4);
  CHECK(ItemSize(DType::kInt64) == 8);
  CHECK(ItemSize(DType::kUint32) == 4);
  CHECK(ItemSize(DType::kUint8) == 1);
}

TEST_CASE("a name that is not there is an Error that lists the names") {
  NamedArrays arrays;
  arrays.Set("theta/w", Floats({1}, {1}));
  arrays.Set("step", Array(DType::kInt64, {}));
  CHECK(arrays.Contains("step"));
  CHECK_FALSE(arrays.Contains("theta"));
  CHECK_THROWS_WITH_AS(arrays.At("theta"), "no array is named 'theta'; there are: step, theta/w",
                       Error);
}

TEST_CASE("names that a stranger gave are listed as plain text") {
  NamedArrays arrays;
  arrays.Set("\x1b[2J", Array(DType::kInt64, {}));
  CHECK_THROWS_WITH_AS(arrays.At("w"), "no array is named 'w'; there are: \\x1b[2J", Error);
}

TEST_CASE("an array of another dtype or shape than wanted is an Error") {
  NamedArrays arrays;
  arrays.Set("w", Floats({2}, {1, 2}));
  CHECK(arrays.At("w", DType::kFloat32, {2}).As<float>()[1] == 2);
  CHECK_THROWS_WITH_AS(arrays.At("w", DType::kFloat64, {2}),
                       "array 'w' must be F64 of shape [2], got F32 of shape [2]", Error);
  CHECK_THROWS_WITH_AS(arrays.At("w", DType::kFloat32, {1, 2}),
                       "array 'w' must be F32 of shape [1, 2], got F32 of shape [2]", Error);
}

TEST_CASE("Extract gives back what Merge put under a prefix") {
  NamedArrays inner;
  inner.Set("w", Floats({1}, {1}));
  inner.Set("b", Floats({1}, {2}));
  NamedArrays outer;
  outer.Set("a", Floats({1}, {3}));
  outer.Set("state0", Floats({1}, {4}));
  outer.Merge("state/", inner);
  CHECK(outer.size() == 4);
  CHECK(outer.Contains("state/w"));
  CHECK(outer.Extract("state/") == inner);
  CHECK(outer.Extract("none/").size() == 0);
  CHECK(outer.Extract("") == outer);
}

TEST_CASE("taking arrays out and merging them in moves them: no byte is copied") {
  NamedArrays arrays;
  arrays.Set("a/x", Floats({2}, {1, 2}));
  arrays.Set("a/y", Floats({1}, {3}));
  arrays.Set("b", Floats({1}, {4}));
  const NamedArrays whole = arrays;
  const std::byte* const place = arrays.At("a/x").buffer().data();
  NamedArrays taken = arrays.Take("a/");
  CHECK(taken == whole.Extract("a/"));
  CHECK(taken.At("x").buffer().data() == place);
  CHECK(arrays.size() == 1);
  CHECK(arrays.Contains("b"));
  arrays.Merge("a/", std::move(taken));
  CHECK(arrays == whole);
  CHECK(arrays.At("a/x").buffer().data() == place);
  CHECK(arrays.Take("none/").size() == 0);
}

TEST_CASE("a row becomes one array per tensor and comes back") {
  const std::array<float, 5> row = {1, 2, 3, 4, 5};
  const NamedArrays arrays = ArraysFromRow(TwoTensors(), row, "theta/");
  CHECK(arrays.At("theta/w") == Floats({2, 2}, {1, 2, 3, 4}));
  CHECK(arrays.At("theta/b") == Floats({}, {5}));
  std::array<float, 5> back = {};
  RowFromArrays(TwoTensors(), arrays, "theta/", back);
  CHECK(back == row);
}

TEST_CASE("a row from arrays that do not fit its layout is an Error") {
  std::array<float, 5> row = {};
  NamedArrays arrays;
  arrays.Set("w", Floats({2, 2}, {1, 2, 3, 4}));
  CHECK_THROWS_WITH_AS(RowFromArrays(TwoTensors(), arrays, "", row),
                       "no array is named 'b'; there are: w", Error);
  arrays.Set("b", Floats({1}, {5}));
  CHECK_THROWS_WITH_AS(RowFromArrays(TwoTensors(), arrays, "", row),
                       "array 'b' must be F32 of shape [], got F32 of shape [1]", Error);
  CHECK_THROWS_WITH_AS(RowFromArrays(TwoTensors(), arrays, "", std::span(row).first(4)),
                       "a row of this layout has 5 numbers, got 4", Error);
  CHECK_THROWS_WITH_AS(ArraysFromRow(TwoTensors(), std::span(row).first(4)),
                       "a row of this layout has 5 numbers, got 4", Error);
}

}  // namespace lopt

#include "lopt/python/src/keys.h"

#include <fmt/format.h>
#include <nanobind/operators.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/python/src/arrays.h"
#include "lopt/python/src/bind.h"
#include "lopt/python/src/pickle.h"

namespace lopt::python {

namespace nb = nanobind;

namespace {

uint64_t SeedOf(Key key) { return uint64_t{key.hi} << 32 | key.lo; }

std::span<const Key> KeysOf(const Key& key) { return {&key, 1}; }
std::span<const Key> KeysOf(const Keys& keys) { return keys.keys; }

// The shape of what is drawn: that of one key, or one row for each of several.
Shape Drawn(const Key&, Shape shape) { return shape; }
Shape Drawn(const Keys& keys, Shape shape) {
  shape.insert(shape.begin(), std::ssize(keys.keys));
  return shape;
}

// An array whose part for each key is fill(key, part), made without the GIL.
template <class T, class Keyed, class Fill>
nb::object Draw(const Keyed& keyed, const Shape& shape, const Fill& fill) {
  std::span<T> values;
  nb::object array = NewArray<T>(Drawn(keyed, shape), &values);
  const nb::gil_scoped_release released;
  const std::span<const Key> keys = KeysOf(keyed);
  for (size_t i = 0; i < keys.size(); ++i) {
    const size_t size = values.size() / keys.size();
    fill(keys[i], values.subspan(i * size, size));
  }
  return array;
}

template <class Keyed>
nb::object DrawIntegers(const Keyed& keyed, nb::handle from, int32_t low, int32_t high) {
  return Draw<int64_t>(keyed, ShapeOf(from, "integers"), [&](Key key, std::span<int64_t> out) {
    std::vector<int32_t> drawn(out.size());
    Randint(key, low, high, drawn);
    std::ranges::copy(drawn, out.begin());
  });
}

// What one key and several have in common.
template <class Keyed>
void AddDraws(nb::class_<Keyed>& type) {
  type.def(
      "normal",
      [](const Keyed& keyed, nb::handle shape) {
        return Draw<float>(keyed, ShapeOf(shape, "normal"),
                           [](Key key, std::span<float> out) { Normal(key, out); });
      },
      nb::arg("shape") = nb::tuple(),
      nb::sig("def normal(self, shape: int | tuple[int, ...] | list[int] = ()) -> "
              "numpy.ndarray[dtype=float32]"),
      "Standard normal numbers, float32.");
  type.def(
      "uniform",
      [](const Keyed& keyed, nb::handle shape) {
        return Draw<float>(keyed, ShapeOf(shape, "uniform"),
                           [](Key key, std::span<float> out) { Uniform(key, out); });
      },
      nb::arg("shape") = nb::tuple(),
      nb::sig("def uniform(self, shape: int | tuple[int, ...] | list[int] = ()) -> "
              "numpy.ndarray[dtype=float32]"),
      "Numbers uniform on [0, 1), float32.");
  type.def(
      "truncated_normal",
      [](const Keyed& keyed, nb::handle shape, float low, float high) {
        return Draw<float>(
            keyed, ShapeOf(shape, "truncated_normal"),
            [=](Key key, std::span<float> out) { TruncatedNormal(key, low, high, out); });
      },
      nb::arg("shape") = nb::tuple(), nb::arg("low") = -2.0F, nb::arg("high") = 2.0F,
      nb::sig("def truncated_normal(self, shape: int | tuple[int, ...] | list[int] = (), "
              "low: float = -2.0, high: float = 2.0) -> numpy.ndarray[dtype=float32]"),
      "Standard normal numbers conditioned on [low, high], float32. Raises Error unless low < "
      "high.");
  type.def("integers", &DrawIntegers<Keyed>, nb::arg("shape"), nb::arg("low"), nb::arg("high"),
           nb::sig("def integers(self, shape: int | tuple[int, ...] | list[int], low: int, "
                   "high: int) -> numpy.ndarray[dtype=int64]"),
           "Integers of 32 bits in [low, high), as int64. Raises Error unless low < high.");
}

}  // namespace

Shape ShapeOf(nb::handle from, const char* who) {
  const auto dimension = [&](nb::handle value) {
    int64_t size = -1;
    Require(nb::try_cast<int64_t>(value, size, /*convert=*/false) && size >= 0,
            "{}: shape must be an int or a tuple of ints that are at least 0, got {}", who,
            nb::repr(from).c_str());
    return size;
  };
  Shape shape;
  if (nb::isinstance<nb::tuple>(from) || nb::isinstance<nb::list>(from)) {
    for (const nb::handle value : from) shape.push_back(dimension(value));
  } else {
    shape.push_back(dimension(from));
  }
  return shape;
}

void BindKeys(nb::module_& m) {
  nb::class_<Key> key(m, "Key",
                      "What randomness is a function of: equal keys, equal numbers, on every "
                      "machine of one instruction\nset. Key(seed) begins; fold_in and split make "
                      "others. A shape is an int or a tuple of ints.");
  key.def(
         "__init__", [](Key* self, uint64_t seed) { new (self) Key(KeyFromSeed(seed)); },
         nb::arg("seed"), "The key of a seed below 2**64.")
      .def(
          "fold_in", [](Key self, uint64_t data) { return FoldIn(self, data); }, nb::arg("data"),
          "Another key for each number below 2**64.")
      .def(
          "split", [](Key self, int64_t n) { return SplitKey(self, n); }, nb::arg("n"),
          "[fold_in(0), ..., fold_in(n - 1)].")
      .def_ro("hi", &Key::hi, "The upper 32 bits of its seed.")
      .def_ro("lo", &Key::lo, "The lower 32 bits of its seed.")
      .def(nb::self == nb::self, nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](Key self) { return std::hash<uint64_t>()(SeedOf(self)); })
      .def("__repr__", [](Key self) { return fmt::format("lopt.Key({})", SeedOf(self)); });
  AddDraws(key);
  key.def(Pickled());

  nb::class_<Keys> keys(m, "Keys",
                        "A key for each of n inner trainings. What is drawn from them has n rows, "
                        "[n, shape], each what\nits key gives alone.");
  keys.def(
          "__init__",
          [](Keys* self, std::vector<Key> several) { new (self) Keys{std::move(several)}; },
          nb::arg("keys"))
      .def("__len__", [](const Keys& self) { return self.keys.size(); })
      .def(
          "__iter__", [](const Keys& self) { return nb::iter(nb::cast(self.keys)); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[Key]"))
      .def("__getitem__",
           [](const Keys& self, int64_t i) {
             const int64_t n = std::ssize(self.keys);
             const int64_t at = i < 0 ? i + n : i;
             if (at < 0 || at >= n) {
               throw nb::index_error(fmt::format("there is no key {} among {}", i, n).c_str());
             }
             return self.keys[static_cast<size_t>(at)];
           })
      .def(
          "fold_in",
          [](const Keys& self, uint64_t data) {
            Keys folded;
            for (const Key key : self.keys) folded.keys.push_back(FoldIn(key, data));
            return folded;
          },
          nb::arg("data"), "Each key's fold_in(data).")
      .def("__repr__",
           [](const Keys& self) { return fmt::format("<lopt.Keys of {}>", self.keys.size()); });
  AddDraws(keys);
  keys.def(Pickled());
}

}  // namespace lopt::python

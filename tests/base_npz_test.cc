#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/base/npy.h"
#include "lopt/base/npz.h"
#include "tests/paths.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

template <class T>
Array Of(Shape shape, const std::vector<T>& values) {
  return Array::Of<T>(std::move(shape), values);
}

NamedArrays SmallArrays() {
  NamedArrays arrays;
  arrays.Set("theta/mlp/linear_0/w", Of<float>({2, 3}, {1, -2, 0.5F, 1e-30F, -0.0F, 3}));
  arrays.Set("double", Of<double>({1}, {0.1}));
  arrays.Set("scalar", Of<int64_t>({}, {std::numeric_limits<int64_t>::min()}));
  arrays.Set("int", Of<int32_t>({2}, {-7, 7}));
  arrays.Set("unsigned", Of<uint32_t>({1, 1}, {0xffffffff}));
  arrays.Set("byte", Of<uint8_t>({3}, {1, 2, 255}));
  arrays.Set("none", Array(DType::kFloat32, {3, 0}));
  arrays.Set("\xc3\xa9", Array(DType::kFloat32, {1}));
  return arrays;
}

std::vector<std::byte> AsBytes(const std::string& text) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// An npy file of version 1 with this header.
std::vector<std::byte> NpyOf(const std::string& header, const std::string& data) {
  return AsBytes("\x93NUMPY\x01" + std::string(1, '\0') + static_cast<char>(header.size()) +
                 std::string(1, '\0') + header + data);
}

std::string NpyError(std::span<const std::byte> bytes) {
  try {
    ParseNpy(bytes, "x.npz: a.npy");
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

std::string NpyError(const std::string& header, const std::string& data = "") {
  return NpyError(NpyOf(header, data));
}

std::string NpzError(std::span<const std::byte> bytes) {
  try {
    ParseNpz(bytes, "x.npz");
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

// `bytes` with every `from` replaced by `to`, of the same length.
std::vector<std::byte> Replaced(std::vector<std::byte> bytes, const std::string& from,
                                const std::string& to) {
  REQUIRE(from.size() == to.size());
  const std::vector<std::byte> pattern = AsBytes(from);
  const std::vector<std::byte> replacement = AsBytes(to);
  int count = 0;
  for (auto at = bytes.begin();; ++count) {
    at = std::search(at, bytes.end(), pattern.begin(), pattern.end());
    if (at == bytes.end()) break;
    std::ranges::copy(replacement, at);
  }
  REQUIRE(count > 0);
  return bytes;
}

}  // namespace

TEST_CASE("An archive that unpacks to too much is an error") {
  const std::vector<std::byte> bytes = SerializeNpz(SmallArrays());
  CHECK_THROWS_WITH_AS(ParseNpz(bytes, "x.npz", nullptr, 100),
                       "x.npz: byte.npy: the archive unpacks to more than 100 bytes", Error);
  CHECK(ParseNpz(bytes, "x.npz", nullptr, 100'000) == SmallArrays());
  CHECK(kLargestNpz == 4294967296);  // where nobody says how much
}

TEST_CASE("arrays in an npz file read back as they were") {
  const TempDirectory directory;
  WriteNpz(directory / "x.npz", SmallArrays());
  CHECK(ReadNpz(directory / "x.npz") == SmallArrays());
  CHECK(ReadFile(directory / "x.npz") == SerializeNpz(SmallArrays()));
}

TEST_CASE("an npy file has these bytes") {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }";
  header.resize(128 - 10 - 1, ' ');
  CHECK(SerializeNpy(Of<float>({2, 1}, {1, -2})) ==
        NpyOf(header + "\n", std::string("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8)));
}

TEST_CASE("an npy header of version 2 or 3 has a length of four bytes") {
  for (const char version : {'\x02', '\x03'}) {
    const std::string header = "{'shape': (2,), 'fortran_order': True, 'descr': '|u1'}\n";
    const std::string bytes = std::string("\x93NUMPY") + version + '\0' +
                              static_cast<char>(header.size()) + std::string(3, '\0') + header;
    CHECK(ParseNpy(AsBytes(bytes + "\x05\x06"), "x") == Of<uint8_t>({2}, {5, 6}));
    CHECK(NpyError(AsBytes(bytes.substr(0, 10))) == "x.npz: a.npy: ends inside the npy header");
  }
}

TEST_CASE("an array has up to 64 dimensions, as NumPy's") {
  const Array most = Of<uint8_t>(Shape(64, 1), {7});
  CHECK(ParseNpy(SerializeNpy(most), "x") == most);
  CHECK_THROWS_WITH_AS(SerializeNpy(Array(DType::kUint8, Shape(65, 1))),
                       "npy: an array of 65 dimensions has too many; NumPy allows 64", Error);
  std::string header = "{'descr': '|u1', 'fortran_order': True, 'shape': (";
  for (int i = 0; i < 65; ++i) header += "1,";
  header += "), }";
  CHECK(NpyError(header, "7")
            .starts_with("x.npz: a.npy: the npy header has a shape of more dimensions than NumPy "
                         "allows, 64: {'descr'"));
}

TEST_CASE("control characters of a strange file do not reach its errors, nor long texts") {
  CHECK(NpyError("{'descr': '\x1b[2J', 'fortran_order': False, 'shape': (), }", "1") ==
        "x.npz: a.npy: has dtype '\\x1b[2J'; known are: <f4, <f8, <i4, <i8, <u4, |u1");
  CHECK(NpyError("{'\x1b' 1}   \n") ==
        "x.npz: a.npy: the npy header lacks a ':' at 4: {'\\x1b' 1}");
  const std::string long_text = NpyError("{" + std::string(240, 'x'));
  CHECK(long_text == "x.npz: a.npy: the npy header lacks a ''' at 1: {" + std::string(199, 'x') +
                         "... (241 bytes)");
  NamedArrays arrays;
  // Turns the direction of writing. As for \x1b, libzip makes an arrow of it.
  arrays.Set("a\xE2\x80\xAE", Of<uint8_t>({4}, {'D', 'A', 'T', 'A'}));
  CHECK(NpzError(Replaced(SerializeNpz(arrays), "DATA", "DATE")) ==
        "x.npz: a\\xe2\\x80\\xae.npy: CRC error");
}

// tests/golden/numpy_arrays.npz was made by NumPy 1.24.2:
//   numpy.savez("numpy_arrays.npz", **{
//       "mlp/~/linear_0/w": np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
//       "fortran": np.asfortranarray(np.arange(24, dtype=np.float64).reshape(2, 3, 4)),
//       "transposed": np.arange(6, dtype=np.int32).reshape(2, 3).T,
//       "scalar": np.int64(-7), "vector": np.array([1, 2**32 - 1], np.uint32),
//       "bytes": np.array([[0, 255]], np.uint8), "empty": np.zeros((0, 3), np.float32)})
TEST_CASE("a golden file that NumPy wrote reads, Fortran order included") {
  NamedArrays wanted;
  wanted.Set("mlp/~/linear_0/w", Of<float>({2, 3}, {0, 0.25F, 0.5F, 0.75F, 1, 1.25F}));
  std::vector<double> counted(24);
  for (size_t i = 0; i < counted.size(); ++i) counted[i] = static_cast<double>(i);
  wanted.Set("fortran", Of<double>({2, 3, 4}, counted));
  wanted.Set("transposed", Of<int32_t>({3, 2}, {0, 3, 1, 4, 2, 5}));
  wanted.Set("scalar", Of<int64_t>({}, {-7}));
  wanted.Set("vector", Of<uint32_t>({2}, {1, 0xffffffff}));
  wanted.Set("bytes", Of<uint8_t>({1, 2}, {0, 255}));
  wanted.Set("empty", Array(DType::kFloat32, {0, 3}));
  CHECK(ReadNpz(SourcePath("tests/golden/numpy_arrays.npz")) == wanted);
}

// tests/golden/numpy_other_arrays.npz was made by NumPy 1.24.2:
//   numpy.savez("numpy_other_arrays.npz",
//       images=np.arange(48, dtype=np.uint8).reshape(12, 2, 2), labels=np.arange(12) % 3,
//       classes=np.array(["cat", "dog", "newt"]), mean=np.float16([0.5, 0.25]),
//       mask=np.array([True, False]),
//       who=np.array([(1, 2.0)], dtype=[("id", "<i4"), ("x", "<f4")]))
TEST_CASE("arrays of dtypes that nobody can read are listed where that is asked for") {
  const std::string path = SourcePath("tests/golden/numpy_other_arrays.npz");
  CHECK_THROWS_WITH_AS(
      ReadNpz(path),
      (path + ": classes.npy: has dtype '<U4'; known are: <f4, <f8, <i4, <i8, <u4, |u1").c_str(),
      Error);
  std::vector<OtherArray> others;
  const NamedArrays arrays = ReadNpz(path, &others);
  CHECK(arrays.size() == 2);
  CHECK(arrays.At("images").shape() == Shape{12, 2, 2});
  CHECK(arrays.At("labels").As<int64_t>()[11] == 2);
  REQUIRE(others.size() == 4);
  const auto check = [&](size_t i, const char* name, const char* dtype, int64_t size) {
    CHECK(others[i].name == name);
    CHECK(others[i].dtype == dtype);
    CHECK(others[i].shape == Shape{size});
  };
  check(0, "classes", "<U4", 3);
  check(1, "mean", "<f2", 2);
  check(2, "mask", "|b1", 2);
  check(3, "who", "[('id', '<i4'), ('x', '<f4')]", 1);
}

TEST_CASE("an npy file of another kind is an Error that names the file and the member") {
  CHECK(NpyError(AsBytes("\x80\x04K\x01.         ")) ==
        "x.npz: a.npy: not an npy file: it does not begin with \\x93NUMPY and a version");
  std::vector<std::byte> bytes = SerializeNpy(Of<float>({1}, {1}));
  bytes[6] = std::byte{4};
  CHECK(NpyError(bytes) == "x.npz: a.npy: npy format 4 is not known; known are 1, 2, 3");
  const std::string known = "; known are: <f4, <f8, <i4, <i8, <u4, |u1";
  for (const std::string dtype : {"|O", ">f4", "<f2", "|V2", "|b1", "<U3", "<c8"}) {
    CHECK(NpyError("{'descr': '" + dtype + "', 'fortran_order': False, 'shape': (1,), }", "1234") ==
          "x.npz: a.npy: has dtype '" + dtype + "'" + known);
  }
  CHECK(NpyError("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234") ==
        "x.npz: a.npy: the npy header describes records, not numbers: {'descr': [('a', '<f4')], "
        "'fortran_order': False, 'shape': (1,), }");
}

TEST_CASE("a damaged npy header is an Error") {
  const auto error = [](const std::string& header) {
    const std::string text = NpyError(header);
    const std::string before = "x.npz: a.npy: the npy header ";
    return text.starts_with(before) && text.ends_with(": " + header)
               ? text.substr(before.size(), text.size() - before.size() - header.size() - 2)
               : text;
  };
  const std::string all = "must have descr, fortran_order and shape, each once";
  CHECK(error("") == "lacks a '{' at 0");
  CHECK(error("{}") == all);
  CHECK(error("{'descr': '<f4', 'shape': (1,)}") == all);
  CHECK(error("{'descr': '<f4', 'descr': '<f4'}") == all);
  CHECK(error("{'order': 'C'}") == all);
  CHECK(error("{'descr") == "has a text without an end");
  CHECK(error("{'descr' '<f4'}") == "lacks a ':' at 8");
  CHECK(error("{'fortran_order': 0}") == "must have True or False as fortran_order");
  CHECK(error("{'shape': (1.5,)}") == "lacks a ')' at 12");
  CHECK(error("{'shape': (-1,)}") == "has a shape that is not whole numbers");
  CHECK(error("{'shape': (9223372036854775808,)}") == "has a shape that is not whole numbers");
  CHECK(error("{'shape': 4}") == "lacks a '(' at 9");
  CHECK(error("{'shape': (4,)") == "lacks a '}' at 14");
  CHECK(error("{'descr': '<f4', 'fortran_order': False, 'shape': (0,)} 1") ==
        "goes on after its end");
}

TEST_CASE("npy data that does not fit the shape is an Error") {
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}";
  CHECK(NpyError(header, "12345678") == "no Error");
  CHECK(NpyError(header, "1234567") == "x.npz: a.npy: <f4 of shape [2] needs 8 bytes, got 7");
  CHECK(NpyError(header, "123456789") == "x.npz: a.npy: <f4 of shape [2] needs 8 bytes, got 9");
  CHECK(NpyError("{'descr': '<f4', 'fortran_order': True, 'shape': (4294967296, 4294967296)}") ==
        "x.npz: a.npy: shape [4294967296, 4294967296] has too many elements");
}

TEST_CASE("every cut of an npy or npz file is an Error") {
  const std::vector<std::byte> npy = SerializeNpy(Of<float>({1, 2}, {1, 2}));
  for (size_t size = 0; size < npy.size(); ++size) {
    CHECK(NpyError(std::span(npy).first(size)) != "no Error");
  }
  const std::vector<std::byte> npz = SerializeNpz(SmallArrays());
  for (size_t size = 0; size < npz.size(); ++size) {
    CHECK(NpzError(std::span(npz).first(size)) != "no Error");
  }
}

TEST_CASE("a changed number in an npz file is found by its checksum") {
  NamedArrays arrays;
  arrays.Set("a", Of<uint8_t>({4}, {'D', 'A', 'T', 'A'}));
  CHECK(NpzError(Replaced(SerializeNpz(arrays), "DATA", "DATE")) == "x.npz: a.npy: CRC error");
}

TEST_CASE("a file that is not an archive of npy files is an Error") {
  CHECK(NpzError(AsBytes("theta")) ==
        "x.npz: not a zip archive that can be read: Not a zip archive");
  CHECK(NpzError(SerializeNpy(Of<float>({1}, {1}))).starts_with("x.npz: not a zip archive"));
  NamedArrays arrays;
  arrays.Set("a", Of<float>({1}, {1}));
  const std::vector<std::byte> bytes = SerializeNpz(arrays);
  CHECK(NpzError(Replaced(bytes, "a.npy", "a.txt")) ==
        "x.npz: a.txt: a member of an npz file must be an .npy file");
  CHECK(NpzError(Replaced(bytes, "\x93NUMPY", "\x93NUMPI")) == "x.npz: a.npy: CRC error");
  arrays.Set("b", Of<float>({1}, {1}));
  CHECK(NpzError(Replaced(SerializeNpz(arrays), "b.npy", "a.npy")) ==
        "x.npz: not a zip archive that can be read: File already exists");
  const TempDirectory directory;
  const std::string path = directory / "none.npz";
  CHECK_THROWS_WITH_AS(ReadNpz(path),
                       ("cannot read " + path + ": No such file or directory").c_str(), Error);
}

TEST_CASE("no arrays, or one whose name is not UTF-8, cannot be written to an npz file") {
  CHECK_THROWS_WITH_AS(SerializeNpz({}), "npz: a file needs at least one array", Error);
  NamedArrays arrays;
  arrays.Set("\xff", Array(DType::kFloat32, {1}));
  CHECK_THROWS_AS(SerializeNpz(arrays), Error);
}

}  // namespace lopt

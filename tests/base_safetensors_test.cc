#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>
#include <filesystem>

#include "lopt/base/arrays.h"
#include "lopt/base/file.h"
#include "lopt/base/safetensors.h"
#include "tests/golden_dir.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

std::vector<std::byte> AsBytes(const std::string& text) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string LittleEndian(uint64_t number) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes += static_cast<char>(number >> (8 * i));
  }
  return bytes;
}

// A file with this header and this many zero bytes of data.
std::vector<std::byte> FileOf(const std::string& header, size_t data_bytes) {
  return AsBytes(LittleEndian(header.size()) + header + std::string(data_bytes, '\0'));
}

std::string ErrorOf(std::span<const std::byte> bytes) {
  try {
    ParseArrayFile(bytes, "x.safetensors");
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

std::string ErrorOf(const std::string& header, size_t data_bytes) {
  return ErrorOf(FileOf(header, data_bytes));
}

std::string Tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":{},"shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}

std::string Object(const std::string& members) { return fmt::format("{{{}}}", members); }

ArrayFile SmallFile() {
  ArrayFile file;
  file.arrays.Set("u", Array::Of<uint8_t>({3}, std::vector<uint8_t>{1, 2, 3}));
  file.arrays.Set("w", Array::Of<float>({2, 1}, std::vector<float>{1, -2}));
  file.arrays.Set("n", Array::Of<int64_t>({}, std::vector<int64_t>{-1}));
  file.metadata = {{"note", "a \"b\"\n"}, {"empty", ""}};
  return file;
}

}  // namespace

TEST_CASE("a file has these bytes") {
  const std::string header = R"({"__metadata__":{"empty":"","note":"a \"b\"\n"},)"
                             R"("n":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                             R"("w":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]},)"
                             R"("u":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}})";
  const size_t padded = (8 + header.size() + 63) / 64 * 64 - 8;
  const std::string expected = LittleEndian(padded) + header +
                               std::string(padded - header.size(), ' ') + std::string(8, '\xff') +
                               std::string("\x00\x00\x80\x3f\x00\x00\x00\xc0\x01\x02\x03", 11);
  CHECK(SerializeArrayFile(SmallFile()) == AsBytes(expected));
}

TEST_CASE("a file reads back as it was") {
  ArrayFile file = SmallFile();
  file.arrays.Set("d", Array::Of<double>({1}, std::vector<double>{0.1}));
  file.arrays.Set("i", Array::Of<int32_t>({2}, std::vector<int32_t>{-7, 7}));
  file.arrays.Set("j", Array::Of<uint32_t>({1}, std::vector<uint32_t>{0xffffffff}));
  file.arrays.Set("none", Array(DType::kFloat32, {3, 0}));
  file.arrays.Set("", Array(DType::kFloat32, {1}));
  file.arrays.Set("\xc3\xa9 \"q\"", Array(DType::kFloat32, {1}));
  const TempDirectory directory;
  WriteArrayFile(directory / "x", file);
  const ArrayFile read = ReadArrayFile(directory / "x");
  CHECK(read.arrays == file.arrays);
  CHECK(read.metadata == file.metadata);

  const ArrayFile nothing = ParseArrayFile(SerializeArrayFile({}), "x");
  CHECK(nothing.arrays.size() == 0);
  CHECK(nothing.metadata.empty());
}

TEST_CASE("every golden file reads, and writing it again loses nothing") {
  for (const char* name : {"image_mlp_inner_training.safetensors",
                           "learnable_adam_steps.safetensors", "learnable_sgdm_steps.safetensors",
                           "mlp_lopt_steps.safetensors", "mlp_lopt_steps_large.safetensors"}) {
    CAPTURE(name);
    const ArrayFile file = ReadArrayFile(GoldenPath(name));
    CHECK(file.arrays.size() > 10);
    CHECK_FALSE(file.metadata.at("source").empty());
    const ArrayFile again = ParseArrayFile(SerializeArrayFile(file), name);
    CHECK(again.arrays == file.arrays);
    CHECK(again.metadata == file.metadata);
  }
}

TEST_CASE("a golden file of images has its shapes and types") {
  const NamedArrays arrays =
      ReadArrayFile(GoldenPath("image_mlp_inner_training.safetensors")).arrays;
  CHECK(arrays.At("gradient0/mlp/linear_0/w").shape() == Shape{64, 32});
  CHECK(arrays.At("gradient0/mlp/linear_0/w").dtype() == DType::kFloat32);
}

TEST_CASE("a file that is too short is an Error") {
  CHECK(ErrorOf({}) == "x.safetensors: 0 bytes are too few for a safetensors file");
  CHECK(ErrorOf(AsBytes("1234567")) == "x.safetensors: 7 bytes are too few for a safetensors file");
}

TEST_CASE("a header length that cannot be is an Error") {
  CHECK(ErrorOf(AsBytes(LittleEndian(3) + "{}")) ==
        "x.safetensors: the header's length is given as 3 bytes, but only 2 follow");
  CHECK(ErrorOf(AsBytes(LittleEndian(100'000'001) + "{}")) ==
        "x.safetensors: the header's length is given as 100000001 bytes, more than 100000000: not "
        "a safetensors file?");
  CHECK(ErrorOf(AsBytes(LittleEndian(~uint64_t{0}))) ==
        "x.safetensors: the header's length is given as 18446744073709551615 bytes, more than "
        "100000000: not a safetensors file?");
}

TEST_CASE("a header that is not a JSON object is an Error") {
  CHECK(ErrorOf("", 0) == "x.safetensors: header: it is empty; wanted JSON");
  CHECK(ErrorOf("{\"a\":", 0) ==
        "x.safetensors: header: line 1, column 6: syntax error while parsing value - unexpected "
        "end of input; expected '[', '{', or a literal");
  CHECK(ErrorOf("// {}", 0).starts_with("x.safetensors: header: line 1, column 1: "));
  CHECK(ErrorOf("{} {}", 0).starts_with("x.safetensors: header: line 1, column 4: "));
  CHECK(ErrorOf("[1]", 0) == "x.safetensors: the header must be a JSON object, got [1]");
  CHECK(ErrorOf(std::string(65, '['), 0) ==
        "x.safetensors: header: line 1: more than 64 levels of nesting");
}

TEST_CASE("two tensors of one name are an Error") {
  const std::string tensor = Tensor("a", "\"F32\"", "[1]", "[0,4]");
  CHECK(ErrorOf(Object(tensor + ",\n" + tensor), 4) ==
        "x.safetensors: header: line 2: key 'a' appears twice");
  CHECK(ErrorOf("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"I32\"}}", 4) ==
        "x.safetensors: header: line 1: key 'a.dtype' appears twice");
}

TEST_CASE("a tensor that is not dtype, shape and data_offsets is an Error") {
  CHECK(ErrorOf("{\"a\":1}", 0) ==
        "x.safetensors: tensor 'a' must be an object with dtype, shape and data_offsets, got 1");
  CHECK(ErrorOf(R"({"a":{"dtype":"F32","shape":[1]}})", 0) ==
        "x.safetensors: tensor 'a' must be an object with dtype, shape and data_offsets, got "
        R"({"dtype":"F32","shape":[1]})");
}

TEST_CASE("control characters of a strange file do not reach its errors") {
  const std::string name = R"(a\u001b[2J\u009b)";
  const std::string shown = R"(a\x1b[2J\xc2\x9b)";
  CHECK(ErrorOf(Object(Tensor(name, "\"F16\"", "[1]", "[0,2]")), 2) ==
        "x.safetensors: tensor '" + shown +
            "' has dtype \"F16\"; known are: F32, F64, I32, I64, U32, U8");
  CHECK(ErrorOf(Object(Tensor(name, "\"F32\"", "[1]", "[4,8]")), 8) ==
        "x.safetensors: there is a gap of 4 bytes before tensor '" + shown + "' at 4");
  CHECK(ErrorOf(Object(Tensor(name, "\"F32\"", "[1]", "[0,8]")), 4) ==
        "x.safetensors: tensor '" + shown + "' ends at byte 8 of the data, which has 4");
  const std::string twice = Tensor(name, "\"F32\"", "[1]", "[0,4]");
  CHECK(ErrorOf(Object(twice + "," + twice), 4) ==
        "x.safetensors: header: line 1: key '" + shown + "' appears twice");
  CHECK(ErrorOf(R"({"a":"\u009b"})", 0).ends_with(R"(got "\xc2\x9b")"));
  // The bytes themselves.
  CHECK(ErrorOf("{\"\x1b\x9b\"}", 0).find_first_of("\x1b\x9b") == std::string::npos);
}

TEST_CASE("an unknown dtype is an Error that lists the known ones") {
  for (const std::string dtype : {"\"F16\"", "\"BF16\"", "\"BOOL\"", "\"f32\"", "7", "null"}) {
    CHECK(ErrorOf(Object(Tensor("a", dtype, "[1]", "[0,2]")), 2) ==
          "x.safetensors: tensor 'a' has dtype " + dtype +
              "; known are: F32, F64, I32, I64, U32, U8");
  }
}

TEST_CASE("tensors of unknown dtypes are listed where that is asked for, and the others read") {
  const std::string header = Object(Tensor("half", R"("F16")", "[3]", "[0,6]") + "," +
                                    Tensor("a", R"("F32")", "[1]", "[6,10]") + "," +
                                    Tensor("flags", R"("BOOL")", "[2,1]", "[10,12]"));
  std::vector<OtherArray> others;
  const ArrayFile file = ParseArrayFile(FileOf(header, 12), "x.safetensors", &others);
  CHECK(file.arrays.size() == 1);
  CHECK(file.arrays.At("a").shape() == Shape{1});
  REQUIRE(others.size() == 2);
  CHECK(others[0].name == "half");
  CHECK(others[0].dtype == "F16");
  CHECK(others[0].shape == Shape{3});
  CHECK(others[1].name == "flags");
  CHECK(others[1].shape == Shape{2, 1});
}

TEST_CASE("a shape that is not a list of non-negative integers is an Error") {
  for (const std::string shape :
       {"[-1]", "[1.0]", "[\"1\"]", "4", "[9223372036854775808]", "[[1]]", "null"}) {
    CHECK(ErrorOf(Object(Tensor("a", "\"F32\"", shape, "[0,4]")), 4) ==
          "x.safetensors: tensor 'a': shape must be a list of non-negative integers, got " + shape);
  }
}

TEST_CASE("a shape of too many elements is an Error") {
  CHECK(ErrorOf(Object(Tensor("a", "\"U8\"", "[4294967296,4294967296]", "[0,0]")), 0) ==
        "x.safetensors: tensor 'a': shape [4294967296, 4294967296] has too many elements");
  CHECK(ErrorOf(Object(Tensor("a", "\"F64\"", "[2305843009213693952]", "[0,0]")), 0) ==
        "x.safetensors: tensor 'a': shape [2305843009213693952] has too many elements");
}

TEST_CASE("data offsets that are not a range are an Error") {
  for (const std::string offsets : {"[4,0]", "[0]", "[0,4,8]", "[-4,0]", "[0,4.0]", "4"}) {
    CHECK(ErrorOf(Object(Tensor("a", "\"F32\"", "[1]", offsets)), 4) ==
          "x.safetensors: tensor 'a': data_offsets must be [begin, end] with 0 <= begin <= end, "
          "got " +
              offsets);
  }
}

TEST_CASE("data offsets that do not fit the shape are an Error") {
  CHECK(ErrorOf(Object(Tensor("a", "\"F32\"", "[2]", "[0,4]")), 4) ==
        "x.safetensors: tensor 'a' of F32 [2] needs 8 bytes, data_offsets [0, 4] give 4");
}

TEST_CASE("data offsets that overlap or leave a gap are an Error") {
  const std::string first = Tensor("a", "\"F32\"", "[2]", "[0,8]") + ",";
  CHECK(ErrorOf(Object(first + Tensor("b", "\"F32\"", "[2]", "[4,12]")), 12) ==
        "x.safetensors: tensor 'b' overlaps another: it begins at 4 before 8");
  CHECK(ErrorOf(Object(first + Tensor("b", "\"F32\"", "[2]", "[0,8]")), 8) ==
        "x.safetensors: tensor 'b' overlaps another: it begins at 0 before 8");
  CHECK(ErrorOf(Object(first + Tensor("b", "\"F32\"", "[2]", "[9,17]")), 17) ==
        "x.safetensors: there is a gap of 1 bytes before tensor 'b' at 9");
  CHECK(ErrorOf(Object(Tensor("a", "\"F32\"", "[1]", "[4,8]")), 8) ==
        "x.safetensors: there is a gap of 4 bytes before tensor 'a' at 4");
}

TEST_CASE("truncated data and trailing bytes are an Error") {
  const std::string header = Object(Tensor("a", "\"F32\"", "[2]", "[0,8]"));
  CHECK(ErrorOf(header, 8) == "no Error");
  CHECK(ErrorOf(header, 7) == "x.safetensors: tensor 'a' ends at byte 8 of the data, which has 7");
  CHECK(ErrorOf(header, 10) == "x.safetensors: 2 trailing bytes after the last tensor's data");
  CHECK(ErrorOf("{}", 1) == "x.safetensors: 1 trailing bytes after the last tensor's data");
}

TEST_CASE("metadata that is not text is an Error") {
  CHECK(ErrorOf(R"({"__metadata__":{"steps":20}})", 0) ==
        "x.safetensors: metadata 'steps' must be text, got 20");
  CHECK(ErrorOf(R"({"__metadata__":"steps"})", 0) ==
        "x.safetensors: __metadata__ must be an object of texts, got \"steps\"");
}

TEST_CASE("a file that cannot be written in the format is an Error") {
  ArrayFile file;
  file.arrays.Set("__metadata__", Array(DType::kFloat32, {1}));
  CHECK_THROWS_WITH_AS(SerializeArrayFile(file), "safetensors: no array may be named __metadata__",
                       Error);
  file = {};
  file.metadata["note"] = "\xff";
  CHECK_THROWS_WITH_AS(SerializeArrayFile(file), "safetensors: a name or the metadata is not UTF-8",
                       Error);
}

TEST_CASE("a file that is not there is an Error with its path") {
  const TempDirectory directory;
  const std::string path = directory / "none.safetensors";
  CHECK_THROWS_WITH_AS(ReadArrayFile(path),
                       ("cannot read " + path + ": No such file or directory").c_str(), Error);
}

TEST_CASE("every corruption of one byte gives an Error or a file that can be read") {
  const std::vector<std::byte> bytes = SerializeArrayFile(SmallFile());
  int64_t errors = 0;
  int64_t reads = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int change = 1; change < 256; ++change) {
      std::vector<std::byte> corrupt = bytes;
      corrupt[i] ^= static_cast<std::byte>(change);
      ErrorOf(corrupt) == "no Error" ? ++reads : ++errors;
    }
  }
  CHECK(errors > 10000);
  CHECK(reads > 19 * 255 - 1);  // any change of the data
}

TEST_CASE("every cut of a file is an Error") {
  const std::vector<std::byte> bytes = SerializeArrayFile(SmallFile());
  for (size_t size = 0; size < bytes.size(); ++size) {
    CHECK(ErrorOf(std::span(bytes).first(size)) != "no Error");
  }
}

}  // namespace lopt

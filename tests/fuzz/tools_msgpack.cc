// The msgpack of flax (lopt import).
#include "lopt/base/file.h"
#include "lopt/tools/import/flax_msgpack.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

void ReadMsgpack(std::string_view input) { ParseFlaxMsgpack(AsBytes(input), "file"); }

// flax.serialization.to_bytes of {"a": float32 [2], "b": {"c": its scalar}}, and of one in chunks.
std::vector<std::string> MsgpackSeeds() {
  using namespace std::string_literals;
  const std::string array =
      "\xc7\x15\x01\x93\x91\x02\xa7"
      "float32\xc4\x08\0\0\x80\x3f\0\0\0\x40"s;
  const std::string scalar =
      "\xc7\x10\x03\x93\x90\xa7"
      "float32\xc4\x04\0\0\x80\x3f"s;
  return {
      "\x82\xa1"
      "a" +
          array +
          "\xa1"
          "b\x81\xa1"
          "c" +
          scalar,
      "\x81\xa1"
      "a\x83\xb9__msgpack_chunked_array__\xc3\xa5shape\x81\xa1"
      "0\x02\xa6"
      "chunks\x81\xa1"
      "0" +
          array};
}

const AddFuzzTarget msgpack_target({"tools_msgpack", ReadMsgpack, MsgpackSeeds});

}  // namespace
}  // namespace lopt

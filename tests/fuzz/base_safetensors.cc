// A safetensors file. What was read is written and read again.
#include <stdexcept>

#include "lopt/base/safetensors.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

void ReadSafetensors(std::string_view input) {
  const ArrayFile file = ParseArrayFile(AsBytes(input), "file");
  if (file.arrays.size() > 0 && file.arrays.Contains("__metadata__")) return;
  const ArrayFile again = ParseArrayFile(SerializeArrayFile(file), "again");
  if (again.arrays != file.arrays || again.metadata != file.metadata) {
    throw std::logic_error("safetensors: written and read again it is another");
  }
}

std::vector<std::string> SafetensorsSeeds() {
  ArrayFile file;
  const std::string empty = AsText(SerializeArrayFile(file));
  file.arrays.Set("a", Array::Of<float>({2, 2}, std::vector<float>{1, 2, 3, 4}));
  file.arrays.Set("b/c", Array(DType::kUint8, {3}));
  file.arrays.Set("d", Array(DType::kInt64, {}));
  file.arrays.Set("none", Array(DType::kFloat64, {0, 7}));
  file.metadata = {{"format", "x"}, {"config", R"({"a": "\u00e9"})"}};
  return {empty, AsText(SerializeArrayFile(file))};
}

const AddFuzzTarget safetensors_target({"base_safetensors", ReadSafetensors, SafetensorsSeeds});

}  // namespace
}  // namespace lopt

// NumPy's .npz, a zip archive of arrays.
#include "lopt/base/file.h"
#include "lopt/base/npz.h"
#include "tests/fuzz/fuzz.h"
#include "tests/paths.h"

namespace lopt {
namespace {

void ReadNpzBytes(std::string_view input) { ParseNpz(AsBytes(input), "file"); }

std::vector<std::string> NpzSeeds() {
  NamedArrays arrays;
  arrays.Set("a", Array::Of<float>({2, 2}, std::vector<float>{1, 2, 3, 4}));
  arrays.Set("b/c", Array(DType::kUint8, {3}));
  // By NumPy, one member of it deflated.
  return {AsText(SerializeNpz(arrays)), ReadTextFile(SourcePath("tests/golden/numpy_arrays.npz"))};
}

const AddFuzzTarget npz_target({"base_npz", ReadNpzBytes, NpzSeeds});

}  // namespace
}  // namespace lopt

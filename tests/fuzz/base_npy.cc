// An array in NumPy's .npy format. What was read is written and read again.
#include <stdexcept>

#include "lopt/base/npy.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

void ReadNpy(std::string_view input) {
  const Array array = ParseNpy(AsBytes(input), "file");
  if (array.shape().size() < 1000 && ParseNpy(SerializeNpy(array), "again") != array) {
    throw std::logic_error("npy: written and read again it is another");
  }
}

std::vector<std::string> NpySeeds() {
  const std::string one =
      AsText(SerializeNpy(Array::Of<float>({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6})));
  std::string fortran = one;
  fortran.replace(fortran.find("False, "), 7, "True,  ");
  std::string version_2 = one;
  version_2[6] = 2;
  version_2.insert(10, 2, '\0');
  return {one,
          fortran,
          version_2,
          AsText(SerializeNpy(Array(DType::kInt64, {}))),
          AsText(SerializeNpy(Array(DType::kUint8, {4, 0, 2}))),
          AsText(SerializeNpy(Array(DType::kFloat64, {5})))};
}

const AddFuzzTarget npy_target({"base_npy", ReadNpy, NpySeeds});

}  // namespace
}  // namespace lopt

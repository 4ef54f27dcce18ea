// A directory of IDX files, MNIST's: images, and their labels.
#include "lopt/tasks/data/idx.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

void ReadIdxPair(std::string_view input) {
  const std::vector<std::string> parts = SplitParts(input, 2);
  const std::string directory = FreshDirectory();
  PutFile(directory, "train-labels-idx1-ubyte", parts[0]);
  PutFile(directory, "train-images-idx3-ubyte", parts[1]);
  ReadImageDirectory(directory);
}

std::vector<std::string> IdxSeeds() {
  using namespace std::string_literals;
  const std::string labels = "\0\0\x08\x01\0\0\0\x0a"s + std::string(9, '\1') + '\0';
  return {
      JoinParts({labels, "\0\0\x08\x03\0\0\0\x0a\0\0\0\2\0\0\0\3"s + std::string(59, 'x') + 'y'})};
}

const AddFuzzTarget idx_target({"tasks_idx", ReadIdxPair, IdxSeeds});

}  // namespace
}  // namespace lopt

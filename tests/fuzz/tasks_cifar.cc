// The binary files of CIFAR-100: a training and a test file.
#include "lopt/tasks/data/cifar.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

void ReadCifarFiles(std::string_view input) {
  const std::vector<std::string> parts = SplitParts(input, 2);
  const std::string directory = FreshDirectory();
  PutFile(directory, "test.bin", parts[0]);
  PutFile(directory, "train.bin", parts[1]);
  ReadCifar100(directory);
}

std::vector<std::string> CifarSeeds() {
  std::string record(2 + 3072, '\7');
  std::string train;
  for (int i = 0; i < 10; ++i) {
    record[1] = record[2] = static_cast<char>(i);
    train += record;
  }
  return {JoinParts({record, train})};
}

const AddFuzzTarget cifar_target({"tasks_cifar", ReadCifarFiles, CifarSeeds});

}  // namespace
}  // namespace lopt

// The program fuzz_<target>: libFuzzer around the one target that is linked. The first directory
// that it is given gets the target's seeds. At its end it says how much the target was fed.
#include <spdlog/spdlog.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>

#include "lopt/base/error.h"
#include "tests/fuzz/fuzz.h"

namespace {

struct Fed {
  ~Fed() {
    std::fprintf(stderr, "%s: %lld inputs, %lld bytes\n", lopt::FuzzTargets()[0].name.c_str(),
                 static_cast<long long>(inputs), static_cast<long long>(bytes));
  }
  int64_t inputs = 0;
  int64_t bytes = 0;
};

Fed& FedSoFar() {
  static Fed fed;
  return fed;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  spdlog::set_level(spdlog::level::off);
  for (int i = 1; i < *argc; ++i) {
    if (std::filesystem::is_directory((*argv)[i])) {
      int number = 0;
      for (const std::string& seed : lopt::FuzzTargets()[0].seeds()) {
        lopt::PutFile((*argv)[i], "seed-" + std::to_string(number++), seed);
      }
      break;
    }
  }
  FedSoFar();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ++FedSoFar().inputs;
  FedSoFar().bytes += static_cast<int64_t>(size);
  try {
    lopt::FuzzTargets()[0].read({reinterpret_cast<const char*>(data), size});
  } catch (const lopt::Error&) {
  }
  return 0;
}

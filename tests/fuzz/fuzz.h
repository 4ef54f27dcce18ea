#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lopt {

// A reader of bytes that someone else may have made. One file of tests/fuzz/ defines one, and
// libFuzzer (tests/fuzz/libfuzzer.cc) and an ordinary test (tests/tools_fuzz_test.cc) feed it.
struct FuzzTarget {
  std::string name;  // of its file, and of its folder in tests/fuzz/corpus/
  // Reads the input. Throws Error if it is not good, and nothing else.
  void (*read)(std::string_view input);
  // Good inputs, made by the program's own writers.
  std::vector<std::string> (*seeds)();
};

// Those that are linked, by name.
std::vector<FuzzTarget>& FuzzTargets();

// `const AddFuzzTarget added({...});` in the target's file.
struct AddFuzzTarget {
  explicit AddFuzzTarget(FuzzTarget target);
};

// An input of several parts, for targets that read several files: any input has `count` parts, the
// last of which takes what is left.
std::string JoinParts(const std::vector<std::string>& parts);
std::vector<std::string> SplitParts(std::string_view input, size_t count);

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}
inline std::string AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A directory for the files of one input, emptied by each call and removed when the program ends.
std::string FreshDirectory();
// Writes a file into it and returns its path.
std::string PutFile(const std::string& directory, const std::string& name, std::string_view bytes);

}  // namespace lopt

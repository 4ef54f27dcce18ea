#include "lopt/tasks/sequence/lstm.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace lopt {

int64_t LstmShape::sequences_of_part() const {
  // A step's products want some dozens of sequences. Parts of long sequences have fewer, to stay
  // small.
  return std::clamp<int64_t>(2048 / length, 1, 64);
}

Layout LstmLayout(const LstmShape& shape) {
  const int64_t width = shape.width;
  std::vector<std::pair<std::string, Shape>> tensors;
  tensors.push_back({"embedding", {width, kByteValues}});
  for (int64_t l = 0; l < shape.layers; ++l) {
    for (const char* from : {"inputs", "states"}) {
      const std::string name = fmt::format("lstm_{}/{}", l, from);
      tensors.push_back({name + "/w", {width, 4 * width}});
      tensors.push_back({name + "/b", {4 * width}});
    }
  }
  tensors.push_back({"logits/w", {width, kByteValues}});
  tensors.push_back({"logits/b", {kByteValues}});
  return Layout(std::move(tensors));
}

}  // namespace lopt

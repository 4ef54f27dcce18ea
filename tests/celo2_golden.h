#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/safetensors.h"
#include "lopt/lopt/theta_file.h"
#include "tests/golden_dir.h"

namespace lopt {

// One of the ways of Celo2 in its golden files: the params are those at `prefix`/param/TENSOR.
struct Celo2Golden {
  ArrayFile file;
  std::string prefix;
  ThetaFile theta;
};

inline std::vector<Celo2Golden> Celo2Goldens() {
  std::vector<Celo2Golden> goldens;
  // `optimizer` is a config without its end; the file's metadata `settings` has the numbers.
  const auto add = [&](const std::string& name, const char* settings, const std::string& prefix,
                       std::string optimizer) {
    const std::string path = GoldenPath(name + ".safetensors");
    Celo2Golden golden = {.file = ReadArrayFile(path), .prefix = prefix, .theta = {}};
    const std::string& text = golden.file.metadata.at(settings);
    for (const std::string key : {"\"learning_rate\": ", "\"weight_decay\": ", "\"mult_1d\": "}) {
      const size_t at = text.find(key);
      if (at == std::string::npos) continue;
      optimizer += ", " + text.substr(at, text.find_first_of(",}", at) - at);
    }
    golden.theta = ReadThetaFile(path, Config::Parse(optimizer + "}", name));
    goldens.push_back(std::move(golden));
  };
  add("celo2_steps", "optimizer", "celo2", R"({"type": "Celo2", "one_d": "learned")");
  add("celo2_steps", "optimizer", "base", R"({"type": "Celo2Base")");
  add("celo2_1d_steps", "config", "eval", R"({"type": "Celo2", "one_d": "adamw")");
  add("celo2_1d_steps", "config", "train", R"({"type": "Celo2", "one_d": "adam")");
  return goldens;
}

}  // namespace lopt

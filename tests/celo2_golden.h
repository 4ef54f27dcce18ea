#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/safetensors.h"
#include "lopt/theta_file.h"
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
  const auto add = [&](const std::string& name, const char* settings, const std::string& prefix,
                       nlohmann::json optimizer) {
    const std::string path = GoldenPath(name + ".safetensors");
    Celo2Golden golden = {.file = ReadArrayFile(path), .prefix = prefix, .theta = {}};
    const auto json = nlohmann::json::parse(golden.file.metadata.at(settings));
    optimizer["learning_rate"] = json.at("learning_rate");
    optimizer["weight_decay"] = json.at("weight_decay");
    if (json.contains("mult_1d")) optimizer["mult_1d"] = json.at("mult_1d");
    golden.theta = ReadThetaFile(path, Config::Parse(optimizer.dump(), name));
    goldens.push_back(std::move(golden));
  };
  add("celo2_steps", "optimizer", "celo2", {{"type", "Celo2"}, {"one_d", "learned"}});
  add("celo2_steps", "optimizer", "base", {{"type", "Celo2Base"}});
  add("celo2_1d_steps", "config", "eval", {{"type", "Celo2"}, {"one_d", "adamw"}});
  add("celo2_1d_steps", "config", "train", {{"type", "Celo2"}, {"one_d", "adam"}});
  return goldens;
}

}  // namespace lopt

#pragma once

#include <string>

namespace lopt {

// The config of a type of learned optimizer with its defaults; of others where it has none.
inline std::string DefaultsOf(const std::string& type) {
  constexpr const char* kOne = R"({"type": "LearnableSGDM"})";
  std::string others;
  if (type == "OrthogonalSteps" || type == "LearnedScheduler" || type == "UnknownLength") {
    others = std::string(R"(, "optimizer": )") + kOne;
  } else if (type == "MatricesAndVectors") {
    others = std::string(R"(, "matrices": )") + kOne + R"(, "vectors": {"type": "LearnableAdam"})";
  }
  return R"({"type": ")" + type + "\"" + others + "}";
}

}  // namespace lopt

#include "learner/run/best_theta.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace lopt {

BestTheta::BestTheta(const std::string& directory) : directory_(directory) {
  const std::string path = directory_ + "/best.json";
  if (!std::filesystem::exists(path)) {
    return;
  }
  try {
    loss_ = nlohmann::json::parse(ReadTextFile(path)).at("eval_loss");
  } catch (const nlohmann::json::exception& error) {
    Fail("{} is damaged: {}", path, error.what());
  }
}

void BestTheta::Offer(int64_t updates, double loss,
                      const std::function<void(const std::string&)>& write) {
  if (!(loss < loss_)) {
    return;
  }
  loss_ = loss;
  write(directory_ + "/theta_best.safetensors");
  WriteTextFile(directory_ + "/best.json",
                nlohmann::ordered_json({{"updates", updates}, {"eval_loss", loss}}).dump() + "\n");
}

}  // namespace lopt

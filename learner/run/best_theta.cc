#include "learner/run/best_theta.h"

#include <filesystem>

#include "base/record.h"

namespace lopt {
namespace {

// What best.json says.
struct Best {
  int64_t updates = 0;
  double eval_loss = 0;

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("updates", updates);
    visit("eval_loss", eval_loss);
  }
};

}  // namespace

BestTheta::BestTheta(const std::string& directory) : directory_(directory) {
  const std::string path = directory_ + "/best.json";
  if (std::filesystem::exists(path)) {
    loss_ = ReadRecordFile<Best>(path).eval_loss;
  }
}

void BestTheta::Offer(int64_t updates, double loss,
                      const std::function<void(const std::string&)>& write) {
  if (!(loss < loss_)) {
    return;
  }
  loss_ = loss;
  write(directory_ + "/theta_best.safetensors");
  WriteRecordFile(directory_ + "/best.json", Best{.updates = updates, .eval_loss = loss});
}

}  // namespace lopt

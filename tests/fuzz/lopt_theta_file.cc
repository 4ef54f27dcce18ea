// A theta file, whose golden steps are repeated.
#include <fmt/format.h>

#include "lopt/base/file.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

void ReadTheta(std::string_view input) {
  ReadThetaFile(PutFile(FreshDirectory(), "theta.safetensors", input));
}

std::vector<std::string> ThetaSeeds() {
  std::vector<std::string> seeds;
  for (const char* type : {"LearnableAdam", "MLPLOpt"}) {
    ThetaFile file;
    file.learned_optimizer = Config::Parse(fmt::format(R"({{"type": "{}"}})", type), "seed");
    const auto optimizer = OptimizerRegistry().Make(file.learned_optimizer);
    file.theta = Eigen::VectorXf::Constant(optimizer->theta_layout().size(), 0.01F);
    file.config = Config::Parse("{}", "seed");
    const std::string path = FreshDirectory() + "/theta.safetensors";
    WriteThetaFile(path, file);
    seeds.push_back(ReadTextFile(path));
  }
  return seeds;
}

const AddFuzzTarget theta_target({"lopt_theta_file", ReadTheta, ThetaSeeds});

}  // namespace
}  // namespace lopt

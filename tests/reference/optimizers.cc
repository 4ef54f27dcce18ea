#include "tests/reference/optimizers.h"

#include <string>

#include "lopt/base/options.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/learned_scheduler.h"
#include "lopt/lopt/rules/matrices_and_vectors.h"
#include "lopt/lopt/rules/orthogonal_steps.h"
#include "lopt/lopt/rules/unknown_length.h"
#include "tests/reference/adafac_mlp_lopt_reference.h"
#include "tests/reference/celo2_reference.h"
#include "tests/reference/celo_reference.h"
#include "tests/reference/mlp_lopt_reference.h"

namespace lopt {
namespace {

template <class Optimizer, class Options>
std::shared_ptr<const LearnedOptimizer> Made(const Config& config) {
  return std::make_shared<Optimizer>(ReadOptions<Options>(config));
}

}  // namespace

std::shared_ptr<const LearnedOptimizer> MakeReferenceOptimizer(const Config& config) {
  const std::string type = config.Type();
  if (type == "MLPLOpt") return Made<ReferenceMLPLOpt, MLPLOptOptions>(config);
  if (type == "AdafacMLPLOpt") return Made<ReferenceAdafacMLPLOpt, AdafacMLPLOptOptions>(config);
  if (type == "Celo") return Made<ReferenceCelo, CeloOptions>(config);
  if (type == "CeloAdam") return Made<ReferenceCeloAdam, ScheduledMomentsOptions>(config);
  if (type == "Sinv6") return Made<ReferenceSinv6, ScheduledMomentsOptions>(config);
  if (type == "Celo2Base") return Made<ReferenceCelo2Base, Celo2BaseOptions>(config);
  if (type == "Celo2") return Made<ReferenceCelo2, Celo2Options>(config);
  if (type == "OrthogonalSteps") {
    const auto options = ReadOptions<OrthogonalStepsOptions>(config);
    return std::make_shared<OrthogonalSteps>(MakeReferenceOptimizer(options.optimizer));
  }
  if (type == "MatricesAndVectors") {
    const auto options = ReadOptions<MatricesAndVectorsOptions>(config);
    return std::make_shared<MatricesAndVectors>(MakeReferenceOptimizer(options.matrices),
                                                MakeReferenceOptimizer(options.vectors));
  }
  if (type == "LearnedScheduler") {
    const auto options = ReadOptions<LearnedSchedulerOptions>(config);
    return std::make_shared<LearnedScheduler>(options, MakeReferenceOptimizer(options.optimizer));
  }
  if (type == "UnknownLength") {
    const auto options = ReadOptions<UnknownLengthOptions>(config);
    return std::make_shared<UnknownLength>(MakeReferenceOptimizer(options.optimizer));
  }
  return OptimizerRegistry().Make(config);
}

}  // namespace lopt

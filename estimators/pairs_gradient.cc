#include "lopt/estimators/pairs_gradient.h"

#include <cmath>

#include "lopt/base/eigen.h"
#include "lopt/estimators/antithetic.h"
#include "lopt/estimators/device_gradient.h"

namespace lopt {
namespace {

PairsGradient GradientOnHost(const Perturbations& perturbations, const PairsLosses& losses,
                             Array* accumulator) {
  const int64_t pairs = perturbations.pairs();
  const int64_t dimension = perturbations.dimension();
  Array zeros(DType::kFloat32, {accumulator == nullptr ? pairs : 0, dimension});
  const std::span<float> rows = (accumulator == nullptr ? zeros : *accumulator).As<float>();
  PairsGradient result;
  for (int64_t n = 0; accumulator != nullptr && n < pairs; ++n) {
    const auto row = rows.subspan(n * dimension, dimension);
    result.accumulator_norms.push_back(std::sqrt(Dot(row, row)));
  }
  result.gradient = PersistentGradient(
      losses,
      [&](int64_t pair, const WindowStep& at, std::span<float> out) {
        perturbations.Draw(pair, at, out);
      },
      perturbations.std(), rows, &result.squares);
  return result;
}

}  // namespace

PairsGradient GradientOfPairs(const InnerProblem& problem, const Perturbations& perturbations,
                              const PairsLosses& losses, Array* accumulator) {
  const Device* device = problem.device();
  return device == nullptr ? GradientOnHost(perturbations, losses, accumulator)
                           : GradientOnDevice(*device, perturbations, losses, accumulator);
}

PairsGradient GradientOfPairs(const InnerProblem& problem, const Perturbations& perturbations,
                              std::span<const double> differences) {
  if (const Device* device = problem.device(); device != nullptr) {
    PairsLosses losses;
    for (const double difference : differences) losses.push_back({{.weight = difference}});
    return GradientOnDevice(*device, perturbations, losses, nullptr);
  }
  const double std = perturbations.std();
  const std::span<const float> rows = perturbations.Rows();
  return {.gradient = WeightedPerturbations(differences, rows, std).cast<float>(),
          .squares = SumOfSquaredGradients(differences, rows, std)};
}

}  // namespace lopt

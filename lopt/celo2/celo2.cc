#include "lopt/lopt/celo2/celo2.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lopt/base/options.h"
#include "lopt/lopt/celo2/celo2_kernel.h"
#include "lopt/lopt/network/plain_network.h"

namespace lopt {
namespace {

Layout ThetaOfCelo2() {
  // The features' blocks, in the order of the definition.
  constexpr int64_t kBlocks[] = {1, 1, 1, 3, 1, 3, 1, 3, 1, 3, 3, 3, 3, 3};
  constexpr int64_t kHidden = Celo2Base::kHidden;
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const int64_t rows : kBlocks) {
    tensors.emplace_back("w0__" + std::to_string(tensors.size()), Shape{rows, kHidden});
  }
  tensors.emplace_back("b0", Shape{kHidden});
  tensors.emplace_back("w1", Shape{kHidden, kHidden});
  tensors.emplace_back("b1", Shape{kHidden});
  tensors.emplace_back("w2", Shape{kHidden, Celo2Base::kOutputs});
  tensors.emplace_back("b2", Shape{Celo2Base::kOutputs});
  return Layout(std::move(tensors));
}

template <class Options>
void VisitRates(FieldVisitor& v, Options* options) {
  v.Field("learning_rate", &options->learning_rate, AtLeast(0), "Factor of the step.");
  v.Field("weight_decay", &options->weight_decay, AtLeast(0),
          "Decoupled weight decay, as a multiple of the learning rate.");
  VisitSchedule(v, &options->schedule);
}

}  // namespace

Celo2Options AsCelo2(const Celo2BaseOptions& options) {
  return {.learning_rate = options.learning_rate,
          .weight_decay = options.weight_decay,
          .schedule = options.schedule,
          .one_d = OneD::kLearned};
}

void Celo2BaseOptions::Visit(FieldVisitor& v) { VisitRates(v, this); }

void Celo2Options::Visit(FieldVisitor& v) {
  VisitRates(v, this);
  v.Choice(
      "one_d", &one_d, kOneDs,
      "What steps biases and the like. adam: tensors named b, and those with 'embed' in their "
      "names, by Adam without bias correction, as the network was meta-trained; adamw: tensors "
      "of less than two dimensions, and those with 'embed' in their names, by AdamW, as it is "
      "used; learned: the network steps all.");
  v.Field(
      "mult_1d", &mult_1d, AtLeast(0),
      "Adam's learning rate, as a multiple of learning_rate. No effect where one_d is learned.");
}

Celo2Base::Celo2Base(const char* type, const Celo2Options& options, bool orthogonal)
    : LearnedOptimizer(ThetaOfCelo2(), NeedOfNumSteps(type, options.schedule)),
      options_(options),
      orthogonal_(orthogonal) {}

Celo2Base::Celo2Base(const Celo2BaseOptions& options)
    : Celo2Base("Celo2Base", AsCelo2(CheckOptions("Celo2Base", options)), false) {}

Celo2::Celo2(const Celo2Options& options)
    : Celo2Base("Celo2", CheckOptions("Celo2", options), true) {}

void Celo2Base::DoInitTheta(Key key, std::span<float> theta) const {
  std::fill(theta.begin(), theta.end(), 0.0f);
  const auto draw = [&](uint64_t layer, const char* first, int64_t in, int64_t out) {
    const int64_t offset = theta_layout().Find(first).offset;
    InitLayer(FoldIn(key, layer), in, theta.subspan(offset, in * out));
  };
  draw(0, "w0__0", kFeatures, kHidden);
  draw(1, "w1", kHidden, kHidden);
  draw(2, "w2", kHidden, kOutputs);
}

std::unique_ptr<UpdateRule> Celo2Base::DoBind(const Layout& params,
                                              std::span<const float> theta) const {
  return MakeCelo2Kernel(options_, orthogonal_, params, theta);
}

}  // namespace lopt

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lopt/base/choices.h"
#include "lopt/base/fields.h"
#include "lopt/tasks/data/image_data.h"
#include "lopt/tasks/image/image_mlp.h"
#include "lopt/tasks/image/image_task.h"
#include "lopt/tasks/layers/activation.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

struct ParametricImageMlpOptions {
  int64_t family_seed = 0;
  ImageOptions images = {};  // the source alone: sizes are drawn
  void Visit(FieldVisitor& v);
};

// How weights [in, out] of a task start, whose scale is s.
enum class Initializer {
  kOrthogonal,       // s Q, the columns of Q or, if there are more of them, its rows orthonormal
  kUniformScaling,   // U(-1, 1) s sqrt(3 / in)
  kNormal,           // N(0, s / in)
  kTruncatedNormal,  // the same, cut off at two standard deviations before it is scaled
  kUniform           // U(-1, 1) sqrt(3 s / in)
};

// Multilayer perceptrons on images, each with an activation and an initializer of its own (Metz et
// al. 2022, "VeLO", appendix; sizes and draws as google/learned_optimization has them, but for
// kTruncatedNormal, in whose place it draws kNormal once more).
//
// Of the family, drawn by its seed (int(exp(U(ln a, ln b))) unless it says otherwise): units 8 to
// 128 of each hidden layer, hidden layers uniform on 0 to 4, image size 4 to 32, batch size 4 to
// 512. Of a task: config "activation", a place in kParametricActivations, "initializer", and
// "scale" s ~ U(0.5, 2). Biases start at 0. The rest is ImageMLP's, but for the meta-loss, which of
// c classes is 10 (min(max(loss, 0), ln(2 c)) - ln(c / 5)) / ln(c).
class ParametricImageMlp : public TaskFamily {
 public:
  // The network and the images that the options name. Throws Error as CheckOptions does.
  static ImageMlpOptions Drawn(const ParametricImageMlpOptions& options);

  // `data` are the images of Drawn(options). Throws Error as ImageMlp does.
  ParametricImageMlp(const ParametricImageMlpOptions& options,
                     const std::shared_ptr<const ImageData>& data);

  double Normalize(std::span<const float> config, double loss) const override;

 private:
  using Networks = std::vector<std::shared_ptr<const ImageMlp>>;
  ParametricImageMlp(Networks networks, int64_t classes);

  void DoSample(Key key, std::span<float> config) const override;
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;
  std::vector<Pictures> DoShow(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  // That of a task's activation. Throws Error if a config has none.
  const ImageMlp& NetworkOf(std::span<const float> config) const;

  Networks networks_;  // one for each of the activations
  double classes_;
};

// Each with the same probability; two come twice.
inline constexpr Activation kParametricActivations[] = {
    Activation::kRelu, Activation::kRelu, Activation::kRelu6, Activation::kSelu,
    Activation::kTanh, Activation::kCos,  Activation::kSin,   Activation::kSigmoid,
    Activation::kSilu, Activation::kSilu, Activation::kGelu,  Activation::kLeakyRelu};

}  // namespace lopt

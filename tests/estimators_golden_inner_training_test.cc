// Sixty inner steps of a meta-trained MLPLOpt on the 8x8 image MLP over real digits, against the
// trace from JAX.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "golden_dir.h"
#include "lopt/base/arrays.h"
#include "lopt/base/safetensors.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/tasks/image/image_mlp.h"
#include "lopt/tasks/registry.h"
#include "mnist_dir.h"
#include "tests/reference/image_mlp_reference.h"
#include "tests/reference/mlp_lopt_reference.h"

namespace lopt {
namespace {

template <class Optimizer, class Images>
void TrainAsTraced() {
  const ArrayFile golden = ReadArrayFile(GoldenPath("image_mlp_inner_training.safetensors"));
  const auto losses = golden.arrays.At("loss").As<float>();
  const Array& index = golden.arrays.At("index");
  const auto steps = std::ssize(losses);
  const int64_t batch = index.shape().at(1);

  const Images task({}, GetImages({.data = ImageSource::kIdx}, TaskResources(MnistDir())));
  const Optimizer optimizer;
  std::vector<float> theta(optimizer.theta_layout().size());
  RowFromArrays(optimizer.theta_layout(), golden.arrays, "theta/", theta);
  const auto rule = optimizer.Bind(task.params_layout(), theta);
  std::vector<float> params(task.params_layout().size());
  RowFromArrays(task.params_layout(), golden.arrays, "param0/", params);
  std::vector<float> gradient(params.size());
  std::vector<float> state(rule->state_layout().size());
  rule->InitState({}, params, state);

  Workspace scratch;
  for (int64_t step = 0; step < steps; ++step) {
    CAPTURE(step);
    float loss = 0;
    task.Evaluate({.params = params,
                   .examples = index.As<int32_t>().subspan(step * batch, batch),
                   .losses = {&loss, 1},
                   .gradients = gradient},
                  scratch);
    CHECK(std::abs(loss - losses[step]) <= 1e-5F * losses[step]);
    rule->Update({.step = step, .num_steps = steps, .loss = loss}, gradient, params, state,
                 scratch);
  }
  std::vector<float> end(params.size());
  RowFromArrays(task.params_layout(), golden.arrays, "param_end/", end);
  for (size_t i = 0; i < params.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(params[i] - end[i]) <= 1e-5F);
  }
}

TEST_CASE("Inner training follows the golden losses of real digits") {
  if (SkipsWithoutMnist()) return;
  TrainAsTraced<MLPLOpt, ImageMlp>();
  TrainAsTraced<ReferenceMLPLOpt, ReferenceImageMlp>();
}

}  // namespace
}  // namespace lopt

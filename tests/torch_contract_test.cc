#include <doctest/doctest.h>

#include "tasks/image_data.h"
#include "tests/contracts/task_contract.h"
#include "torch/torch_image_mlp.h"

// The torch image MLP linked in, without the module: what every task family promises.

namespace lopt::contracts {
namespace {

TEST_CASE("The torch image MLP keeps the contract of task families") {
  ImageStore images;
  for (const char* activation : {"relu", "tanh"}) {
    INFO(activation);
    const auto task = MakeTorchImageMlp({.image_size = 4,
                                         .hidden = {6, 3},
                                         .activation = activation,
                                         .batch_size = 17,
                                         .data = "glyphs"},
                                        images.Get("glyphs", "", 4));
    CheckShape(*task);
    CheckGradientAgainstDifferences(*task);
    CheckDrawsAreFunctionsOfKey(*task);
    CheckDataIsFunctionOfKey(*task, /*noisy_gradient=*/false);
    CheckRowsAreIndependent(*task);
    CheckLossesWithoutGradients(*task);
    CheckThreadsGiveTheSameBits(*task);
    CheckWrongSizesOfTasksThrow(*task);
    CheckNormalizer(*task);
    CheckExamples(*task);
  }
}

}  // namespace
}  // namespace lopt::contracts

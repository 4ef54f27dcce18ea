#pragma once

#include "lopt/base/choices.h"

namespace lopt {

// The cells of torch/recurrent.h, for the options of tasks: the core knows these without LibTorch.
enum class RecurrentCell { kLstm, kGru };
inline constexpr Named<RecurrentCell> kRecurrentCells[] = {{RecurrentCell::kLstm, "lstm"},
                                                           {RecurrentCell::kGru, "gru"}};

}  // namespace lopt

#include "lopt/tasks/layers/activation.h"

namespace lopt {

Activated ActivationAt(Activation activation, double x) { return ActivatedAt(activation, x); }

}  // namespace lopt

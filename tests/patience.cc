#include "tests/patience.h"

namespace lopt {

int Patience() { return LOPT_TEST_PATIENCE; }

}  // namespace lopt

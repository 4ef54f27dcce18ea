#include "lopt/base/descriptor.h"

#include <unistd.h>

namespace lopt {

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

}  // namespace lopt

#include <doctest/doctest.h>
#include <fcntl.h>

#include <cerrno>

#include "lopt/base/descriptor.h"

namespace lopt {
namespace {

bool IsOpen(int descriptor) { return ::fcntl(descriptor, F_GETFD) >= 0; }

TEST_CASE("A descriptor is closed at the end, and none is not") {
  const int number = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  REQUIRE(number >= 0);
  {
    const Descriptor owner(number);
    CHECK_EQ(owner.number(), number);
    CHECK(IsOpen(number));
  }
  CHECK_FALSE(IsOpen(number));
  errno = 0;
  { const Descriptor none(-1); }
  CHECK_EQ(errno, 0);
}

}  // namespace
}  // namespace lopt

#include <doctest/doctest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "lopt/base/cores.h"
#include "lopt/base/parallel.h"
#include "lopt/base/platform.h"
#include "tests/learner_child.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

// The files of control groups.
class ControlGroups {
 public:
  // Writes a file of a group, "a/b/cpu.max", as the system does.
  void Set(const std::string& file, const std::string& text) const {
    const std::string path = root_ / file;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text << '\n';
  }
  std::optional<int64_t> Cores(const std::string& groups) const {
    return ControlGroupCoresOf(groups, root_.path());
  }

 private:
  TempDirectory root_;
};

TEST_CASE("The lowest limit of a group of version 2 and those above it counts, as whole cores") {
  const ControlGroups groups;
  CHECK_FALSE(groups.Cores("0::/a/b\n"));
  groups.Set("a/b/cpu.max", "max 100000");
  CHECK_FALSE(groups.Cores("0::/a/b\n"));
  groups.Set("a/b/cpu.max", "400000 100000");
  CHECK(groups.Cores("0::/a/b\n") == 4);
  CHECK_FALSE(groups.Cores("0::/a\n"));
  groups.Set("a/cpu.max", "250000 100000");
  CHECK(groups.Cores("0::/a/b\n") == 3);
  groups.Set("a/b/cpu.max", "1000 100000");
  CHECK(groups.Cores("0::/a/b\n") == 1);
  groups.Set("cpu.max", "200000 100000");
  CHECK(groups.Cores("0::/\n") == 2);
  CHECK(groups.Cores("0::/another name/for:it\n") == 2);
}

TEST_CASE("Limits of version 1 are those of the groups of processor time") {
  const ControlGroups groups;
  const std::string lines = "5:memory:/docker/0a\n4:cpu,cpuacct:/docker/0a\n0::/docker/0a\n";
  groups.Set("memory/docker/0a/cpu.cfs_quota_us", "100000");
  groups.Set("memory/docker/0a/cpu.cfs_period_us", "100000");
  CHECK_FALSE(groups.Cores(lines));
  groups.Set("cpu,cpuacct/docker/0a/cpu.cfs_quota_us", "-1");
  groups.Set("cpu,cpuacct/docker/0a/cpu.cfs_period_us", "100000");
  CHECK_FALSE(groups.Cores(lines));
  groups.Set("cpu,cpuacct/docker/0a/cpu.cfs_quota_us", "150000");
  CHECK(groups.Cores(lines) == 2);
  CHECK_FALSE(groups.Cores("4:cpuset:/docker/0a\n"));
}

TEST_CASE("A container whose own group is the root of what it sees has that group's limit") {
  const ControlGroups groups;
  groups.Set("cpu/cpu.cfs_quota_us", "600000");
  groups.Set("cpu/cpu.cfs_period_us", "100000");
  CHECK(groups.Cores("4:cpu,cpuacct:/docker/0a\n") == 6);
}

TEST_CASE("A text or a limit that means nothing is none") {
  const ControlGroups groups;
  groups.Set("cpu.max", "100000");
  for (const char* text : {"", "\n", "0", "0:", "0::", "0::/", "::", "0::a\n0::/b"}) {
    CHECK_FALSE(groups.Cores(text));
  }
  groups.Set("cpu.max", "100000 0");
  CHECK_FALSE(groups.Cores("0::/\n"));
}

TEST_CASE("A process that is bound to a core has one") {
  CHECK(AvailableCores() >= 1);
  CHECK(AvailableCores() <= AffinityCores());
  CHECK(AvailableCores() <= kMaxThreads);
  const ChildEnd end = RunInChild([] {
    cpu_set_t all;
    if (::sched_getaffinity(0, sizeof all, &all) != 0) ::_exit(2);
    cpu_set_t one;
    CPU_ZERO(&one);
    size_t first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    CPU_SET(first, &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) ::_exit(3);
    ::_exit(AffinityCores() == 1 && AvailableCores() == 1 ? 42 : 43);
  });
  CHECK(end.exit_code == 42);
}

}  // namespace
}  // namespace lopt

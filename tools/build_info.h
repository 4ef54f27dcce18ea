#pragma once

#include <string>

namespace lopt {

// What this binary was built from and with. Texts are empty where there is nothing to say.
struct BuildInfo {
  std::string version;     // "0.2.0"
  std::string commit;      // with "-dirty" if the sources differed from it
  std::string compiler;    // "GNU 12.2.0"
  std::string build_type;  // "Release"
  std::string sanitizers;  // "address,undefined"
};

BuildInfo GetBuildInfo();

// "0.2.0 c597f303846c", as files name what wrote them; without a commit the version alone.
inline std::string VersionAndCommit(const BuildInfo& build) {
  return build.commit.empty() ? build.version : build.version + " " + build.commit;
}

}  // namespace lopt

#pragma once

#include <string>
#include <vector>

namespace lopt {

struct WrittenReport {
  std::string path;                 // of the page
  std::vector<std::string> damage;  // what could not be read, for people
};

// Writes one HTML page of output directories: of meta-training runs, trainings, evaluations and
// benches of estimators. Where `out` is empty the page is report.html in the directory, or here if
// there are several. Throws Error if there is no directory, one is neither of these, or a file
// cannot be read or written.
WrittenReport WriteReport(std::vector<std::string> directories, const std::string& out);

}  // namespace lopt

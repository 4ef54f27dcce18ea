#pragma once

#include <map>
#include <set>
#include <string>

namespace lopt {

// What the files of a run say, by name, without what clocks, the names of processes and failures
// put there: all else is the same in an undisturbed run. run_files.cc lists what is left out. The
// event files are one entry, "events"; so is each checkpoint, which is read whole.
using RunFiles = std::map<std::string, std::string>;

// Which files are left out: those whose names begin so or, if it begins with "." or "/", hold it.
using IgnoredFiles = std::set<std::string>;

// Reads the files of the environment. Throws Error for what cannot be read, and where the logs
// contradict each other or go back. `best_of_all`: the best theta is that of the lowest loss in
// them.
RunFiles ReadRunFiles(const std::string& directory, const IgnoredFiles& ignored = {},
                      bool best_of_all = true);

// Throws Error that names the first file that differs, and where. Of checkpoints the run may have
// fewer, but the last.
void RequireSameFiles(const RunFiles& run, const RunFiles& undisturbed,
                      const IgnoredFiles& ignored);

}  // namespace lopt

#pragma once

#include <string>
#include <vector>

namespace lopt {

// mpiexec ends all ranks within a millisecond of the first, without a word about which it was. So
// under `lopt launch` each rank has a guard, a process between mpiexec and it, that writes down how
// the rank ended before mpiexec can know. The rank ends when its guard is killed, and the guard
// when mpiexec's process on its host is.

// The words that run `command` ({"meta-train", ...}) of this program under a guard that writes to
// `out_dir`.
std::vector<std::string> GuardedProgram(const std::string& out_dir,
                                        const std::vector<std::string>& command);

// Runs the words as a child, passes the first signal to stop on as SIGTERM (the supervisor repeats
// it, and a rank that gets two ends at once), and ends as the child does: with its exit code or by
// its signal. Output that nobody reads is no stop, to it or to the child. Before, unless the child
// finished or was interrupted, writes WriteRankEnd's file. Throws Error if the child cannot be run.
int GuardRank(const std::string& out_dir, const std::vector<std::string>& program);

}  // namespace lopt

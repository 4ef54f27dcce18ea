// The window journal of a run that goes on: where, and the file.
#include <cstring>

#include "lopt/base/file.h"
#include "lopt/learner/run/window_journal.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

constexpr int64_t kWorkers = 3;

void ReadJournal(std::string_view input) {
  const std::vector<std::string> parts = SplitParts(input, 2);
  int64_t position = 0;
  std::memcpy(&position, parts[0].data(), std::min(parts[0].size(), sizeof position));
  WindowJournal journal(PutFile(FreshDirectory(), "windows.bin", parts[1]));
  Ledger ledger(kWorkers, 1);
  journal.GoOnFrom(position, std::vector<int64_t>(kWorkers, 2), &ledger);
  journal.Started(1, 3);
  journal.Write();
  journal.ForgetBefore(journal.position());
}

std::vector<std::string> JournalSeeds() {
  const std::string path = FreshDirectory() + "/windows.bin";
  WindowJournal journal(path);
  Ledger ledger(kWorkers, 1);
  journal.GoOnFrom(0, std::vector<int64_t>(kWorkers, 0), &ledger);
  for (int64_t w = 0; w < 6; ++w) journal.Started(w % kWorkers, 1 + w / kWorkers);
  journal.Write();
  using namespace std::string_literals;
  std::string forgotten = ReadTextFile(path);
  forgotten.insert(0, "\3\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"s);
  return {JoinParts({"\1\0\0\0\0\0\0\0"s, ReadTextFile(path)}),
          JoinParts({"\6\0\0\0\0\0\0\0"s, forgotten})};
}

const AddFuzzTarget journal_target({"learner_journal", ReadJournal, JournalSeeds});

}  // namespace
}  // namespace lopt

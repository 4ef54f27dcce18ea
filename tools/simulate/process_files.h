#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/file_system.h"
#include "lopt/tools/simulate/disk.h"
#include "lopt/tools/simulate/process.h"

namespace lopt {

// The files that all processes share, as one process sees them: a call takes time, in which others
// go on, may write less than asked, and fails where that is due. When the process is dead all calls
// fail and do nothing.
class ProcessFiles final : public FileSystem {
 public:
  // `fails` says for each call that writes or flushes which error number it fails with; 0: none.
  ProcessFiles(Process* process, Disk* disk, std::function<int(bool flushes)> fails)
      : process_(process), disk_(disk), fails_(std::move(fails)) {}

  int Open(const std::string& path, OpenFor what) override;
  int Close(int descriptor) override;
  int64_t Read(int descriptor, std::span<std::byte> bytes, int64_t offset) override;
  int64_t Write(int descriptor, std::span<const std::byte> bytes) override;
  int Flush(int descriptor) override;
  int FlushData(int descriptor) override;
  int Cut(const std::string& path, int64_t bytes) override;
  int Look(const std::string& path, FileStatus* status) override;
  int MayWrite(const std::string& directory) override;
  int MakeDirectory(const std::string& path) override;
  int List(const std::string& directory, std::vector<std::string>* names) override;
  int Rename(const std::string& from, const std::string& to) override;
  int Link(const std::string& from, const std::string& to) override;
  int Remove(const std::string& path) override;
  int Touch(const std::string& path) override;
  int Lock(int descriptor) override;

 private:
  enum class Kind { kReads, kWrites, kFlushes };
  // What the call gives, or minus the error number that it fails with.
  template <class Call>
  auto Do(Kind kind, std::string_view what, std::string_view path, const Call& call)
      -> decltype(call());
  template <class Call>
  int DoFlush(int descriptor, std::string_view what, const Call& call);

  Process* process_;
  Disk* disk_;
  std::function<int(bool flushes)> fails_;
};

}  // namespace lopt

#include "lopt/tools/report/filter_process.h"

#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "lopt/base/descriptor.h"
#include "lopt/base/error.h"
#include "lopt/base/platform.h"

extern char** environ;

namespace lopt {

namespace {

// A file in memory without a name.
class MemoryFile {
 public:
  explicit MemoryFile(const char* purpose) : descriptor_(OpenMemoryFile(purpose)) {
    Require(descriptor() >= 0, "cannot make a file in memory: {}", SystemReason(errno));
  }

  int descriptor() const { return descriptor_.number(); }

  void Write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t written = ::write(descriptor(), text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      Require(written > 0, "cannot write to a file in memory: {}", SystemReason(errno));
      text.remove_prefix(static_cast<size_t>(written));
    }
    ::lseek(descriptor(), 0, SEEK_SET);
  }

  std::string Read() const {
    struct stat status = {};
    ::fstat(descriptor(), &status);
    std::string text(static_cast<size_t>(status.st_size), '\0');
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t count =
          ::pread(descriptor(), text.data() + done, text.size() - done, static_cast<off_t>(done));
      if (count < 0 && errno == EINTR) continue;
      Require(count > 0, "cannot read a file in memory: {}", SystemReason(errno));
      done += static_cast<size_t>(count);
    }
    return text;
  }

 private:
  Descriptor descriptor_;
};

}  // namespace

FilterResult RunFilter(const std::vector<std::string>& words, std::string_view input) {
  const MemoryFile in("input");
  const MemoryFile out("output");
  const MemoryFile errors("errors");
  in.Write(input);

  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in.descriptor(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out.descriptor(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, errors.descriptor(), STDERR_FILENO);
  pid_t pid = -1;
  const int error =
      ::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  Require(error == 0, "cannot run '{}': {}", words[0], SystemReason(error));

  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    Require(errno == EINTR, "cannot wait for '{}': {}", words[0], SystemReason(errno));
  }
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .output = out.Read(),
          .errors = errors.Read()};
}

}  // namespace lopt

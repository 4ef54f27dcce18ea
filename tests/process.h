#pragma once

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace lopt {

struct FinishedProcess {
  int exit_code = 0;   // 128 + the signal that ended it, if one did
  std::string output;  // standard output
  std::string errors;  // standard error
};

// The words, the first of them a program's path, as Execute() takes them; for as long as they live.
inline std::vector<char*> Arguments(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  return arguments;
}

// Runs the program in place of this process, a forked one. Where it cannot be run, standard error
// says so and the exit code is 127.
[[noreturn]] inline void Execute(const std::vector<char*>& arguments) {
  execv(arguments[0], arguments.data());
  dprintf(STDERR_FILENO, "cannot run %s: %s\n", arguments[0], strerror(errno));
  _exit(127);
}

// Runs a program with these words (the first is its path) and waits for it. `on_output`, where
// given, is called whenever the program has written to standard output, with all that it has
// written so far.
inline FinishedProcess RunProcess(
    const std::vector<std::string>& words,
    const std::function<void(pid_t, const std::string&)>& on_output = {}) {
  int pipe_ends[2];
  std::FILE* errors = std::tmpfile();
  if (errors == nullptr || pipe(pipe_ends) != 0) throw std::runtime_error("no pipe or file");
  const std::vector<char*> arguments = Arguments(words);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    dup2(pipe_ends[1], STDOUT_FILENO);
    dup2(fileno(errors), STDERR_FILENO);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    Execute(arguments);
  }
  close(pipe_ends[1]);

  FinishedProcess finished;
  char buffer[4096];
  for (ssize_t count; (count = read(pipe_ends[0], buffer, sizeof buffer)) > 0;) {
    finished.output.append(buffer, static_cast<size_t>(count));
    if (on_output) on_output(child, finished.output);
  }
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  finished.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  std::rewind(errors);
  for (size_t count; (count = std::fread(buffer, 1, sizeof buffer, errors)) > 0;) {
    finished.errors.append(buffer, count);
  }
  std::fclose(errors);
  return finished;
}

}  // namespace lopt

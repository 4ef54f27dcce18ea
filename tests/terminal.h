#pragma once

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "tests/process.h"

namespace lopt {

// Runs a program with these words (the first is its path) on a terminal of so many columns, where
// standard output and standard error are one. `output` has what the terminal was sent; its lines
// end with "\r\n".
inline FinishedProcess RunOnTerminal(const std::vector<std::string>& words, int columns) {
  winsize size = {};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  const std::vector<char*> arguments = Arguments(words);
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  Require(child >= 0, "no terminal");
  if (child == 0) Execute(arguments);
  FinishedProcess finished;
  char buffer[4096];
  for (ssize_t count; (count = read(terminal, buffer, sizeof buffer)) > 0;) {
    finished.output.append(buffer, static_cast<size_t>(count));
  }
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  finished.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return finished;
}

}  // namespace lopt

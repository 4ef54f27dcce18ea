#pragma once

#include <cstdint>
#include <string>

namespace lopt {

struct TaskRequest {
  std::string task;  // a task's config, a file with one, or a type, with its defaults
  std::string data_dir;
  std::string preview;  // the PNG file to draw; empty: none
  int64_t steps = 1;    // of Adam, before it is drawn; at least 1
  double learning_rate = 0.01;
  int64_t seed = 0;  // of the task, its start and its batches
};

// Prints what one task is made of: its config, tensors, data, FLOP, first and last loss. Draws a
// contact sheet of what it shows (TaskFamily::Show) where that is asked for. Throws Error where the
// task cannot be made, the file cannot be written, or there is nothing to draw.
void DescribeTask(const TaskRequest& request);

}  // namespace lopt

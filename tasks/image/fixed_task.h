#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lopt/base/fields.h"
#include "lopt/tasks/task_family.h"
#include "lopt/tasks/task_resources.h"

namespace lopt {

// A task of google/learned_optimization's tasks/fixed that a family here computes: an index into
// the table of fixed_task.cc.
enum class FixedTask : int64_t {};

// Names one of them. Its data, MNIST, FashionMNIST, CIFAR-10 or CIFAR-100, are those of the data
// directory.
struct FixedTaskOptions {
  FixedTask name = FixedTask(0);
  void Visit(FieldVisitor& v);
};

// The config that one of type "FixedTask" stands for ("ImageMLP" with all that differs from its
// defaults); of any other type, the config itself. Throws Error as ReadOptions does.
Config StandsFor(const Config& task);

// What metrics and messages call a task: a FixedTask by its name, any other by its type. Throws
// likewise.
std::string TaskLabel(const Config& task);

// The family of StandsFor. Throws Error that names the data set if there is no data directory or it
// holds MNIST in place of FashionMNIST or the reverse, and what the family's maker throws.
std::shared_ptr<const TaskFamily> MakeFixedTask(const FixedTaskOptions& options,
                                                const TaskResources& resources);

}  // namespace lopt

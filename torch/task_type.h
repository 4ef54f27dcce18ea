#pragma once

#include "lopt/base/fields.h"
#include "lopt/tasks/image/image_task.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/torch/torch_module.h"
#ifdef LOPT_LIBTORCH
#include "lopt/torch/image_tensors.h"
#include "lopt/torch/torch_task.h"
#endif

// A torch task is one file, torch/tasks/NAME.cc: its options, what makes it, and at the end
//   LOPT_TORCH_TASK(NAME, Options, "TorchName", "What it is; needs the torch module.", Make)
// outside of any namespace, `Options` and `Make` being names of namespace lopt and Make(const
// Options&, const TaskResources&) returning a pointer to a TaskFamily.
//
// The file is compiled twice. LOPT_LIBTORCH is defined where it goes into the torch module. Without
// it the file goes into the core, which knows the task's name and options but has no LibTorch: what
// needs LibTorch stands between `#ifdef LOPT_LIBTORCH` and `#endif`.
#ifdef LOPT_LIBTORCH
#define LOPT_TORCH_TASK(name, Options, type, summary, Make)                       \
  namespace lopt::torch_tasks {                                                   \
  void Add_##name(TaskTypes* types) { types->Add<Options>(type, summary, Make); } \
  }
#else
#define LOPT_TORCH_TASK(name, Options, type, summary, Make)                          \
  namespace lopt::torch_types {                                                      \
  void Add_##name(TaskTypes* types) { AddTorchType<Options>(types, type, summary); } \
  }
#endif

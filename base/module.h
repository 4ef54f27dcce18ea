#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lopt {

// What needs a large library of others lies in a shared library of its own, a module, which a
// program opens when it needs it and never closes: a program that needs none starts sooner. A
// module shares no state of the process with the program and exports one function,
// `extern "C" const void* lopt_KEY_module()`. It returns a table, whose first member is the text
// LOPT_ABI (base/abi.h) of the module as a const char*.
struct ModuleKind {
  std::string_view key;       // "torch": the file is liblopt_torch_module.so
  std::string_view library;   // of others, for people: "LibTorch"
  std::string_view packages;  // Debian's, with which it is built: "libtorch-dev"
};

// "liblopt_torch_module.so".
std::string ModuleFileName(const ModuleKind& module);

// Where modules are looked for, in order: the directory that the environment variable
// LOPT_MODULE_DIR names, if it is set, and nowhere else; otherwise the directory of the shared
// library or extension which holds this code and lopt/ in it, that of the running program and
// ../lib/lopt beside it, and the lib/lopt that lopt was installed to, for programs of others.
std::vector<std::string> ModuleDirectories();

// The path of the module's file; nothing if it is not installed. Loads nothing. Unless
// LOPT_MODULE_DIR names the directory, a file to which WhoElseMayChange (base/program_files.h)
// objects is taken for none.
std::optional<std::string> FindModule(const ModuleKind& module);

// Why there is none, as the end of a sentence ("not installed ..." or "not opened, since ..."),
// with the files that were refused; empty where there is one. The short text leaves out where it
// was looked for.
std::string WhyNoModule(const ModuleKind& module);
std::string ShortWhyNoModule(const ModuleKind& module);

// The module's table. `who` needs it, for messages ("task 'TorchImageMLP'"). Throws Error if the
// module is not installed (lists where it was looked for), cannot be loaded, or was built for
// another program. Thread-safe.
const void* OpenModule(const ModuleKind& module, std::string_view who);

}  // namespace lopt

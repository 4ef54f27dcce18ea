// A plug-in of another version of lopt, whose types would end the program.
#include <cstdlib>

struct Plugin {
  const char* abi;
  void (*add)(void*);
};

extern "C" const Plugin* lopt_plugin() {
  static const Plugin plugin = {"lopt 0.0.1", [](void*) { std::abort(); }};
  return &plugin;
}

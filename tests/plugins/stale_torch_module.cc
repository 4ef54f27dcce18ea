// A torch module that was compiled with other headers, and has nothing but the first member of
// today's.
extern "C" const void* lopt_torch_module() {
  static const char* const build = "lopt 0.1.0 (headers 00000000)";
  return &build;
}

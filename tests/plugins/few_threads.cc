// Preloaded into the program: only the first LOPT_TEST_THREADS threads can be started.

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace {

std::atomic<int> started = 0;

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) {
  static const auto create =
      reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  const char* most = std::getenv("LOPT_TEST_THREADS");
  if (most != nullptr && ++started > std::atoi(most)) return EAGAIN;
  return create(thread, attributes, start, argument);
}

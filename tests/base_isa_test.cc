#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/base/key.h"
#include "tests/farthest.h"
#include "tests/skip.h"

namespace lopt {
namespace {

// Pins what was in use before when it ends.
class KeepIsa {
 public:
  KeepIsa() : isa_(CurrentIsa()) {}
  ~KeepIsa() { PinIsa(isa_); }

 private:
  std::string isa_;
};

#if defined(__x86_64__)
TEST_CASE("x86-64 has the same instruction sets whatever Highway it is built with") {
  const std::vector<std::string> known = {"avx3", "avx2", "sse4", "scalar"};
  const std::vector<std::string> isas = SupportedIsas();
  CHECK(isas.back() == "scalar");
  for (const std::string& isa : isas) {
    CHECK_MESSAGE(std::ranges::find(known, isa) != known.end(), isa);
  }
}
#endif

TEST_CASE("The best supported instruction set is in use unless another is pinned") {
  const KeepIsa keep;
  const std::vector<std::string> isas = SupportedIsas();
  REQUIRE(!isas.empty());
  const char* const pinned = std::getenv("LOPT_TEST_ISA");  // tests/main.cc
  CHECK(CurrentIsa() == (pinned != nullptr ? pinned : isas.front()));
  for (const std::string& isa : isas) {
    PinIsa(isa);
    CHECK(CurrentIsa() == isa);
    CHECK(SupportedIsas() == isas);
  }
}

TEST_CASE("A scope changes the instruction set of its thread alone, until it ends") {
  const std::vector<std::string> isas = SupportedIsas();
  const std::string before = CurrentIsa();
  std::vector<float> normals(1 << 16);
  std::vector<float> elsewhere(1 << 16);
  std::vector<std::vector<float>> pinned;
  {
    const KeepIsa keep;
    for (const std::string& isa : isas) {
      PinIsa(isa);
      Normal({1, 2}, normals);
      pinned.push_back(normals);
    }
  }
  const size_t own = std::ranges::find(isas, before) - isas.begin();
  for (size_t i = 0; i < isas.size(); ++i) {
    const IsaScope outer(isas.back());
    {
      const IsaScope scope(isas[i]);
      CHECK(CurrentIsa() == isas[i]);
      Normal({1, 2}, normals);
      CHECK(normals == pinned[i]);
      std::thread([&] {
        CHECK(CurrentIsa() == before);
        Normal({1, 2}, elsewhere);
      }).join();
      CHECK(elsewhere == pinned[own]);
    }
    CHECK(CurrentIsa() == isas.back());
  }
  CHECK(CurrentIsa() == before);
  CHECK_THROWS_AS(IsaScope("avx9"), Error);
  CHECK(CurrentIsa() == before);
}

TEST_CASE("Names are lower-case and none appears twice") {
  std::vector<std::string> isas = SupportedIsas();
  for (const std::string& isa : isas) {
    CHECK(std::ranges::all_of(
        isa, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }));
  }
  std::ranges::sort(isas);
  CHECK(std::ranges::adjacent_find(isas) == isas.end());
}

#if defined(__x86_64__)
TEST_CASE("The build has all kernels for this machine, or the best and the simplest") {
  std::vector<std::string> wanted;
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    wanted.emplace_back("avx3");
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) wanted.emplace_back("avx2");
  if (__builtin_cpu_supports("sse4.2")) wanted.emplace_back("sse4");
  if (KernelsAreNative() && !wanted.empty()) wanted.resize(1);
  wanted.emplace_back("scalar");
  CHECK(SupportedIsas() == wanted);
}
#endif

TEST_CASE("An unknown instruction set is an error that lists the supported ones") {
  std::string names;
  for (const std::string& isa : SupportedIsas()) {
    names += (names.empty() ? "" : ", ") + isa;
  }
  const std::string message =
      "this machine has no instruction set 'avx9' that the program was built for; there are: " +
      names +
      (KernelsAreNative() ? " (`cmake --preset release && cmake --build build` builds all kernels)"
                          : "");
  CHECK_THROWS_WITH_AS(PinIsa("avx9"), message.c_str(), Error);
}

TEST_CASE("Bits, uniforms and integers are the same on every instruction set, normals to 1e-6") {
  const KeepIsa keep;
  constexpr size_t kSize = 100003;
  const Key key = KeyFromSeed(3);
  std::vector<uint32_t> bits(kSize), first_bits;
  std::vector<float> uniforms(kSize), first_uniforms;
  std::vector<int32_t> integers(kSize), first_integers;
  std::vector<float> normals(kSize), first_normals;
  std::vector<float> truncated(kSize), first_truncated;
  for (const std::string& isa : SupportedIsas()) {
    CAPTURE(isa);
    PinIsa(isa);
    Bits(key, bits);
    Uniform(key, uniforms);
    Randint(key, 0, 8000, integers);
    Normal(key, normals);
    TruncatedNormal(key, -2, 2, truncated);
    if (first_bits.empty()) {
      first_bits = bits;
      first_uniforms = uniforms;
      first_integers = integers;
      first_normals = normals;
      first_truncated = truncated;
    }
    CHECK(bits == first_bits);
    CHECK(uniforms == first_uniforms);
    CHECK(integers == first_integers);
    CHECK(Farthest(normals, first_normals) <= 1e-6);
    CHECK(Farthest(truncated, first_truncated) <= 1e-6);
  }
}

TEST_CASE("Pinning changes which kernel runs") {
  // Instruction sets without fused multiply-add round some normals differently from those with it.
  const KeepIsa keep;
  const std::vector<std::string> isas = SupportedIsas();
  if (isas.size() < 3 || std::ranges::find(isas, std::string("avx2")) == isas.end()) {
    SkipTest("this processor, or the build, has no AVX2 and SSE4");
    return;
  }
  std::vector<float> fused(1 << 16);
  std::vector<float> rounded(1 << 16);
  PinIsa("avx2");
  Normal({1, 2}, fused);
  PinIsa("sse4");
  Normal({1, 2}, rounded);
  CHECK(fused != rounded);
}

}  // namespace
}  // namespace lopt

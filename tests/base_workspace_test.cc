#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "count_allocations.h"
#include "lopt/base/eigen.h"
#include "lopt/base/workspace.h"
#include "tests/skip.h"

namespace lopt {
namespace {

bool Aligned(const void* memory) { return reinterpret_cast<uintptr_t>(memory) % 64 == 0; }

TEST_CASE("Every array is 64-byte aligned and has the asked size") {
  Workspace workspace;
  const Workspace::Frame frame(workspace);
  for (const int64_t n : {1, 3, 16, 17, 100000, 1}) {
    const auto floats = workspace.Take<float>(n);
    CHECK(Aligned(floats.data()));
    CHECK(floats.size() == static_cast<size_t>(n));
    const auto bytes = workspace.Take<uint8_t>(n);
    CHECK(Aligned(bytes.data()));
    CHECK(bytes.size() == static_cast<size_t>(n));
  }
  CHECK(workspace.Take<double>(0).empty());
}

TEST_CASE("Arrays of one frame do not overlap") {
  Workspace workspace;
  const Workspace::Frame frame(workspace);
  std::vector<std::span<int32_t>> arrays;
  for (int i = 0; i < 200; ++i) {
    arrays.push_back(workspace.Take<int32_t>(1 + 37 * i));
    std::ranges::fill(arrays.back(), i);
  }
  for (int i = 0; i < 200; ++i) {
    CHECK(std::ranges::all_of(arrays[static_cast<size_t>(i)], [&](int32_t x) { return x == i; }));
  }
}

TEST_CASE("A frame gives its memory back when it ends, and only its own") {
  Workspace workspace;
  const auto kept = workspace.Take<float>(10);
  kept[0] = 1;
  float* inner = nullptr;
  {
    const Workspace::Frame frame(workspace);
    inner = workspace.Take<float>(10).data();
    {
      const Workspace::Frame nested(workspace);
      CHECK(workspace.Take<float>(10).data() != inner);
    }
  }
  const Workspace::Frame frame(workspace);
  const auto again = workspace.Take<float>(10);
  CHECK(again.data() == inner);
  again[0] = 2;
  CHECK(kept[0] == 1);
}

TEST_CASE("A second use of the same size allocates nothing") {
  Workspace workspace;
  const auto use = [&] {
    const Workspace::Frame frame(workspace);
    for (int i = 0; i < 20; ++i) {
      const Workspace::Frame nested(workspace);
      workspace.Take<float>(1000 * (i + 1));
      workspace.Take<double>(100000);
    }
    workspace.Take<float>(300000);
  };
  const int64_t before = allocations;
  use();
  const int64_t after_first = allocations;
  CHECK(after_first > before);
  use();
  use();
  CHECK(allocations == after_first);
}

TEST_CASE("A temporary of Eigen's is an allocation that is counted") {
  if (!kCountsMalloc) {
    SkipTest("a sanitizer, or another C library than glibc, has malloc");
    return;
  }
  const Eigen::MatrixXf a = Eigen::MatrixXf::Ones(3, 3);
  Eigen::MatrixXf product(3, 3);
  int64_t before = allocations;
  product.noalias() = a.lazyProduct(a);
  CHECK(allocations == before);
  before = allocations;
  product = (a + a).eval();
  CHECK(allocations == before + 1);
  CHECK(product(2, 2) == 2);
}

TEST_CASE("A pool gives a returned workspace out again") {
  WorkspacePool pool;
  const Workspace* first = nullptr;
  {
    WorkspacePool::Lease lease(pool);
    first = &*lease;
    WorkspacePool::Lease other(pool);
    CHECK(&*other != first);
    (*lease).Take<float>(100000);
  }
  const int64_t before = allocations;
  {
    WorkspacePool::Lease one(pool);
    WorkspacePool::Lease two(pool);
    CHECK((&*one == first || &*two == first));
    CHECK(&*one != &*two);
  }
  CHECK(allocations == before);
}

TEST_CASE("Leases of one pool in many threads never share a workspace") {
  WorkspacePool pool;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        WorkspacePool::Lease lease(pool);
        const Workspace::Frame frame(*lease);
        const auto numbers = (*lease).Take<int>(64);
        std::ranges::fill(numbers, t);
        std::this_thread::yield();
        wrong += !std::ranges::all_of(numbers, [&](int x) { return x == t; });
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace lopt

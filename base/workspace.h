#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <vector>

namespace lopt {

// Scratch memory for one running computation: a stack of 64-byte aligned, uninitialised arrays. It
// grows to what its use needs once and then never allocates again. Not thread-safe: one Workspace
// per replica that runs.
class Workspace {
 public:
  // `n` elements, valid until the Frame they were taken in ends.
  template <class T>
  std::span<T> Take(int64_t n) {
    static_assert(std::is_trivially_copyable_v<T>);
    return {static_cast<T*>(TakeBytes(static_cast<size_t>(n) * sizeof(T))), static_cast<size_t>(n)};
  }

  // Gives back, when it ends, all that was taken since it began.
  class Frame {
   public:
    // Begins here. The workspace must outlive the frame; frames end in the reverse order.
    explicit Frame(Workspace& workspace)
        : workspace_(workspace), block_(workspace.block_), used_(workspace.used_) {}
    ~Frame() {
      workspace_.block_ = block_;
      workspace_.used_ = used_;
    }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Workspace& workspace_;
    size_t block_;
    size_t used_;
  };

 private:
  struct FreeAligned {
    void operator()(std::byte* bytes) const;
  };
  struct Block {
    std::unique_ptr<std::byte, FreeAligned> bytes;
    size_t size;
  };
  void* TakeBytes(size_t bytes);

  std::vector<Block> blocks_;
  size_t block_ = 0;  // the block in use
  size_t used_ = 0;   // bytes of it in use
};

// Workspaces kept between uses. Thread-safe.
class WorkspacePool {
 public:
  // A Workspace that goes back to the pool when the lease ends.
  class Lease {
   public:
    // Takes a free workspace of the pool or makes one. The pool must outlive the lease.
    explicit Lease(WorkspacePool& pool);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    // The workspace, valid until the lease ends.
    Workspace& operator*() { return taken_.front(); }

   private:
    WorkspacePool& pool_;
    std::list<Workspace> taken_;  // one; its place in the pool is kept with it
  };

 private:
  std::mutex mutex_;
  std::list<Workspace> free_;
};

}  // namespace lopt

#include "lopt/base/workspace.h"

#include <algorithm>
#include <iterator>
#include <new>

namespace lopt {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kFirstBlock = 1 << 16;

}  // namespace

void Workspace::FreeAligned::operator()(std::byte* bytes) const {
  ::operator delete (bytes, std::align_val_t{kAlignment});
}

void* Workspace::TakeBytes(size_t bytes) {
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  while (block_ < blocks_.size() && used_ + bytes > blocks_[block_].size) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) {
    const size_t size = std::max(bytes, blocks_.empty() ? kFirstBlock : 2 * blocks_.back().size);
    auto* memory = static_cast<std::byte*>(::operator new (size, std::align_val_t{kAlignment}));
    blocks_.push_back({std::unique_ptr<std::byte, FreeAligned>(memory), size});
  }
  std::byte* taken = blocks_[block_].bytes.get() + used_;
  used_ += bytes;
  return taken;
}

WorkspacePool::Lease::Lease(WorkspacePool& pool) : pool_(pool) {
  const std::lock_guard lock(pool_.mutex_);
  if (pool_.free_.empty()) {
    taken_.emplace_back();
  } else {
    taken_.splice(taken_.end(), pool_.free_, std::prev(pool_.free_.end()));
  }
}

WorkspacePool::Lease::~Lease() {
  const std::lock_guard lock(pool_.mutex_);
  pool_.free_.splice(pool_.free_.end(), taken_);
}

}  // namespace lopt

#include "lopt/tools/simulate/disk.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace lopt {
namespace {

// What a write leaves that was cut off by the power: a page of zeros instead of bytes.
constexpr int64_t kSector = 512;

}  // namespace

Disk::NodePtr Disk::NewNode(bool directory) const {
  return std::make_shared<Node>(Node{.directory = directory, .changed = now_()});
}

Disk::NodePtr Disk::Find(std::string_view path) const {
  NodePtr node = root_;
  while (node) {
    while (path.starts_with('/')) path.remove_prefix(1);
    if (path.empty()) break;
    const std::string_view name = path.substr(0, path.find('/'));
    const auto entry = node->names.find(name);
    node = entry == node->names.end() ? nullptr : entry->second;
    path.remove_prefix(name.size());
  }
  return node;
}

std::optional<Disk::Place> Disk::FindPlace(const std::string& path) const {
  const size_t slash = path.rfind('/');
  const NodePtr directory = Find(std::string_view(path).substr(0, slash));
  if (!directory || !directory->directory) return std::nullopt;
  Place place{.directory = directory, .name = path.substr(slash + 1)};
  if (const auto entry = directory->names.find(place.name); entry != directory->names.end()) {
    place.node = entry->second;
  }
  return place;
}

void Disk::Apply(const NodePtr& directory, Change change) {
  for (const auto& [name, node] : change) {
    if (node) {
      directory->names[name] = node;
    } else {
      directory->names.erase(name);
    }
  }
  directory->changes.push_back(std::move(change));
}

Disk::Opened* Disk::Find(int descriptor) {
  const auto opened = opened_.find(descriptor);
  return opened == opened_.end() ? nullptr : &opened->second;
}

int Disk::Open(const std::string& path, OpenFor what) {
  std::optional<Place> place = FindPlace(path);
  if (path == "/") place = {.directory = root_, .node = root_};
  if (!place) return -ENOENT;
  NodePtr node = place->node;
  if (node && MakesNew(what)) return -EEXIST;
  const bool writes = Writes(what);
  if (!node) {
    if (!writes) return -ENOENT;
    node = NewNode(false);
    Apply(place->directory, {{place->name, node}});
  }
  if (node->directory && writes) return -EISDIR;
  if (!node->directory && what == OpenFor::kDirectory) return -ENOTDIR;
  if (what == OpenFor::kReplace && !node->bytes.empty()) {
    node->bytes.clear();
    node->unwritten = {0, 0};
    node->dirty = true;
  }
  opened_[next_descriptor_] = {.node = node};
  return next_descriptor_++;
}

int Disk::Close(int descriptor) {
  Opened* const opened = Find(descriptor);
  if (opened == nullptr) return -EBADF;
  if (opened->locks) opened->node->locked = false;
  opened_.erase(descriptor);
  return 0;
}

int64_t Disk::Read(int descriptor, std::span<std::byte> bytes, int64_t offset) {
  const Opened* const opened = Find(descriptor);
  if (opened == nullptr) return -EBADF;
  const std::vector<std::byte>& from = opened->node->bytes;
  if (offset >= std::ssize(from)) return 0;
  const auto count = std::min(std::ssize(bytes), std::ssize(from) - offset);
  std::copy_n(from.begin() + offset, count, bytes.begin());
  return count;
}

int64_t Disk::Write(int descriptor, std::span<const std::byte> bytes) {
  const Opened* const opened = Find(descriptor);
  if (opened == nullptr) return -EBADF;
  int64_t count = std::ssize(bytes);
  if (room_) {
    count = std::min(count, *room_);
    if (count == 0 && !bytes.empty()) return -ENOSPC;
    *room_ -= count;
  }
  Node& node = *opened->node;
  node.bytes.insert(node.bytes.end(), bytes.begin(), bytes.begin() + count);
  node.dirty = true;
  node.changed = now_();
  return count;
}

int Disk::Flush(int descriptor) {
  const Opened* const opened = Find(descriptor);
  if (opened == nullptr) return -EBADF;
  Node& node = *opened->node;
  if (node.directory) {
    if (!node.changes.empty()) node.flushed_names = node.names;
    node.changes.clear();
  } else if (node.dirty) {
    node.flushed = node.bytes;
    const auto [first, end] = node.unwritten;
    std::fill_n(node.flushed.begin() + first, end - first, std::byte{0});
    node.dirty = false;
  }
  return 0;
}

void Disk::FailFlush(int descriptor) {
  const Opened* const opened = Find(descriptor);
  if (opened == nullptr || opened->node->directory || !opened->node->dirty) return;
  Node& node = *opened->node;
  const auto flushed = std::min(std::ssize(node.flushed), std::ssize(node.bytes));
  const auto [first, end] = node.unwritten;
  node.unwritten = {first < end ? std::min(first, flushed) : flushed, std::ssize(node.bytes)};
}

int Disk::Cut(const std::string& path, int64_t bytes) {
  const NodePtr node = Find(path);
  if (!node) return -ENOENT;
  if (node->directory) return -EISDIR;
  if (std::ssize(node->bytes) != bytes) {
    node->bytes.resize(static_cast<size_t>(bytes));
    node->unwritten.first = std::min(node->unwritten.first, bytes);
    node->unwritten.second = std::min(node->unwritten.second, bytes);
    node->dirty = true;
    node->changed = now_();
  }
  return 0;
}

int Disk::Look(const std::string& path, FileStatus* status) {
  const NodePtr node = Find(path);
  if (!node) return -ENOENT;
  *status = {.kind = node->directory ? FileKind::kDirectory : FileKind::kFile,
             .bytes = std::ssize(node->bytes),
             .links = node->links,
             .changed = node->changed};
  return 0;
}

int Disk::MayWrite(const std::string& directory) { return Find(directory) ? 0 : -ENOENT; }

int Disk::MakeDirectory(const std::string& path) {
  if (Find(path)) return -EEXIST;
  const std::optional<Place> place = FindPlace(path);
  if (!place) return -ENOENT;
  Apply(place->directory, {{place->name, NewNode(true)}});
  return 0;
}

int Disk::List(const std::string& directory, std::vector<std::string>* names) {
  const NodePtr node = Find(directory);
  if (!node) return -ENOENT;
  if (!node->directory) return -ENOTDIR;
  for (const auto& [name, entry] : node->names) names->push_back(name);
  return 0;
}

int Disk::Rename(const std::string& from, const std::string& to) {
  const std::optional<Place> old = FindPlace(from);
  const std::optional<Place> place = FindPlace(to);
  if (!old || !old->node || !place) return -ENOENT;
  if (old->directory != place->directory) return -EXDEV;
  if (place->node) {
    if (place->node->directory && !place->node->names.empty()) return -ENOTEMPTY;
    --place->node->links;
  }
  Apply(place->directory, {{old->name, nullptr}, {place->name, old->node}});
  return 0;
}

int Disk::Link(const std::string& from, const std::string& to) {
  const NodePtr node = Find(from);
  const std::optional<Place> place = FindPlace(to);
  if (!node || !place) return -ENOENT;
  if (place->node) return -EEXIST;
  ++node->links;
  Apply(place->directory, {{place->name, node}});
  return 0;
}

int Disk::Remove(const std::string& path) {
  const std::optional<Place> place = FindPlace(path);
  if (!place || !place->node) return -ENOENT;
  if (place->node->directory && !place->node->names.empty()) return -ENOTEMPTY;
  --place->node->links;
  Apply(place->directory, {{place->name, nullptr}});
  return 0;
}

int Disk::Touch(const std::string& path) {
  const NodePtr node = Find(path);
  if (!node) return -ENOENT;
  node->changed = now_();
  return 0;
}

int Disk::Lock(int descriptor) {
  Opened* const opened = Find(descriptor);
  if (opened == nullptr) return -EBADF;
  if (opened->node->locked) return -EWOULDBLOCK;
  opened->locks = opened->node->locked = true;
  return 0;
}

void Disk::LosePower(Random* random) {
  opened_.clear();
  LosePower(root_, random);
}

void Disk::LosePower(const NodePtr& node, Random* random) {
  node->locked = false;
  if (node->directory) {
    const int64_t kept = random->Between(0, std::ssize(node->changes));
    node->names = node->flushed_names;
    const std::vector<Change> changes = std::exchange(node->changes, {});
    for (int64_t i = 0; i < kept; ++i) Apply(node, changes[static_cast<size_t>(i)]);
    node->changes.clear();
    node->flushed_names = node->names;
    for (const auto& [name, entry] : node->names) LosePower(entry, random);
    return;
  }
  node->links = 1;
  const auto [first, end] = std::exchange(node->unwritten, {0, 0});
  std::fill_n(node->bytes.begin() + first, end - first, std::byte{0});
  if (!std::exchange(node->dirty, false)) return;
  switch (random->Between(0, 3)) {
    case 0:
      node->bytes = node->flushed;
      break;
    case 1:
      break;
    default: {
      // Some of the bytes, and of those after what was flushed a part may be zeros.
      const auto common = std::min(std::ssize(node->flushed), std::ssize(node->bytes));
      const int64_t size = random->Between(common, std::ssize(node->bytes));
      node->bytes.resize(static_cast<size_t>(size));
      for (int64_t at = common; at < size; at += kSector) {
        if (random->Chance(0.3)) {
          std::fill_n(node->bytes.begin() + at, std::min(kSector, size - at), std::byte{0});
        }
      }
    }
  }
  node->flushed = node->bytes;
}

}  // namespace lopt

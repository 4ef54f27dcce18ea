#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lopt/base/file_system.h"
#include "lopt/tools/simulate/random.h"

namespace lopt {

// Files in memory that know what of them is on the disk: the bytes of a file as they were when it
// was last flushed, and the names in a directory as they were when that was. What came after may be
// lost when the power goes.
class Disk final : public FileSystem {
 public:
  // `now`: seconds since 1970.
  explicit Disk(std::function<double()> now) : now_(std::move(now)) {}

  // Its clock: seconds since 1970.
  double Now() const { return now_(); }
  // No more bytes than these fit; none: any number.
  void SetRoom(std::optional<int64_t> bytes) { room_ = bytes; }
  // What is not on the disk is there or not, file by file and directory by directory: of the names
  // that changed in a directory the first so many changes, of a file the bytes that were flushed,
  // those that there were, or some of the latter, torn at any byte. All descriptors are closed.
  void LosePower(Random* random);

  int Open(const std::string& path, OpenFor what) override;
  int Close(int descriptor) override;
  int64_t Read(int descriptor, std::span<std::byte> bytes, int64_t offset) override;
  int64_t Write(int descriptor, std::span<const std::byte> bytes) override;
  int Flush(int descriptor) override;
  // A flush that fails. As on Linux, no later one writes what there was of a file's bytes: the
  // power leaves zeros there.
  void FailFlush(int descriptor);
  int FlushData(int descriptor) override { return Flush(descriptor); }
  int Cut(const std::string& path, int64_t bytes) override;
  int Look(const std::string& path, FileStatus* status) override;
  int MayWrite(const std::string& directory) override;
  int MakeDirectory(const std::string& path) override;
  int List(const std::string& directory, std::vector<std::string>* names) override;
  int Rename(const std::string& from, const std::string& to) override;
  int Link(const std::string& from, const std::string& to) override;
  int Remove(const std::string& path) override;
  int Touch(const std::string& path) override;
  // Does not wait: -EWOULDBLOCK where another descriptor has the lock.
  int Lock(int descriptor) override;

 private:
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  using Names = std::map<std::string, NodePtr, std::less<>>;
  // Names that change at once, and what they become; null: they go.
  using Change = std::vector<std::pair<std::string, NodePtr>>;
  struct Node {
    bool directory = false;
    int64_t links = 1;
    double changed = 0;
    bool locked = false;
    // Of a file.
    std::vector<std::byte> bytes = {};
    std::vector<std::byte> flushed = {};
    bool dirty = false;
    std::pair<int64_t, int64_t> unwritten = {0, 0};  // first and last + 1 byte
    // Of a directory.
    Names names = {};
    Names flushed_names = {};
    std::vector<Change> changes = {};  // since it was flushed
  };
  struct Opened {
    NodePtr node = {};
    bool locks = false;
  };
  // A name in a directory.
  struct Place {
    NodePtr directory = {};
    std::string name = {};
    NodePtr node = {};  // null: nothing there
  };

  NodePtr Find(std::string_view path) const;
  // None if there is no directory that could hold it.
  std::optional<Place> FindPlace(const std::string& path) const;
  NodePtr NewNode(bool directory) const;
  void Apply(const NodePtr& directory, Change change);
  Opened* Find(int descriptor);
  void LosePower(const NodePtr& node, Random* random);

  std::function<double()> now_;
  std::optional<int64_t> room_;
  NodePtr root_ = std::make_shared<Node>(Node{.directory = true});
  std::map<int, Opened> opened_;
  int next_descriptor_ = 3;
};

}  // namespace lopt

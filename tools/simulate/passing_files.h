#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/file_system.h"

namespace lopt {

// Calls that are passed on: what stands between a process and its files changes some of them.
class PassingFiles : public FileSystem {
 public:
  explicit PassingFiles(FileSystem* files) : files_(files) {}

  int Open(const std::string& path, OpenFor what) override { return files_->Open(path, what); }
  int Close(int descriptor) override { return files_->Close(descriptor); }
  int64_t Read(int descriptor, std::span<std::byte> bytes, int64_t offset) override {
    return files_->Read(descriptor, bytes, offset);
  }
  int64_t Write(int descriptor, std::span<const std::byte> bytes) override {
    return files_->Write(descriptor, bytes);
  }
  int Flush(int descriptor) override { return files_->Flush(descriptor); }
  int FlushData(int descriptor) override { return files_->FlushData(descriptor); }
  int Cut(const std::string& path, int64_t bytes) override { return files_->Cut(path, bytes); }
  int Look(const std::string& path, FileStatus* status) override {
    return files_->Look(path, status);
  }
  int Follow(const std::string& path, std::string* place) override {
    return files_->Follow(path, place);
  }
  int MayWrite(const std::string& directory) override { return files_->MayWrite(directory); }
  int MakeDirectory(const std::string& path) override { return files_->MakeDirectory(path); }
  int List(const std::string& directory, std::vector<std::string>* names) override {
    return files_->List(directory, names);
  }
  int Rename(const std::string& from, const std::string& to) override {
    return files_->Rename(from, to);
  }
  int Link(const std::string& from, const std::string& to) override {
    return files_->Link(from, to);
  }
  int Remove(const std::string& path) override { return files_->Remove(path); }
  int Touch(const std::string& path) override { return files_->Touch(path); }
  int Lock(int descriptor) override { return files_->Lock(descriptor); }

 private:
  FileSystem* files_;
};

}  // namespace lopt

#include "tools/simulate/process_files.h"

#include <cerrno>

namespace lopt {
namespace {

// How often a call lets others go on, and for how long it takes then: below 2^bits microseconds.
constexpr double kOthers = 0.05;
constexpr int kFileBits = 10;

}  // namespace

template <class Call>
auto ProcessFiles::Do(bool writes, std::string_view what, std::string_view path, const Call& call)
    -> decltype(call()) {
  World& world = process_->world();
  if (!process_->dead() && world.random().Chance(kOthers)) {
    process_->Wait(process_->ShortTime(kFileBits));
  }
  if (!writes ? process_->dead() : !process_->Point()) return -EIO;
  int error = writes ? fails_() : 0;
  const auto result = error != 0 ? -error : call();
  if (writes) {
    world.Trace("{}: {} {}{}", process_->name(), what, path,
                result < 0 ? fmt::format(": error {}", -result) : "");
  }
  return result;
}

int ProcessFiles::Open(const std::string& path, OpenFor what) {
  const bool writes = what == OpenFor::kReplace || what == OpenFor::kAppend;
  const int descriptor = Do(writes, "opens", path, [&] { return files_->Open(path, what); });
  return descriptor;
}

int ProcessFiles::Close(int descriptor) {
  const int error = files_->Close(descriptor);
  return process_->dead() ? -EIO : error;
}

int64_t ProcessFiles::Read(int descriptor, std::span<std::byte> bytes, int64_t offset) {
  return Do(false, "reads", "", [&] { return files_->Read(descriptor, bytes, offset); });
}

int64_t ProcessFiles::Write(int descriptor, std::span<const std::byte> bytes) {
  if (bytes.size() > 1 && !process_->dead() && process_->world().random().Chance(0.02)) {
    bytes = bytes.first(
        static_cast<size_t>(process_->world().random().Between(1, std::ssize(bytes) - 1)));
  }
  return Do(true, "writes", fmt::format("{} bytes", bytes.size()),
            [&] { return files_->Write(descriptor, bytes); });
}

int ProcessFiles::Flush(int descriptor) {
  return Do(true, "flushes", "", [&] { return files_->Flush(descriptor); });
}

int ProcessFiles::FlushData(int descriptor) {
  return Do(true, "flushes", "data", [&] { return files_->FlushData(descriptor); });
}

int ProcessFiles::Cut(const std::string& path, int64_t bytes) {
  return Do(true, "cuts", path, [&] { return files_->Cut(path, bytes); });
}

int ProcessFiles::Look(const std::string& path, FileStatus* status) {
  return Do(false, "looks at", path, [&] { return files_->Look(path, status); });
}

int ProcessFiles::MayWrite(const std::string& directory) {
  return Do(false, "looks at", directory, [&] { return files_->MayWrite(directory); });
}

int ProcessFiles::MakeDirectory(const std::string& path) {
  return Do(true, "makes the directory", path, [&] { return files_->MakeDirectory(path); });
}

int ProcessFiles::List(const std::string& directory, std::vector<std::string>* names) {
  return Do(false, "lists", directory, [&] { return files_->List(directory, names); });
}

int ProcessFiles::Rename(const std::string& from, const std::string& to) {
  return Do(true, "renames to", to, [&] { return files_->Rename(from, to); });
}

int ProcessFiles::Link(const std::string& from, const std::string& to) {
  return Do(true, "links to", to, [&] { return files_->Link(from, to); });
}

int ProcessFiles::Remove(const std::string& path) {
  return Do(true, "removes", path, [&] { return files_->Remove(path); });
}

int ProcessFiles::Touch(const std::string& path) {
  return Do(true, "touches", path, [&] { return files_->Touch(path); });
}

int ProcessFiles::Lock(int descriptor) {
  for (;;) {
    const int error = Do(false, "locks", "", [&] { return files_->Lock(descriptor); });
    if (error != -EWOULDBLOCK) return error;
    process_->Wait(SimTime(1000));
  }
}

}  // namespace lopt

#include "lopt/tools/simulate/process_files.h"

#include <cerrno>

namespace lopt {
namespace {

// How often a call lets others go on, and for how long it takes then: below 2^bits microseconds.
constexpr double kOthers = 0.05;
constexpr int kFileBits = 10;

}  // namespace

template <class Call>
auto ProcessFiles::Do(Kind kind, std::string_view what, std::string_view path, const Call& call)
    -> decltype(call()) {
  World& world = process_->world();
  const bool writes = kind != Kind::kReads;
  if (!process_->dead() && world.random().Chance(kOthers)) {
    process_->Wait(process_->ShortTime(kFileBits));
  }
  if (!writes ? process_->dead() : !process_->Point()) return -EIO;
  const int error = writes ? fails_(kind == Kind::kFlushes) : 0;
  const auto result = error != 0 ? -error : call();
  if (writes) {
    world.Trace("{}: {} {}{}", process_->name(), what, path,
                result < 0 ? fmt::format(": error {}", -result) : "");
  }
  return result;
}

int ProcessFiles::Open(const std::string& path, OpenFor what) {
  const int descriptor = Do(Writes(what) ? Kind::kWrites : Kind::kReads, "opens", path,
                            [&] { return disk_->Open(path, what); });
  return descriptor;
}

int ProcessFiles::Close(int descriptor) {
  const int error = disk_->Close(descriptor);
  return process_->dead() ? -EIO : error;
}

int64_t ProcessFiles::Read(int descriptor, std::span<std::byte> bytes, int64_t offset) {
  return Do(Kind::kReads, "reads", "", [&] { return disk_->Read(descriptor, bytes, offset); });
}

int64_t ProcessFiles::Write(int descriptor, std::span<const std::byte> bytes) {
  if (bytes.size() > 1 && !process_->dead() && process_->world().random().Chance(0.02)) {
    bytes = bytes.first(
        static_cast<size_t>(process_->world().random().Between(1, std::ssize(bytes) - 1)));
  }
  return Do(Kind::kWrites, "writes",
            process_->world().traces() ? fmt::format("{} bytes", bytes.size()) : "",
            [&] { return disk_->Write(descriptor, bytes); });
}

template <class Call>
int ProcessFiles::DoFlush(int descriptor, std::string_view what, const Call& call) {
  const int error = Do(Kind::kFlushes, "flushes", what, call);
  if (error < 0 && !process_->dead()) disk_->FailFlush(descriptor);
  return error;
}

int ProcessFiles::Flush(int descriptor) {
  return DoFlush(descriptor, "", [&] { return disk_->Flush(descriptor); });
}

int ProcessFiles::FlushData(int descriptor) {
  return DoFlush(descriptor, "data", [&] { return disk_->FlushData(descriptor); });
}

int ProcessFiles::Cut(const std::string& path, int64_t bytes) {
  return Do(Kind::kWrites, "cuts", path, [&] { return disk_->Cut(path, bytes); });
}

int ProcessFiles::Look(const std::string& path, FileStatus* status) {
  return Do(Kind::kReads, "looks at", path, [&] { return disk_->Look(path, status); });
}

int ProcessFiles::MayWrite(const std::string& directory) {
  return Do(Kind::kReads, "looks at", directory, [&] { return disk_->MayWrite(directory); });
}

int ProcessFiles::MakeDirectory(const std::string& path) {
  return Do(Kind::kWrites, "makes the directory", path, [&] { return disk_->MakeDirectory(path); });
}

int ProcessFiles::List(const std::string& directory, std::vector<std::string>* names) {
  return Do(Kind::kReads, "lists", directory, [&] { return disk_->List(directory, names); });
}

int ProcessFiles::Rename(const std::string& from, const std::string& to) {
  return Do(Kind::kWrites, "renames to", to, [&] { return disk_->Rename(from, to); });
}

int ProcessFiles::Link(const std::string& from, const std::string& to) {
  return Do(Kind::kWrites, "links to", to, [&] { return disk_->Link(from, to); });
}

int ProcessFiles::Remove(const std::string& path) {
  return Do(Kind::kWrites, "removes", path, [&] { return disk_->Remove(path); });
}

int ProcessFiles::Touch(const std::string& path) {
  return Do(Kind::kWrites, "touches", path, [&] { return disk_->Touch(path); });
}

int ProcessFiles::Lock(int descriptor) {
  for (;;) {
    const int error = Do(Kind::kReads, "locks", "", [&] { return disk_->Lock(descriptor); });
    if (error != -EWOULDBLOCK) return error;
    process_->Wait(SimTime(1000));
  }
}

}  // namespace lopt

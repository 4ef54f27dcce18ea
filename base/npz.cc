#include "lopt/base/npz.h"

#include <zip.h>

#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/npy.h"
#include "lopt/base/utf8.h"

namespace lopt {
namespace {

constexpr std::string_view kExtension = ".npy";

// zip_discard drops changes that were not written.
using Archive = std::unique_ptr<zip_t, decltype(&zip_discard)>;
using Source = std::unique_ptr<zip_source_t, decltype(&zip_source_free)>;
using Member = std::unique_ptr<zip_file_t, decltype(&zip_fclose)>;

class ZipError {
 public:
  ZipError() { zip_error_init(&error_); }
  ~ZipError() { zip_error_fini(&error_); }
  ZipError(const ZipError&) = delete;
  ZipError& operator=(const ZipError&) = delete;

  zip_error_t* get() { return &error_; }
  std::string Text() { return zip_error_strerror(&error_); }

 private:
  zip_error_t error_;
};

// The archive in `source`, which it owns a reference of.
Archive Open(zip_source_t* source, int flags, const std::string& name) {
  ZipError error;
  zip_source_keep(source);
  zip_t* archive = zip_open_from_source(source, flags, error.get());
  if (archive == nullptr) {
    zip_source_free(source);
    Fail("{}: not a zip archive that can be read: {}", name, error.Text());
  }
  return {archive, &zip_discard};
}

Source BufferSource(std::span<const std::byte> bytes, const std::string& name) {
  ZipError error;
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, error.get());
  Require(source != nullptr, "{}: {}", name, error.Text());
  return {source, &zip_source_free};
}

// What an archive may still unpack to.
struct BytesLeft {
  size_t largest;  // at first
  size_t left;
};

// The whole uncompressed member. The size that the archive claims is not trusted. `left`: lowered.
std::vector<std::byte> ReadMember(zip_t* archive, zip_uint64_t index, const std::string& name,
                                  BytesLeft* left) {
  const Member member(zip_fopen_index(archive, index, 0), &zip_fclose);
  Require(member != nullptr, "{}: {}", name, zip_strerror(archive));
  std::vector<std::byte> content;
  std::array<std::byte, 1 << 16> block;
  while (true) {
    const zip_int64_t got = zip_fread(member.get(), block.data(), block.size());
    Require(got >= 0, "{}: {}", name, zip_file_strerror(member.get()));
    if (got == 0) return content;
    Require(static_cast<size_t>(got) <= left->left, "{}: the archive unpacks to more than {} bytes",
            name, left->largest);
    left->left -= static_cast<size_t>(got);
    content.insert(content.end(), block.begin(), block.begin() + got);
  }
}

void AddMember(zip_t* archive, const std::string& name, std::span<const std::byte> content) {
  zip_source_t* source = zip_source_buffer(archive, content.data(), content.size(), 0);
  Require(source != nullptr, "npz: {}: {}", PlainText(name), zip_strerror(archive));
  const zip_int64_t index = zip_file_add(archive, name.c_str(), source, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    zip_source_free(source);
    Fail("npz: array '{}' cannot be added: {}", PlainText(name), zip_strerror(archive));
  }
  constexpr zip_uint16_t kTime = 0;
  constexpr zip_uint16_t kDate = (1 << 5) + 1;  // 1 January 1980, the first that a zip can hold
  const auto at = static_cast<zip_uint64_t>(index);
  Require(zip_set_file_compression(archive, at, ZIP_CM_STORE, 0) == 0 &&
              zip_file_set_dostime(archive, at, kTime, kDate, 0) == 0,
          "npz: {}: {}", PlainText(name), zip_strerror(archive));
}

std::vector<std::byte> ReadSource(zip_source_t* source) {
  zip_stat_t status;
  zip_stat_init(&status);
  Require(zip_source_stat(source, &status) == 0 && zip_source_open(source) == 0, "npz: {}",
          zip_error_strerror(zip_source_error(source)));
  std::vector<std::byte> bytes(status.size);
  const zip_int64_t got = zip_source_read(source, bytes.data(), bytes.size());
  zip_source_close(source);
  Require(got == static_cast<zip_int64_t>(bytes.size()), "npz: {} of {} bytes of the archive", got,
          bytes.size());
  return bytes;
}

}  // namespace

NamedArrays ParseNpz(std::span<const std::byte> bytes, const std::string& source,
                     std::vector<OtherArray>* others, size_t largest) {
  BytesLeft left = {largest, largest};
  Require(!bytes.empty(), "{}: the file is empty", source);
  const Source buffer = BufferSource(bytes, source);
  const Archive archive = Open(buffer.get(), ZIP_RDONLY | ZIP_CHECKCONS, source);
  NamedArrays arrays;
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<zip_uint64_t>(i);
    const char* raw_name = zip_get_name(archive.get(), index, 0);
    Require(raw_name != nullptr, "{}: member {}: {}", source, i, zip_strerror(archive.get()));
    std::string name = raw_name;
    const std::string where = source + ": " + PlainText(name);
    Require(name.ends_with(kExtension), "{}: a member of an npz file must be an .npy file", where);
    name.resize(name.size() - kExtension.size());
    OtherArray other = {.name = name, .dtype = {}, .shape = {}};
    std::optional<Array> array = ParseNpy(ReadMember(archive.get(), index, where, &left), where,
                                          others == nullptr ? nullptr : &other);
    if (array) {
      arrays.Set(std::move(name), *std::move(array));
    } else {
      others->push_back(std::move(other));
    }
  }
  return arrays;
}

std::vector<std::byte> SerializeNpz(const NamedArrays& arrays) {
  Require(arrays.size() > 0, "npz: a file needs at least one array");
  const Source buffer = BufferSource({}, "npz");
  Archive archive = Open(buffer.get(), ZIP_TRUNCATE, "npz");
  std::vector<std::vector<std::byte>> contents;  // libzip reads them when the archive is closed
  contents.reserve(arrays.size());
  for (const auto& [name, array] : arrays) {
    contents.push_back(SerializeNpy(array));
    AddMember(archive.get(), name + std::string(kExtension), contents.back());
  }
  Require(zip_close(archive.get()) == 0, "npz: {}", zip_strerror(archive.get()));
  static_cast<void>(archive.release());  // closed
  return ReadSource(buffer.get());
}

NamedArrays ReadNpz(const std::string& path, std::vector<OtherArray>* others, size_t largest) {
  return ParseNpz(ReadFile(path), path, others, largest);
}

void WriteNpz(const std::string& path, const NamedArrays& arrays) {
  WriteFile(path, SerializeNpz(arrays));
}

}  // namespace lopt

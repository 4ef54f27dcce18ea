#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"

namespace lopt {

// A safetensors file: arrays and text metadata.
struct ArrayFile {
  NamedArrays arrays;                           // the tensors
  std::map<std::string, std::string> metadata;  // texts by name
};

// Reads a file. Throws Error that names it and what is wrong: not readable, header too long or not
// JSON, unknown dtype, data offsets that overlap, leave a gap, run past the end or do not fit the
// shape, trailing bytes. Format: https://huggingface.co/docs/safetensors.
// With `others`, tensors of a dtype that Array has not are no error but listed there.
ArrayFile ReadArrayFile(const std::string& path, std::vector<OtherArray>* others = nullptr);
// The same of the bytes of a file, which is called `source` in errors.
ArrayFile ParseArrayFile(std::span<const std::byte> bytes, const std::string& source,
                         std::vector<OtherArray>* others = nullptr);
// The bytes of the file; the same arrays and metadata give the same bytes. Data starts 64-byte
// aligned and lies by falling element size, then name, so every array is aligned to its elements.
// Throws Error if a name or the metadata is not UTF-8, or a name is "__metadata__".
std::vector<std::byte> SerializeArrayFile(const ArrayFile& file);
// Writes the whole file, or throws Error (path and reason) and leaves no `path` behind that is not
// complete: the bytes go to a temporary name in the same directory, are flushed to disk (fsync) and
// renamed.
void WriteArrayFile(const std::string& path, const ArrayFile& file);

}  // namespace lopt

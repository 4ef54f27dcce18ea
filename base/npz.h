#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"

namespace lopt {

// NumPy's .npz: a zip archive with one .npy file for each array, named after it. Arrays are written
// in C order and not compressed; those in Fortran order are read and brought into C order. The
// numbers are little-endian and of the dtypes of base/arrays.h. Formats:
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.

// The bytes that an archive may unpack to where the caller sets no other limit: a small file of a
// stranger may hold zeros without end.
inline constexpr size_t kLargestNpz = size_t{1} << 32;

// All throw Error that names the file (`source`), the member and what is wrong: not a zip archive,
// damaged, a member that is not .npy or appears twice, a header that cannot be read, another dtype
// (Python objects are never read), data that does not fit the shape. With `others`, arrays of
// another dtype are no error but listed there.
// `largest`: the bytes that the archive may unpack to; more are an error.
NamedArrays ReadNpz(const std::string& path, std::vector<OtherArray>* others = nullptr,
                    size_t largest = kLargestNpz);
// The same of the bytes of a file, which is called `source` in errors.
NamedArrays ParseNpz(std::span<const std::byte> bytes, const std::string& source,
                     std::vector<OtherArray>* others = nullptr, size_t largest = kLargestNpz);
// The bytes of the file; the same arrays give the same bytes. Throws Error if there is none or
// a name is not UTF-8.
std::vector<std::byte> SerializeNpz(const NamedArrays& arrays);
// Writes the whole file or none, as WriteFile does.
void WriteNpz(const std::string& path, const NamedArrays& arrays);

}  // namespace lopt

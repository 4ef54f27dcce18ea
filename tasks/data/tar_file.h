#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace lopt {

// The ordinary files in the bytes of a tar archive (ustar, old or GNU), by the last parts of their
// names; they are parts of `bytes`. `path` is for messages. Throws Error that names it: no archive,
// or one that ends too early.
std::map<std::string, std::span<const uint8_t>> FilesInTar(const std::string& path,
                                                           std::span<const uint8_t> bytes);

}  // namespace lopt

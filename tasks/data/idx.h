#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lopt/tasks/data/raw_images.h"

namespace lopt {

// The contents of an IDX file of unsigned bytes (the format of MNIST and its kin): `values` has the
// product of `shape` elements, C order.
struct IdxFile {
  std::vector<int64_t> shape;
  std::vector<uint8_t> values;
};

// Reads an IDX file, gzipped or not, of `rank` dimensions. Throws Error that names the file: not
// readable, gzip data truncated or damaged, another magic number than 0x0000080<rank>, or a length
// that is not what the sizes in the header say.
IdxFile ReadIdx(const std::string& path, int rank);

// Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz] of a directory: both pairs or one of
// them, split as JoinSets does. Throws Error that names the file: missing, damaged (ReadIdx),
// counts or sizes that do not match, or too few images.
RawImages ReadImageDirectory(const std::string& directory);

// "MNIST" or "FashionMNIST" if the labels in the directory begin as theirs do; else empty. Throws
// Error as ReadIdx does.
std::string NameOfIdxSet(const std::string& directory);

}  // namespace lopt

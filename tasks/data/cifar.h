#pragma once

#include <string>

#include "lopt/tasks/data/raw_images.h"

namespace lopt {

// The binary version of CIFAR-10 and CIFAR-100 (https://www.cs.toronto.edu/~kriz/cifar.html), read
// from the files of a directory, from the folder in it that the archive unpacks to
// (cifar-10-batches-bin, cifar-100-binary) or from the archive in it (cifar-10-binary.tar.gz,
// cifar-100-binary.tar.gz), whichever is there first. A file is a number of records: of CIFAR-10
// the label and 3,072 bytes, of CIFAR-100 the coarse label, the fine label, which is taken, and
// 3,072 bytes; these are the red, then the green, then the blue values of 32 x 32 pixels. The
// training records are those of data_batch_1.bin to data_batch_5.bin in that order, or train.bin;
// the test records those of test_batch.bin, or test.bin. Every file may be gzipped (.gz). Splits as
// in SplitTrainAndTest. Throws Error that names the file: missing, damaged, not a number of whole
// records, or a label out of range.
RawImages ReadCifar10(const std::string& directory);
RawImages ReadCifar100(const std::string& directory);

// Whether one of these places holds the first training file, or the archive is there.
bool HasCifar10(const std::string& directory);
bool HasCifar100(const std::string& directory);

}  // namespace lopt

#pragma once

#include <string>

#include "lopt/tasks/data/raw_images.h"

namespace lopt {

// Reads the one .npz file of a directory. It has arrays `images` and `labels`, or x_train and
// y_train with or without x_test and y_test (the names of Keras' mnist.npz): images uint8 [n,
// height, width] or [n, height, width, channels], labels whole numbers from 0 to 255, [n] or [n,
// 1]. The rows of each pair are shuffled, always alike, since such files may be sorted by their
// labels. Splits as JoinSets. Throws Error that names the file: none or several, damaged (ReadNpz),
// an array missing or of another dtype or shape, another number of labels than of images, a label
// out of range.
RawImages ReadNpzImages(const std::string& directory);

}  // namespace lopt

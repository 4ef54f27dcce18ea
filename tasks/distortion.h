#pragma once

#include <string>
#include <vector>

#include "tasks/image_data.h"

namespace lopt {

// The valid values of a task's "distortion", which makes another data set of the same images:
//   none
//   inverted    bright and dark change places
//   dim         a quarter of the brightness
//   noisy       to every pixel is added a normal number of standard deviation 40 (of 255)
//   mislabeled  a fifth of the train split's labels are drawn anew; the other splits stay as they
//               are
const std::vector<std::string>& Distortions();

// Applies one; always the same draws. Throws Error that lists the names if there is none of this
// name.
void Distort(const std::string& distortion, RawImages* images);

}  // namespace lopt

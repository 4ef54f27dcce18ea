#pragma once

#include "lopt/base/choices.h"
#include "lopt/tasks/data/raw_images.h"

namespace lopt {

// Makes another data set of the same images.
enum class Distortion {
  kNone,
  kInverted,    // bright and dark change places
  kDim,         // a quarter of the brightness
  kNoisy,       // to every pixel is added a normal number of standard deviation 40 (of 255)
  kMislabeled,  // a fifth of the train split's labels are drawn anew; the other splits stay
};
inline constexpr Named<Distortion> kDistortions[] = {{Distortion::kNone, "none"},
                                                     {Distortion::kInverted, "inverted"},
                                                     {Distortion::kDim, "dim"},
                                                     {Distortion::kNoisy, "noisy"},
                                                     {Distortion::kMislabeled, "mislabeled"}};

// Applies one; always the same draws.
void Distort(Distortion distortion, RawImages* images);

}  // namespace lopt

#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "lopt/base/key.h"
#include "lopt/tasks/data/raw_images.h"

namespace lopt {

// MNIST-1D (Greydanus and Kobak 2020, "Scaling down deep learning with MNIST-1D", arXiv 2011.14439;
// package mnist1d 0.0.2): ten templates of 12 points, padded, stretched, scaled, shifted, with
// correlated noise in place of the padding, noise everywhere and a slope, sampled at 40 points. The
// recipe is the published one; the draws are those of our keys.
struct Mnist1d {
  static constexpr int64_t kClasses = 10;
  static constexpr int64_t kPadded = 72;
  static constexpr int64_t kPoints = 40;

  // What one signal is made from beside its class.
  struct Draws {
    int64_t padding = 0;  // zeros behind the template, 36 to 60
    double scale = 1;     // uniform on [.8, 1.2)
    int64_t shift = 0;    // 0 to 47
    double slope = 0;     // uniform on [-.375, .375)
    std::array<double, kPadded>
        correlated_noise{};               // normal, standard deviation .25, not filtered yet
    std::array<double, kPadded> noise{};  // normal, standard deviation .02
  };
};

Mnist1d::Draws DrawMnist1d(Key key);
std::array<double, Mnist1d::kPoints> Mnist1dSignal(int64_t label, const Mnist1d::Draws& draws);

// 14,000 signals, 1,400 of each class, height 40 and width 1. The first 5,000, 500 of each class,
// are a set of the published size: all signals have its mean taken off and are divided by its
// standard deviation, and its first 4,000 are cut as a training set (SplitTrainAndTest). The test
// set is its last 1,000 and 9,000 more.
RawSignals MakeMnist1d();

}  // namespace lopt

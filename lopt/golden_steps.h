#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/layout.h"
#include "lopt/base/safetensors.h"
#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

// What a theta file carries so that every reader can check itself: small tensors, gradients for
// some steps, and what the optimizer made of the tensors when the file was written. A reader whose
// result is within the limits computes the same rule. docs/check.md describes the check for readers
// in other languages.
struct GoldenSteps {
  Layout layout;               // of the tensors
  std::vector<int64_t> steps;  // StepInfo::step of each update
  std::vector<float> losses;   // StepInfo::loss of each; empty if the optimizer needs none: 0
  int64_t num_steps = 0;       // StepInfo::num_steps of all
  std::vector<float> params;   // before the first update; a row of `layout`
  // Of every update: each tensor has one dimension more, the updates, in front.
  std::vector<float> gradients;
  std::vector<float> result;  // params after the last update
  // How far rounding may take an element of each tensor from `result`. Infinite: anywhere.
  std::vector<float> limits;
};

// Limits above this part of 1 plus the greatest number of a tensor's result are named when a file
// is written, since they hide small mistakes.
inline constexpr double kSharpLimit = 1e-4;

// Makes the golden steps of a theta [D] and measures the limits. Each is 8 times the greatest
// deviation from `result` that any of these showed: every instruction set of SupportedIsas(), and
// 32 runs in which theta, gradients and, before every update, params and state were moved by up to
// one unit in the last place, drawn for each number. It is no less than 2e-6 of the tensor's
// greatest movement (of one in bfloat16 2^-9) plus 2^-22 of its greatest number. Tensors that move
// by fewer than 1000 limits, since their steps are small beside the params, begin at 0 instead,
// where float32 keeps the steps; all but the tensor with the largest params.
GoldenSteps MeasureGoldenSteps(const Config& optimizer, std::span<const float> theta);

// "kernel/w 0.00032, plain/w inf": the tensors whose limits are above kSharpLimit; empty if none
// is.
std::string CoarseLimits(const GoldenSteps& golden);

// "kernel/w, plain/w": the tensors whose limits are infinite, which check nothing; empty if none
// is.
std::string UncheckedTensors(const GoldenSteps& golden);

// Adds them to a file: arrays golden/params/<tensor>, golden/gradients/<tensor>,
// golden/result/<tensor>, golden/limit/<tensor> [1], golden/steps [updates], golden/num_steps [1],
// golden/losses [updates] where there are some, and where CoarseLimits names some, the metadata
// golden_coarse with it.
void PutGoldenSteps(const GoldenSteps& golden, ArrayFile* file);

// Those of a file, or none where it has none. Files of before there were limits get
// 1e-6 (1 + the greatest number of the tensor's result) + 3e-5 of its greatest movement. Throws
// Error, in which the file is called `path`, if they are damaged.
std::optional<GoldenSteps> TakeGoldenSteps(const ArrayFile& file, const std::string& path);

// How one reader's result compares: the element that is farthest beside its limit.
struct GoldenDeviation {
  std::string reader;    // an instruction set, "avx2", or what else has read the file
  std::string tensor;    // the golden tensor's name
  int64_t element = 0;   // in the tensor
  float wanted = 0;      // the number in the file
  float got = 0;         // the reader's
  double deviation = 0;  // |wanted - got|; infinite if one of them alone is NaN
  double limit = 0;      // of the tensor
  bool within = true;    // whether the deviation is at most the limit

  // "the optimizer does not do what it did when the file was written: golden/result/plain/w at 2:
  // 1.02 wanted, got 1.03 on avx2, which is 0.01 off; accepted are 0.001".
  std::string Describe() const;
};

// How a result, a row of golden.layout that a reader of this name has got, compares.
GoldenDeviation CompareGoldenResult(const GoldenSteps& golden, std::string reader,
                                    std::span<const float> result);
// The gradients [layout.size()] of an update.
std::vector<float> GoldenGradient(const GoldenSteps& golden, int64_t update);

// Repeats the golden steps with an optimizer on the thread's instruction set.
GoldenDeviation RepeatGoldenSteps(const GoldenSteps& golden, const LearnedOptimizer& optimizer,
                                  std::span<const float> theta);

// Repeats them with every reader that the program has: on each instruction set, best first.
std::vector<GoldenDeviation> RepeatGoldenStepsEverywhere(const GoldenSteps& golden,
                                                         const Config& optimizer,
                                                         std::span<const float> theta);

}  // namespace lopt

#pragma once

#include <cstdint>
#include <span>

#include "lopt/base/fields.h"
#include "lopt/tasks/augment/augmentation.h"
#include "lopt/tasks/augment/ctaugment/policy.h"
#include "lopt/tasks/augment/ctaugment/rates.h"

namespace lopt {

struct CtAugmentOptions {
  int64_t depth = 2;
  double decay = 0.99;
  double threshold = 0.8;
  int64_t probes = 16;
  TranslateUnit translate = TranslateUnit::kPixels;
  void Visit(FieldVisitor& v);
};

// CTAugment (Berthelot et al. 2020, "ReMixMatch"): training images are changed by `depth`
// operations each, whose strengths follow rates that the network itself sets. The model state is
// these rates (rates.h), which each evaluation on Split::kTrain updates after its batch; other
// splits, and examples without a key, see images as they are. Operations work on 8-bit numbers,
// those of the stored images where they were not resized. The records come from the network that is
// trained, not from a moving average of it, and the images of the probes are spread evenly over the
// batch. Everything is drawn with the batch's key by the image's place in it, so that the parts of
// a batch have the images of the whole, and their records, in the order of the parts, are its
// records.
class CtAugment : public Augmentation {
 public:
  // Throws Error as CheckOptions does, and unless images have 1 or 3 channels.
  CtAugment(const CtAugmentOptions& options, const ImageExtent& extent);

  void Init(std::span<float> model_state) const override;
  bool Changes(const AugmentedRow& row) const override;
  void Augment(const AugmentedRow& row, const ImageBatch& batch, float* out,
               Workspace& scratch) const override;
  ProbeRecords records() const override {
    return {.probes = options_.probes,
            .size = options_.depth * static_cast<int64_t>(kPackedRecord)};
  }
  void Probe(const BatchPart& part, const ImageBatch& batch, float* out,
             Workspace& scratch) const override;
  // A packed record for each operation of each probe.
  void Record(const BatchPart& part, std::span<const float> losses, std::span<float> records,
              Workspace& scratch) const override;
  void Learn(std::span<const float> records, std::span<float> model_state) const override;

 private:
  // The policies of a part's `count` images that `make(draws)` -> PolicyStep makes, [count, depth].
  template <class MakeStep>
  std::span<PolicyStep> Policies(const BatchPart& part, uint64_t draw, int64_t count,
                                 const MakeStep& make, Workspace& scratch) const;
  void ApplyPolicies(std::span<const PolicyStep> policies, const ImageBatch& batch, float* out,
                     Workspace& scratch) const;

  CtAugmentOptions options_;
  ImageExtent extent_;
};

}  // namespace lopt

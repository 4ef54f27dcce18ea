#pragma once

#include <cstdint>
#include <span>

#include "base/fields.h"
#include "tasks/augmentation.h"
#include "tasks/ctaugment/policy.h"

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
// trained, not from a moving average of it, and the images of the probes are the first of the
// batch.
class CtAugment : public Augmentation {
 public:
  // Throws Error as CheckOptions does, and unless images have 1 or 3 channels.
  CtAugment(const CtAugmentOptions& options, const ImageExtent& extent);

  void Init(std::span<float> model_state) const override;
  bool Changes(const AugmentedRow& row) const override;
  void Augment(const AugmentedRow& row, const ImageBatch& batch, float* out,
               Workspace& scratch) const override;
  int64_t probes() const override { return options_.probes; }
  void Probe(Key key, const ImageBatch& batch, float* out, Workspace& scratch) const override;
  void Learn(Key key, std::span<const float> losses, std::span<float> model_state,
             Workspace& scratch) const override;

  // The records of probes first, first + 1, ..., one for each of their operations, given their
  // images' losses: what UpdateRates is given. Several processes that share the probes of a key
  // learn what one does that has them all.
  std::span<OperationRecord> Records(Key key, int64_t first, std::span<const float> losses,
                                     Workspace& scratch) const;

 private:
  // The policies of images first, first + 1, ... that `make(draws)` -> PolicyStep makes, [count,
  // depth].
  template <class MakeStep>
  std::span<PolicyStep> Policies(Key key, int64_t first, int64_t count, const MakeStep& make,
                                 Workspace& scratch) const;
  void ApplyPolicies(std::span<const PolicyStep> policies, const ImageBatch& batch, float* out,
                     Workspace& scratch) const;

  CtAugmentOptions options_;
  ImageExtent extent_;
};

}  // namespace lopt

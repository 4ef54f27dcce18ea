#include "lopt/tasks/augment/augmentation.h"

#include <memory>

#include "lopt/tasks/augment/ctaugment/ctaugment.h"
#include "lopt/tasks/augment/drawn_augmentation.h"

namespace lopt {
namespace {

struct NoAugmentationOptions {
  void Visit(FieldVisitor&) {}
};

Registry<Augmentation, const ImageExtent&> BuiltInAugmentations() {
  Registry<Augmentation, const ImageExtent&> types("augmentation", kTypesOfPlugins);
  types.Add<NoAugmentationOptions>(
      "None", "Images stay as they are.",
      [](const NoAugmentationOptions&, const ImageExtent&) { return nullptr; });
  types.Add<DrawnAugmentationOptions>(
      "Drawn",
      "Every task changes its images in a way that it draws: turned, stretched, moved, thicker or "
      "thinner, brighter or darker, pixels exchanged.",
      [](const DrawnAugmentationOptions& options, const ImageExtent& extent) {
        return std::make_shared<DrawnAugmentation>(options, extent);
      });
  types.Add<CtAugmentOptions>(
      "CTAugment",
      "Training images are changed by random operations, the stronger the better the network "
      "recognises such images.",
      [](const CtAugmentOptions& options, const ImageExtent& extent) {
        return std::make_shared<CtAugment>(options, extent);
      });
  return types;
}

}  // namespace

void Augmentation::Sample(Key, std::span<float>) const {}
void Augmentation::Init(std::span<float>) const {}
void Augmentation::Probe(const BatchPart&, const ImageBatch&, float*, Workspace&) const {}
void Augmentation::Record(const BatchPart&, std::span<const float>, std::span<float>,
                          Workspace&) const {}
void Augmentation::Learn(std::span<const float>, std::span<float>) const {}

Registry<Augmentation, const ImageExtent&>& AugmentationRegistry() {
  static Registry<Augmentation, const ImageExtent&> types = BuiltInAugmentations();
  return types;
}

Config NoAugmentation() { return Config::Parse(R"({"type": "None"})", "the default of augment"); }

void VisitAugment(FieldVisitor& v, Config* augment) {
  v.Typed("augment", augment, AugmentationRegistry().table(),
          "What happens to the images on their way into a batch.");
}

}  // namespace lopt

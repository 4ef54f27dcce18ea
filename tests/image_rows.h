#pragma once

#include <algorithm>
#include <cstdint>
#include <new>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "lopt/tasks/image/image_batch.h"

namespace lopt {

// A small data set of given rows, laid out as ImageBatch wants it, and the batch of all its rows.
class ImageRows {
 public:
  ImageRows(int64_t features, std::span<const float> images, std::vector<uint8_t> labels)
      : stride_((features + 15) / 16 * 16),
        labels_(std::move(labels)),
        examples_(labels_.size()),
        images_(labels_.size() * static_cast<size_t>(stride_)) {
    for (size_t row = 0; row < labels_.size(); ++row) {
      std::copy_n(images.begin() + static_cast<int64_t>(row) * features, features,
                  images_.begin() + static_cast<int64_t>(row) * stride_);
    }
    std::iota(examples_.begin(), examples_.end(), 0);
  }

  ImageBatch batch() const { return {images_.data(), stride_, labels_.data(), examples_}; }

 private:
  template <class T>
  struct Aligned64 {
    using value_type = T;
    template <class U>
    struct rebind {
      using other = Aligned64<U>;
    };
    Aligned64() = default;
    template <class U>
    explicit Aligned64(const Aligned64<U>&) {}
    T* allocate(size_t n) {
      return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{64}));
    }
    void deallocate(T* p, size_t) { ::operator delete (p, std::align_val_t{64}); }
    bool operator==(const Aligned64&) const { return true; }
  };

  int64_t stride_;
  std::vector<uint8_t> labels_;
  std::vector<int32_t> examples_;
  std::vector<float, Aligned64<float>> images_;
};

}  // namespace lopt

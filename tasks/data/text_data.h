#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/fields.h"
#include "lopt/tasks/task_family.h"
#include "lopt/tasks/task_resources.h"

namespace lopt {

// What every task on bytes of text shares.

// Which text, and how much of it a step.
struct TextOptions {
  std::string text = "";
  int64_t length = 32;
  int64_t batch_size = 16;
  void Visit(FieldVisitor& v);
};

// A text and its four splits, pieces of 70, 10, 10 and 10 % one after the other. Immutable.
class TextData {
 public:
  explicit TextData(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {}

  std::span<const uint8_t> bytes() const { return bytes_; }
  std::pair<int64_t, int64_t> range(Split split) const;  // bytes [first, last)

 private:
  std::vector<uint8_t> bytes_;
};

// The text that the options name, read or generated once a run: the bytes of a file, unpacked if it
// is gzipped, or 100,000 bytes of SentenceSource (tasks/data/word_source.h). Throws Error as
// CheckOptions does, and if the file cannot be read.
std::shared_ptr<const TextData> GetText(const TextOptions& options, const TaskResources& resources);

// The rows of a data set of text: windows of `length` bytes, each predicted from those before it in
// its window and the byte before the window. They lie side by side from the second byte of a split
// on, so every byte of a split but the first is predicted once; what is left at its end is not
// used. Throws Error if a split has no window.
struct TextWindows {
  TextWindows(const TextOptions& options, const TextData& data);
  std::vector<int64_t> starts;            // of each row: the byte before its window
  std::pair<int64_t, int64_t> splits[4];  // rows [first, last) of each Split
};

// A picture of windows, called "batch". Each line is a window and the byte before it; each pixel is
// a byte as grey, with 127, the end of ASCII, as white.
Pictures PictureOfWindows(const TextData& data, std::span<const int64_t> starts, int64_t length,
                          std::span<const int32_t> examples);

// The parts of a family of models that predict bytes, for the task to add its own: no config, aux
// "accuracy", batches of `batch_size` windows, losses (nats per byte) cut to [0, 1.5 ln 256].
TaskParts BytePredictorParts(const TextOptions& options, const TextWindows& windows);

// The entropy of a text's bytes, in nats, and that of a byte given the one before it, over the
// text's pairs of neighbours: what is left to the best model that knows the text but looks at no or
// at one byte. Of fewer than one byte or two it is 0.
double UnigramEntropy(std::span<const uint8_t> text);
double BigramEntropy(std::span<const uint8_t> text);

}  // namespace lopt

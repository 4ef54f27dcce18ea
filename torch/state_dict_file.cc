#include "lopt/torch/state_dict_file.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/script.h>

#include <span>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/torch/script_module.h"

namespace lopt {
namespace {

// The bytes that a writer of LibTorch's hands out.
struct Collected {
  size_t Add(const void* data, size_t size) {
    const auto* const first = static_cast<const char*>(data);
    bytes.insert(bytes.end(), first, first + size);
    return size;
  }
  std::vector<char> bytes = {};
};

// torch::pickle_save would tag the dictionary with its type, which weights_only refuses.
std::vector<char> SavedDict(const c10::Dict<std::string, at::Tensor>& dict) {
  Collected pickle;
  torch::jit::Pickler pickler([&](const char* data, size_t size) { pickle.Add(data, size); },
                              /*tensor_table=*/nullptr, /*type_renamer=*/nullptr,
                              /*memoized_class_types=*/nullptr, /*get_tensor_id=*/nullptr,
                              /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(dict);
  pickler.stop();
  Collected file;
  caffe2::serialize::PyTorchStreamWriter writer(
      [&](const void* data, size_t size) { return file.Add(data, size); });
  writer.writeRecord("data.pkl", pickle.bytes.data(), pickle.bytes.size());
  for (size_t i = 0; i < pickler.tensorData().size(); ++i) {
    const auto data = torch::jit::getWriteableTensorData(pickler.tensorData()[i]);
    writer.writeRecord("data/" + std::to_string(i), data.data(), data.sizeInBytes());
  }
  writer.writeEndOfFile();
  return file.bytes;
}

}  // namespace

void WriteStateDictFile(const std::string& path, const NamedArrays& tensors) {
  c10::Dict<std::string, at::Tensor> dict;
  for (const auto& [name, array] : tensors) dict.insert(name, TensorOf(array));
  std::vector<char> bytes;
  try {
    bytes = SavedDict(dict);
  } catch (const c10::Error& error) {
    Fail("state_dict: {}: {}", path, error.what_without_backtrace());
  }
  WriteFile(path, std::as_bytes(std::span(bytes)));
}

}  // namespace lopt

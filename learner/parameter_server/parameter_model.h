#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/learner/parameter_server/parameter_server.h"

namespace lopt {

// FNV-1a of the bytes, 64 bits (Fowler, Noll, Vo).
uint64_t Fnv1a64(std::string_view bytes);

// The parameters of a model as options name them, and what may be asked of them: all that servers
// and workers say to each other about it is checked here before anything uses it. Immutable,
// thread-safe. All errors begin with "parameter server: ".
class ParameterModel {
 public:
  // The most float32 numbers of one message and of a server's variables: 1 GiB.
  static constexpr int64_t kMostNumbers = int64_t{1} << 28;

  // Throws Error if a number is out of range, a name is empty or comes twice, a shape or an initial
  // value is not valid, or a server would have too many numbers in variables.
  explicit ParameterModel(const ParameterServerOptions& options);
  ParameterModel(const ParameterModel&) = delete;
  ParameterModel& operator=(const ParameterModel&) = delete;

  const ParameterServerOptions& options() const { return options_; }
  int servers() const { return static_cast<int>(options_.servers); }
  // Fnv1a64 of all that a server and its workers must agree on.
  uint64_t digest() const { return digest_; }

  // The most bytes of a message between the server and a worker; for gradients of vectors, if each
  // id that fits comes once in a layer's list of its own.
  size_t MostMessageBytes(int server) const;

  int ServerOf(std::string_view variable) const {
    return static_cast<int>(Fnv1a64(variable) % static_cast<uint64_t>(options_.servers));
  }
  int ServerOfId(int64_t id) const { return static_cast<int>(id % options_.servers); }
  // The keys of the first values.
  Key KeyOfVariable(std::string_view name) const;
  Key KeyOfVector(std::string_view layer, int64_t id) const;

  // Throw Error that lists the names if there is none of this name.
  const DenseVariable& Variable(const std::string& name) const;
  const EmbeddingLayer& Layer(const std::string& name) const;
  // Throws Error unless servers find as many gradients as they wait for among so many workers, and
  // never wait for different workers, which wait for them.
  void CheckWorkers(int64_t workers) const;
  // Throws Error unless all are of the layer.
  void CheckIdsInRange(const EmbeddingLayer& layer, std::span<const int64_t> ids) const;
  // Throws Error unless all are of the layer, and not too many for one message.
  void CheckIds(const EmbeddingLayer& layer, std::span<const int64_t> ids) const;
  // Throws Error unless the gradients are of the model, finite and not too many for one message.
  void CheckGradients(const ParameterGradients& gradients) const;
  // Throw Error unless the variable, and all ids, are on this server.
  void CheckIsOn(int server, const std::string& variable) const;
  void CheckIdsAreOn(int server, const EmbeddingLayer& layer, std::span<const int64_t> ids) const;

 private:
  void CheckNames() const;
  void CheckSizes() const;
  void CheckSparse(const SparseGradient& gradient) const;

  ParameterServerOptions options_;
  std::map<std::string, const DenseVariable*> variables_;
  std::map<std::string, const EmbeddingLayer*> layers_;
  uint64_t digest_ = 0;
};

}  // namespace lopt

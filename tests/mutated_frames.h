#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/error.h"
#include "lopt/base/safetensors.h"
#include "lopt/learner/elastic/frame.h"
#include "tests/elastic_lies.h"

namespace lopt {

// Changes one field of a message, which stays one that can be read. The numbers of a gradient and
// of states stay as they are: a worker that computes wrong ones is believed.
class FieldMutator {
 public:
  explicit FieldMutator(std::mt19937_64* random) : random_(*random) {}

  template <class T>
  void Mutate(T* message) {
    fields_ = 0;
    chosen_ = -1;
    Visit(*message);
    chosen_ = Below(fields_);
    fields_ = 0;
    Visit(*message);
  }

  template <class T>
  void operator()(const char*, T& value) {
    Visit(value);
  }

 private:
  int64_t Below(int64_t count) {
    return std::uniform_int_distribution<int64_t>(0, std::max<int64_t>(count, 1) - 1)(random_);
  }
  template <class T>
  T OneOf(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(Below(std::ssize(choices)))];
  }
  bool Hit() { return fields_++ == chosen_; }

  template <class T>
  void Visit(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      if (Hit()) value = !value;
    } else if constexpr (std::is_enum_v<T>) {
      if (Hit()) value = static_cast<T>(Below(20));
    } else if constexpr (std::is_integral_v<T>) {
      if (Hit()) {
        value = OneOf<T>({0, 1, static_cast<T>(-1), 3, 5, static_cast<T>(1000000000000),
                          std::numeric_limits<T>::max(), std::numeric_limits<T>::min(),
                          static_cast<T>(value + 1), static_cast<T>(value - 1)});
      }
    } else if constexpr (std::is_floating_point_v<T>) {
      if (Hit()) {
        value = OneOf<T>({0, -1, std::numeric_limits<T>::quiet_NaN(),
                          std::numeric_limits<T>::infinity(), std::numeric_limits<T>::max()});
      }
    } else {
      value.VisitMembers(*this);
    }
  }
  void Visit(std::string& text) {
    if (!Hit()) return;
    text = OneOf<std::string>({"", "\xff\xfe", text + "\x1b[31m\n[info] all is well", text + '\0',
                               std::string(50000, 'x'), text.substr(0, text.size() / 2),
                               "../" + text});
  }
  template <class T>
  void Visit(Eigen::VectorX<T>& row) {
    if (!Hit()) return;
    const Eigen::Index size = row.size();
    row.conservativeResize(OneOf<Eigen::Index>({0, 1, 3, size + 1, size / 2}));
    for (Eigen::Index i = size; i < row.size(); ++i) row[i] = 0;
  }
  void Visit(std::vector<std::byte>& bytes) {
    if (!Hit()) return;
    switch (Below(5)) {
      case 0:
        bytes.resize(bytes.size() / 2);
        break;
      case 1:
        bytes.push_back(std::byte{0});
        break;
      default:
        try {
          ArrayFile file = ParseArrayFile(bytes, "test");
          MutateArrays(&file);
          bytes = SerializeArrayFile(file);
        } catch (const Error&) {
          bytes.clear();
        }
    }
  }
  template <class T>
  void Visit(std::vector<T>& list) {
    if (Hit()) {
      if (list.empty() || Below(3) == 0) {
        list.emplace_back();
      } else if (Below(2) == 0) {
        list.pop_back();
      } else {
        list.push_back(list[0]);
      }
      return;
    }
    for (T& element : list) Visit(element);
  }
  template <class Key, class T>
  void Visit(std::map<Key, T>& map) {
    if (Hit()) {
      Key key;
      FieldMutator(&random_).Mutate(&key);
      map[key] = T();
      return;
    }
    std::map<Key, T> changed;
    for (auto& [key, value] : map) {
      Key other = key;
      Visit(other);
      Visit(value);
      changed[other] = value;
    }
    map = std::move(changed);
  }
  template <class T>
  void Visit(std::optional<T>& value) {
    if (Hit()) {
      value = value ? std::nullopt : std::optional<T>(T());
    } else if (value) {
      Visit(*value);
    }
  }

  // Names, types, shapes, and how many there are.
  void MutateArrays(ArrayFile* file) {
    if (file->arrays.size() == 0 || Below(8) == 0) {
      file->metadata["more"] = "text";
      return;
    }
    const auto place = Below(static_cast<int64_t>(file->arrays.size()));
    const std::string name = std::next(file->arrays.begin(), place)->first;
    switch (Below(4)) {
      case 0:
        file->arrays.Set(name + "2", Array(DType::kFloat32, {2}));
        break;
      case 1:
        file->arrays.Take(name);
        break;
      case 2:
        file->arrays.Set(name, Array(DType::kUint8, {}));
        break;
      default:
        file->arrays.Set(name, Array(file->arrays.At(name).dtype(), {7, 1}));
    }
  }

  std::mt19937_64& random_;
  int64_t fields_ = 0;
  int64_t chosen_ = -1;
};

// A random number in [0, count).
inline uint64_t Below(uint64_t count, std::mt19937_64* random) { return (*random)() % count; }

// Changes a field of what the frame holds.
template <class T>
void MutateBody(Frame* frame, std::mt19937_64* random) {
  auto message = FromWire<T>(BytesOf(*frame));
  FieldMutator(random).Mutate(&message);
  frame->body = MakeBody(ToWire(message));
}

// Cuts what the frame holds, or adds zeros to it.
inline void MutateLength(Frame* frame, std::mt19937_64* random) {
  std::vector<std::byte> bytes = BytesOf(*frame);
  bytes.resize(Below(bytes.size() + 20, random));
  frame->body = MakeBody(std::move(bytes));
}

inline FrameType AnyFrameType(std::mt19937_64* random) {
  return static_cast<FrameType>(static_cast<int>(Below(20, random)) - 2);
}

// Changes a frame of a worker on its way to the learner in some field of it or of what it holds, so
// that it still is a frame. None becomes a sign of life alone or, unless `may_mute`, an answer
// under a lease that may have ended: neither is refused, so that a lease's deadline would have to
// end the wait for the answer.
inline void MutateFrame(Frame* frame, std::mt19937_64* random, bool may_mute) {
  switch (Below(16, random)) {
    case 0:
      frame->lease = may_mute ? static_cast<int64_t>(Below(20, random)) : -1 - frame->lease;
      return;
    case 1:
      frame->kind = static_cast<int>(Below(20, random)) - 2;
      return;
    case 2:
      do frame->type = AnyFrameType(random);
      while (frame->type == FrameType::kPulse);
      return;
    case 3:
      MutateLength(frame, random);
      return;
    default:
      break;
  }
  if (frame->type == FrameType::kJoin) {
    MutateBody<JoinRequest>(frame, random);
  } else if (frame->type == FrameType::kEquipped) {
    MutateBody<Equipment>(frame, random);
  } else if (frame->kind == kGradients) {
    MutateBody<std::vector<WorkerGradient>>(frame, random);
  } else if (frame->kind == kSaved) {
    MutateBody<std::vector<SavedFile>>(frame, random);
  } else {
    frame->body = MakeBody(std::vector<std::byte>(Below(10, random)));
  }
}

// Mutates each frame but pulses with this probability.
inline Mangle MutateSome(std::mt19937_64* random, double probability, bool may_mute) {
  return [=](Frame* frame) {
    if (frame->type != FrameType::kPulse &&
        std::uniform_real_distribution<>(0, 1)(*random) < probability) {
      MutateFrame(frame, random, may_mute);
    }
  };
}

}  // namespace lopt

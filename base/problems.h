#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lopt {

// What is wrong with one thing, collected and then reported together.
class Problems {
 public:
  // `who` starts the message: "config", "FullES".
  explicit Problems(std::string who) : who_(std::move(who)) {}

  void Add(std::string problem);
  bool empty() const { return problems_.empty(); }
  // Throws Error if there are any: "<who>: <problem>" for one, otherwise "<who>: <number> problems"
  // and an indented line for each.
  void ThrowIfAny() const;

 private:
  std::string who_;
  std::vector<std::string> problems_;
};

}  // namespace lopt

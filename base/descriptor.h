#pragma once

namespace lopt {

// A descriptor of the system, closed at the end; none if the number is below 0. Files are
// OpenFile's (base/file.h).
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace lopt

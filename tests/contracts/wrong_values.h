#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/fields.h"

namespace lopt {

// Gives one field of an options struct a value that the field must refuse: a number on the wrong
// side of a bound or not finite, a choice outside its table, an unknown type; in JSON also a value
// of another kind. `number` counts these values over all fields, from 0:
//   for (int number = 0;; ++number) {
//     Options options;
//     WrongValue wrong(number);
//     options.Visit(wrong);
//     if (wrong.field().empty()) break;  // there are no more
//   }
class WrongValue : public FieldVisitor {
 public:
  using Json = nlohmann::ordered_json;

  explicit WrongValue(int number) : left_(number) {}

  const std::string& field() const { return field_; }
  const std::optional<Json>& json() const { return json_; }  // none: JSON has no such value
  bool is_set() const { return is_set_; }  // false: C++ has no such value, the options are right

  void Field(const char* name, bool*, const char*) override { Next(name, "yes"); }
  void Field(const char* name, int64_t* value, Range range, const char*) override {
    Scalar(name, value, range);
  }
  void Field(const char* name, double* value, Range range, const char*) override {
    Scalar(name, value, range);
  }
  void Field(const char* name, std::optional<int64_t>* value, Range range, const char*) override {
    Scalar(name, value, range);
  }
  void Field(const char* name, std::optional<double>* value, Range range, const char*) override {
    Scalar(name, value, range);
  }
  void Field(const char* name, std::vector<int64_t>* value, Range range, const char*) override {
    List(name, value, range);
  }
  void Field(const char* name, std::vector<double>* value, Range range, const char*) override {
    List(name, value, range);
  }
  void Field(const char* name, std::string*, const std::vector<std::string>&,
             const char*) override {
    Next(name, 7);
  }
  void Typed(const char* name, Config* value, const TypeTable&, const char*) override {
    const Json unknown = {{"type", "NoSuchType"}};
    Next(name, 7);
    if (Next(name, unknown)) Set(value, Config::FromJson(unknown));
  }
  void Typed(const char* name, std::vector<Config>* value, const TypeTable&, const char*) override {
    const Json unknown = {{"type", "NoSuchType"}};
    Next(name, 7);
    if (Next(name, Json::array({unknown}))) Set(value, {Config::FromJson(unknown)});
  }

 private:
  void Number(const char* name, int64_t* value, ChoiceTable table, const char*) override {
    int64_t outside = 0;
    while (FindName(table, outside) != nullptr) ++outside;
    if (Next(name, "no such choice")) Set(value, outside);
  }

  bool Next(const char* name, std::optional<Json> json) {
    if (left_-- != 0) return false;
    field_ = name;
    json_ = std::move(json);
    return true;
  }

  template <class T>
  void Set(T* value, T wrong) {
    *value = std::move(wrong);
    is_set_ = true;
  }

  static std::vector<double> Outside(const Range& range) {
    std::vector<double> numbers;
    if (std::isfinite(range.min)) numbers.push_back(range.open_min ? range.min : range.min - 1);
    if (std::isfinite(range.max)) numbers.push_back(range.open_max ? range.max : range.max + 1);
    return numbers;
  }

  template <class T>
  void Scalar(const char* name, T* value, const Range& range) {
    using Plain = std::decay_t<decltype(std::optional(*value).value())>;
    Next(name, "ten");
    for (const double number : Outside(range)) {
      if (Next(name, static_cast<Plain>(number))) Set(value, T(static_cast<Plain>(number)));
    }
    if constexpr (std::is_same_v<Plain, double>) {
      using Limits = std::numeric_limits<double>;
      for (const double number : {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
        if (Next(name, std::nullopt)) Set(value, T(number));
      }
    }
  }

  template <class T>
  void List(const char* name, std::vector<T>* value, const Range& range) {
    Next(name, 7);
    for (const double number : Outside(range)) {
      const T wrong = static_cast<T>(number);
      if (Next(name, Json::array({wrong}))) Set(value, {wrong});
    }
  }

  int left_;
  std::string field_;
  std::optional<Json> json_;
  bool is_set_ = false;
};

}  // namespace lopt

#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lopt/base/choices.h"

namespace lopt {

class Config;
class TypeTable;

// The numbers that a key accepts. Default: any finite one.
struct Range {
  double min = -std::numeric_limits<double>::infinity();  // the least
  double max = std::numeric_limits<double>::infinity();   // the greatest
  bool open_min = false;                                  // min itself is excluded
  bool open_max = false;                                  // max itself is excluded
};
// Numbers from min on.
inline Range AtLeast(double min) { return {.min = min}; }
// Numbers greater than min.
inline Range Above(double min) { return {.min = min, .open_min = true}; }
// Numbers from min to max, both included.
inline Range Between(double min, double max) { return {.min = min, .max = max}; }

// An options struct shows its keys to a FieldVisitor in one function,
//   void Visit(FieldVisitor& v) { v.Field("std", &std, Above(0), "Standard deviation of the
//   perturbations."); }
// and that one table reads the config strictly, checks options that were set in C++, writes the
// config out with every default resolved, and describes it to the user (base/options.h). The value
// a field has in a default-constructed struct is its default; a default that is not valid itself (a
// number out of range, an enum that is none of the choices) means that the key must be given. A
// std::optional is null or absent by default.
class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;
  // True or false. `name` is the key, `value` is read or written, `meaning` is a sentence for the
  // user.
  virtual void Field(const char* name, bool* value, const char* meaning) = 0;
  // An integer.
  virtual void Field(const char* name, int64_t* value, Range range, const char* meaning) = 0;
  // A number; an integer is one too.
  virtual void Field(const char* name, double* value, Range range, const char* meaning) = 0;
  // A number or null.
  virtual void Field(const char* name, std::optional<double>* value, Range range,
                     const char* meaning) = 0;
  // An integer or null.
  virtual void Field(const char* name, std::optional<int64_t>* value, Range range,
                     const char* meaning) = 0;
  // A list of integers, each in the range.
  virtual void Field(const char* name, std::vector<int64_t>* value, Range range,
                     const char* meaning) = 0;
  // A list of numbers, each in the range.
  virtual void Field(const char* name, std::vector<double>* value, Range range,
                     const char* meaning) = 0;
  // Any text.
  virtual void Field(const char* name, std::string* value, const char* meaning) = 0;
  // Any texts.
  virtual void Field(const char* name, std::vector<std::string>* value, const char* meaning) = 0;
  // An object, or a list of objects, whose "type" names an entry of `types`. A default-constructed
  // Config means that the key must be given; a list may be empty.
  virtual void Typed(const char* name, Config* value, const TypeTable& types,
                     const char* meaning) = 0;
  // A list of such objects.
  virtual void Typed(const char* name, std::vector<Config>* value, const TypeTable& types,
                     const char* meaning) = 0;

  // Marks the key that is shown next, v.FreeOnResume().Field(...): what was begun with one value
  // may go on with another.
  virtual FieldVisitor& FreeOnResume() { return *this; }
  // A key of old that a config may still have; reading it is an Error that says where it has gone:
  // v.Moved("batch_size", "'mode.batch_size'").
  virtual void Moved(const char* /*name*/, const char* /*to*/) {}
  // A key of old that is called `key` now, which is then not missing: v.Renamed("length", "steps",
  // "'length' is a distance"). `why` may be empty.
  virtual void Renamed(const char* /*name*/, const char* /*key*/, const char* /*why*/) {}

  // What is wrong with a key of those shown, or with one inside it, beside other keys; reported as
  // a value out of range is: v.Refuse("schedule.scales", "must have one number more, got 3").
  virtual void Refuse(const char* /*name*/, const std::string& /*why*/) {}

  // One of the values of a table, by its name: v.Choice("loss_type", &loss_type, kLossTypes,
  // "What an episode counts.").
  template <class Enum, size_t n>
  void Choice(const char* name, Enum* value, const Named<Enum> (&table)[n], const char* meaning) {
    auto number = static_cast<int64_t>(*value);
    Number(name, &number, NumberedChoices(table).entries, meaning);
    *value = static_cast<Enum>(number);
  }
  // A list of them, each of which may come more than once.
  template <class Enum, size_t n>
  void Choice(const char* name, std::vector<Enum>* value, const Named<Enum> (&table)[n],
              const char* meaning) {
    std::vector<int64_t> numbers;
    for (const Enum choice : *value) numbers.push_back(static_cast<int64_t>(choice));
    NumberList(name, &numbers, NumberedChoices(table).entries, meaning);
    value->clear();
    for (const int64_t number : numbers) value->push_back(static_cast<Enum>(number));
  }

 private:
  // A Choice whose enum has become a number, and a list of them.
  virtual void Number(const char* name, int64_t* value, ChoiceTable table, const char* meaning) = 0;
  virtual void NumberList(const char* name, std::vector<int64_t>* value, ChoiceTable table,
                          const char* meaning) = 0;
};

}  // namespace lopt

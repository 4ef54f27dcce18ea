#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/fields.h"

namespace lopt {

class Problems;

// Shows fields: Visit of an options struct, or a function that is none.
using VisitFields = std::function<void(FieldVisitor&)>;

// Fills the fields from `config`, which is read to its end: all unknown keys ("type" is known),
// wrong types, numbers out of range, wrong choices and missing keys, here and in nested typed
// objects, are one Error, each with its full path, the value and the valid or nearest choices. A
// missing key that an unknown one seems to mean, or one of old, is not reported again. `fields` is
// called more than once and must show the same keys every time.
void ReadFields(const Config& config, const VisitFields& fields);
// The same, but what is wrong is added to `problems`; the fields concerned are then of no use.
void ReadFields(const Config& config, const VisitFields& fields, Problems* problems);

// All fields with their present values, in the order they are visited, nested typed objects
// resolved with their defaults as well (Error as from ReadFields); `type` becomes "type" unless
// empty. A typed key without a value is left out, an absent optional number is null. Throws Error
// if a number is not finite or an enum is none of the choices.
Config WriteFields(std::string_view type, const VisitFields& fields);

// Checks present values as ReadFields checks those of a config: Error that begins with `who`
// ("FullES: std must be above 0, got -1").
void CheckFields(std::string_view who, const VisitFields& fields);

// The keys that are shown as such (FieldVisitor::FreeOnResume), in their order.
std::vector<std::string> KeysFreeOnResume(const VisitFields& fields);

// An options struct from a config. Throws Error as ReadFields does.
template <class Options>
Options ReadOptions(const Config& config) {
  Options options;
  ReadFields(config, [&](FieldVisitor& v) { options.Visit(v); });
  return options;
}

// The config of an options struct, every key with its value. Throws Error as WriteFields does.
template <class Options>
Config WriteOptions(std::string_view type, const Options& options) {
  Options copy = options;
  return WriteFields(type, [&](FieldVisitor& v) { copy.Visit(v); });
}

// Every constructor that takes options calls it first, so that options set in C++ are as right as
// those of a config. Returns them.
template <class Options>
const Options& CheckOptions(std::string_view who, const Options& options) {
  Options copy = options;
  CheckFields(who, [&](FieldVisitor& v) { copy.Visit(v); });
  return options;
}

}  // namespace lopt

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/describe_fields.h"
#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/base/problems.h"
#include "lopt/base/type_table.h"
#include "lopt/estimators/registry.h"
#include "lopt/learner/mode.h"
#include "lopt/learner/theta_opt.h"
#include "lopt/lopt/rate_schedule.h"
#include "lopt/lopt/registry.h"
#include "lopt/python/src/bind.h"
#include "lopt/python/src/convert.h"
#include "lopt/tasks/augment/augmentation.h"
#include "lopt/tasks/registry.h"

namespace lopt::python {

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT(google-build-using-namespace)

namespace {

// The kinds of types that have classes. Learned optimizers are among those of theta_opt, whose
// further keys they have too.
std::vector<const TypeTable*> ComponentTables() {
  return {&ThetaOptTypes(),
          &RateScheduleTypes(),
          &EstimatorRegistry().table(),
          &ScheduleRegistry().table(),
          &TaskRegistry().table(),
          &AugmentationRegistry().table(),
          &ModeRegistry().table()};
}

// The Python type of each field, in their order.
class Annotator : public FieldVisitor {
 public:
  void Field(const char*, bool*, const char*) override { Add("bool"); }
  void Field(const char*, int64_t*, Range, const char*) override { Add("int"); }
  void Field(const char*, double*, Range, const char*) override { Add("float"); }
  void Field(const char*, std::optional<double>*, Range, const char*) override {
    Add("float | None");
  }
  void Field(const char*, std::optional<int64_t>*, Range, const char*) override {
    Add("int | None");
  }
  void Field(const char*, std::vector<int64_t>*, Range, const char*) override {
    Add("Sequence[int]");
  }
  void Field(const char*, std::vector<double>*, Range, const char*) override {
    Add("Sequence[float]");
  }
  void Field(const char*, std::string*, const char*) override { Add("str"); }
  void Field(const char*, std::vector<std::string>*, const char*) override { Add("Sequence[str]"); }
  void Typed(const char*, Config*, const TypeTable& types, const char*) override {
    Add(types.short_names().empty() ? kTyped : fmt::format("str | {}", kTyped));
  }
  void Typed(const char*, std::vector<Config>*, const TypeTable&, const char*) override {
    Add(fmt::format("Sequence[{}]", kTyped));
  }

  const std::vector<std::string>& annotations() const { return annotations_; }

 private:
  static constexpr const char* kTyped = "Component | dict[str, Any]";

  void Number(const char*, int64_t*, ChoiceTable, const char*) override { Add("str"); }
  void NumberList(const char*, std::vector<int64_t>*, ChoiceTable, const char*) override {
    Add("Sequence[str]");
  }
  void Add(std::string annotation) { annotations_.push_back(std::move(annotation)); }

  std::vector<std::string> annotations_;
};

// `text` without the code marks around it, if they are.
std::string Bare(const std::string& text) {
  return text.starts_with('`') ? text.substr(1, text.size() - 2) : text;
}

// Of a type: (key, annotation, default as JSON or empty, valid values, meaning) of each key.
nb::list KeysOf(const TypeTable& table, size_t index) {
  const VisitFields& fields = table.entries()[index].fields;
  Annotator annotator;
  fields(annotator);
  const std::vector<FieldRow> rows =
      FieldRows(fields, [](const TypeTable& types) { return types.kind(); });
  size_t own = rows.size();
  if (&table == &ThetaOptTypes()) {  // the others follow an optimizer's own
    own = FieldRows(OptimizerRegistry().table().entries()[index].fields).size();
  }
  nb::list keys;
  for (size_t i = 0; i < rows.size(); ++i) {
    const FieldRow& row = rows[i];
    const bool has_default = row.default_value.starts_with('`');
    keys.append(nb::make_tuple(Bare(row.key), annotator.annotations()[i],
                               has_default ? Bare(row.default_value) : "", row.value,
                               (i < own ? "" : "Of theta_opt alone. ") + row.meaning));
  }
  return keys;
}

const TypeTable& TableOf(const std::string& kind) {
  for (const TypeTable* table : ComponentTables()) {
    if (table->kind() == kind) return *table;
  }
  Fail("There is no kind of types '{}'", kind);
}

}  // namespace

void BindTypes(nb::module_& m) {
  m.def(
      "component_types",
      [] {
        nb::list types;
        for (const TypeTable* table : ComponentTables()) {
          for (size_t i = 0; i < table->entries().size(); ++i) {
            const TypeEntry& entry = table->entries()[i];
            types.append(
                nb::make_tuple(table->kind(), entry.type, entry.summary, KeysOf(*table, i)));
          }
        }
        return types;
      },
      nb::sig("def component_types() -> list[tuple[str, str, str, list[tuple[str, str, str, str, "
              "str]]]]"),
      "(kind, type, summary, keys) of each type that has a class; a key is (name, annotation,\n"
      "default as JSON or empty, valid values, meaning).");
  m.def(
      "check_component",
      [](const std::string& kind, const std::string& type, nb::handle options) {
        const std::string who = "lopt." + type;
        nlohmann::ordered_json given = {{"type", type}};
        const Config read = ConfigOfDict(options, who);
        Require(!read.json().contains("type"), "{}: the class is the type; 'type' is no key of it",
                who);
        given.update(read.json());
        const Config config = Config::FromJson(std::move(given));
        const TypeTable& table = TableOf(kind);
        Problems problems(who);
        ReadFields(config, table.Find(config).fields, &problems);
        problems.ThrowIfAny();
        std::vector<Config> alone = {config};  // in a list no short name takes its place
        const Config resolved =
            WriteFields("", [&](FieldVisitor& v) { v.Typed("alone", &alone, table, ""); });
        return nb::make_tuple(ToPython(config),
                              ToPython(Config::FromJson(resolved.json()["alone"][0])));
      },
      "kind"_a, "type"_a, "options"_a,
      nb::sig("def check_component(kind: str, type: str, options: dict) -> tuple[dict, dict]"),
      "The config of a type with these options as plain data, and the same with every key. Raises\n"
      "Error where one is wrong, missing or unknown.");
}

}  // namespace lopt::python

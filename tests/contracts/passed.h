#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lopt/base/check.h"

namespace lopt::contracts {

using Names = std::vector<std::string>;

// Fails with what the checks of these names find in `subject`.
template <class Subject>
void CheckKeeps(const std::vector<checks::Check<Subject>>& all, const Names& names,
                const Subject& subject) {
  for (const std::string& name : names) {
    const auto check = std::ranges::find(all, name, &checks::Check<Subject>::name);
    REQUIRE(check != all.end());
    const checks::Findings findings = checks::RunCheck(*check, subject);
    for (const std::string& message : findings.messages()) {
      FAIL_CHECK(name, ": ", message, " (", std::string(check->header), ": ",
                 std::string(check->promise), ")");
    }
    CHECK(findings.passed());
  }
}

// The names of all checks but `others`.
template <class Subject>
Names AllBut(const Names& others, const std::vector<checks::Check<Subject>>& all) {
  Names names;
  for (const auto& check : all) names.emplace_back(check.name);
  for (const std::string& other : others) REQUIRE(std::erase(names, other) == 1);
  return names;
}

}  // namespace lopt::contracts

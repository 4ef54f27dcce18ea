#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "lopt/base/isa.h"
#include "tests/skip.h"

namespace lopt {
namespace {

std::string running;  // the test case
std::vector<std::string> skipped;
bool skips = false;  // the running test case does
int64_t begun = 0;   // test cases
int64_t skipping = 0;

// Says nothing.
struct Reporter : doctest::IReporter {
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

// What must not pass as a success: a test case that asserts nothing, and a filter that matches
// none.
struct Guard : Reporter {
  static inline bool failed = false;

  explicit Guard(const doctest::ContextOptions&) {}

  void test_case_start(const doctest::TestCaseData& test) override {
    running = test.m_name;
    skips = false;
    ++begun;
  }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    if (skips) ++skipping;
    if (stats.numAssertsCurrentTest > 0 || stats.failure_flags != 0 || skips) return;
    failed = true;
    std::cout << "FAILED: '" << running
              << "' made no assertion; a test case that cannot run here calls SkipTest\n";
  }
  void test_run_end(const doctest::TestRunStats& stats) override {
    if (stats.numTestCasesPassingFilters > 0) return;
    failed = true;
    std::cout << "FAILED: no test case has this name\n";
  }
};

REGISTER_LISTENER("guard", 1, Guard);

// What tests/discover.cmake reads: lines "<suite>/<test case>".
struct Listing : Reporter {
  explicit Listing(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData& query) override {
    for (unsigned i = 0; i < query.num_data; ++i) {
      std::cout << query.data[i]->m_test_suite << '/' << query.data[i]->m_name << '\n';
    }
  }
};

REGISTER_REPORTER("ctest", 1, Listing);

}  // namespace

void SkipTest(const std::string& reason) {
  skips = true;
  skipped.push_back(running + ": " + reason);
}

}  // namespace lopt

// Tests run on the machine's best instruction set, or on the one that LOPT_TEST_ISA names.
int main(int argc, char** argv) {
  if (const char* isa = std::getenv("LOPT_TEST_ISA"); isa != nullptr) lopt::PinIsa(isa);
#ifdef __SANITIZE_ADDRESS__
  // The libraries that tests preload into programs come before the sanitizer's.
  setenv("ASAN_OPTIONS", "verify_asan_link_order=0", /*overwrite=*/0);
#endif
  int status = doctest::Context(argc, argv).run();
  if (lopt::Guard::failed) status = 1;
  // ctest takes these words for a skip whatever the status is, so a failure, or an entry of which
  // other test cases ran, goes without them.
  const bool all = status == 0 && lopt::skipping == lopt::begun;
  for (const std::string& test : lopt::skipped) {
    std::cout << (all ? "SKIPPED: " : "left out: ") << test << "\n";
  }
  return status;
}

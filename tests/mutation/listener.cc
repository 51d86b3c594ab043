// Tells which mutants each test of a program reaches: a line per test in $BRAID_MUTANTS_TESTS,
//   Suite.Test <milliseconds> <0 or 1: passed> <mutant> <mutant> …
// What the preparation of a suite reaches counts for each of its tests.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

#include "switch.h"

namespace {

constexpr int kMutantsMax = 1 << 14;

class ReachListener : public ::testing::EmptyTestEventListener {
 public:
  explicit ReachListener(const char* path) : out_(path, std::ios::app) {}

 private:
  void OnTestSuiteStart(const ::testing::TestSuite&) override {
    Clear();
    prepared_.clear();
    first_ = true;
  }
  void OnTestStart(const ::testing::TestInfo&) override {
    if (first_) prepared_ = Reached();
    first_ = false;
    Clear();
  }
  void OnTestEnd(const ::testing::TestInfo& info) override {
    std::set<int> reached = Reached();
    reached.insert(prepared_.begin(), prepared_.end());
    out_ << info.test_suite_name() << '.' << info.name() << ' ' << info.result()->elapsed_time()
         << ' ' << (info.result()->Passed() || info.result()->Skipped());
    for (const int number : reached) out_ << ' ' << number;
    out_ << std::endl;
  }
  static void Clear() { std::memset(braid_mutants_reached, 0, kMutantsMax); }
  static std::set<int> Reached() {
    std::set<int> numbers;
    for (int i = 0; i < kMutantsMax; ++i) {
      if (braid_mutants_reached[i] != 0) numbers.insert(i);
    }
    return numbers;
  }

  std::ofstream out_;
  std::set<int> prepared_;
  bool first_ = true;
};

[[gnu::constructor]] void Listen() {
  const char* path = std::getenv("BRAID_MUTANTS_TESTS");
  if (path == nullptr) return;
  ::testing::UnitTest::GetInstance()->listeners().Append(new ReachListener(path));
}

}  // namespace

// The trial process as a fork of the test: verdicts, limits, cancelling, and a process that dies.
#include "text/grammar/grammar_trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "text/grammar/grammar_library.h"
#include "text/test_model.h"

namespace braid {
namespace {

using testing::HasSubstr;

constexpr std::string_view kSlow = R"({"type": "integer", "multipleOf": 9999991})";

class GrammarTrialTest : public testing::Test {
 protected:
  GrammarTrialTest() : tokenizer_(LoadBraidTiny()), end_(*tokenizer_.TokenToId("<|im_end|>")) {}

  std::unique_ptr<TrialProcess> Start(GrammarBudget budget = {}) {
    const auto spawn = [this](int control, int vocabulary) {
      process_ = ::fork();
      if (process_ == 0) ::_exit(RunTrialProcess(control, vocabulary));
      return static_cast<int>(process_);
    };
    auto trial = TrialProcess::Start(PackVocabulary(tokenizer_, end_), budget, spawn);
    CHECK(trial.ok());
    return *std::move(trial);
  }
  GrammarVerdict Try(TrialProcess& trial, std::string_view schema) {
    return trial.Try(GrammarKind::kJsonSchema, schema, cancelled_);
  }

  Tokenizer tokenizer_;
  TokenId end_;
  std::atomic<bool> cancelled_ = false;
  pid_t process_ = -1;
};

TEST_F(GrammarTrialTest, SaysWhatAGrammarTakesOrWhatIsWrongWithIt) {
  auto trial = Start();
  const GrammarVerdict good = Try(*trial, R"({"type": "object"})");
  EXPECT_TRUE(good.status);
  EXPECT_GT(good.cpu_us, 0);
  EXPECT_GT(good.held_bytes, 10'000);
  const GrammarVerdict wrong = Try(*trial, R"({"type": "shape"})");
  EXPECT_EQ(wrong.status.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(wrong.status.error().message, HasSubstr("shape"));
}

TEST_F(GrammarTrialTest, EndsWhatTakesTooMuchTime) {
  auto trial = Start({.cpu_ms = 100});
  const GrammarVerdict verdict = Try(*trial, kSlow);
  EXPECT_EQ(verdict.status.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(verdict.status.error().message, HasSubstr("100 ms of CPU time"));
  EXPECT_GE(verdict.cpu_us, 50'000);
  EXPECT_TRUE(Try(*trial, R"({"type": "object"})").status) << "the next is not held up";
}

TEST_F(GrammarTrialTest, EndsWhatTakesTooMuchMemory) {
  auto trial = Start({.cpu_ms = 60'000, .memory_bytes = 16 << 20});
  const GrammarVerdict verdict = Try(*trial, kSlow);
  EXPECT_EQ(verdict.status.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(verdict.status.error().message, HasSubstr("16 MiB of memory"));
}

TEST_F(GrammarTrialTest, CancellingEndsTheChild) {
  auto trial = Start({.cpu_ms = 60'000, .memory_bytes = int64_t{4} << 30});
  ASSERT_TRUE(Try(*trial, R"({"type": "object"})").status);  // its process has begun
  std::jthread cancel([&] {
    ::usleep(100'000);
    cancelled_ = true;
  });
  const GrammarVerdict verdict = Try(*trial, kSlow);
  EXPECT_EQ(verdict.status.error().code, ErrorCode::kUnavailable);
  EXPECT_GT(verdict.cpu_us, 0) << "what it used until then";
  cancelled_ = false;
  EXPECT_TRUE(Try(*trial, R"({"type": "object"})").status);
}

TEST_F(GrammarTrialTest, ADeadProcessIsStartedAgain) {
  auto trial = Start();
  const pid_t first = process_;
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  EXPECT_TRUE(Try(*trial, R"({"type": "object"})").status);
  EXPECT_NE(process_, first);
}

TEST_F(GrammarTrialTest, TheLibraryKeepsVerdictsAndCompilesWhatPassed) {
  auto trial = Start({.cpu_ms = 100});
  auto library = *GrammarLibrary::Create(tokenizer_, end_, {.trial = trial.get()});
  const std::string slow = GrammarText(GrammarKind::kJsonSchema, kSlow);
  const std::string good = GrammarText(GrammarKind::kRegex, "[ab]+");
  EXPECT_FALSE(library->Known(slow));
  EXPECT_FALSE(library->Check(slow).status);
  ASSERT_TRUE(library->Known(slow));
  EXPECT_EQ(library->Known(slow)->error().code, ErrorCode::kExhausted);
  EXPECT_EQ(library->Check(slow).work_us, 0);
  EXPECT_TRUE(library->Check(good).status);
  EXPECT_TRUE(library->Start(good, false).ok());
}

// Compiled grammars that requests hold are not pushed out, and they leave no room for more.
TEST_F(GrammarTrialTest, HeldGrammarsStay) {
  const std::string first = GrammarText(GrammarKind::kRegex, "[ab]+");
  const std::string second = GrammarText(GrammarKind::kRegex, "[cd]+");
  auto library = *GrammarLibrary::Create(tokenizer_, end_, {.bytes_max = 900 << 10});
  ASSERT_TRUE(library->Check(first).status);
  {
    auto hold = library->HoldFor(first, 1);
    ASSERT_TRUE(hold.ok());
    ASSERT_TRUE(library->Check(second).status);
    EXPECT_TRUE(library->Known(first));
    EXPECT_EQ(library->HoldFor(second, 1).error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(library->HoldFor(second, 100).error().code, ErrorCode::kInvalid);
  }
  EXPECT_TRUE(library->HoldFor(second, 1).ok());
  EXPECT_LE(library->bytes(), library->bytes_max());
}

}  // namespace
}  // namespace braid

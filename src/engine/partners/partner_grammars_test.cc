// Grammars of partners' requests: who waits, what is kept, with a trial that the test lets go on.
#include "engine/partners/partner_grammars.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "engine/partners/test_held_grammars.h"

namespace braid {
namespace {

bool Until(const std::function<bool()>& holds) {
  const int64_t end_us = MonotonicUs() + 30'000'000;
  while (!holds() && MonotonicUs() < end_us) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return holds();
}

class PartnerGrammarsTest : public HeldGrammarsTest {
 protected:
  auto Enter(PartnerGrammars& grammars, const std::string& source) {
    return grammars.Enter("key", Regex(source), [this] { ++woken_; });
  }

  std::atomic<int> woken_ = 0;
};

TEST_F(PartnerGrammarsTest, APlaceIsPendingUntilTheGrammarIsCompiledAndThenKeepsIt) {
  PartnerGrammars grammars(*library_);
  auto place = *Enter(grammars, "a+");
  ASSERT_TRUE(Until([&] { return trial_.tried == 1; }));
  EXPECT_FALSE(place->Outcome());
  trial_.open = true;
  ASSERT_TRUE(Until([&] { return woken_ == 1; }));
  ASSERT_TRUE(place->Outcome());
  EXPECT_TRUE(place->Outcome()->ok());
  // A grammar and its stream take 2 MiB of 3; another evicts nothing that is kept.
  auto second = *Enter(grammars, "b+");
  ASSERT_TRUE(Until([&] { return second->Outcome().has_value(); }));
  EXPECT_FALSE(second->Outcome()->ok());
  EXPECT_TRUE(library_->Known(Regex("a+")));
  place.reset();
  auto again = *Enter(grammars, "b+");
  ASSERT_TRUE(Until([&] { return again->Outcome().has_value(); }));
  EXPECT_TRUE(again->Outcome()->ok());
}

TEST_F(PartnerGrammarsTest, AKnownGrammarHasNoQueue) {
  trial_.open = true;
  ASSERT_TRUE(library_->Check(Regex("a+")).status.ok());
  PartnerGrammars grammars(*library_);
  auto place = *Enter(grammars, "a+");
  ASSERT_TRUE(place->Outcome());
  EXPECT_TRUE(place->Outcome()->ok());
  EXPECT_EQ(woken_, 0);
}

TEST_F(PartnerGrammarsTest, WhoLeavesCancelsTheCompilation) {
  PartnerGrammars grammars(*library_);
  auto place = *Enter(grammars, "a+");
  ASSERT_TRUE(Until([&] { return trial_.tried == 1; }));
  place.reset();
  EXPECT_TRUE(Until([&] { return trial_.gave_up == 1; }));
  EXPECT_EQ(woken_, 0);
}

TEST_F(PartnerGrammarsTest, AKeyHasItsShareOfThePlaces) {
  PartnerGrammars grammars(*library_, {.threads = 1, .waiting_per_key = 1});
  auto first = *Enter(grammars, "a+");
  ASSERT_TRUE(Until([&] { return trial_.tried == 1; }));
  auto second = *Enter(grammars, "b+");
  EXPECT_EQ(Enter(grammars, "c+").error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(grammars.Enter("other", Regex("c+"), [] {}).ok());
}

}  // namespace
}  // namespace braid

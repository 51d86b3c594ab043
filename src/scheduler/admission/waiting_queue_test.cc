// Fair shares: what each tenant gets while several wait, and what idleness saves up.
#include "scheduler/admission/waiting_queue.h"

#include <gtest/gtest.h>

#include <deque>

#include "scheduler/testing/scheduler_fixture.h"

namespace braid {
namespace {

class WaitingQueueTest : public ::testing::Test {
 protected:
  Sequence& Make(const std::string& tenant, int32_t priority = 0, int32_t dp_rank = -1) {
    Request r;
    r.id = RequestId(next_++);
    r.prompt = {1};
    r.tenant = tenant;
    r.priority = priority;
    r.dp_rank = dp_rank;
    Sequence& s = sequences_.emplace_back(std::move(r), geometry_);
    s.arrival = s.id.value;
    return s;
  }
  Sequence& Wait(const std::string& tenant, int32_t priority = 0) {
    Sequence& s = Make(tenant, priority);
    queue_.Insert(s);
    return s;
  }
  // Admits the first of all; returns its tenant.
  std::string Admit(int64_t tokens) {
    Sequence& s = *queue_.First(DpRankId(-1));
    queue_.Admitted(s);
    queue_.Erase(s);
    queue_.Charge(s, tokens);
    return s.request.tenant;
  }

  const CacheGeometry geometry_{
      .groups = {{"full", GroupKind::kFull, 64, 1}}, .page_bytes = 64, .pages = 4};
  std::deque<Sequence> sequences_;
  WaitingQueue queue_{2};
  int64_t next_ = 0;
};

TEST_F(WaitingQueueTest, ATenantThatSendsOneRequestAtATimeKeepsItsDebt) {
  for (int i = 0; i < 100; ++i) Wait("many");
  std::map<std::string, int64_t> tokens;
  bool waits = false;
  for (int i = 0; i < 60; ++i) {
    if (!waits) Wait("one by one");
    const bool many = queue_.First(DpRankId(-1))->request.tenant == "many";
    const int64_t cost = many ? 50 : 500;
    const std::string tenant = Admit(cost);
    tokens[tenant] += cost;
    waits = tenant == "many";
  }
  EXPECT_NEAR(static_cast<double>(tokens["many"]), static_cast<double>(tokens["one by one"]), 500);
}

// Tags: the first tenant's is 100 ahead of the second's, whether its request stands in line or not.
TEST_F(WaitingQueueTest, WhoIsSetAsideIsPassedOverAndStillWaits) {
  Wait("a");
  Sequence& first = Wait("a");
  Sequence& second = Wait("a");
  Wait("b");
  EXPECT_EQ(Admit(100), "a");
  queue_.SetAside(first);
  EXPECT_EQ(queue_.size(), 3);
  EXPECT_EQ(Admit(50), "b");
  EXPECT_EQ(queue_.First(DpRankId(-1)), &second);
  queue_.SetAside(second);
  EXPECT_EQ(queue_.First(DpRankId(-1)), nullptr);
  Wait("b");  // comes to wait beside one with a tag of 100
  queue_.PutBack(second);
  queue_.PutBack(first);
  EXPECT_EQ(queue_.First(DpRankId(-1)), &first);
  queue_.SetAside(first);
  queue_.PutBack(first);
  queue_.Erase(first);
  EXPECT_EQ(queue_.First(DpRankId(-1)), &second);
  EXPECT_EQ(queue_.size(), 2);
}

TEST_F(WaitingQueueTest, IdlenessSavesNothingUp) {
  for (int i = 0; i < 10; ++i) Wait("busy");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Admit(100), "busy");
  for (int i = 0; i < 10; ++i) Wait("late");
  int late = 0;
  for (int i = 0; i < 6; ++i) late += Admit(100) == "late";
  EXPECT_EQ(late, 3);
}

TEST_F(WaitingQueueTest, WhoComesWhenNobodyWaitsStartsAtTheLatestTag) {
  Wait("a");
  Admit(1000);
  Wait("a");
  Admit(1000);  // at the tag of 1000
  Wait("b");    // nobody waits: starts where the last admitted was
  Wait("b");
  Wait("a");
  EXPECT_EQ(Admit(500), "b");
  EXPECT_EQ(Admit(600), "b") << "1500 against 2000";
  Wait("b");
  EXPECT_EQ(Admit(1), "a") << "2000 against 2100";
}

TEST_F(WaitingQueueTest, APriorityGoesBeforeAnyDebt) {
  Wait("poor");
  Wait("rich");
  for (int i = 0; i < 3; ++i) Wait("rich", 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Admit(100000), "rich");
  EXPECT_EQ(Admit(1), "poor");
}

TEST_F(WaitingQueueTest, WithinATenantThePriorityCountsAndThenWhoCameFirst) {
  Sequence& first = Wait("a");
  Sequence& second = Wait("a");
  Sequence& urgent = Wait("a", 5);
  EXPECT_EQ(queue_.First(DpRankId(-1)), &urgent);
  queue_.Erase(urgent);
  EXPECT_EQ(queue_.First(DpRankId(-1)), &first);
  queue_.Erase(first);
  EXPECT_EQ(queue_.First(DpRankId(-1)), &second);
  EXPECT_TRUE(queue_.Before(first, second));
  EXPECT_FALSE(queue_.Before(second, first));
}

TEST_F(WaitingQueueTest, RequestsOfARankStandInItsQueueAlone) {
  Sequence& mine = Make("a", 0, 1);
  queue_.Insert(mine);
  EXPECT_EQ(queue_.First(DpRankId(-1)), nullptr);
  EXPECT_EQ(queue_.First(DpRankId(0)), nullptr);
  EXPECT_EQ(queue_.First(DpRankId(1)), &mine);
  queue_.Charge(mine, 10);
  EXPECT_EQ(queue_.First(DpRankId(1)), &mine);
  queue_.Erase(mine);
  EXPECT_EQ(queue_.First(DpRankId(1)), nullptr);
}

TEST_F(WaitingQueueTest, CountsWhoWaitsAndWhoRanBefore) {
  Sequence& again = Make("a");
  again.preemptions = 2;
  queue_.Insert(again);
  Sequence& fresh = Wait("a");
  EXPECT_EQ(queue_.size(), 2);
  EXPECT_EQ(queue_.preempted(), 1);
  queue_.Erase(again);
  EXPECT_EQ(queue_.preempted(), 0);
  queue_.Erase(fresh);
  EXPECT_TRUE(queue_.empty());
}

// After one of 100,000 tokens and so many others: whether its debt still counts.
struct Crowd {
  int tenants;
  bool remembered;
};
class WaitingQueueCrowdTest : public WaitingQueueTest,
                              public ::testing::WithParamInterface<Crowd> {};

TEST_P(WaitingQueueCrowdTest, DebtsAreForgottenOnlyPastTheBoundOfTenants) {
  Wait("debtor");
  Admit(100000);
  for (int i = 0; i < GetParam().tenants; ++i) {
    Wait(std::to_string(i));
    Admit(1);
  }
  Wait("new");
  Wait("new");
  Wait("debtor");
  EXPECT_EQ(Admit(10), "new");
  EXPECT_EQ(queue_.First(DpRankId(-1))->request.tenant, GetParam().remembered ? "new" : "debtor");
}

INSTANTIATE_TEST_SUITE_P(Bounds, WaitingQueueCrowdTest,
                         ::testing::Values(Crowd{5000, true}, Crowd{9000, false}));

TEST_F(WaitingQueueTest, ItsHeadHasEachTenantsFirstBeforeTheirSecond) {
  Wait("a");
  Wait("a");
  Wait("b");
  Wait("a", 1);
  Sequence& own = Make("c", 5, 1);
  queue_.Insert(own);
  const auto head = [&](int32_t rank, size_t count) {
    std::vector<int64_t> ids;
    for (const Sequence* s : queue_.Head(DpRankId(rank), count)) ids.push_back(s->id.value);
    return ids;
  };
  EXPECT_EQ(head(-1, 10), (std::vector<int64_t>{3, 2, 0, 1}));
  EXPECT_EQ(head(-1, 3), (std::vector<int64_t>{3, 2, 0}));
  EXPECT_EQ(head(-1, 1), (std::vector<int64_t>{3}));
  EXPECT_EQ(head(-1, 0), (std::vector<int64_t>{}));
  EXPECT_EQ(head(1, 4), (std::vector<int64_t>{4}));
  EXPECT_EQ(head(0, 4), (std::vector<int64_t>{}));
  queue_.SetAside(own);
  EXPECT_EQ(head(1, 4), (std::vector<int64_t>{}));
}

}  // namespace
}  // namespace braid

// How the loops of products, experts and norms are shared out among many members, by their plans
// alone: the tasks of each loop, and how much longer the fullest member works than an equal part
// would take. The sizes are those of a mixture of 256 experts with hidden size 2048.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <string>
#include <vector>

#include "base/math.h"
#include "ops/cpu/experts.h"
#include "ops/cpu/gemm/linear.h"
#include "ops/packed.h"

namespace braid::ops {
namespace {

// Tasks are taken in order by whoever is free: the longest member's work over an equal part.
double Imbalance(int64_t members, const std::vector<double>& tasks) {
  std::priority_queue<double, std::vector<double>, std::greater<>> free;
  for (int64_t i = 0; i < members; ++i) free.push(0);
  double all = 0, last = 0;
  for (const double task : tasks) {
    const double end = free.top() + task;
    free.pop();
    free.push(end);
    all += task;
    last = std::max(last, end);
  }
  return last * static_cast<double>(members) / all;
}

// Loops of less work for each member take some ten microseconds: a router's for few tokens.
constexpr double kFlopsWorthSharing = 1.2e6;

// Every loop of a kind: its tasks' work and what all of it is, in operations.
struct Loop {
  std::string what;
  std::vector<double> tasks;
};

Loop ProductLoop(int64_t members, int64_t rows, int64_t n, int64_t k) {
  const PackedMatrix w = {.format = WeightFormat::kI4, .n = n, .k = k};
  const cpu::LinearPlan plan = cpu::PlanLinear(members, rows, w.panels(), w.panel_bytes());
  Loop loop{.what = "product of " + std::to_string(n) + " outputs"};
  int64_t panels = 0;
  for (int64_t g = 0; g < plan.groups; ++g) {
    const int64_t columns = std::min(plan.panels, w.panels() - g * plan.panels);
    for (int64_t p = 0; p < plan.parts; ++p) {
      const int64_t of = std::min(plan.rows, rows - p * plan.rows);
      loop.tasks.push_back(2.0 * static_cast<double>(of * columns * kPanelRows * k));
    }
    panels += columns;
  }
  EXPECT_EQ(panels, w.panels());
  return loop;
}

// The rows of a step's experts where tokens choose evenly; the shared expert, which comes first in
// the loop, has all tokens.
std::vector<int64_t> ExpertRows(int64_t tokens) {
  constexpr int64_t kExperts = 256, kTopK = 8;
  std::vector<int64_t> rows = {tokens};
  for (int64_t e = 0; e < std::min(kExperts, tokens * kTopK); ++e) {
    rows.push_back(std::max<int64_t>(1, tokens * kTopK / kExperts));
  }
  return rows;
}

Loop UpLoop(int64_t members, int64_t tokens) {
  constexpr int64_t kWidth = 512, kHidden = 2048;
  cpu::UpWork work = {.width = kWidth, .least = kPanelRows};
  for (const int64_t rows : ExpertRows(tokens)) {
    ++work.experts;
    work.rows += rows;
    work.rows_most = std::max(work.rows_most, rows);
  }
  const cpu::UpPlan plan = cpu::PlanUp(members, work);
  EXPECT_EQ(plan.cols * plan.groups, kWidth);
  Loop loop{.what = "gate and up"};
  for (const int64_t rows : ExpertRows(tokens)) {
    for (int64_t g = 0; g < plan.groups; ++g) {
      loop.tasks.push_back(4.0 * static_cast<double>(rows * plan.cols * kHidden));
    }
  }
  return loop;
}

Loop PackLoop(int64_t tokens) {
  Loop loop{.what = "packing between the products"};
  for (const int64_t rows : ExpertRows(tokens)) {
    for (int64_t row = 0; row < rows; row += cpu::kPackRows) {
      loop.tasks.push_back(16.0 * static_cast<double>(std::min(cpu::kPackRows, rows - row)) * 512);
    }
  }
  return loop;
}

Loop DownLoop(int64_t members, int64_t tokens) {
  constexpr int64_t kWidth = 512, kHidden = 2048;
  const std::vector<int64_t> rows = ExpertRows(tokens);
  const cpu::DownPlan plan = cpu::PlanDown(members, 1, std::ssize(rows), tokens * 9, kHidden);
  Loop loop{.what = "down"};
  for (const int64_t of : rows) {
    if (!plan.by_expert) break;
    for (int64_t g = 0; g < kHidden / plan.cols; ++g) {
      loop.tasks.push_back(2.0 * static_cast<double>(of * plan.cols * kWidth));
    }
  }
  if (!plan.by_expert) {
    loop.tasks.assign(static_cast<size_t>(plan.tasks),
                      2.0 * static_cast<double>(tokens * 9 * plan.cols * kWidth));
  }
  EXPECT_EQ(std::ssize(loop.tasks), plan.tasks);
  return loop;
}

Loop RowLoop(int64_t members, int64_t rows) {
  const int64_t each = cpu::RowsPerTask(members, rows);
  Loop loop{.what = "norms"};
  for (int64_t row = 0; row < rows; row += each) {
    loop.tasks.push_back(8.0 * static_cast<double>(std::min(each, rows - row)) * 2048);
  }
  return loop;
}

std::vector<Loop> LoopsOf(int64_t members, int64_t tokens) {
  std::vector<Loop> loops;
  // Projections of linear and of full attention and their outputs, router, head.
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{12288, 2048},
                             {9216, 2048},
                             {2048, 4096},
                             {256, 2048},
                             {151936, 2048}}) {
    loops.push_back(
        ProductLoop(members, n > 100'000 ? std::min<int64_t>(tokens, 64) : tokens, n, k));
  }
  loops.push_back(UpLoop(members, tokens));
  loops.push_back(PackLoop(tokens));
  loops.push_back(DownLoop(members, tokens));
  loops.push_back(RowLoop(members, tokens));
  return loops;
}

TEST(TaskPlans, EveryLoopKeeps16And64And128MembersBusy) {
  int judged = 0;
  for (const int64_t members : {16, 64, 128}) {
    for (const int64_t tokens : {1, 8, 32, 128, 512, 2048}) {
      for (const Loop& loop : LoopsOf(members, tokens)) {
        double all = 0;
        for (const double task : loop.tasks) all += task;
        if (all < kFlopsWorthSharing * static_cast<double>(members)) continue;
        ++judged;
        EXPECT_LE(Imbalance(members, loop.tasks), 1.5 + 1e-9)
            << loop.what << ", " << tokens << " tokens, " << members << " members, "
            << loop.tasks.size() << " tasks";
      }
    }
  }
  EXPECT_GT(judged, 90);
}

// The projections, which take the time of a step without experts, and those of experts.
TEST(TaskPlans, LargeLoopsLoseASixthAtMost) {
  for (const int64_t members : {16, 64, 128}) {
    for (const int64_t tokens : {1, 8, 32, 128, 512, 2048}) {
      for (const Loop& loop : LoopsOf(members, tokens)) {
        double all = 0;
        for (const double task : loop.tasks) all += task;
        if (all < 5e6 * static_cast<double>(members)) continue;
        EXPECT_LE(Imbalance(members, loop.tasks), 1.2)
            << loop.what << ", " << tokens << " tokens, " << members << " members";
      }
    }
  }
}

// What two members had before stays: wide tasks, which read the least.
TEST(TaskPlans, FewMembersHaveWideTasks) {
  EXPECT_EQ(cpu::PlanLinear(2, 2048, 128, 20'000).panels, 32);
  EXPECT_EQ(cpu::PlanLinear(2, 2048, 128, 20'000).rows, 384);
  EXPECT_EQ(cpu::PlanLinear(2, 1, 128, 20'000).panels, 16);
  EXPECT_EQ(cpu::PlanUp(2, {9, 512, 16, 9, 1}).cols, 64);
  EXPECT_EQ(cpu::PlanUp(2, {257, 512, 16, 18432, 2048}).cols, 64);
  EXPECT_EQ(cpu::PlanUp(1, {1, 64, 16, 1, 1}).cols, 64);
  EXPECT_EQ(cpu::RowsPerTask(2, 2048), 16);
}

TEST(TaskPlans, OneTaskTooManyForOneMemberCounts) {
  EXPECT_DOUBLE_EQ(Imbalance(4, {1, 1, 1, 1}), 1.0);
  EXPECT_DOUBLE_EQ(Imbalance(4, {1, 1, 1, 1, 1}), 1.6);
  EXPECT_DOUBLE_EQ(Imbalance(2, {3, 1, 1, 1}), 1.0);
}

}  // namespace
}  // namespace braid::ops

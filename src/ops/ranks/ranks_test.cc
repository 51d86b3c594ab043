// What thread ranks compute together has the bits of one rank, for sizes that do not divide and for
// ranks without tokens; an error ends the exchange and nothing else.
#include "ops/ranks.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <thread>

#include "comm/thread_group.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/testing/test_context.h"

namespace braid::ops {
namespace {

// f(context, rank) on as many threads as there are ranks, which are one group.
void OnRanks(int32_t size, const std::function<void(const OpContext&, int32_t)>& f,
             std::chrono::milliseconds deadline = std::chrono::milliseconds(60000)) {
  ThreadGroup group(size, deadline);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      TestContext test(BestIsa(DetectCpu()), 1, Compute::kBF16);
      Ranks ranks{.tensor = &group.rank(rank),
                  .experts = &group.rank(rank),
                  .all = &group.rank(rank),
                  .status = {}};
      test.context.ranks = &ranks;
      SpoilWorkspace(test.context);
      f(test.context, rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Matrix ColumnsOf(Matrix all, int32_t rank, int32_t size) {
  const Part part = PartOf(all.cols, rank, size);
  return all.columns(part.begin, part.count);
}

void ExpectSameBits(const Matrix& got, const Matrix& want) {
  for (int64_t r = 0; r < want.rows; ++r) {
    ASSERT_TRUE(SameBits(got.row(r), want.row(r), want.cols)) << "row " << r;
  }
}

TEST(Ranks, GatherColumnsPutsEveryRanksColumnsInTheirPlace) {
  for (const int32_t size : {2, 3, 4}) {
    Rng rng(1);
    const OwnedMatrix all(rng, 5, 30);
    OnRanks(size, [&](const OpContext& context, int32_t rank) {
      OwnedMatrix got(5, 30, 40), in_place(5, 30, 40);
      GatherColumns(context, ColumnsOf(all.view, rank, size), got.view);
      ExpectSameBits(got.view, all.view);
      const Matrix own = ColumnsOf(in_place.view, rank, size);
      for (int64_t r = 0; r < 5; ++r) {
        std::copy_n(ColumnsOf(all.view, rank, size).row(r), own.cols, own.row(r));
      }
      GatherColumns(context, own, in_place.view);
      ExpectSameBits(in_place.view, all.view);
      OwnedMatrix root_only(5, 30);
      GatherColumns(context, ColumnsOf(all.view, rank, size), root_only.view, 1);
      if (rank == 1) ExpectSameBits(root_only.view, all.view);
    });
  }
}

TEST(Ranks, GatherRowsWorksWithFewerRowsThanRanks) {
  for (const int64_t rows : {0, 1, 2, 7}) {
    Rng rng(2);
    const OwnedMatrix all(rng, rows, 24);
    OnRanks(4, [&](const OpContext& context, int32_t) {
      OwnedMatrix got(rows, 24, 32);
      const Matrix own = OwnRows(context, got.view), from = OwnRows(context, all.view);
      for (int64_t r = 0; r < own.rows; ++r) std::copy_n(from.row(r), 24, own.row(r));
      GatherRows(context, got.view);
      ExpectSameBits(got.view, all.view);
    });
  }
}

// Rows [begin, begin + count) of a matrix, packed again.
OwnedWeights RowsOf(const OwnedWeights& whole, const Part& part) {
  Rng rng(0);
  OwnedWeights weights(rng, whole.matrix.format, 1, part.count, whole.matrix.k);
  std::vector<float> row(static_cast<size_t>(whole.matrix.k));
  for (int64_t p = 0; p < weights.matrix.panels(); ++p) {
    std::vector<std::vector<float>> rows;
    const std::byte* pointers[kPanelRows] = {};
    for (int64_t r = p * kPanelRows; r < std::min(part.count, (p + 1) * kPanelRows); ++r) {
      whole.matrix.ReadRow(0, part.begin + r, row.data());
      rows.push_back(row);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      pointers[i] = reinterpret_cast<const std::byte*>(rows[i].data());
    }
    PackPanel(weights.matrix, 0, p, pointers, DType::kF32);
  }
  return weights;
}

TEST(Ranks, DividedProductsAndRowsOfATableAreThoseOfOneRank) {
  Rng rng(3);
  const OwnedWeights w(rng, WeightFormat::kF32, 1, 50, 37);
  const OwnedMatrix x(rng, 6, 37);
  TestContext alone(BestIsa(DetectCpu()), 1, Compute::kBF16);
  OwnedMatrix want(6, 50), table(6, 37);
  DividedLinear(alone.context, {.x = x.view, .w = &w.matrix, .y = want.view});
  const std::vector<TokenId> ids = {49, 0, 13, 13, 1, 30};
  DividedEmbed(alone.context,
               {.table = &w.matrix, .vocabulary = 50, .ids = ids.data(), .out = table.view});
  for (const int32_t size : {2, 3, 4}) {
    OnRanks(size, [&](const OpContext& context, int32_t rank) {
      const OwnedWeights own = RowsOf(w, PartOf(50, rank, size));
      OwnedMatrix y(6, 50), head(6, 50), embedded(6, 37);
      DividedLinear(context, {.x = ColumnsOf(x.view, rank, size), .w = &own.matrix, .y = y.view});
      ExpectSameBits(y.view, want.view);
      DividedHead(context, {.x = x.view, .w = &own.matrix, .y = head.view});
      if (rank == 0) ExpectSameBits(head.view, want.view);
      DividedEmbed(
          context,
          {.table = &own.matrix, .vocabulary = 50, .ids = ids.data(), .out = embedded.view});
      ExpectSameBits(embedded.view, table.view);
    });
  }
}

// Matrices [first, first + count) of some.
PackedMatrix Some(const PackedMatrix& all, int64_t first, int64_t count) {
  PackedMatrix some = all;
  some.data += first * all.matrix_bytes();
  some.count = count;
  return some;
}

TEST(Ranks, ExpertsOfOtherRanksAddTheBitsOfOne) {
  constexpr int64_t kExperts = 12, kTopK = 3, kHidden = 40, kWidth = 24;
  for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kI8}) {
    Rng rng(4);
    const OwnedWeights gate_up(rng, format, 2 * kExperts, kWidth, kHidden);
    const OwnedWeights down(rng, format, kExperts, kHidden, kWidth);
    // Tokens of each rank: as many as fill several rounds, one, none.
    const std::vector<int64_t> tokens = {11, 1, 0, 4};
    for (const int32_t size : {2, 3, 4}) {
      OnRanks(size, [&](const OpContext& context, int32_t rank) {
        const int64_t rows = tokens[static_cast<size_t>(rank)];
        Rng own(static_cast<uint64_t>(rank));
        const OwnedMatrix x(own, rows, kHidden);
        std::vector<int32_t> ids(static_cast<size_t>(rows * kTopK));
        std::vector<float> weights(ids.size());
        for (int64_t t = 0; t < rows; ++t) {
          // Also all on one rank, and the last expert of all.
          const auto first = t == 0 ? kExperts - kTopK : own.Below(kExperts - kTopK);
          for (int64_t j = 0; j < kTopK; ++j) {
            ids[static_cast<size_t>(t * kTopK + j)] =
                static_cast<int32_t>(first) + static_cast<int32_t>(j);
          }
        }
        for (float& weight : weights) weight = static_cast<float>(own.Normal());
        OwnedMatrix want(rows, kHidden), got(rows, kHidden);
        if (rows > 0) {
          Experts(context, {.x = x.view,
                            .gate_up = &gate_up.matrix,
                            .down = &down.matrix,
                            .ids = ids.data(),
                            .weights = weights.data(),
                            .top_k = kTopK,
                            .out = want.view});
        }
        const int64_t part = kExperts / size;
        const PackedMatrix own_gate_up = Some(gate_up.matrix, 2 * part * rank, 2 * part);
        const PackedMatrix own_down = Some(down.matrix, part * rank, part);
        // Rounds of few tokens; parcels with room for all of them, for some, for one.
        constexpr std::pair<int64_t, int64_t> kForms[] = {{0, 0}, {1, 0}, {3, 0}, {0, 16},
                                                          {0, 2}, {0, 1}, {3, 2}};
        for (const auto& [round, parcel_rows] : kForms) {
          context.ranks->parcel_rows = parcel_rows;
          std::fill(got.values.begin(), got.values.end(), 7.0f);
          DividedExperts(context, {.x = x.view,
                                   .gate_up = &own_gate_up,
                                   .down = &own_down,
                                   .ids = ids.data(),
                                   .weights = weights.data(),
                                   .top_k = kTopK,
                                   .out = got.view,
                                   .round_tokens = round});
          EXPECT_TRUE(context.ranks->status.ok());
          ExpectSameBits(got.view, want.view);
        }
      });
    }
  }
}

TEST(Ranks, ARankThatDoesNotComeEndsTheExchangesOfTheOthers) {
  OnRanks(
      3,
      [&](const OpContext& context, int32_t rank) {
        if (rank == 1) return;
        OwnedMatrix all(2, 6);
        for (int i = 0; i < 3; ++i) {
          GatherColumns(context, ColumnsOf(all.view, rank, 3), all.view);
          ASSERT_FALSE(context.ranks->status.ok());
          EXPECT_EQ(context.ranks->status.error().message, "no word from rank 1 within 50 ms");
        }
      },
      std::chrono::milliseconds(50));
}

}  // namespace
}  // namespace braid::ops

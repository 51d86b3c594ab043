// Parts in memory: what comes back is what was put in, whatever made way, and who is told.
#include "tiers/host_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "base/system/test_page_policy.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

KnownPart Part(uint64_t number, GroupKind kind = GroupKind::kFull) {
  return {.key = {number, number * 7}, .kind = kind};
}

std::vector<std::byte> BytesOf(uint64_t number, size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(RandomBits(number, i / 8));
  return bytes;
}

// In two pieces.
PartPieces Pieces(std::vector<std::byte>& bytes) {
  const std::span<std::byte> all(bytes);
  return {all.first(bytes.size() / 3), all.subspan(bytes.size() / 3)};
}

// Of a move that began at a time.
bool Put(HostPages& pages, uint64_t number, size_t size, std::vector<KnownPart>& gone,
         int64_t began_us = 1) {
  std::vector<std::byte> bytes = BytesOf(number, size);
  return pages.Write(Part(number), Pieces(bytes), began_us, gone);
}

bool Comes(HostPages& pages, uint64_t number, size_t size) {
  std::vector<std::byte> bytes(size);
  if (!pages.Read(Part(number), Pieces(bytes))) return false;
  EXPECT_EQ(bytes, BytesOf(number, size)) << number;
  return true;
}

TEST(HostPages, LieOnTheNodeThatIsAskedFor) {
  const auto anywhere = *HostPages::Create(1 << 20);
  const auto there = *HostPages::Create(1 << 20, 0);
  if (PagePolicyAt(anywhere->memory()) < 0) GTEST_SKIP() << "the kernel tells no policies";
  EXPECT_EQ(PagePolicyAt(anywhere->memory()), MPOL_DEFAULT);
  for (const int64_t at : {0, (1 << 20) - 1}) {
    EXPECT_EQ(PagePolicyAt(there->memory() + at), MPOL_PREFERRED) << at;
  }
}

TEST(HostPages, MoreMemoryThanAMachineCanHaveIsRefused) {
  const auto pages = HostPages::Create(int64_t{1} << 60);
  ASSERT_FALSE(pages);
  EXPECT_EQ(pages.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(pages.error().message, ::testing::HasSubstr("memory for pages cannot be had"));
  EXPECT_EQ(pages.error().field, "cache_host");
}

TEST(HostPages, TheOldestMakesWayAndIsNamed) {
  const auto pages = *HostPages::Create(1024);
  std::vector<KnownPart> gone;
  for (uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(Put(*pages, i, 256, gone));
  EXPECT_THAT(gone, IsEmpty());
  EXPECT_TRUE(Put(*pages, 1, 256, gone));  // is there
  EXPECT_THAT(gone, IsEmpty());
  EXPECT_TRUE(Put(*pages, 4, 300, gone));
  EXPECT_THAT(gone, ElementsAre(Part(0), Part(1)));
  EXPECT_FALSE(Comes(*pages, 0, 256));
  EXPECT_FALSE(Comes(*pages, 1, 256));
  for (uint64_t i = 2; i < 4; ++i) EXPECT_TRUE(Comes(*pages, i, 256));
  EXPECT_TRUE(Comes(*pages, 4, 300));
  EXPECT_FALSE(pages->Has(Part(4, GroupKind::kState)));
}

// As many bytes as the oldest had make way for as many, and it alone.
TEST(HostPages, NoMoreMakesWayThanMust) {
  const auto pages = *HostPages::Create(1024);
  for (uint64_t i = 0; i < 12; ++i) {
    std::vector<KnownPart> gone;
    EXPECT_TRUE(Put(*pages, i, 256, gone));
    EXPECT_THAT(gone, i < 4 ? IsEmpty() : ::testing::Matcher<std::vector<KnownPart>>(
                                              ElementsAre(Part(i - 4))));
    EXPECT_EQ(pages->stats().parts, std::min<int64_t>(static_cast<int64_t>(i) + 1, 4));
  }
  std::vector<KnownPart> gone;
  EXPECT_TRUE(Put(*pages, 20, 257, gone));
  EXPECT_THAT(gone, ElementsAre(Part(8), Part(9)));
  EXPECT_EQ(pages->stats().bytes, 2 * 256 + 320) << "whole units of 64 bytes";
}

// As of a model whose files have changed.
TEST(HostPages, APartOfAnotherSizeIsNotThere) {
  const auto pages = *HostPages::Create(1024);
  std::vector<KnownPart> gone;
  EXPECT_TRUE(Put(*pages, 1, 300, gone));
  for (const size_t size : {299, 301, 320}) {
    std::vector<std::byte> bytes(size);
    EXPECT_FALSE(pages->Read(Part(1), Pieces(bytes))) << size;
  }
  EXPECT_TRUE(Comes(*pages, 1, 300));
}

TEST(HostPages, WhatIsLargerThanTheMemoryIsNotKept) {
  const auto pages = *HostPages::Create(1024);
  std::vector<KnownPart> gone;
  EXPECT_TRUE(Put(*pages, 1, 500, gone));
  EXPECT_FALSE(Put(*pages, 2, 1025, gone));
  EXPECT_THAT(gone, IsEmpty());
  EXPECT_TRUE(Comes(*pages, 1, 500));
}

TEST(HostPages, AllAreThoseThatCanBeRead) {
  const auto pages = *HostPages::Create(512);
  EXPECT_THAT(pages->All(), IsEmpty());
  std::vector<KnownPart> gone;
  for (uint64_t i = 0; i < 3; ++i) EXPECT_TRUE(Put(*pages, i, 256, gone));
  EXPECT_THAT(pages->All(), ::testing::UnorderedElementsAre(Part(1), Part(2)));
  pages->Clear(1);
  EXPECT_THAT(pages->All(), IsEmpty());
}

TEST(HostPages, AClearForgetsAllAndWhatWasToCome) {
  const auto pages = *HostPages::Create(1024);
  std::vector<KnownPart> gone;
  EXPECT_TRUE(Put(*pages, 1, 500, gone, 4));
  pages->Clear(5);
  EXPECT_FALSE(Comes(*pages, 1, 500));
  EXPECT_EQ(pages->stats().bytes, 0);
  EXPECT_FALSE(Put(*pages, 1, 500, gone, 5)) << "its move had begun";
  pages->Clear(3);  // one that began before that one
  EXPECT_FALSE(Put(*pages, 1, 500, gone, 4));
  EXPECT_EQ(pages->stats().bytes, 0);
  EXPECT_TRUE(Put(*pages, 2, 1024, gone, 6));
  EXPECT_THAT(gone, IsEmpty());
}

// Also what was put in after a part that somebody copies, and that one when it is copied.
TEST(HostPages, AClearForgetsWhatIsBeingCopied) {
  constexpr size_t kLarge = 8 << 20;
  const auto pages = *HostPages::Create(kLarge + 1024);
  std::vector<KnownPart> gone;
  std::vector<std::byte> large(kLarge);
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(pages->Write(Part(1), Pieces(large), i + 1, gone));
    for (uint64_t small = 2; small < 6; ++small) {
      EXPECT_TRUE(Put(*pages, small, 256, gone, i + 1));
    }
    std::atomic<int> read = 0;
    std::thread reader([&] {
      std::vector<std::byte> bytes(kLarge);
      while (pages->Read(Part(1), Pieces(bytes))) {
        ++read;
        read.notify_one();
      }
    });
    read.wait(0);
    pages->Clear(i + 1);
    EXPECT_LE(pages->stats().parts, 1);
    for (uint64_t part = 1; part < 6; ++part) EXPECT_FALSE(pages->Has(Part(part)));
    reader.join();
    EXPECT_EQ(pages->stats().parts, 0);
    EXPECT_EQ(pages->stats().bytes, 0);
  }
}

// What was being copied in does not come back.
TEST(HostPages, AClearForgetsWhatIsBeingPutIn) {
  constexpr size_t kLarge = 8 << 20;
  const auto pages = *HostPages::Create(kLarge);
  std::vector<std::byte> large(kLarge);
  for (int64_t i = 0; i < 20; ++i) {
    std::thread writer([&] {
      std::vector<KnownPart> gone;
      (void)pages->Write(Part(1), Pieces(large), i + 1, gone);
    });
    while (i % 4 != 0 && pages->stats().parts == 0) std::this_thread::yield();
    pages->Clear(i + 1);
    EXPECT_FALSE(pages->Has(Part(1)));
    writer.join();
    EXPECT_FALSE(pages->Has(Part(1)));
    EXPECT_EQ(pages->stats().bytes, 0);
  }
}

// Parts of two sizes, as pages have them, in a memory of about 40.
TEST(HostPages, WhateverMadeWayTheRestIsWhatItWas) {
  const auto pages = *HostPages::Create(20'000);
  std::map<uint64_t, size_t> there;
  for (uint64_t i = 0; i < 3000; ++i) {
    const uint64_t number = i % 3 == 0 ? RandomBits(1, i) % (i + 1) : i;
    const size_t size = number % 3 == 0 ? 1000 : 330;
    std::vector<KnownPart> gone;
    EXPECT_TRUE(Put(*pages, number, size, gone));
    there[number] = size;
    for (const KnownPart& part : gone) EXPECT_EQ(there.erase(part.key.low), 1u);
    if (i % 50 != 0) continue;
    for (const auto& [n, bytes] : there) EXPECT_TRUE(Comes(*pages, n, bytes)) << n;
    EXPECT_EQ(pages->stats().parts, std::ssize(there));
    EXPECT_LE(pages->stats().bytes, 20'000);
  }
}

TEST(HostPages, ThreadsReadWhatWasWrittenOrNothing) {
  const auto pages = *HostPages::Create(1 << 16);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 2000; ++i) {
        const uint64_t number = RandomBits(t, i) % 64;
        std::vector<KnownPart> gone;
        if (i % 2 == 0) Put(*pages, number, 2000, gone);
        Comes(*pages, number, 2000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace braid

// Names whose answers are slow, wrong, or several addresses.
#include "base/system/name_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <chrono>
#include <latch>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

namespace braid {
namespace {

using ::testing::HasSubstr;

NetAddress Numbered(int last) {
  return Resolve({"127.0.0." + std::to_string(last), 7000}, true)->front();
}

// The last byte of an address of IPv4; -1: none.
int NumberOf(const std::optional<NetAddress>& address) {
  if (!address || address->bytes.ss_family != AF_INET) return -1;
  return static_cast<int>(
      ntohl(reinterpret_cast<const sockaddr_in*>(&address->bytes)->sin_addr.s_addr) & 0xff);
}

TEST(NameLookup, WhoAsksDoesNotWaitForTheAnswer) {
  std::latch answered(1);
  std::counting_semaphore<> woken(0);
  NameLookup lookup([&] { woken.release(); },
                    [&](const HostPort&) -> Result<std::vector<NetAddress>> {
                      answered.wait();
                      return std::vector{Numbered(1)};
                    });
  for (int i = 0; i < 3; ++i) {
    const auto next = lookup.Next({"slow", 7000});
    ASSERT_TRUE(next);
    EXPECT_FALSE(next->has_value());
    EXPECT_EQ(NumberOf(*lookup.Next({"127.0.0.9", 7000})), 9) << "an address waited for a name";
  }
  answered.count_down();
  woken.acquire();
  EXPECT_EQ(NumberOf(*lookup.Next({"slow", 7000})), 1);
}

// However often somebody asks meanwhile.
TEST(NameLookup, ANameIsLookedUpOnceForAnAnswer) {
  std::latch go(1);
  std::counting_semaphore<> woken(0);
  std::vector<std::string> asked;
  {
    NameLookup lookup([&] { woken.release(); },
                      [&](const HostPort& at) -> Result<std::vector<NetAddress>> {
                        go.wait();
                        asked.push_back(at.host);
                        return std::vector{Numbered(1)};
                      });
    for (int i = 0; i < 3; ++i) {
      EXPECT_FALSE(lookup.Next({"one", 7000})->has_value());
      EXPECT_FALSE(lookup.Next({"two", 7000})->has_value());
    }
    EXPECT_FALSE(lookup.Next({"last", 7000})->has_value());
    go.count_down();
    for (int i = 0; i < 3; ++i) woken.acquire();
  }
  EXPECT_EQ(asked, (std::vector<std::string>{"one", "two", "last"}));
}

TEST(NameLookup, AnAddressIsGivenOnceWithItsPort) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    const auto addresses = Resolve({host, 7001}, true);
    ASSERT_TRUE(addresses) << addresses.error().message;
    ASSERT_EQ(addresses->size(), 1u);
    const NetAddress& address = addresses->front();
    const bool six = address.bytes.ss_family == AF_INET6;
    EXPECT_EQ(address.size, six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    EXPECT_EQ(ntohs(reinterpret_cast<const sockaddr_in*>(&address.bytes)->sin_port), 7001);
  }
  EXPECT_FALSE(Resolve({"localhost", 7001}, true)) << "it is a name";
}

TEST(NameLookup, GivesAllAddressesAndThenAsksAgain) {
  std::counting_semaphore<> woken(0);
  int answers = 0;
  NameLookup lookup([&] { woken.release(); },
                    [&](const HostPort&) -> Result<std::vector<NetAddress>> {
                      ++answers;
                      return std::vector{Numbered(10 * answers), Numbered(10 * answers + 1)};
                    });
  for (int round = 1; round <= 2; ++round) {
    EXPECT_EQ(NumberOf(*lookup.Next({"two", 7000})), -1);
    woken.acquire();
    EXPECT_EQ(NumberOf(*lookup.Next({"two", 7000})), 10 * round);
    EXPECT_EQ(NumberOf(*lookup.Next({"two", 7000})), 10 * round + 1);
  }
}

TEST(NameLookup, WhoTakesAllAddressesHasThemInOrder) {
  std::counting_semaphore<> woken(0);
  NameLookup lookup([&] { woken.release(); },
                    [&](const HostPort&) -> Result<std::vector<NetAddress>> {
                      return std::vector{Numbered(1), Numbered(2), Numbered(3)};
                    });
  EXPECT_TRUE(lookup.Take({"three", 7000}, 9)->empty());
  woken.acquire();
  EXPECT_EQ(NumberOf(*lookup.Next({"three", 7000})), 1);
  const auto rest = lookup.Take({"three", 7000}, 9);
  ASSERT_TRUE(rest && rest->size() == 2);
  EXPECT_EQ(NumberOf(rest->front()), 2);
  EXPECT_EQ(NumberOf(rest->back()), 3);
  EXPECT_TRUE(lookup.Take({"three", 7000}, 9)->empty()) << "it is looked up again";
  EXPECT_EQ(lookup.Take({"127.0.0.9", 7000}, 9)->size(), 1u);
}

TEST(NameLookup, TellsAnErrorAndAsksAgain) {
  std::counting_semaphore<> woken(0);
  bool fails = true;
  NameLookup lookup([&] { woken.release(); },
                    [&](const HostPort& at) -> Result<std::vector<NetAddress>> {
                      if (!std::exchange(fails, false)) return std::vector{Numbered(1)};
                      return Error{ErrorCode::kUnavailable, at.host + " is not known"};
                    });
  ASSERT_TRUE(lookup.Next({"late", 7000}));
  woken.acquire();
  const auto failed = lookup.Next({"late", 7000});
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("late is not known"));
  EXPECT_EQ(NumberOf(*lookup.Next({"late", 7000})), -1);
  woken.acquire();
  EXPECT_EQ(NumberOf(*lookup.Next({"late", 7000})), 1);
}

// A name server that is away may take a minute, in which a process that stops would stay.
TEST(NameLookup, TheEndWaitsForNoAnswer) {
  static std::latch asked(1), answers(1);  // the resolver's end is not seen
  {
    NameLookup lookup([] { ADD_FAILURE() << "nobody is there to be woken"; },
                      [](const HostPort&) -> Result<std::vector<NetAddress>> {
                        asked.count_down();
                        answers.wait();
                        return std::vector{Numbered(1)};
                      });
    EXPECT_FALSE(lookup.Next({"never", 7000})->has_value());
    asked.wait();
  }
  answers.count_down();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace
}  // namespace braid

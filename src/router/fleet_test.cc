// Which registrations a fleet takes. No engine is asked anything: the network thread does not run.
#include "router/fleet.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

using testing::HasSubstr;

Registration Number(size_t number, int64_t generation = 1) {
  Registration registration;
  registration.address = {.name = fmt::format("e{}", number),
                          .host = "127.0.0.1",
                          .port = static_cast<uint16_t>(1000 + number),
                          .key = {},
                          .events = {}};
  registration.generation = generation;
  registration.fingerprint = "the model: m\n";
  return registration;
}

TEST(Fleet, TakesARegistrationOnlyOnceItHasStarted) {
  asio::io_context io;
  RouterMetrics metrics;
  Fleet fleet({.registration = true}, metrics);
  const auto early = fleet.Register(Number(1));
  ASSERT_FALSE(early);
  EXPECT_THAT(early.error().message, HasSubstr("is starting"));
  fleet.Start(io.get_executor());
  EXPECT_TRUE(fleet.Register(Number(1)));
}

TEST(Fleet, HasAsManyEnginesAsItMay) {
  asio::io_context io;
  RouterMetrics metrics;
  Fleet fleet({.registration = true, .lease_ms = 600'000}, metrics);
  fleet.Start(io.get_executor());
  for (size_t i = 0; i < kEnginesMax; ++i) ASSERT_TRUE(fleet.Register(Number(i))) << i;
  const auto more = fleet.Register(Number(kEnginesMax));
  ASSERT_FALSE(more);
  EXPECT_THAT(more.error().message, HasSubstr("the router has 256 engines"));
  EXPECT_TRUE(fleet.Register(Number(7))) << "it renews";
  EXPECT_TRUE(fleet.Register(Number(7, 2))) << "it takes the place of a former one";
  Registration leaves = Number(9);
  leaves.leaves = true;
  EXPECT_TRUE(fleet.Register(leaves));
  EXPECT_TRUE(fleet.Register(Number(kEnginesMax)));
}

}  // namespace
}  // namespace braid

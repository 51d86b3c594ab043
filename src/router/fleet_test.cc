// Which registrations a fleet takes, and what it makes of the answers of engines that it asks. The
// engines are sockets of the same thread.
#include "router/fleet.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "router/test_fleet.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

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

TEST_F(FleetTest, AnEngineMayHaveANameForItsHost) {
  EngineAddress named = one_.Address("a");
  named.host = "localhost";
  Start({named});
  ASSERT_TRUE(Is(0, "ready"));
  // The name may stand for ::1 as well, where nobody listens.
  const FleetEngine& engine = *fleet_.Choose(prompt_, {}).engine;
  EXPECT_EQ(engine.endpoints.front().address().to_string(), "127.0.0.1") << "it answers there";
}

// A fleet that has started, and takes registrations that last.
class RegistrationTest : public testing::Test {
 protected:
  RegistrationTest() { fleet.Start(io_.get_executor()); }

 private:
  asio::io_context io_;
  RouterMetrics metrics_;

 protected:
  Fleet fleet{{.registration = true, .lease_ms = 600'000}, metrics_};
};

TEST_F(RegistrationTest, HasAsManyEnginesAsItMay) {
  for (size_t i = 0; i < kEnginesMax; ++i) ASSERT_TRUE(fleet.Register(Number(i))) << i;
  const auto more = fleet.Register(Number(kEnginesMax));
  ASSERT_FALSE(more);
  EXPECT_THAT(more.error().message, HasSubstr("the router has 256 engines"));
  EXPECT_TRUE(fleet.Register(Number(7))) << "it renews";
  EXPECT_TRUE(fleet.Register(Number(7, 2))) << "it takes the place of a former one";
  EXPECT_TRUE(fleet.SetDraining("e7", false)) << "it is there";
  Registration leaves = Number(9);
  leaves.leaves = true;
  EXPECT_TRUE(fleet.Register(leaves));
  EXPECT_TRUE(fleet.Register(Number(kEnginesMax)));
}

TEST_F(RegistrationTest, OfTwoEnginesThatContradictEachOtherTheLaterProcessStays) {
  ASSERT_TRUE(fleet.Register(Number(1, 5)));
  const auto refused = [&](const Registration& registration) {
    const auto lease = fleet.Register(registration);
    return lease ? std::string() : lease.error().message;
  };
  EXPECT_THAT(refused(Number(1, 4)), HasSubstr("after this engine's start"));
  Registration elsewhere = Number(1, 9);
  elsewhere.address.port = 77;
  EXPECT_THAT(refused(elsewhere), HasSubstr("is registered as e1"));
  Registration other = Number(2);
  other.fingerprint = "the model: n\n";
  EXPECT_THAT(refused(other), HasSubstr("the model is n here and m at engine e1"));
  // A new process at the same address may serve another model, and have another name.
  other.address.port = Number(1).address.port;
  other.generation = 6;
  EXPECT_EQ(refused(other), "");
  EXPECT_FALSE(fleet.SetDraining("e1", true)) << "the former process is still there";
  EXPECT_TRUE(fleet.SetDraining("e2", true));
}

TEST_F(RegistrationTest, OnlyTheProcessItselfEndsItsRegistration) {
  ASSERT_TRUE(fleet.Register(Number(1, 5)));
  Registration leaves = Number(1, 4);  // a former process, late
  leaves.leaves = true;
  EXPECT_TRUE(fleet.Register(leaves));
  leaves = Number(1, 5);
  leaves.address.port = 77;
  leaves.leaves = true;
  EXPECT_TRUE(fleet.Register(leaves));
  EXPECT_TRUE(fleet.SetDraining("e1", false)) << "another process ended its registration";
  leaves.address.port = Number(1).address.port;
  EXPECT_TRUE(fleet.Register(leaves));
  EXPECT_FALSE(fleet.SetDraining("e1", false));
}

TEST_F(RegistrationTest, EnginesThatRegisterAreToldThePrefillEngines) {
  Registration prefills = Number(1);
  prefills.prefills = true;
  prefills.handoff = "127.0.0.1:7000";
  ASSERT_TRUE(fleet.Register(prefills));
  const auto lease = fleet.Register(Number(2));
  ASSERT_TRUE(lease);
  EXPECT_THAT(lease->prefills, testing::ElementsAre("127.0.0.1:7000"));
  EXPECT_THAT(fleet.WhyNone(), HasSubstr("e1: it computes prompts for other engines only"));
  prefills.leaves = true;
  ASSERT_TRUE(fleet.Register(prefills));
  EXPECT_THAT(fleet.Register(Number(2))->prefills, IsEmpty());
}

TEST_F(FleetTest, AnEngineGetsRequestsWhileItSaysThatItIsReady) {
  one_.answers["/ready"] = {503, R"({"error":{"message":"it loads weights"}})"};
  Start({one_.Address("a")});
  EXPECT_EQ(fleet_.WhyNone(), "a: not asked yet");
  ASSERT_TRUE(Is(0, "not_ready"));
  EXPECT_FALSE(fleet_.AnyReady());
  EXPECT_EQ(Chosen(), "");
  EXPECT_EQ(fleet_.WhyNone(), "a: it loads weights");
  EXPECT_EQ(Engines(0, "reason"), json::value("it loads weights"));
  ASSERT_TRUE(Until([&] { return one_.asked["/ready"] > 3; }));
  EXPECT_EQ(one_.asked["/v1/loads"] + one_.asked["/metrics"], 0) << "it is not asked more";
  one_.answers["/ready"] = {200, ""};
  ASSERT_TRUE(Is(0, "ready"));
  EXPECT_TRUE(fleet_.AnyReady());
  EXPECT_TRUE(fleet_.HasOther({}));
  EXPECT_EQ(Chosen(), "a");
  EXPECT_EQ(Engines(0, "reason"), json::value(nullptr));
  const std::vector<int32_t> tried = {fleet_.Choose(prompt_, {}).engine->number};
  EXPECT_FALSE(fleet_.HasOther(tried));
  EXPECT_EQ(Chosen(tried), "");
  EXPECT_EQ(fleet_.WhyNone(), "a: tried already");
}

TEST_F(FleetTest, AChoiceIsBoundedToDestinations) {
  EngineAddress named = one_.Address("a");
  named.host = "localhost";
  Start({named, two_.Address("b")});
  ASSERT_TRUE(Is(0, "ready") && Is(1, "ready"));
  const std::string a = fmt::format("127.0.0.1:{}", named.port);
  const std::string b = two_.Address("b").authority();
  struct Row {
    std::string subset, chosen;
    std::vector<std::string> others;
  };
  const Row rows[] = {{a, "a", {}},
                      {b, "b", {}},
                      {"10.0.0.1:1, " + b, "b", {}},
                      {b + "\t ,10.0.0.1:1", "b", {}},
                      {a + "," + b, "a", {b}},
                      {"127.0.0.1", "", {}},
                      {",", "", {}}};
  for (const Row& row : rows) {
    std::vector<int32_t> tried = fleet_.Outside(row.subset);
    // The one with the name has an address all the same, and has the prompt from the first row on.
    const Fleet::Chosen chosen = fleet_.Choose(prompt_, tried);
    EXPECT_EQ(chosen.engine == nullptr ? "" : chosen.engine->address.name, row.chosen)
        << row.subset;
    EXPECT_EQ(fleet_.WhyNone(tried).empty(), row.chosen.empty()) << row.subset;
    if (chosen.engine != nullptr) tried.push_back(chosen.engine->number);
    EXPECT_EQ(fleet_.Others(tried), row.others) << row.subset;
  }
  // The least loaded first.
  FleetEngine* busy = fleet_.Choose(prompt_, fleet_.Outside(a)).engine;
  ASSERT_NE(busy, nullptr);
  const Stay stay(*busy, 0);
  EXPECT_EQ(fleet_.Others({}), (std::vector<std::string>{b, a}));
}

TEST_F(FleetTest, AnEngineThatIsGoneEndsItsRequestsAndIsForgotten) {
  Start({one_.Address("a"), two_.Address("b")});
  ASSERT_TRUE(Is(0, "ready") && Is(1, "ready"));
  const Fleet::Chosen chosen = fleet_.Choose(prompt_, {});
  ASSERT_NE(chosen.engine, nullptr);
  const bool first = chosen.engine->address.name == "a";
  Stay stay(*chosen.engine, 192);
  EXPECT_EQ(Engines(first ? 0 : 1, "prefix_blocks"), 3);
  (first ? one_ : two_).Stop();
  ASSERT_TRUE(Is(first ? 0 : 1, "lost"));
  EXPECT_TRUE(stay.lost());
  EXPECT_EQ(Engines(first ? 0 : 1, "prefix_blocks"), 0) << "its cache is gone";
  EXPECT_EQ(Chosen(), first ? "b" : "a");
}

// A server that drains listens no more, and has closed the connections that are idle.
TEST_F(FleetTest, AnEngineThatDrainsFinishesTheRequestsThatItHas) {
  Start({one_.Address("a")});
  ASSERT_TRUE(Is(0, "ready"));
  FleetEngine& engine = *fleet_.Choose(prompt_, {}).engine;
  const UpstreamPointer upstream = Connect(engine, true);
  ASSERT_NE(upstream, nullptr);
  Stay stay(engine, 192);
  stay.Use(upstream.get());
  one_.LeaveQuestions();
  ASSERT_TRUE(Is(0, "lost"));
  EXPECT_FALSE(stay.lost());
  EXPECT_TRUE(upstream->socket.is_open());
  EXPECT_EQ(Chosen(), "") << "it gets nothing new";
}

TEST_F(FleetTest, AnEngineThatIsSilentIsLostWhenItsLeaseEnds) {
  lease_ms_ = 100;
  Start({one_.Address("a")});
  ASSERT_TRUE(Is(0, "ready"));
  FleetEngine& engine = *fleet_.Choose(prompt_, {}).engine;
  const UpstreamPointer upstream = Connect(engine, true);
  Stay stay(engine, 192);
  stay.Use(upstream.get());
  one_.silent = true;
  ASSERT_TRUE(Is(0, "lost"));
  EXPECT_TRUE(Until([&] { return stay.lost(); })) << "nobody knows what becomes of it";
  EXPECT_FALSE(upstream->socket.is_open());
  EXPECT_EQ(Chosen(), "");
}

TEST_F(FleetTest, ASilentEngineIsLostOneLeaseAfterItsLastAnswer) {
  lease_ms_ = 1000;
  Start({one_.Address("a")});
  ASSERT_TRUE(Is(0, "ready"));
  one_.silent = true;
  const int64_t begin_us = MonotonicUs();
  ASSERT_TRUE(Is(0, "lost"));
  EXPECT_LT(MonotonicUs() - begin_us, 1'800'000);
}

TEST_F(FleetTest, WorkThatOthersSentCountsAsLoad) {
  one_.answers["/v1/loads"] = {
      200,
      R"({"loads":[{"num_running_reqs":3,"num_waiting_reqs":2},{"num_running_reqs":4},7,
          {"num_running_reqs":-9,"num_waiting_reqs":"many"}]})"};
  Start({one_.Address("a"), two_.Address("b")});
  ASSERT_TRUE(Is(0, "ready") && Is(1, "ready"));
  ASSERT_TRUE(Until([&] { return Engines(0, "other_requests") == 9; }));
  EXPECT_EQ(Engines(1, "other_requests"), 0);
  ASSERT_TRUE(Until([&] { return Engines(1, "load_status") == 404; }));
  const Fleet::Chosen chosen = fleet_.Choose(prompt_, {});
  EXPECT_EQ(chosen.engine->address.name, "b");
  // Requests of the router itself are not counted twice.
  const FleetEngine* idle = chosen.engine;
  const std::vector<int32_t> tried = {idle->number};
  FleetEngine* busy = fleet_.Choose(prompt_, tried).engine;
  ASSERT_NE(busy, nullptr);
  {
    const Stay stay(*busy, 0);
    EXPECT_EQ(Engines(0, "requests"), 1);
    ASSERT_TRUE(Until([&] { return Engines(0, "other_requests") == 8; }));
  }
  EXPECT_EQ(Engines(0, "requests"), 0);
  one_.answers["/v1/loads"] = {200, "no JSON"};
  const int before = one_.asked["/v1/loads"];
  ASSERT_TRUE(Until([&] { return one_.asked["/v1/loads"] > before + 1; }));
  EXPECT_EQ(Engines(0, "state"), json::value("ready"));
}

TEST_F(FleetTest, TokensOfAPromptCountAsBacklogUntilItsFirstByte) {
  Start({one_.Address("a")});
  ASSERT_TRUE(Is(0, "ready"));
  FleetEngine& engine = *fleet_.Choose(prompt_, {}).engine;
  {
    Stay early(engine, 100);
    const Stay late(engine, 30);
    EXPECT_EQ(Engines(0, "backlog_tokens"), 130);
    early.FirstByte();
    EXPECT_EQ(Engines(0, "backlog_tokens"), 30);
  }
  EXPECT_EQ(Engines(0, "backlog_tokens"), 0);
}

TEST_F(FleetTest, NoMorePrefixesAreExpectedInACacheThanItHolds) {
  one_.answers["/metrics"] = {
      200, "x 1\nbraid:cache_config_info{block_size=\"64\",num_gpu_blocks=\"2\"} 1\ny 2\n"};
  two_.answers["/metrics"] = {200,
                              "vllm:cache_config_info{block_size=\"0\",num_gpu_blocks=\"x\"} 1\n"};
  Start({one_.Address("a")});
  ASSERT_TRUE(Is(0, "ready"));
  ASSERT_TRUE(Until([&] { return one_.asked["/v1/loads"] > 2; }));
  EXPECT_EQ(Chosen(), "a");
  EXPECT_EQ(Engines(0, "prefix_blocks"), 2);
  EXPECT_EQ(one_.asked["/metrics"], 1) << "the size of a cache does not change";
  fleet_.Apply(Config({two_.Address("b")}));
  ASSERT_TRUE(Until([&] { return Chosen() == "b"; }));
  ASSERT_TRUE(Until([&] { return two_.asked["/metrics"] > 1; }));
  EXPECT_EQ(Engines(0, "prefix_blocks"), 3);
}

TEST_F(FleetTest, ADrainedEngineGetsNothingNew) {
  Start({one_.Address("a"), two_.Address("b")});
  ASSERT_TRUE(Is(0, "ready") && Is(1, "ready"));
  EXPECT_FALSE(fleet_.SetDraining("c", true));
  EXPECT_TRUE(fleet_.SetDraining("a", true));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Chosen(), "b");
  EXPECT_TRUE(fleet_.SetDraining("b", true));
  EXPECT_EQ(Chosen(), "");
  EXPECT_EQ(fleet_.WhyNone(), "a: draining; b: draining");
  EXPECT_TRUE(fleet_.SetDraining("a", false));
  EXPECT_EQ(Chosen(), "a");
}

TEST_F(FleetTest, ConnectionsThatFailCloseTheWayToAnEngineAndRefusalsDoNot) {
  Start({one_.Address("a")});
  ASSERT_TRUE(Is(0, "ready"));
  FleetEngine& engine = *fleet_.Choose(prompt_, {}).engine;
  Stay stay(engine, 0);
  for (int i = 0; i < 5; ++i) fleet_.Count(stay, RouterMetrics::Failure::kRefused);
  EXPECT_EQ(Chosen(), "a");
  for (int i = 0; i < 3; ++i) fleet_.Count(stay, RouterMetrics::Failure::kBroken);
  EXPECT_EQ(Chosen(), "");
  EXPECT_EQ(fleet_.WhyNone(), "a: its connections fail");
  EXPECT_EQ(Engines(0, "breaker_open"), true);
  EXPECT_TRUE(fleet_.HasPaused());
  EXPECT_TRUE(fleet_.SetDraining("a", true));
  EXPECT_FALSE(fleet_.HasPaused());
  EXPECT_FALSE(fleet_.AnyReady());
  EXPECT_TRUE(Has("engine_failures_total{engine=\"a\",kind=\"refused\"} 5"));
  EXPECT_TRUE(Has("engine_failures_total{engine=\"a\",kind=\"broken\"} 3"));
}

TEST_F(FleetTest, OnlyTheTrialSaysWhetherAnEngineIsBack) {
  Start({one_.Address("a")});
  ASSERT_TRUE(Is(0, "ready"));
  FleetEngine& engine = *fleet_.Choose(prompt_, {}).engine;
  auto older = std::make_unique<Stay>(engine, 0);
  for (int i = 0; i < 3; ++i) fleet_.Count(*older, RouterMetrics::Failure::kBroken);
  ASSERT_TRUE(Until([&] { return Chosen() == "a"; })) << "after a pause";
  Stay trial(engine, 0);
  EXPECT_EQ(Chosen(), "");
  older->Succeeded();
  older.reset();
  EXPECT_EQ(Chosen(), "") << "it began before";
  trial.Succeeded();
  EXPECT_EQ(Chosen(), "a");
  EXPECT_EQ(Engines(0, "breaker_open"), false);
}

TEST_F(FleetTest, IdleConnectionsAreUsedAgain) {
  Start({one_.Address("a")});
  ASSERT_TRUE(Is(0, "ready"));
  FleetEngine& engine = *fleet_.Choose(prompt_, {}).engine;
  UpstreamPointer upstream = Connect(engine);
  ASSERT_NE(upstream, nullptr);
  EXPECT_FALSE(upstream->reused);
  const Upstream* same = upstream.get();
  fleet_.Return(engine, std::move(upstream));
  EXPECT_EQ(Engines(0, "idle_connections"), 1);
  upstream = Connect(engine, true);
  EXPECT_FALSE(upstream->reused);
  UpstreamPointer again = Connect(engine);
  EXPECT_EQ(again.get(), same);
  EXPECT_TRUE(again->reused);
  EXPECT_EQ(Engines(0, "idle_connections"), 0);
  fleet_.Return(engine, std::move(again));
  one_.Stop();  // and with it the idle connection
  ASSERT_TRUE(Is(0, "lost"));
  EXPECT_EQ(Engines(0, "idle_connections"), 0);
}

TEST_F(FleetTest, ConnectionsThatAnEngineMayCloseSoonAreNotUsedAgain) {
  Start({one_.Address("a")});
  ASSERT_TRUE(Is(0, "ready"));
  EXPECT_FALSE(fleet_.HasPaused());
  FleetEngine& engine = *fleet_.Choose(prompt_, {}).engine;
  const auto keep = [&](int64_t idle_us) {
    UpstreamPointer upstream = Connect(engine, true);
    fleet_.Return(engine, std::move(upstream));
    engine.idle.back()->idle_since_us -= idle_us;
  };
  keep(80'000'000);
  keep(1'000'000);
  EXPECT_TRUE(Connect(engine)->reused);
  EXPECT_FALSE(Connect(engine)->reused);
  keep(80'000'000);
  keep(80'000'000);
  EXPECT_FALSE(Connect(engine)->reused);
  EXPECT_EQ(Engines(0, "idle_connections"), 0);
  fleet_.Close();
  fleet_.Return(engine, Connect(engine));
  EXPECT_EQ(Engines(0, "idle_connections"), 0) << "none is kept from now on";
}

TEST_F(FleetTest, AnEngineThatDoesNotRenewLeavesWhenItHasFinished) {
  lease_ms_ = 150;
  Start({});
  Registration registration = Number(1);
  registration.address = one_.Address("r");
  registration.address.key.clear();
  FleetEngine* engine = nullptr;
  ASSERT_TRUE(Until([&] {
    EXPECT_TRUE(fleet_.Register(registration));
    engine = fleet_.Choose(prompt_, {}).engine;
    return engine != nullptr;
  }));
  {
    const Stay stay(*engine, 0);
    ASSERT_TRUE(Until([&] { return engine->removed; }));
    EXPECT_EQ(Chosen(), "");
    EXPECT_FALSE(stay.lost()) << "what it has goes on";
    EXPECT_EQ(fleet_.Json().size(), 1u);
  }
  EXPECT_TRUE(Until([&] { return fleet_.Json().empty(); }));
}

TEST_F(FleetTest, AnotherConfigurationKeepsWhatIsKnownOfEnginesThatStay) {
  Start({one_.Address("a"), two_.Address("b")});
  ASSERT_TRUE(Is(0, "ready") && Is(1, "ready"));
  fleet_.SetDraining("b", true);
  EXPECT_EQ(Chosen(), "a");
  fleet_.Apply(Config({one_.Address("a")}));
  EXPECT_EQ(Engines(0, "prefix_blocks"), 3);
  ASSERT_TRUE(Until([&] { return fleet_.Json().size() == 1; }));
  EXPECT_EQ(Chosen(), "a");
  // The same address under another name is another engine.
  fleet_.Apply(Config({one_.Address("c")}));
  ASSERT_TRUE(Until([&] { return Chosen() == "c"; }));
  ASSERT_TRUE(Until([&] { return fleet_.Json().size() == 1; }));
  EXPECT_EQ(Engines(0, "prefix_blocks"), 3);
}

TEST_F(FleetTest, AnotherConfigurationEndsRegistrationsThatItForbids) {
  Start({});
  Registration registration = Number(1);
  registration.address = one_.Address("r");
  ASSERT_TRUE(fleet_.Register(registration));
  registration.address = two_.Address("s");
  ASSERT_TRUE(fleet_.Register(registration));
  ASSERT_TRUE(Is(0, "ready") && Is(1, "ready"));
  fleet_.Apply(Config({two_.Address("t")}));  // where "s" is
  EXPECT_TRUE(fleet_.SetDraining("r", false));
  EXPECT_FALSE(fleet_.SetDraining("s", false));
  const auto conflict = fleet_.Register(registration);
  ASSERT_FALSE(conflict);
  EXPECT_THAT(conflict.error().message, HasSubstr("is in the router's configuration"));
  RouterConfig without = Config({two_.Address("t")});
  without.registration = false;
  fleet_.Apply(without);
  EXPECT_FALSE(fleet_.SetDraining("r", false));
  EXPECT_TRUE(fleet_.SetDraining("t", false));
}

TEST_F(FleetTest, AnotherConfigurationMayHaveAnotherPolicyAndAnotherKey) {
  Start({one_.Address("a"), two_.Address("b")});
  ASSERT_TRUE(Is(0, "ready") && Is(1, "ready"));
  const std::string home = Chosen();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Chosen(), home) << "its prefix";
  policy_ = Policy::kRoundRobin;
  fleet_.Apply(Config({one_.Address("a"), two_.Address("b")}));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Chosen(), i % 2 == 0 ? "a" : "b");
  Registration registration = Number(1);
  registration.address = two_.Address("r");
  fleet_.Apply(Config({one_.Address("a")}));
  ASSERT_TRUE(fleet_.Register(registration));
  ASSERT_TRUE(Until([&] {
    return fleet_.Json().size() == 2 && Engines(1, "state") == json::value("ready");
  }));
  one_.any_key = two_.any_key = true;
  EngineAddress rekeyed = one_.Address("a");
  rekeyed.key = "k1";
  RouterConfig config = Config({rekeyed});
  config.engine_key = "k2";
  fleet_.Apply(config);
  EXPECT_TRUE(Until([&] { return one_.shown_key == "Bearer k1"; }));
  EXPECT_TRUE(Until([&] { return two_.shown_key == "Bearer k2"; }));
}

TEST_F(FleetTest, WhereAnEngineSaysWhatItHoldsIsReadAgain) {
  EngineAddress engine = one_.Address("a");
  Start({engine});
  ASSERT_TRUE(Is(0, "ready"));
  EXPECT_EQ(Chosen(), "a");
  fleet_.Apply(Config({engine}));
  EXPECT_EQ(Engines(0, "prefix_blocks"), 3);
  engine.events.events = "tcp://127.0.0.1:1";
  fleet_.Apply(Config({engine}));
  EXPECT_EQ(Engines(0, "prefix_blocks"), 0) << "it says itself what it holds";
  EXPECT_EQ(Chosen(), "a");
  fleet_.Apply(Config({engine}));
  EXPECT_EQ(Engines(0, "prefix_blocks"), 3) << "nothing has changed";
}

TEST_F(FleetTest, AnEngineThatIsAskedMeanwhileIsAskedOnceMore) {
  probe_ms_ = 60'000;
  Start({one_.Address("a")});
  ASSERT_TRUE(Until([&] { return one_.asked["/ready"] == 1; }));
  ASSERT_EQ(Engines(0, "state"), "unknown") << "the answer is on its way";
  one_.answers["/ready"] = {503, "{}"};
  fleet_.Apply(Config({one_.Address("a")}));
  EXPECT_TRUE(Is(0, "not_ready"));
  for (int i = 0; i < 20; ++i) io_.run_one_for(std::chrono::milliseconds(1));
  EXPECT_EQ(one_.asked["/ready"], 2);
}

TEST_F(FleetTest, AnEngineIsForgottenAsSoonAsItsLastRequestEnds) {
  probe_ms_ = 60'000;
  Start({one_.Address("a")});
  ASSERT_TRUE(Is(0, "ready"));
  FleetEngine& engine = *fleet_.Choose(prompt_, {}).engine;
  auto stay = std::make_unique<Stay>(engine, 0);
  // Its watch waits once, and again after a removal.
  const auto waits = [&](asio::steady_timer::time_point after) {
    return Until([&] { return engine.timer->expiry() > after; });
  };
  ASSERT_TRUE(waits({}));
  const auto first = engine.timer->expiry();
  EXPECT_TRUE(Has("engine_requests{engine=\"a\"} 1"));
  fleet_.Apply(Config({}));
  ASSERT_TRUE(waits(first));
  ASSERT_EQ(fleet_.Json().size(), 1u);
  EXPECT_TRUE(Has("engine_ready{engine=\"a\"} 0"));
  stay.reset();
  EXPECT_TRUE(Until([&] { return fleet_.Json().empty(); }));
  EXPECT_FALSE(Has("engine_ready{engine=\"a\"} 0")) << "its metrics are gone";
}

}  // namespace
}  // namespace braid

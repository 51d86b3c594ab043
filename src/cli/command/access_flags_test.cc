// What flags say of who may call, and how signals end a server.
#include "cli/command/access_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void Parse(AccessFlags& access, std::vector<std::string> words) {
  CLI::App app;
  Flags flags(app);
  access.AddTo(flags);
  std::ranges::reverse(words);
  app.parse(std::move(words));
}

TEST(AccessFlags, ListsHaveCommas) {
  EXPECT_THAT(SplitList("a,b"), ElementsAre("a", "b"));
  EXPECT_THAT(SplitList(",a,,b,"), ElementsAre("a", "b"));
  EXPECT_THAT(SplitList("a"), ElementsAre("a"));
  EXPECT_THAT(SplitList(""), IsEmpty());
}

TEST(AccessFlags, ReachTheConfiguration) {
  AccessFlags access(1234);
  AccessConfig config;
  Parse(access, {});
  ASSERT_TRUE(access.Fill(config));
  EXPECT_EQ(config.http.host, "127.0.0.1");
  EXPECT_EQ(config.http.port, 1234);
  EXPECT_EQ(config.http.admin_port, -1);
  EXPECT_EQ(config.login_failures_per_second, 10);
  EXPECT_FALSE(access.has_keys());
  EXPECT_FALSE(access.has_admin_port());
  Parse(access, {"--host", "::", "--port", "65535", "--admin-host", "::1", "--admin-port", "0",
                 "--tls-cert", "c", "--tls-key", "k", "--login-failures", "3", "--cors-origins",
                 "https://a.example,http://b:8080,null,*", "--allowed-hosts", "a.example,b"});
  ASSERT_TRUE(access.Fill(config));
  EXPECT_EQ(config.http.host, "::");
  EXPECT_EQ(config.http.port, 65535);
  EXPECT_EQ(config.http.admin_host, "::1");
  EXPECT_EQ(config.http.admin_port, 0);
  EXPECT_TRUE(access.has_admin_port());
  EXPECT_EQ(config.http.tls.certificate, "c");
  EXPECT_EQ(config.http.tls.key, "k");
  EXPECT_EQ(config.login_failures_per_second, 3);
  EXPECT_THAT(config.cors_origins, ElementsAre("https://a.example", "http://b:8080", "null", "*"));
  EXPECT_THAT(config.allowed_hosts, ElementsAre("a.example", "b"));
}

TEST(AccessFlags, OriginsThatNoBrowserSendsAreRefused) {
  for (const char* origin : {"a.example", "https://a.example/", "https://a.example/path",
                             "https://", "://a.example", "https:/a.example"}) {
    AccessFlags access(0);
    Parse(access, {"--cors-origins", std::string("https://good.example,") + origin});
    AccessConfig config;
    const Status status = access.Fill(config);
    ASSERT_FALSE(status) << origin;
    EXPECT_THAT(status.error().message, HasSubstr(std::string("--cors-origins ") + origin + ":"));
  }
}

TEST(AccessFlags, KeysOfFlagsAndOfTheFileAreOneList) {
  const std::string path = ::testing::TempDir() + "keys" + std::to_string(::getpid());
  std::ofstream(path) << R"({"keys": [{"name": "a", "key": "secret-of-a"}]})";
  const auto keys = [](std::vector<std::string> words) {
    AccessFlags access(0);
    const bool some = !words.empty();
    Parse(access, std::move(words));
    EXPECT_EQ(access.has_keys(), some);
    const Result<std::vector<ApiKey>> read = access.ReadKeys();
    std::vector<std::string> all;
    if (!read) return std::vector<std::string>{read.error().message};
    for (const ApiKey& key : *read) {
      all.push_back(key.name + " " + key.key + (key.admin ? " admin" : ""));
    }
    return all;
  };
  EXPECT_THAT(keys({}), IsEmpty());
  EXPECT_THAT(keys({"--api-key", "secret-one"}), ElementsAre("default secret-one admin"));
  EXPECT_THAT(keys({"--api-key", "secret-one", "--admin-api-key", "secret-two"}),
              ElementsAre("default secret-one", "admin secret-two admin"));
  EXPECT_THAT(keys({"--admin-api-key", "secret-two"}), ElementsAre("admin secret-two admin"));
  EXPECT_THAT(keys({"--api-key-file", path, "--api-key", "secret-one"}),
              ElementsAre("a secret-of-a", "default secret-one admin"));
  EXPECT_THAT(keys({"--api-key-file", path + ".none"}), ElementsAre(HasSubstr(path + ".none")));
  std::filesystem::remove(path);
}

// Files are read again each time; a wrong one leaves the rest as they are.
TEST(AccessFlags, ReadingAgainGoesOnAfterAnError) {
  AccessFlags access(0);
  int keys = 0, certificates = 0;
  const Status bad = Error{ErrorCode::kInvalid, "bad"};
  for (const Status& status : {Status(), bad}) {
    access.ReadAgain([&] { return ++keys, status; }, [&] { return ++certificates, status; });
  }
  EXPECT_EQ(keys, 2);
  EXPECT_EQ(certificates, 2);
}

// Each in a process of its own: they are about its signals, and may end it.
class ServerSignals : public ::testing::Test {
 protected:
  ServerSignals() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  static void Raise(int signal) { ::kill(::getpid(), signal); }
};

TEST_F(ServerSignals, HangupsReloadUntilTheFirstSignalToStop) {
  const auto run = [] {
    SignalQueue signals{SIGINT, SIGTERM, SIGHUP};
    const AccessFlags access(0);
    int reloads = 0;
    Raise(SIGHUP);
    access.WaitForStop(signals, [&] {
      ++reloads;
      Raise(reloads < 3 ? SIGHUP : SIGTERM);
    });
    bool asked = false;
    access.WaitForStop(signals, [&] { reloads = 99; }, [&] { return std::exchange(asked, true); });
    Raise(SIGINT);
    access.WaitForStop(signals, [&] { reloads = 99; }, [] { return false; });
    std::_Exit(10 + reloads);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(13), "");
}

TEST_F(ServerSignals, DrainingEndsByItselfOrAtOnce) {
  const auto drained = [] {
    SignalQueue signals{SIGINT, SIGTERM, SIGHUP};
    AccessFlags access(0);
    Parse(access, {"--drain-seconds", "77"});
    int32_t seconds = 0, stopped_after = 0, stops = 0;
    access.Drain(
        signals, [&](int32_t most) { seconds = most; },
        [&] { stopped_after = seconds, ++stops; });
    std::_Exit(stops == 1 ? stopped_after : 1);
  };
  EXPECT_EXIT(drained(), ::testing::ExitedWithCode(77), "") << "it stops after the drain, once";
  const auto stopped = [] {
    SignalQueue signals{SIGINT, SIGTERM, SIGHUP};
    const AccessFlags access(0);
    std::atomic<bool> stop = false;
    int stops = 0;
    Raise(SIGTERM);
    Raise(SIGHUP);  // reloads nothing any more
    access.Drain(
        signals,
        [&](int32_t) {
          while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        },
        [&] { stop = ++stops == 1; });
    std::_Exit(20 + stops);
  };
  EXPECT_EXIT(stopped(), ::testing::ExitedWithCode(21), "");
  // Work that does not notice: the process ends without it.
  const auto stuck = [] {
    SignalQueue signals{SIGINT, SIGTERM};
    const AccessFlags access(0);
    Raise(SIGTERM);
    access.Drain(
        signals, [&](int32_t) { std::this_thread::sleep_for(std::chrono::seconds(60)); }, [] {});
    std::_Exit(1);
  };
  EXPECT_EXIT(stuck(), ::testing::ExitedWithCode(0), "");
}

// A drain that has taken all its time still writes files. After it nothing needs to be waited for.
TEST_F(ServerSignals, TimeThatIsOverCutsNoFilesOff) {
  const auto end = [](const char* seconds, bool signal, int writes_ms) {
    SignalQueue signals{SIGINT, SIGTERM};
    AccessFlags access(0);
    Parse(access, {"--drain-seconds", seconds});
    access.Drain(
        signals,
        [&](int32_t) {
          std::this_thread::sleep_for(std::chrono::milliseconds(writes_ms));
          std::fputs("written", stderr);
          if (signal) Raise(SIGTERM);
        },
        [] { std::this_thread::sleep_for(std::chrono::seconds(60)); });
    std::_Exit(1);
  };
  EXPECT_EXIT(end("0", false, 1500), ::testing::ExitedWithCode(0), "written");
  EXPECT_EXIT(end("77", true, 0), ::testing::ExitedWithCode(0), "written")
      << "a second signal ends what comes after the drain, too";
}

}  // namespace
}  // namespace braid

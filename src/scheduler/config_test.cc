// The table of settings: ranges, defaults, and what logs from before a setting mean.
#include "scheduler/config.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <limits>
#include <set>
#include <string>

#include "scheduler/event_log.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

SchedulerConfig Sound() {
  SchedulerConfig config;
  config.context_tokens_max = 100;
  config.vocabulary = 10;
  return config;
}

void Set(SchedulerConfig& config, const Setting& setting, int64_t value) {
  std::visit(
      [&](auto member) {
        using Value = std::remove_reference_t<decltype(config.*member)>;
        config.*member = static_cast<Value>(value);
      },
      setting.member);
}

TEST(Settings, EveryMemberHasOneRow) {
  std::set<std::string> names;
  for (const Setting& s : kSettings) EXPECT_TRUE(names.insert(s.name).second) << s.name;
  SchedulerConfig config;
  for (const Setting& s : kSettings) {  // a change through a row shows in no other row
    const SchedulerConfig before = config;
    Set(config, s, ValueOf(config, s) == s.least ? s.least + 1 : s.least);
    for (const Setting& other : kSettings) {
      EXPECT_EQ(ValueOf(config, other) != ValueOf(before, other), &other == &s) << other.name;
    }
  }
}

TEST(Settings, WhatIsOutsideItsRangeIsRefusedByName) {
  ASSERT_TRUE(CheckSettings(Sound()).ok());
  for (const Setting& s : kSettings) {
    const bool number = !std::holds_alternative<bool SchedulerConfig::*>(s.member) &&
                        !std::holds_alternative<Placement SchedulerConfig::*>(s.member);
    if (!number) continue;
    SchedulerConfig config = Sound();
    Set(config, s, s.least - 1);
    EXPECT_EQ(CheckSettings(config).error().field, s.name);
    EXPECT_THAT(CheckSettings(config).error().message,
                HasSubstr(fmt::format("must be at least {}", s.least)));
    Set(config, s, s.least);
    EXPECT_TRUE(CheckSettings(config).ok()) << s.name;
    Set(config, s, s.most);
    EXPECT_TRUE(CheckSettings(config).ok()) << s.name;
    if (s.most == std::numeric_limits<int32_t>::max()) continue;
    Set(config, s, s.most + 1);
    EXPECT_THAT(CheckSettings(config).error().message,
                HasSubstr(fmt::format("must be at most {}", s.most)));
  }
}

TEST(Settings, EachIsRecordedInEventLogs) {
  const std::string path = ::testing::TempDir() + "/settings.log";
  for (const Setting& s : kSettings) {
    SchedulerConfig config = Sound();
    Set(config, s, s.least + 1);
    ASSERT_TRUE(EventLogWriter::Create(path, {.config = config, .model = "m"}).ok());
    const auto log = EventLogReader::Open(path);
    ASSERT_TRUE(log.ok()) << log.error().message;
    EXPECT_EQ(ValueOf(log->start().config, s), s.least + 1) << s.name;
  }
}

TEST(Settings, AFlagHasItsHelpAndAUnitThatDividesItsRange) {
  int offered = 0;
  for (const Setting& s : kSettings) {
    EXPECT_EQ(s.offered == Offered::kNever, s.flag == nullptr) << s.name;
    EXPECT_EQ(s.flag == nullptr, s.help == nullptr) << s.name;
    EXPECT_EQ(s.most % s.flag_unit, 0) << s.name;
    offered += s.flag != nullptr;
  }
  EXPECT_GE(offered, 5);
}

}  // namespace
}  // namespace braid

// Names, environment variables and values of flags.
#include "cli/command/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <functional>

namespace braid {
namespace {

using ::testing::HasSubstr;

// A variable of the environment, for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

// Reads words into the flags that `add` adds. The error, or none.
std::string ReadFlags(const std::function<void(Flags&)>& add, std::vector<std::string> words) {
  CLI::App app;
  Flags flags(app);
  add(flags);
  std::ranges::reverse(words);
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  const Status given = flags.Check();
  return given ? "" : given.error().message;
}

TEST(Flags, AddsTheNamesThatOtherServersUse) {
  EXPECT_EQ(FlagNames("--max-model-len"), "--max-model-len,-c,--context-length,--ctx-size");
  EXPECT_EQ(FlagNames("--host"), "--host");
}

TEST(Flags, NamesTheEnvironmentVariableAfterTheFlag) {
  EXPECT_EQ(EnvironmentName("--max-model-len"), "BRAID_MAX_MODEL_LEN");
  EXPECT_EQ(EnvironmentName("--port"), "BRAID_PORT");
}

TEST(Flags, ReadsSizesWithUnits) {
  EXPECT_EQ(ParseBytes("4096"), 4096);
  EXPECT_EQ(ParseBytes("8G"), int64_t{8} << 30);
  EXPECT_EQ(ParseBytes("512MiB"), int64_t{512} << 20);
  EXPECT_EQ(ParseBytes("1.5 gb"), int64_t{3} << 29);
  EXPECT_EQ(ParseBytes("2kb"), 2048);
}

TEST(Flags, RefusesWhatIsNoSize) {
  for (const char* text : {"", "G", "-1", "8X", "8 G x", "1e40", "nan", "12MiBB"}) {
    EXPECT_EQ(ParseBytes(text), -1) << text;
  }
}

TEST(Flags, SizesHaveUnitsUpToTera) {
  EXPECT_EQ(ParseBytes("0"), 0);
  EXPECT_EQ(ParseBytes("3k"), 3 << 10);
  EXPECT_EQ(ParseBytes("4 KiB"), 4 << 10);
  EXPECT_EQ(ParseBytes("5M"), 5 << 20);
  EXPECT_EQ(ParseBytes("2T"), int64_t{2} << 40);
  EXPECT_EQ(ParseBytes("7 B"), 7);
  EXPECT_EQ(ParseBytes("4194303T"), int64_t{4194303} << 40);
  EXPECT_EQ(ParseBytes("4194304T"), -1) << "more than any number of bytes";
}

TEST(Flags, OtherServersVariablesCountWhereBraidsIsNotSet) {
  const Variable other("LLAMA_ARG_PORT", "7000");
  EXPECT_EQ(EnvironmentName("--port"), "LLAMA_ARG_PORT");
  const Variable second("LLAMA_API_KEY", "key-of-llama");
  EXPECT_EQ(EnvironmentName("--api-key"), "LLAMA_API_KEY");
  {
    const Variable first("VLLM_API_KEY", "key-of-vllm");
    EXPECT_EQ(EnvironmentName("--api-key"), "VLLM_API_KEY");
    const Variable own("BRAID_API_KEY", "own");
    EXPECT_EQ(EnvironmentName("--api-key"), "BRAID_API_KEY");
  }
  int32_t port = 8000;
  const auto add = [&](Flags& flags) { flags.Number("--port", port, {0, 65535}, ""); };
  EXPECT_EQ(ReadFlags(add, {}), "");
  EXPECT_EQ(port, 7000);
  EXPECT_EQ(ReadFlags(add, {"--port", "7001"}), "");
  EXPECT_EQ(port, 7001) << "the command line comes first";
  const Variable wrong("BRAID_PORT", "70000");
  EXPECT_THAT(ReadFlags(add, {}), HasSubstr("70000 is not an integer from 0 to 65535"));
}

// The shell makes nothing of a variable that is not set.
TEST(Flags, AnEmptyTextThatProtectsSomethingIsRefused) {
  std::string key, file;
  const auto add = [&](Flags& flags) {
    key = file = "";
    flags.NonEmpty("--api-key", key, "");
    flags.NonEmpty("--tls-cert", file, "");
  };
  EXPECT_EQ(ReadFlags(add, {}), "");
  EXPECT_EQ(ReadFlags(add, {"--api-key", "secret"}), "");
  EXPECT_EQ(key, "secret");
  const std::string what = " is empty: give it a value, or leave it out";
  EXPECT_EQ(ReadFlags(add, {"--api-key", ""}), "--api-key" + what);
  EXPECT_EQ(ReadFlags(add, {"--api-key", "secret", "--ssl-certfile", ""}), "--tls-cert" + what);
  const Variable other("VLLM_API_KEY", "key-of-vllm");
  EXPECT_EQ(ReadFlags(add, {}), "");
  EXPECT_EQ(key, "key-of-vllm");
  const Variable own("BRAID_API_KEY", "");
  EXPECT_EQ(ReadFlags(add, {}), "BRAID_API_KEY" + what);
  EXPECT_EQ(ReadFlags(add, {"--api-key", "secret"}), "") << "the command line comes first";
}

// With "false" and the like a switch says the opposite, whichever way it points.
TEST(Flags, SwitchesTurnOnOrOff) {
  const struct {
    std::vector<std::string> words;
    const char* variable;  // of the environment; null: not set
    bool on;
  } cases[] = {
      {{}, nullptr, false},
      {{"--it"}, nullptr, true},
      {{"--it=true"}, nullptr, true},
      {{"--it=false"}, nullptr, false},
      {{"--it=0"}, nullptr, false},
      {{}, "1", true},
      {{}, "true", true},
      {{}, "0", false},
      {{}, "false", false},
      {{}, "off", false},
  };
  for (const auto& c : cases) {
    const std::string what = (c.words.empty() ? "" : c.words[0] + " ") +
                             (c.variable == nullptr ? "" : std::string("BRAID_IT=") + c.variable);
    std::optional<Variable> variable;
    if (c.variable != nullptr) variable.emplace("BRAID_IT", c.variable);
    bool on = false, off = true;
    const auto add = [&](Flags& flags) { flags.Switch("--it", on, ""); };
    const auto add_off = [&](Flags& flags) { flags.SwitchOff("--it", off, ""); };
    EXPECT_EQ(ReadFlags(add, c.words), "") << what;
    EXPECT_EQ(ReadFlags(add_off, c.words), "") << what;
    EXPECT_EQ(on, c.on) << what;
    EXPECT_EQ(off, !c.on) << what << " of a switch that turns off";
  }
}

TEST(Flags, NumbersAreWithinTheirRange) {
  int32_t whole = 5;
  double part = 0.5;
  std::optional<int32_t> some;
  std::optional<double> some_part;
  const auto add = [&](Flags& flags) {
    flags.Number("--whole", whole, {1, 10}, "");
    flags.Number("--part", part, {0.25, 1}, "");
    flags.Number("--some", some, {0, 7}, "");
    flags.Number("--some-part", some_part, {0, 1}, "");
  };
  EXPECT_EQ(ReadFlags(add, {}), "");
  EXPECT_EQ(whole, 5);
  EXPECT_FALSE(some || some_part);
  EXPECT_EQ(ReadFlags(add, {"--whole", "10", "--part", "0.25", "--some", "0", "--some-part=1"}),
            "");
  EXPECT_EQ(whole, 10);
  EXPECT_EQ(part, 0.25);
  EXPECT_EQ(some, 0);
  EXPECT_EQ(some_part, 1);
  EXPECT_EQ(ReadFlags(add, {"--whole", "010", "--some", "00", "--part", "00.5"}), "");
  EXPECT_EQ(whole, 10) << "not octal";
  EXPECT_EQ(some, 0);
  EXPECT_EQ(part, 0.5);
  EXPECT_THAT(ReadFlags(add, {"--whole", "0"}), HasSubstr("0 is not an integer from 1 to 10"));
  EXPECT_THAT(ReadFlags(add, {"--whole", "11"}), HasSubstr("11 is not an integer from 1 to 10"));
  EXPECT_THAT(ReadFlags(add, {"--whole", "1.5"}), HasSubstr("1.5 is not an integer"));
  EXPECT_THAT(ReadFlags(add, {"--whole", "3x"}), HasSubstr("3x is not an integer"));
  EXPECT_THAT(ReadFlags(add, {"--part", "0.2"}), HasSubstr("0.2 is not a number from 0.25 to 1"));
  EXPECT_THAT(ReadFlags(add, {"--part", "nan"}), HasSubstr("nan is not a number"));
  EXPECT_THAT(ReadFlags(add, {"--some", "8"}), HasSubstr("8 is not an integer from 0 to 7"));
}

// A flag in milliseconds, of a value in microseconds.
TEST(Flags, AValueMayCountInOtherUnitsThanItsFlag) {
  int64_t us = 12'000;
  const auto add = [&](Flags& flags) { flags.Number("--wait", us, 1000, {0, 500}, ""); };
  EXPECT_EQ(ReadFlags(add, {}), "");
  EXPECT_EQ(us, 12'000);
  for (const auto& [text, value] :
       {std::pair("0", 0), {"7", 7000}, {"5.0", 5000}, {"1e2", 100'000}, {"500", 500'000}}) {
    EXPECT_EQ(ReadFlags(add, {"--wait", text}), "");
    EXPECT_EQ(us, value) << text;
  }
  EXPECT_THAT(ReadFlags(add, {"--wait", "501"}), HasSubstr("501 is not an integer from 0 to 500"));
  EXPECT_THAT(ReadFlags(add, {"--wait", "1.5"}), HasSubstr("1.5 is not an integer"));
}

TEST(Flags, TextsChoicesSizesAndSeedsAreRead) {
  std::string model, extra, text = "before", choice = "a";
  int64_t bytes = 3;
  std::optional<uint64_t> seed;
  const auto add = [&](Flags& flags) {
    flags.Required("MODEL", model, "");
    flags.Optional("EXTRA", extra, "");
    flags.Text("--text", text, "");
    flags.Choice("--choice", choice, {"a", "b"}, "");
    flags.Bytes("--bytes", bytes, "");
    flags.Seed("--seed", seed, "");
  };
  EXPECT_THAT(ReadFlags(add, {}), HasSubstr("is required"));
  EXPECT_EQ(ReadFlags(add, {"m"}), "");
  EXPECT_EQ(text, "before");
  EXPECT_EQ(choice, "a");
  EXPECT_EQ(bytes, 3);
  EXPECT_FALSE(seed);
  EXPECT_EQ(ReadFlags(add, {"m", "e", "--text", "t", "--choice=b", "--bytes", "2K", "--seed",
                            "18446744073709551615"}),
            "");
  EXPECT_EQ(model + extra + text + choice, "metb");
  EXPECT_EQ(bytes, 2048);
  EXPECT_EQ(seed, UINT64_MAX);
  EXPECT_EQ(ReadFlags(add, {"--model-path", "other"}), "") << "as other servers name it";
  EXPECT_EQ(model, "other");
  EXPECT_THAT(ReadFlags(add, {"m", "--choice", "c"}), HasSubstr("c is none of a|b"));
  EXPECT_THAT(ReadFlags(add, {"m", "--bytes", "much"}), HasSubstr("much is not a size"));
  EXPECT_THAT(ReadFlags(add, {"m", "--seed", "-1"}), HasSubstr("-1 is not an integer from 0"));
  std::vector<std::string> list;
  EXPECT_EQ(ReadFlags([&](Flags& f) { f.RequiredList("FILE...", list, ""); }, {"x", "y"}), "");
  EXPECT_EQ(list, (std::vector<std::string>{"x", "y"}));
}

}  // namespace
}  // namespace braid

// Hardware as data: what is read, and which key an error names.
#include "forecast/hardware.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iterator>

namespace braid {
namespace {

TEST(Hardware, EveryKnownOneCanBeReadAndNamesItsSources) {
  for (const std::string_view name : KnownHardware()) {
    const Result<Hardware> hardware = ReadHardware(std::string(name));
    ASSERT_TRUE(hardware) << hardware.error().message;
    EXPECT_EQ(hardware->name, name);
    EXPECT_GE(hardware->sources.size(), 3u);
  }
}

TEST(Hardware, EveryNumberOfAFileHasItsPlace) {
  struct Place {
    const char* key;
    double Hardware::* number;
    double given, expected;
  };
  // Rates are what the fractions leave of them.
  const Place places[] = {
      {"memory_bytes", &Hardware::memory_bytes, 101, 101},
      {"memory_bytes_per_second", &Hardware::memory_bytes_per_second, 102, 51},
      {"bf16_flops", &Hardware::bf16_flops, 104, 26},
      {"fp8_flops", &Hardware::fp8_flops, 108, 27},
      {"int8_flops", &Hardware::int8_flops, 112, 28},
      {"int4_flops", &Hardware::int4_flops, 116, 29},
      {"link_bytes_per_second", &Hardware::link_bytes_per_second, 160, 20},
      {"link_devices", &Hardware::link_devices, 4096, 4096},
      {"network_bytes_per_second", &Hardware::network_bytes_per_second, 168, 21},
      {"exchange_seconds", &Hardware::exchange_seconds, 103, 103},
      {"mean_hops", &Hardware::mean_hops, 105, 105},
      {"host_seconds", &Hardware::host_seconds, 106, 106},
      {"host_sequence_seconds", &Hardware::host_sequence_seconds, 107, 107},
      {"arithmetic_fraction", &Hardware::arithmetic_fraction, 0.25, 0.25},
      {"memory_fraction", &Hardware::memory_fraction, 0.5, 0.5},
      {"link_fraction", &Hardware::link_fraction, 0.125, 0.125},
      {"dollars_per_hour", &Hardware::dollars_per_hour, 109, 109},
      {"watts", &Hardware::watts, 110, 110}};
  std::string numbers;
  for (const Place& place : places) {
    numbers += fmt::format(R"({}"{}": {{"value": {}, "source": "of {}"}})",
                           numbers.empty() ? "" : ", ", place.key, place.given, place.key);
  }
  const auto hardware = ParseHardware(
      fmt::format(R"({{"name": "x", "description": "an x", "numbers": {{{}}}}})", numbers), "x");
  ASSERT_TRUE(hardware) << hardware.error().message;
  EXPECT_EQ(hardware->name, "x");
  EXPECT_EQ(hardware->description, "an x");
  ASSERT_EQ(hardware->sources.size(), std::size(places));
  for (size_t i = 0; i < std::size(places); ++i) {
    EXPECT_EQ((*hardware).*places[i].number, places[i].expected) << places[i].key;
    EXPECT_EQ(hardware->sources[i],
              fmt::format("{0} {1:g}: of {0}", places[i].key, places[i].given));
  }
}

TEST(Hardware, ErrorsNameTheKey) {
  const auto error = [](const std::string& numbers) {
    const Result<Hardware> hardware =
        ParseHardware(R"({"name": "x", "numbers": {)" + numbers + "}}", "x.json");
    return hardware ? std::string() : hardware.error().message;
  };
  const std::string memory = R"("memory_bytes": {"value": 1, "source": "s"})";
  EXPECT_NE(error(memory).find("memory_bytes_per_second is missing"), std::string::npos);
  EXPECT_NE(error(R"("memory_bytes": 5)").find("\"source\""), std::string::npos);
  EXPECT_NE(error(R"("memory_bytes": {"value": -5, "source": "s"})").find("is -5"),
            std::string::npos);
  EXPECT_NE(error(R"("memory": {"value": 5, "source": "s"})").find("memory is unknown"),
            std::string::npos);
  EXPECT_NE(ReadHardware("no-such").error().message.find("h100, h200"), std::string::npos);
  for (const char* text : {R"({"name": "x"})", R"({"name": "x", "numbers": [1]})"}) {
    const Result<Hardware> hardware = ParseHardware(text, "x.json");
    ASSERT_FALSE(hardware);
    EXPECT_NE(hardware.error().message.find("numbers must be an object"), std::string::npos)
        << hardware.error().message;
  }
}

TEST(Hardware, NumbersAreInTheRangeOfTheirKey) {
  const auto error = [](const std::string& number) {
    const std::string given = R"({"name": "x", "numbers": {
        "memory_bytes_per_second": {"value": 100, "source": "s"},
        "bf16_flops": {"value": 1000, "source": "s"}, )";
    const std::string memory = R"("memory_bytes": {"value": 1e9, "source": "s"}, )";
    const bool own = number.starts_with("\"memory_bytes\"");
    const Result<Hardware> hardware =
        ParseHardware(given + (own ? "" : memory) + number + "}}", "x.json");
    return hardware ? std::string("none") : hardware.error().message;
  };
  const auto of = [](const char* key, const char* value) {
    return fmt::format(R"("{}": {{"value": {}, "source": "s"}})", key, value);
  };
  for (const char* devices : {"0.5", "8.5", "5000", "1e300", "\"8\""}) {
    EXPECT_NE(error(of("link_devices", devices)).find("must be a whole number from 1 to 4096"),
              std::string::npos)
        << devices;
  }
  EXPECT_EQ(error(of("link_devices", "1")), "none");
  EXPECT_NE(error(of("link_devices", "8"))
                .find("link_bytes_per_second is missing; links that join "
                      "8 devices"),
            std::string::npos);
  EXPECT_EQ(error(of("link_devices", "8") + ", " + of("link_bytes_per_second", "5")), "none");
  EXPECT_NE(error(of("memory_bytes", "1e19")).find("must be from 1 to 1e18"), std::string::npos);
  EXPECT_EQ(error(of("memory_bytes", "1e18")), "none");
  EXPECT_NE(error(of("watts", "1e300")).find("above 0 and at most 1e21"), std::string::npos);
  EXPECT_NE(error(of("watts", "0")).find("above 0 and at most 1e21"), std::string::npos);
  EXPECT_EQ(error(of("watts", "1e21")), "none");
  EXPECT_NE(error(of("memory_bytes", "0.5")).find("must be from 1 to 1e18"), std::string::npos);
  EXPECT_EQ(error(of("memory_bytes", "1")), "none");
  EXPECT_EQ(error(of("link_fraction", "1")), "none");
  EXPECT_NE(error(of("link_fraction", "0")).find("above 0 and at most 1"), std::string::npos);
  EXPECT_NE(error(R"("watts": {"value": 1, "source": ""})").find("\"source\": where it is from"),
            std::string::npos);
  EXPECT_NE(error(R"("watts": {"source": "s"})").find("must be {\"value\": a number"),
            std::string::npos);
}

TEST(Hardware, MeasuredFractionsLowerTheRates) {
  const auto read = [](const std::string& fractions) {
    const std::string given = R"({"name": "x", "numbers": {
        "memory_bytes": {"value": 1e9, "source": "s"},
        "memory_bytes_per_second": {"value": 100, "source": "s"},
        "bf16_flops": {"value": 1000, "source": "s"},
        "fp8_flops": {"value": 2000, "source": "s"},
        "link_bytes_per_second": {"value": 10, "source": "s"},
        "network_bytes_per_second": {"value": 4, "source": "s"})";
    return ParseHardware(given + fractions + "}}", "x.json");
  };
  const Result<Hardware> reached = read(R"(,
      "arithmetic_fraction": {"value": 0.5, "source": "s"},
      "memory_fraction": {"value": 0.75, "source": "s"},
      "link_fraction": {"value": 0.25, "source": "s"})");
  ASSERT_TRUE(reached) << reached.error().message;
  EXPECT_EQ(reached->memory_bytes, 1e9);
  EXPECT_EQ(reached->memory_bytes_per_second, 75);
  EXPECT_EQ(reached->bf16_flops, 500);
  EXPECT_EQ(reached->fp8_flops, 1000);
  EXPECT_EQ(reached->int8_flops, 0);
  EXPECT_EQ(reached->link_bytes_per_second, 2.5);
  EXPECT_EQ(reached->network_bytes_per_second, 1);
  EXPECT_EQ(read("")->bf16_flops, 1000);
  const Result<Hardware> above = read(R"(, "memory_fraction": {"value": 1.5, "source": "s"})");
  ASSERT_FALSE(above);
  EXPECT_NE(above.error().message.find("memory_fraction is 1.5; it must be above 0 and at most 1"),
            std::string::npos)
      << above.error().message;
}

TEST(Hardware, FormatsWithoutTheirOwnPeakRunAsBf16) {
  Hardware machine{.bf16_flops = 1e12};
  EXPECT_EQ(machine.FlopsFor(ops::WeightFormat::kF8), machine.bf16_flops);
  machine.fp8_flops = 7;
  EXPECT_EQ(machine.FlopsFor(ops::WeightFormat::kF8), 7);
  EXPECT_EQ(machine.FlopsFor(ops::WeightFormat::kBF16), machine.bf16_flops);
  EXPECT_EQ(machine.FlopsFor(ops::WeightFormat::kI8), machine.bf16_flops);
  machine.int8_flops = 8;
  EXPECT_EQ(machine.FlopsFor(ops::WeightFormat::kI8), 8);
  EXPECT_EQ(machine.FlopsFor(ops::WeightFormat::kI4), machine.bf16_flops);
  machine.int4_flops = 4;
  EXPECT_EQ(machine.FlopsFor(ops::WeightFormat::kI4), 4);
  EXPECT_EQ(machine.FlopsFor(ops::WeightFormat::kF8), 7);
}

}  // namespace
}  // namespace braid

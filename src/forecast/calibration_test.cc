// Times from measurements: at them, between them, beyond them, and of parts that nobody measured.
#include "forecast/calibration.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/system/file.h"
#include "forecast/forecast.h"

namespace braid {
namespace {

// A part that reaches 1e9 bytes and 1e12 operations per second, and half of both in between.
Calibration Products() {
  return Calibration({{"feed-forward", "int8", 1e6, 1e6, 1e-3},
                      {"feed-forward", "int8", 1e9, 1e6, 2e-3},
                      {"feed-forward", "int8", 1e12, 1e6, 1}},
                     0.5, 0.25);
}
double Of(const Calibration& c, double flops, double bytes) {
  return c.Seconds({"feed-forward", "int8", flops, bytes, 5, 5});
}

TEST(Calibration, AMeasuredPartTakesWhatWasMeasured) {
  EXPECT_NEAR(Of(Products(), 1e6, 1e6), 1e-3, 1e-9);
  EXPECT_NEAR(Of(Products(), 1e9, 1e6), 2e-3, 1e-9);
  EXPECT_NEAR(Of(Products(), 1e12, 1e6), 1, 1e-6);
}

TEST(Calibration, BetweenMeasurementsTheLimitsAreMissedByAsMuchAsNearThem) {
  // At the knee both limits say 1 ms, and the measurement next to it took twice that.
  EXPECT_NEAR(Of(Products(), 1.1e9, 1e6), 2.2e-3, 1e-5);
  EXPECT_NEAR(Of(Products(), 1.1e6, 1e6), 1e-3, 1e-5);
  for (double flops = 1e6; flops < 1e12; flops *= 1.5) {
    const double limit = std::max(flops / 1e12, 1e-3);
    EXPECT_GE(Of(Products(), flops, 1e6), limit * 0.999);
    EXPECT_LE(Of(Products(), flops, 1e6), limit * 2.001);
  }
}

TEST(Calibration, TheNearerMeasurementDecidesByTheFourthPowerOfItsDistance) {
  // The limit is 1e9 bytes per second, which the second one reached by half.
  const Calibration c({{"attention", "", 0, 1e6, 1e-3}, {"attention", "", 0, 1e8, 0.2}}, 1, 1);
  const auto of = [&](double bytes) { return c.Seconds({"attention", "", 0, bytes, 7, 7}); };
  EXPECT_NEAR(of(1e7), 1e-2 * std::sqrt(2), 1e-8) << "in the middle";
  EXPECT_NEAR(of(std::pow(10, 6.5)), std::pow(10, 6.5) / 1e9 * std::pow(2, 1 / 82.0), 1e-8);
  EXPECT_NEAR(of(1e2), 1e-7 * std::pow(2, 1 / (1 + std::pow(1.5, 4))), 1e-12);
  EXPECT_TRUE(c.has("attention"));
  EXPECT_FALSE(c.has("experts"));
  EXPECT_FALSE(c.empty());
  EXPECT_TRUE(Calibration().empty());
}

TEST(Calibration, BeyondMeasurementsTheLimitsScale) {
  EXPECT_NEAR(Of(Products(), 1e6, 1e12), 1e3, 300);
  EXPECT_NEAR(Of(Products(), 1e18, 1e6), 1e6, 2e5);
}

TEST(Calibration, OfRepeatedMeasurementsTheMedianCounts) {
  const auto part = [](double seconds) { return MeasuredPart{"attention", "", 1e6, 1e6, seconds}; };
  const Calibration c({part(9), part(1), part(2), part(1.5), part(8)}, 1, 1);
  EXPECT_NEAR(c.Seconds({"attention", "", 1e6, 1e6, 0, 0}), 2, 1e-9);
}

TEST(Calibration, OtherPartsTakeTheFormulaByTheFractionThatWasReached) {
  const Calibration c = Products();
  // Of another format, and of another part.
  EXPECT_DOUBLE_EQ(c.Seconds({"feed-forward", "int4", 1e6, 1e6, 1, 3}), 6);
  EXPECT_DOUBLE_EQ(c.Seconds({"experts", "int8", 1e6, 1e6, 3, 1}), 12);
}

constexpr std::string_view kLine =
    R"({"hardware":{"name":"here","numbers":{"memory_bytes":{"value":1e9,"source":"s"},
"memory_bytes_per_second":{"value":1e9,"source":"s"},"bf16_flops":{"value":1e12,"source":"s"}}},
"results":[{"part":"feed-forward","format":"","flops":4e6,"bytes":2e6,"ns_median":5e9,
"fraction_of_limit":0.5,"limited_by":"memory"},
{"part":"","flops":0,"bytes":0,"ns_median":1,"fraction_of_limit":0}]})";
std::string Line() {
  std::string line(kLine);
  std::erase(line, '\n');
  return line;
}

TEST(Calibration, LinesOfBenchOpsAreADeviceWithItsTimes) {
  const Result<Hardware> found = ParseCalibration(Line() + "\n\n" + Line() + "\n", "ops.json");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->name, "here");
  EXPECT_NEAR(found->calibration.Seconds({"feed-forward", "", 4e6, 2e6, 0, 0}), 5, 1e-9);
  EXPECT_DOUBLE_EQ(found->calibration.Seconds({"experts", "", 1, 1, 0, 2}), 4);
  EXPECT_EQ(found->sources.back(), "times of 2 parts of steps, measured on here: ops.json");
  EXPECT_EQ(found->kv_dtype, DType::kBF16);
  const auto with = [](std::string_view type) {
    return ParseCalibration(fmt::format(R"({{"kv_dtype":"{}",{})", type, Line().substr(1)), "a");
  };
  EXPECT_EQ(with("f32")->kv_dtype, DType::kF32);
  EXPECT_EQ(with("i8")->kv_dtype, DType::kI8);
  EXPECT_FALSE(with("bool"));
}

TEST(Calibration, TheFractionsOfAFileAreItsMedians) {
  const auto line = [](std::vector<std::pair<double, const char*>> rows) {
    std::string results;
    for (const auto& [fraction, bound] : rows) {
      results += fmt::format(R"({}{{"part":"attention","flops":1,"bytes":1,"ns_median":1e9,
                                    "fraction_of_limit":{},"limited_by":"{}"}})",
                             results.empty() ? "" : ",", fraction, bound);
    }
    std::erase(results, '\n');
    std::string text = Line();
    return text.substr(0, text.find("\"results\"")) + R"("results":[)" + results + "]}";
  };
  const auto found = ParseCalibration(
      line({{0.9, "memory"}, {0.25, "memory"}, {1.5, "arithmetic"}}) + "\r\n  \n" +
          line({{0.1, "memory"}, {0.125, "arithmetic"}, {0, "arithmetic"}, {0.5, "arithmetic"}}),
      "ops.json");
  ASSERT_TRUE(found) << found.error().message;
  // Of 0.1, 0.25 and 0.9, and of 0.125, 0.5 and 1: none is above the limit.
  EXPECT_DOUBLE_EQ(found->calibration.Seconds({"experts", "", 1, 1, 0, 1}), 4);
  EXPECT_DOUBLE_EQ(found->calibration.Seconds({"experts", "", 1, 1, 1, 0}), 2);
  EXPECT_EQ(found->sources.back(), "times of 7 parts of steps, measured on here: ops.json");
  // Where nothing says how far the limits were reached, they are.
  const auto silent = ParseCalibration(line({{0, "memory"}}), "ops.json");
  ASSERT_TRUE(silent);
  EXPECT_DOUBLE_EQ(silent->calibration.Seconds({"experts", "", 1, 1, 3, 1}), 3);
}

TEST(Calibration, NamedHardwareTakesTheTimesOfAFile) {
  const std::string path = testing::TempDir() + "/calibration_test.jsonl";
  ASSERT_TRUE(WriteFile(path, R"({"kv_dtype":"f32",)" + Line().substr(1)));
  const Result<Hardware> own = ReadCalibrated("", path), named = ReadCalibrated("h100", path);
  ASSERT_TRUE(own && named);
  EXPECT_EQ(own->name, "here");
  EXPECT_EQ(named->name, "h100");
  EXPECT_EQ(own->measured_on, "here");
  EXPECT_EQ(named->measured_on, "here");
  EXPECT_NEAR(named->calibration.Seconds({"feed-forward", "", 4e6, 2e6, 0, 0}), 5, 1e-9);
  EXPECT_EQ(named->kv_dtype, DType::kF32);
  EXPECT_EQ(named->sources.back(), own->sources.back());
  EXPECT_EQ(ReadCalibrated("", "")->name, "h200");
  EXPECT_EQ(ReadCalibrated("b200", "")->name, "b200");
  EXPECT_FALSE(ReadCalibrated("h100", path + ".none"));
}

TEST(Calibration, WorkOnRowsIsReadAndWrittenInFloats) {
  ModelSpec spec{.hidden = 64, .layers = {{.mixer = FullAttention{}}, {}}};
  // Two norms of each layer and one at the end, which read and write 64 channels.
  EXPECT_EQ(RowWorkOf(spec, 3).bytes, 3 * 4 * (2 * 2 + 1) * 4 * 64);
  // 2 key heads of 8 and 4 value heads of 16: a convolution of 2 * 16 + 64 channels, and gates.
  spec.layers[1].mixer = LinearAttention{
      .key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 16, .conv_width = 4};
  EXPECT_EQ(RowWorkOf(spec, 3).bytes, 3 * 4 * ((2 * 2 + 1) * 4 * 64 + 2 * (2 * 16 + 64) + 3 * 64));
}

TEST(Calibration, AnErrorNamesTheLineAndHowToWriteIt) {
  const auto error = [](const std::string& lines) {
    const Result<Hardware> found = ParseCalibration(lines, "ops.json");
    return found ? "no error" : found.error().message;
  };
  EXPECT_NE(error(Line() + "\n{}").find("ops.json, line 2: hardware is missing; write the lines"),
            std::string::npos);
  EXPECT_NE(error("").find("braid bench ops --json"), std::string::npos);
  EXPECT_NE(error("[]").find("line 1: hardware is missing"), std::string::npos);
  std::string without = Line();
  without.replace(without.find("\"results\""), 9, "\"nothing\"");
  EXPECT_NE(error(without).find("line 1: results is missing; write the lines"), std::string::npos);
  for (const char* row : {"7", "{}", R"({"part":"x","flops":-1,"bytes":3,"ns_median":1})",
                          R"({"part":"x","flops":3,"bytes":-1,"ns_median":1})",
                          R"({"part":"x","flops":1,"bytes":1})"}) {
    std::string bad = Line();
    bad.insert(bad.find("[") + 1, std::string(row) + ",");
    EXPECT_NE(error(bad).find("results has "), std::string::npos) << row;
  }
  std::string nameless = Line();
  nameless.replace(nameless.find("feed-forward"), 12, "");
  EXPECT_NE(error(nameless).find("results has no part of a step"), std::string::npos);
  std::string wrong = Line();
  wrong.replace(wrong.find("5e9"), 3, "0.0");
  EXPECT_NE(error(wrong).find("ns_median above 0"), std::string::npos) << error(wrong);
  std::string nothing = Line();
  nothing.replace(nothing.find("4e6"), 3, "0.0");
  nothing.replace(nothing.find("2e6"), 3, "0.0");
  EXPECT_NE(error(nothing).find("of a part of a step not both 0"), std::string::npos)
      << error(nothing);
}

TEST(Calibration, AllLinesAreOfOneDeviceAndOneTypeOfKeysAndValues) {
  const auto error = [](const std::string& second) {
    const Result<Hardware> found = ParseCalibration(Line() + "\n" + second, "ops.json");
    return found ? "no error" : found.error().message;
  };
  std::string other = Line();
  other.replace(other.find("\"here\""), 6, "\"there\"");
  EXPECT_NE(error(other).find("ops.json, line 2: hardware is there and that of earlier lines here"),
            std::string::npos)
      << error(other);
  EXPECT_NE(error(R"({"kv_dtype":"i8",)" + Line().substr(1))
                .find("line 2: kv_dtype is i8 and that of earlier lines bf16"),
            std::string::npos);
  // The same device as another run measured it.
  std::string again = Line();
  again.replace(again.find("1e12"), 4, "9e11");
  EXPECT_EQ(error(again), "no error");
}

TEST(Calibration, AForecastIsTheSumOfWhatWasMeasured) {
  const ModelSpec spec{
      .hidden = 64,
      .vocabulary = 128,
      .layers = {{.mixer = FullAttention{.heads = 4, .kv_heads = 2, .head_dim = 16},
                  .ffn = DenseFfn{.width = 256}}},
      .prefixes = {""}};
  const Hardware limits{
      .name = "here", .memory_bytes = 1e9, .memory_bytes_per_second = 1e9, .bf16_flops = 1e12};
  const Workload workload{.input_tokens = 64, .output_tokens = 2, .concurrency = 4};
  const Result<Forecast> formula = ForecastOf(spec, {}, limits, workload);
  ASSERT_TRUE(formula) << formula.error().message;
  Hardware measured = limits;
  std::vector<MeasuredPart> parts;
  for (const PartForecast& part : formula->decode.parts) {
    parts.push_back({std::string(part.part), part.part == "feed-forward" ? "bf16" : "other",
                     part.flops, part.bytes, 7});
  }
  measured.calibration = Calibration(std::move(parts), 0.5, 0.5);
  const Result<Forecast> forecast = ForecastOf(spec, {}, measured, workload);
  ASSERT_TRUE(forecast) << forecast.error().message;
  for (size_t i = 0; i < forecast->decode.parts.size(); ++i) {
    const PartForecast& part = forecast->decode.parts[i];
    // The others were measured in another format: twice the limit.
    const double expected = part.part == "feed-forward" ? 7 : 2 * formula->decode.parts[i].seconds;
    EXPECT_NEAR(part.seconds, expected, expected * 1e-9) << part.part;
  }
}

}  // namespace
}  // namespace braid

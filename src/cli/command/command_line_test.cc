// From words to commands: help, suggestions, exit codes; and the figures of commands that print
// what others compute, each under its name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "base/json.h"
#include "base/quantities.h"
#include "base/system/file.h"
#include "cli/command/command.h"
#include "cluster/cluster.h"
#include "forecast/forecast.h"
#include "model/families/families.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Printed {
  int code = 0;
  std::string out, err;
};

Printed RunWords(const std::vector<std::string>& words) {
  std::vector<const char*> argv = {"braid"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Printed printed;
  printed.code = RunCommandLine(static_cast<int>(argv.size()), argv.data());
  std::fflush(stdout);
  printed.out = ::testing::internal::GetCapturedStdout();
  printed.err = ::testing::internal::GetCapturedStderr();
  return printed;
}

TEST(CommandLine, HelpListsCommandsAndTheirFlags) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"help"}, {"--help"}, {"-h"}}) {
    const Printed all = RunWords(words);
    EXPECT_EQ(all.code, 0);
    for (const CommandEntry& entry : Commands()) {
      EXPECT_THAT(all.out, HasSubstr(std::string(entry.summary)));
    }
  }
  const Printed none = RunWords({});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.out, HasSubstr("usage: braid COMMAND"));
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"help", "plan"}, {"plan", "--help"}, {"help", "experts", "plan"}}) {
    const Printed help = RunWords(words);
    EXPECT_EQ(help.code, 0);
    EXPECT_THAT(help.out,
                AllOf(HasSubstr("Usage: braid "), HasSubstr("--mesh"), HasSubstr("Examples:\n  ")));
    EXPECT_EQ(help.out.find("Usage: braid experts") != std::string::npos, words.size() == 3);
  }
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"help", "cache"}, {"cache", "--help"}, {"cache", "-h"}}) {
    const Printed group = RunWords(words);
    EXPECT_EQ(group.code, 0) << words.back();
    EXPECT_THAT(group.out, AllOf(HasSubstr("braid cache ls "), HasSubstr("braid cache import "),
                                 Not(HasSubstr("braid bench"))));
  }
  for (const char* version : {"version", "--version", "-v"}) {
    EXPECT_THAT(RunWords({version}).out, HasSubstr("braid 0."));
  }
}

TEST(CommandLine, WrongWordsAreUsageErrorsWithASuggestion) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"srve"}, "unknown command \"srve\"; did you mean \"serve\"?"},
      {{"xyzzy"}, "unknown command \"xyzzy\"; braid help lists all"},
      {{"cache"}, "braid cache: no command, one of ls, stat, verify, clear, export, import"},
      {{"cache", "la"},
       "unknown \"la\", one of ls, stat, verify, clear, export, import is needed; "
       "did you mean \"ls\"?"},
      {{"cache", "xyzzy", "--help"}, "unknown \"xyzzy\""},
      {{"xyzzy", "--help"}, "unknown command \"xyzzy\""},
      {{"plan", "A", "--msh=dp=2"}, "unknown flag --msh; did you mean \"--mesh\"?"},
      {{"plan", "A", "--hlp"}, "unknown flag --hlp; did you mean \"--help\"?"},
      {{"plan", "A", "--xyzzy"}, "braid plan: unknown flag --xyzzy\n(braid help plan shows"},
      {{"plan", "A", "B"}, "one argument too many: \"B\""},
      {{"plan"}, "MODEL is required"},
      {{"plan", "A", "--devices", "0"}, "0 is not an integer from 1 to 512"},
      {{"serve", "A", "--api-key", ""}, "braid serve: --api-key is empty: give it a value"},
      {{"serve", "A", "--api-key-file", ""}, "--api-key-file is empty"},
      {{"serve", "A", "--admin-api-key", ""}, "--admin-api-key is empty"},
      {{"serve", "A", "--tls-cert", "", "--tls-key", ""}, "--tls-cert is empty"},
      {{"serve", "A", "--tls-cert", "c", "--tls-key", ""}, "--tls-key is empty"},
      {{"serve", "A", "--handoff-key-file", ""}, "--handoff-key-file is empty"},
      {{"serve", "A", "--register-key-file", ""}, "--register-key-file is empty"},
      {{"serve", "A", "--cache-key-file", ""}, "--cache-key-file is empty"},
      {{"cache", "export", "A", "B", "--cache-key-file", ""}, "--cache-key-file is empty"},
      {{"router", "A", "--api-key", ""}, "braid router: --api-key is empty: give it a value"},
      {{"router", "A", "--api-key=", "--host"}, "braid router: --api-key= has no value: give it"},
      {{"plan", "A", "--msh="}, "braid plan: --msh= has no value"},
  };
  for (const auto& [words, said] : cases) {
    const Printed printed = RunWords(words);
    EXPECT_EQ(printed.code, 2) << words[0];
    EXPECT_THAT(printed.err, HasSubstr(said));
    EXPECT_EQ(printed.out, "");
  }
}

// The field of an error is named once.
TEST(CommandLine, ACommandThatFailsSaysWhyAndEndsWithOne) {
  const Printed failed = RunWords({"plan", "/nowhere/config.json"});
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(failed.err,
              AllOf(::testing::StartsWith("braid plan: "), HasSubstr("/nowhere/config.json")));
  EXPECT_THAT(RunWords({"plan", "A", "--best", "device"}).err,
              ::testing::StartsWith("braid plan: --best goes with --search\n"));
  EXPECT_THAT(RunWords({"experts", "plan", "zipf=1"}).err, HasSubstr("--model"));
}

TEST(ExpertsPlanCommand, AMeshHasAtMostSoManyRanks) {
  const auto said = [](const char* mesh) {
    return RunWords({"experts", "plan", "zipf=1", "--model",
                     BRAID_SOURCE_DIR "/tests/configs/qwen3_5_35b_a3b.json", "--mesh", mesh})
        .err;
  };
  EXPECT_THAT(said("ranks=65537"), HasSubstr("at most 65536 ranks"));
  EXPECT_THAT(said("ranks=65536"), AllOf(Not(HasSubstr("at most 65536 ranks")), Not("")));
}

// ---------------------------------------------------------------- figures

constexpr const char* kConfig = BRAID_SOURCE_DIR "/tests/configs/qwen3_5_35b_a3b.json";

ModelSpec SpecOfConfig() {
  const std::string text = *ReadFile(kConfig, 1 << 20);
  Result<ModelSpec> spec = ParseModelSpec(text, kConfig);
  CHECK(spec, "{}", spec.error().message);
  return *std::move(spec);
}

json::object JsonOfWords(std::vector<std::string> words) {
  words.emplace_back("--json");
  const Printed printed = RunWords(words);
  EXPECT_EQ(printed.code, 0) << printed.err;
  Result<json::value> value = ParseJson(printed.out, "stdout");
  CHECK(value, "{}", value.error().message);
  return value->as_object();
}

using Figures = std::vector<std::pair<const char*, double>>;

void ExpectFigures(const json::object& object, const Figures& figures) {
  for (const auto& [name, value] : figures) {
    EXPECT_DOUBLE_EQ(object.at(name).to_number<double>(), value) << name;
  }
}

Figures FiguresOf(const SpeedForecast& s) {
  return {{"output_tokens_per_second", s.output_tokens_per_second},
          {"input_tokens_per_second", s.input_tokens_per_second},
          {"first_token_seconds", s.first_token_seconds},
          {"first_token_seconds_burst", s.first_token_seconds_burst},
          {"inter_token_seconds", s.inter_token_seconds},
          {"inter_token_seconds_mean", s.inter_token_seconds_mean}};
}

void ExpectStep(const json::object& object, const StepForecast& step) {
  ExpectFigures(object, {{"seconds_with_overlap", step.seconds_with_overlap()},
                         {"seconds_without_overlap", step.seconds_without_overlap()},
                         {"compute_seconds", step.compute_seconds},
                         {"link_seconds", step.link_seconds},
                         {"host_seconds", step.host_seconds},
                         {"sent_bytes", step.sent_bytes}});
  EXPECT_EQ(object.at("bound").as_string(), NameOf(step.bound()));
  const json::array& parts = object.at("parts").as_array();
  ASSERT_EQ(parts.size(), step.parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const PartForecast& part = step.parts[i];
    ExpectFigures(parts[i].as_object(),
                  {{"flops", part.flops}, {"bytes", part.bytes}, {"seconds", part.seconds}});
    EXPECT_EQ(parts[i].at("part").as_string(), part.part);
  }
}

// Flags, and the forecast that they ask for.
struct PlanCase {
  std::vector<std::string> flags;
  Mesh mesh;
  Workload workload;
  ForecastOptions options;
  DType state_dtype = DType::kF32;
};

std::vector<PlanCase> PlanCases() {
  PlanCase plain{.flags = {"--hardware", "h100"}};
  plain.workload = Workload();
  PlanCase ranks{.flags = {"--hardware", "h100", "--mesh", "dp=2,tp=2,ep=4", "--workload",
                           "in=2048,out=100,concurrency=32", "--weights", "fp8", "--kv-dtype",
                           "int8", "--state-dtype", "bf16", "--step-tokens", "512",
                           "--redundant-experts", "4", "--expert-balance", "0.5"},
                 .mesh = {.dp = 2, .tp = 2, .ep = 4},
                 .workload = {2048, 100, 32},
                 .options = {.format = ops::WeightFormat::kF8,
                             .kv_dtype = DType::kI8,
                             .step_tokens_max = 512,
                             .redundant_experts = 4,
                             .expert_balance = 0.5},
                 .state_dtype = DType::kBF16};
  PlanCase drafts{
      .flags = {"--hardware", "h100", "--drafts", "2", "--draft-acceptance", "0.75", "--kv-dtype",
                "fp32", "--without-communication", "--without-weight-bytes"},
      .options = {.kv_dtype = DType::kF32,
                  .drafts = 2,
                  .draft_acceptance = 0.75,
                  .without_communication = true,
                  .without_weight_bytes = true}};
  return {plain, ranks, drafts};
}

// One blank for each run of them.
std::string Squeezed(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
  }
  return out;
}

// The figures of a forecast, each behind its name; speeds with overlap, then without.
void ExpectText(const std::string& printed, const Forecast& f, const Workload& workload) {
  const std::string text = Squeezed(printed);
  const auto whole = [](double number) { return fmt::format("{:.0f}", number); };
  const auto row = [&](const char* name, double SpeedForecast::* of, auto shown) {
    EXPECT_THAT(text, HasSubstr(fmt::format("\n {} {} {}\n", name, shown(f.overlapped.*of),
                                            shown(f.serial.*of))));
  };
  row("output tokens/s", &SpeedForecast::output_tokens_per_second, whole);
  row("input tokens/s", &SpeedForecast::input_tokens_per_second, whole);
  row("time to first token, no queue", &SpeedForecast::first_token_seconds, TimeText);
  row("time to first token, all at once, mean", &SpeedForecast::first_token_seconds_burst,
      TimeText);
  row("inter-token latency, decode alone", &SpeedForecast::inter_token_seconds, TimeText);
  row("inter-token latency, prompts between", &SpeedForecast::inter_token_seconds_mean, TimeText);
  const MemoryForecast& m = f.memory;
  EXPECT_THAT(text, HasSubstr("fullest device: " + ByteText(m.total()) + " of "));
  for (const auto& [name, bytes] : {std::pair("weights", m.weights),
                                    {"keys and values", m.kv},
                                    {"recurrent state", m.state},
                                    {"workspace", m.workspace},
                                    {"redundant experts", m.balance_buffers},
                                    {"exchange buffers", m.exchange_buffers}}) {
    const bool told =
        text.find(fmt::format("\n {} {}\n", name, ByteText(bytes))) != std::string::npos;
    EXPECT_EQ(told, bytes > 0) << name;
  }
  EXPECT_THAT(
      text, HasSubstr(fmt::format("{} requests at a time of {} + {} tokens\n", workload.concurrency,
                                  workload.input_tokens, workload.output_tokens)));
  for (const StepForecast* step : {&f.prefill, &f.decode}) {
    EXPECT_THAT(text, HasSubstr(fmt::format("{} with overlap, {} without; bound by {}",
                                            TimeText(step->seconds_with_overlap()),
                                            TimeText(step->seconds_without_overlap()),
                                            NameOf(step->bound()))));
    for (const PartForecast& part : step->parts) {
      EXPECT_THAT(text, HasSubstr(fmt::format("\n {} {} {} {:.1f} GFLOP, {:.2f} GB\n", part.part,
                                              TimeText(part.seconds), NameOf(part.bound()),
                                              part.flops / 1e9, part.bytes / 1e9)));
    }
    EXPECT_EQ(text.find("GB sent") != std::string::npos, f.decode.sent_bytes > 0);
  }
  EXPECT_EQ(text.find("DOES NOT FIT") != std::string::npos, !f.fits);
}

TEST(PlanCommand, PrintsTheForecastThatItsFlagsAskFor) {
  const Hardware hardware = *ReadHardware("h100");
  for (const PlanCase& c : PlanCases()) {
    SCOPED_TRACE(c.flags.back());
    ModelSpec spec = SpecOfConfig();
    if (c.options.drafts > 0) UseDraftHead(spec);
    PlanState(spec, c.options.drafts, c.state_dtype);
    const Result<Forecast> f = ForecastOf(spec, c.mesh, hardware, c.workload, c.options);
    ASSERT_TRUE(f) << f.error().message;
    std::vector<std::string> words = {"plan", kConfig};
    words.insert(words.end(), c.flags.begin(), c.flags.end());
    const json::object found = JsonOfWords(words);
    EXPECT_EQ(found.at("hardware").as_string(), "h100");
    EXPECT_EQ(found.at("fits"), f->fits);
    EXPECT_EQ(found.at("devices"), c.mesh.ranks());
    EXPECT_EQ(found.at("weights").as_string(), ops::NameOf(c.options.format));
    EXPECT_EQ(found.at("mesh"),
              (json::object{{"dp", c.mesh.dp}, {"tp", c.mesh.tp}, {"ep", c.mesh.ep}}));
    const MemoryForecast& m = f->memory;
    ExpectFigures(found.at("memory_bytes").as_object(),
                  {{"device", hardware.memory_bytes},
                   {"total", static_cast<double>(m.total())},
                   {"weights", static_cast<double>(m.weights)},
                   {"kv", static_cast<double>(m.kv)},
                   {"state", static_cast<double>(m.state)},
                   {"workspace", static_cast<double>(m.workspace)},
                   {"balance_buffers", static_cast<double>(m.balance_buffers)},
                   {"exchange_buffers", static_cast<double>(m.exchange_buffers)}});
    ExpectFigures(found, {{"tokens_per_step", f->tokens_per_step}});
    ExpectStep(found.at("prefill").as_object(), f->prefill);
    ExpectStep(found.at("decode").as_object(), f->decode);
    ExpectFigures(found.at("with_overlap").as_object(), FiguresOf(f->overlapped));
    ExpectFigures(found.at("without_overlap").as_object(), FiguresOf(f->serial));
    EXPECT_EQ(found.at("sources").as_array().size(), hardware.sources.size());
    ExpectText(RunWords(words).out, *f, c.workload);
  }
}
TEST(PlanCommand, ASearchKeepsWhatItsFlagsSay) {
  ModelSpec spec = SpecOfConfig();
  PlanState(spec, 0, DType::kF32);
  const Hardware hardware = *ReadHardware("h100");
  const Workload workload{.input_tokens = 2048, .output_tokens = 256, .concurrency = 16};
  SearchSpace space{.devices_max = 3};
  const auto search = [&](std::vector<std::string> flags) {
    const auto want = SearchMesh(spec, hardware, workload, {}, space);
    ASSERT_TRUE(want) << want.error().message;
    std::vector<std::string> words = {"plan",     kConfig,      "--hardware",
                                      "h100",     "--workload", "in=2048,out=256,concurrency=16",
                                      "--search", "--devices",  "3"};
    words.insert(words.end(), flags.begin(), flags.end());
    const json::array best = JsonOfWords(words).at("best").as_array();
    ASSERT_EQ(best.size(), want->size());
    for (size_t i = 0; i < best.size(); ++i) {
      const SearchResult& result = (*want)[i];
      const json::object& one = best[i].as_object();
      EXPECT_EQ(one.at("mesh").at("dp"), result.mesh.dp);
      EXPECT_EQ(one.at("mesh").at("tp"), result.mesh.tp);
      EXPECT_EQ(one.at("mesh").at("ep"), result.mesh.ep);
      EXPECT_EQ(one.at("weights").as_string(), ops::NameOf(result.format));
      ExpectFigures(one.at("with_overlap").as_object(), FiguresOf(result.forecast.overlapped));
    }
  };
  search({});
  space.aim = SearchAim::kTokensPerDevice;
  search({"--best", "device"});
  space.aim = SearchAim::kTokens;
  using enum ops::WeightFormat;
  space.formats = {kBF16, kF8, kI8, kI4};
  search({"--weights", "any"});
  space.formats = {kF8};
  space.inter_token_seconds_max = 0.02;
  space.first_token_seconds_max = 0.5;
  search({"--weights", "fp8", "--inter-token-ms", "20", "--first-token-ms", "500"});
}

Figures FiguresOf(const ClusterReport& r) {
  const auto of = [](int64_t count) { return static_cast<double>(count); };
  return {{"requests", of(r.requests)},
          {"finished", of(r.finished)},
          {"refused", of(r.refused)},
          {"restarted", of(r.restarted)},
          {"failures", of(r.failures)},
          {"seconds", r.seconds},
          {"busy", r.busy},
          {"prefill_busy", r.prefill_busy},
          {"expert_balance", r.expert_balance},
          {"engine_seconds", r.engine_seconds},
          {"starts", of(r.starts)},
          {"transfers", of(r.transfer.count())},
          {"transfers_failed", of(r.transfers_failed)},
          {"transferred_bytes", r.transferred_bytes},
          {"steps", of(r.steps)},
          {"preemptions", of(r.preemptions)},
          {"input_tokens", of(r.input_tokens)},
          {"reused_tokens", of(r.reused_tokens)},
          {"output_tokens", of(r.output_tokens)},
          {"output_tokens_per_second", of(r.output_tokens) / r.seconds}};
}

void ExpectReport(const json::object& run, const ClusterReport& r) {
  ExpectFigures(run, FiguresOf(r));
  for (const auto& [name, times] : {std::pair("first_token_seconds", &r.first_token),
                                    {"inter_token_seconds", &r.inter_token},
                                    {"request_seconds", &r.whole},
                                    {"transfer_seconds", &r.transfer}}) {
    ExpectFigures(run.at(name).as_object(), {{"mean", times->mean()},
                                             {"p50", times->Quantile(0.5)},
                                             {"p90", times->Quantile(0.9)},
                                             {"p99", times->Quantile(0.99)}});
  }
}

TEST(SimulateClusterCommand, PrintsTheReportThatItsFlagsAskFor) {
  const std::vector<std::string> words = {"simulate",
                                          "cluster",
                                          kConfig,
                                          "--hardware",
                                          "h100",
                                          "--engines",
                                          "3",
                                          "--prefill-engines",
                                          "1",
                                          "--mesh",
                                          "tp=2,ep=2",
                                          "--route",
                                          "round-robin",
                                          "--max-num-seqs",
                                          "16",
                                          "--max-batch-tokens",
                                          "1024",
                                          "--weights",
                                          "fp8",
                                          "--decode-latency-ms",
                                          "50",
                                          "--no-overlap",
                                          "--seed",
                                          "5",
                                          "--expert-balance",
                                          "0.5",
                                          "--minutes",
                                          "0.05",
                                          "--input-tokens",
                                          "600",
                                          "--output-tokens",
                                          "20",
                                          "--range-ratio",
                                          "0.5",
                                          "--rate",
                                          "4,9.5"};
  const Hardware hardware = *ReadHardware("h100");
  const ClusterOptions options{.engines = 3,
                               .prefill_engines = 1,
                               .mesh = {.tp = 2, .ep = 2},
                               .route = Policy::kRoundRobin,
                               .running_max = 16,
                               .step_tokens_max = 1024,
                               .decode_latency_us = 50'000,
                               .overlap = false,
                               .seed = 5};
  const ForecastOptions forecast{.format = ops::WeightFormat::kF8,
                                 .kv_dtype = hardware.kv_dtype,
                                 .step_tokens_max = 1024,
                                 .expert_balance = 0.5};
  ClusterLoadOptions load{
      .seconds = 3, .input_tokens = 600, .output_tokens = 20, .range_ratio = 0.5, .seed = 5};
  const json::array runs = JsonOfWords(words).at("runs").as_array();
  ASSERT_EQ(runs.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    load.requests_per_second = i == 0 ? 4 : 9.5;
    const auto report =
        SimulateCluster(SpecOfConfig(), hardware, forecast, options, MakeRequests(load));
    ASSERT_TRUE(report) << report.error().message;
    ASSERT_GT(report->transfer.count(), 5);
    ExpectReport(runs[i].as_object(), *report);
    EXPECT_EQ(runs[i].at("requests_per_second").to_number<double>(), load.requests_per_second);
  }
}

}  // namespace
}  // namespace braid

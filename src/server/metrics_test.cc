// What the metrics say of the engine's numbers.
#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

using testing::HasSubstr;
using testing::Not;

ServerMetrics::Labels Shown() {
  return {.model_name = "m",
          .context_tokens_max = 60,
          .cache_groups = {"attention", "state"},
          .load_seconds = 2.5,
          .cache_blocks = 9,
          .prefix_cache = true};
}

// The value of a series by its name and one of its labels.
std::string ValueOf(const std::string& text, const std::string& name,
                    const std::string& label = "") {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with(name + "{") && line.find(label) != std::string::npos) {
      return line.substr(line.rfind(' ') + 1);
    }
  }
  return "absent";
}

TEST(ServerMetrics, PrefixesThatATierMissedAreCounted) {
  ServerMetrics metrics(Shown());
  DriverStats stats;
  stats.scheduler.tier = {.unwritten = 4};
  EXPECT_EQ(ValueOf(metrics.Text({.driver = stats}), "braid:tier_unwritten_total"), "4");
}

TEST(ServerMetrics, BytesThatATierReadAheadAreCounted) {
  ServerMetrics metrics(Shown());
  const std::string text = metrics.Text({.driver = {}, .tier_ahead_bytes = 5});
  EXPECT_EQ(ValueOf(text, "braid:tier_read_ahead_bytes_total", "tier=\"disk\""), "5");
}

TEST(ServerMetrics, ATierInMemoryAloneHasNothingOnDisk) {
  DriverStats stats;
  stats.scheduler.tier_parts = 6;
  stats.scheduler.tier = {.bytes_written = 10, .bytes_read = 20, .bytes_in_memory = 30};
  for (const bool on_disk : {true, false}) {
    ServerMetrics::Labels labels = Shown();
    labels.tier_on_disk = on_disk;
    const std::string text = ServerMetrics(labels).Text({.driver = stats});
    EXPECT_EQ(ValueOf(text, "braid:tier_parts", "tier=\"disk\""), on_disk ? "6" : "absent");
    EXPECT_EQ(ValueOf(text, "braid:tier_parts", "tier=\"host\""), on_disk ? "absent" : "6");
    EXPECT_EQ(ValueOf(text, "braid:tier_written_bytes_total", "tier=\"disk\""), "10");
    EXPECT_EQ(ValueOf(text, "braid:tier_read_bytes_total", "tier=\"disk\""), "20");
    EXPECT_EQ(ValueOf(text, "braid:tier_read_bytes_total", "tier=\"host\""), "30");
  }
}

TEST(ServerMetrics, WaitsAreToldByTier) {
  ServerMetrics metrics(Shown());
  DriverStats stats;
  stats.scheduler.tier = {
      .waits_in_memory = 2, .wait_in_memory_us = 250'000, .waits = 3, .wait_us = 1'500'000};
  const std::string text = metrics.Text({.driver = stats});
  EXPECT_EQ(ValueOf(text, "braid:tier_waits_total", "tier=\"disk\""), "3");
  EXPECT_EQ(ValueOf(text, "braid:tier_wait_seconds_total", "tier=\"disk\""), "1.5");
  EXPECT_EQ(ValueOf(text, "braid:tier_waits_total", "tier=\"host\""), "2");
  EXPECT_EQ(ValueOf(text, "braid:tier_wait_seconds_total", "tier=\"host\""), "0.25");
}

TEST(ServerMetrics, TheEnginesNumbersAreCopied) {
  ServerMetrics metrics(Shown());
  DriverStats stats{.step_us_last = 250'000, .paused = true, .audits = 4, .repairs = 2};
  stats.scheduler.running = 3;
  stats.scheduler.waiting = 5;
  stats.scheduler.waiting_preempted = 2;
  stats.scheduler.pages_total = 8;
  stats.scheduler.pages_used = 2;
  stats.scheduler.pages_cached = 5;
  stats.scheduler.prompt_tokens = 100;
  stats.scheduler.reused_tokens = 40;
  stats.scheduler.computed_tokens = 35;
  stats.scheduler.received_tokens = 25;
  stats.scheduler.blocks_used = {1, 2};
  stats.scheduler.blocks_cached = {3, 4};
  const std::string text =
      metrics.Text({.driver = stats,
                    .log_lines_dropped = 6,
                    .memory = {.used_bytes = 10,
                               .limit_bytes = 20,
                               .process_limit_bytes = 40,
                               .resident_bytes = 30,
                               .shed = 7},
                    .responses = {.bytes = 11, .responses = 12, .evictions = 13},
                    .grammar_bytes = 14});
  EXPECT_EQ(ValueOf(text, "braid:num_requests_running"), "3");
  EXPECT_EQ(ValueOf(text, "braid:num_requests_waiting"), "5");
  EXPECT_EQ(ValueOf(text, "braid:num_requests_waiting_by_reason", "\"capacity\""), "3");
  EXPECT_EQ(ValueOf(text, "braid:num_requests_waiting_by_reason", "\"preempted\""), "2");
  EXPECT_EQ(ValueOf(text, "braid:kv_cache_usage_perc"), "0.25");
  EXPECT_EQ(ValueOf(text, "braid:cache_pages", "\"used\""), "2");
  EXPECT_EQ(ValueOf(text, "braid:cache_pages", "\"cached\""), "5");
  EXPECT_EQ(ValueOf(text, "braid:cache_pages", "\"free\""), "1");
  EXPECT_EQ(ValueOf(text, "braid:prompt_tokens_by_source_total", "local_compute"), "35");
  EXPECT_EQ(ValueOf(text, "braid:prompt_tokens_by_source_total", "local_cache_hit"), "40");
  EXPECT_EQ(ValueOf(text, "braid:prompt_tokens_by_source_total", "external_kv_transfer"), "25");
  EXPECT_EQ(
      ValueOf(text, "braid:cache_blocks", "group=\"attention\",model_name=\"m\",state=\"used\""),
      "1");
  EXPECT_EQ(
      ValueOf(text, "braid:cache_blocks", "group=\"state\",model_name=\"m\",state=\"cached\""),
      "4");
  EXPECT_EQ(ValueOf(text, "braid:step_seconds_last"), "0.25");
  EXPECT_EQ(ValueOf(text, "braid:engine_paused"), "1");
  EXPECT_EQ(ValueOf(text, "braid:cache_audits_total"), "4");
  EXPECT_EQ(ValueOf(text, "braid:cache_repairs_total"), "2");
  EXPECT_EQ(ValueOf(text, "braid:request_log_dropped_total"), "6");
  EXPECT_EQ(ValueOf(text, "braid:server_memory_bytes", "kind=\"used\""), "10");
  EXPECT_EQ(ValueOf(text, "braid:server_memory_bytes", "kind=\"limit\""), "20");
  EXPECT_EQ(ValueOf(text, "braid:server_memory_bytes", "process_resident"), "30");
  EXPECT_EQ(ValueOf(text, "braid:server_memory_bytes", "process_limit"), "40");
  EXPECT_EQ(ValueOf(text, "braid:requests_shed_total"), "7");
  EXPECT_EQ(ValueOf(text, "braid:stored_response_bytes"), "11");
  EXPECT_EQ(ValueOf(text, "braid:stored_responses"), "12");
  EXPECT_EQ(ValueOf(text, "braid:stored_response_evictions_total"), "13");
  EXPECT_EQ(ValueOf(text, "braid:grammar_bytes"), "14");
  EXPECT_EQ(ValueOf(text, "braid:engine_load_weights_time"), "2.5");
  EXPECT_THAT(text, HasSubstr("enable_prefix_caching=\"True\""));
}

TEST(ServerMetrics, AnEmptyCacheIsNotFull) {
  ServerMetrics metrics(Shown());
  EXPECT_EQ(ValueOf(metrics.Text({}), "braid:kv_cache_usage_perc"), "0");
}

TEST(ServerMetrics, EndsAndErrorsAreCountedByTheirKind) {
  ServerMetrics metrics(Shown());
  metrics.CountFinish(FinishReason::kStop);
  metrics.CountFinish(FinishReason::kAbort);
  metrics.CountFinish(FinishReason::kAbort);
  for (const int status : {404, 404, 418, 502}) metrics.CountRejection(status);
  const std::string text = metrics.Text({});
  EXPECT_EQ(ValueOf(text, "braid:request_success_total", "\"stop\""), "1");
  EXPECT_EQ(ValueOf(text, "braid:request_success_total", "\"abort\""), "2");
  EXPECT_EQ(ValueOf(text, "braid:request_success_total", "\"error\""), "0");
  EXPECT_EQ(ValueOf(text, "braid:admission_rejections_total", "\"404\""), "2");
  EXPECT_EQ(ValueOf(text, "braid:admission_rejections_total", "\"503\""), "0");
  EXPECT_EQ(ValueOf(text, "braid:admission_rejections_total", "\"other\""), "2");
}

TEST(ServerMetrics, BucketsOfTokensEndAtTheContext) {
  ServerMetrics metrics(Shown());
  const std::string text = metrics.Text({});
  for (const char* bound : {"\"1\"", "\"2\"", "\"5\"", "\"50\"", "\"+Inf\""}) {
    EXPECT_EQ(ValueOf(text, "braid:request_prompt_tokens_bucket", std::string("le=") + bound), "0")
        << bound;
  }
  EXPECT_EQ(ValueOf(text, "braid:request_prompt_tokens_bucket", "le=\"100\""), "absent");
}

TEST(ServerMetrics, VllmsNamesAreASecondCopyOnRequest) {
  ServerMetrics own(Shown());
  EXPECT_THAT(own.Text({}), Not(HasSubstr("vllm:")));
  ServerMetrics::Labels shown = Shown();
  shown.vllm_names = true;
  ServerMetrics both(shown);
  const std::string text = both.Text({});
  EXPECT_EQ(ValueOf(text, "vllm:num_requests_running"), "0");
  EXPECT_EQ(ValueOf(text, "braid:num_requests_running"), "0");
  const auto count = [&](std::string_view prefix) {
    size_t found = 0;
    for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at + 1)) {
      ++found;
    }
    return found;
  };
  EXPECT_GT(count("vllm:"), 100U);
  EXPECT_EQ(count("vllm:"), count("braid:"));
}

}  // namespace
}  // namespace braid

// `braid bench serve`: load on any server that speaks OpenAI's completions with streams. Prompts
// are random token ids (or words, for servers that take no ids); arrivals are Poisson or a fixed
// number at a time. The keys of the JSON are those that other load generators use.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "cli/command_factories.h"
#include "cli/http_client.h"
#include "cli/progress.h"
#include "cli/served_model.h"
#include "cli/statistics.h"

namespace braid {
namespace {

// What one request showed. Times in microseconds since it was sent.
struct RequestTrace {
  int64_t sent_us = 0;
  std::vector<int64_t> token_us;  // of each event that brought text
  int64_t ended_us = 0;
  int64_t input_tokens = 0;   // as the server says, else as asked
  int64_t output_tokens = 0;  // as the server says, else events with text
  std::string error;          // empty: fine

  double ttft_ms() const { return static_cast<double>(token_us.front() - sent_us) * 1e-3; }
  double e2e_ms() const { return static_cast<double>(ended_us - sent_us) * 1e-3; }
  // Time per output token after the first.
  double tpot_ms() const {
    return output_tokens < 2 ? 0
                             : static_cast<double>(token_us.back() - token_us.front()) * 1e-3 /
                                   static_cast<double>(output_tokens - 1);
  }
};

class BenchServeCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Text("--base-url", base_url_, "Server, http://HOST:PORT/v1");
    flags.Text("--model", model_, "Model's name (default: the first of /models)");
    flags.Text("--api-key", api_key_, "Key, if the server wants one");
    flags.Number("--requests", requests_, {1, 1 << 24}, "Requests in all");
    flags.Number("--concurrency", concurrency_, {1, 1 << 16}, "Requests at the same time");
    flags.Number("--request-rate", rate_, {1e-6, 1e9},
                 "Poisson arrivals per second, instead of --concurrency");
    flags.Number("--input-tokens", input_tokens_, {1, 1 << 24}, "Prompt tokens");
    flags.Number("--output-tokens", output_tokens_, {1, 1 << 24}, "Generated tokens");
    flags.Switch("--words", words_, "Prompts of words, for servers that take no token ids");
    flags.Number("--goodput-ttft-ms", ttft_max_ms_, {0, 1e9}, "Good: first token within");
    flags.Number("--goodput-tpot-ms", tpot_max_ms_, {0, 1e9}, "Good: time per token within");
    flags.Number("--goodput-e2e-ms", e2e_max_ms_, {0, 1e9}, "Good: whole answer within");
    flags.Seed("--seed", seed_, "Of prompts and arrivals (default: 0)");
    flags.Switch("--json", json_, "Print a JSON object");
  }
  Status Run() override;

 private:
  std::vector<HttpCall> MakeCalls(const std::string& model) const;
  Result<std::vector<RequestTrace>> Load(const Endpoint& endpoint,
                                         const std::vector<HttpCall>& calls) const;
  json::object Report(const std::vector<RequestTrace>& traces) const;
  bool IsGood(const RequestTrace& trace) const;

  std::string base_url_ = "http://127.0.0.1:8000/v1";
  std::string model_, api_key_;
  int32_t requests_ = 100;
  int32_t concurrency_ = 8;
  std::optional<double> rate_;
  int32_t input_tokens_ = 256;
  int32_t output_tokens_ = 64;
  std::optional<double> ttft_max_ms_, tpot_max_ms_, e2e_max_ms_;
  std::optional<uint64_t> seed_;
  bool words_ = false;
  bool json_ = false;
};

std::vector<HttpCall> BenchServeCommand::MakeCalls(const std::string& model) const {
  // Low ids are plain bytes and short pieces of text in byte-level vocabularies, never special.
  constexpr int64_t kIdBegin = 300, kIdEnd = 1000;
  constexpr std::string_view kWords[] = {"river", "stone", "green", "walk",  "seven", "paper",
                                         "light", "house", "cloud", "music", "bread", "north"};
  Rng rng(seed_.value_or(0));
  std::vector<HttpCall> calls;
  double at_seconds = 0;
  for (int32_t i = 0; i < requests_; ++i) {
    json::value prompt = json::array();
    std::string text;
    for (int32_t t = 0; t < input_tokens_; ++t) {
      if (words_) {
        text += ' ';
        text += kWords[rng.Below(12)];
      } else {
        prompt.get_array().push_back(kIdBegin + rng.Below(kIdEnd - kIdBegin));
      }
    }
    if (words_) prompt = json::string(text);
    const json::object body{{"model", model},
                            {"prompt", std::move(prompt)},
                            {"max_tokens", output_tokens_},
                            {"temperature", 0},
                            {"ignore_eos", true},
                            {"stream", true},
                            {"stream_options", json::object{{"include_usage", true}}}};
    calls.push_back({.target = "/completions",
                     .body = json::serialize(body),
                     .start_after_us = static_cast<int64_t>(at_seconds * 1e6)});
    if (rate_) at_seconds -= std::log(1 - rng.Uniform()) / *rate_;
  }
  return calls;
}

void TakeEvent(std::string_view data, int64_t at_us, RequestTrace& trace) {
  if (data == "[DONE]") return;
  const auto event = ParseJson(data, "event");
  if (!event || !event->is_object()) {
    trace.error = "an event that is no JSON object";
    return;
  }
  boost::system::error_code error;
  if (const json::value* problem = event->get_object().if_contains("error")) {
    trace.error = JsonExcerpt(*problem, 200);
  }
  // Tokens that show no text yet (half a character) count when the server sends an event for them.
  if (const json::value* piece = event->find_pointer("/choices/0/text", error)) {
    const json::value* finish = event->find_pointer("/choices/0/finish_reason", error);
    const bool empty = *piece == json::value("");
    if (!empty || finish == nullptr || finish->is_null()) trace.token_us.push_back(at_us);
  }
  const auto count = [&](const char* pointer, int64_t& out) {
    const json::value* value = event->find_pointer(pointer, error);
    if (value != nullptr && value->is_int64()) out = value->get_int64();
  };
  count("/usage/prompt_tokens", trace.input_tokens);
  count("/usage/completion_tokens", trace.output_tokens);
}

Result<std::vector<RequestTrace>> BenchServeCommand::Load(
    const Endpoint& endpoint, const std::vector<HttpCall>& calls) const {
  std::vector<RequestTrace> traces(calls.size());
  ProgressBar bar("bench", 0);
  size_t done = 0;
  HttpLoad load{.endpoint = endpoint, .api_key = api_key_};
  load.concurrency = rate_ ? requests_ : concurrency_;
  load.on_event = [&](size_t call, std::string_view data, int64_t at_us) {
    TakeEvent(data, at_us, traces[call]);
  };
  load.on_end = [&](size_t call, HttpOutcome outcome) {
    RequestTrace& trace = traces[call];
    trace.sent_us = outcome.sent_us;
    trace.ended_us = outcome.ended_us;
    if (trace.input_tokens == 0) trace.input_tokens = input_tokens_;
    if (trace.output_tokens == 0) trace.output_tokens = static_cast<int64_t>(trace.token_us.size());
    if (outcome.status == 0) {
      trace.error = outcome.error;
    } else if (outcome.status != 200) {
      trace.error = fmt::format("status {}: {}", outcome.status, outcome.body.substr(0, 200));
    } else if (trace.token_us.empty() && trace.error.empty()) {
      trace.error = "no token came";
    }
    bar.Show(static_cast<double>(++done) / static_cast<double>(traces.size()));
  };
  RunCalls(load, calls);
  return traces;
}

bool BenchServeCommand::IsGood(const RequestTrace& trace) const {
  return (!ttft_max_ms_ || trace.ttft_ms() <= *ttft_max_ms_) &&
         (!tpot_max_ms_ || trace.tpot_ms() <= *tpot_max_ms_) &&
         (!e2e_max_ms_ || trace.e2e_ms() <= *e2e_max_ms_);
}

void AddLatencies(json::object& out, const std::string& name, const std::vector<double>& values) {
  out["mean_" + name + "_ms"] = Mean(values);
  out["median_" + name + "_ms"] = Median(values);
  out["p90_" + name + "_ms"] = Percentile(values, 90);
  out["p99_" + name + "_ms"] = Percentile(values, 99);
}

json::object BenchServeCommand::Report(const std::vector<RequestTrace>& traces) const {
  std::vector<double> ttft, tpot, itl, e2e;
  int64_t completed = 0, good = 0, input = 0, output = 0;
  int64_t begin_us = traces.front().sent_us, end_us = begin_us;
  for (const RequestTrace& trace : traces) {
    begin_us = std::min(begin_us, trace.sent_us);
    end_us = std::max(end_us, trace.ended_us);
    if (!trace.error.empty()) continue;
    ++completed;
    good += IsGood(trace);
    input += trace.input_tokens;
    output += trace.output_tokens;
    ttft.push_back(trace.ttft_ms());
    if (trace.output_tokens > 1) tpot.push_back(trace.tpot_ms());
    e2e.push_back(trace.e2e_ms());
    for (size_t i = 1; i < trace.token_us.size(); ++i) {
      itl.push_back(static_cast<double>(trace.token_us[i] - trace.token_us[i - 1]) * 1e-3);
    }
  }
  const double seconds = std::max(1e-6, static_cast<double>(end_us - begin_us) * 1e-6);
  json::object out{{"num_prompts", requests_},
                   {"completed", completed},
                   {"failed", static_cast<int64_t>(traces.size()) - completed},
                   {"duration", seconds},
                   {"total_input_tokens", input},
                   {"total_output_tokens", output},
                   {"request_throughput", static_cast<double>(completed) / seconds},
                   {"request_goodput", static_cast<double>(good) / seconds},
                   {"output_throughput", static_cast<double>(output) / seconds},
                   {"total_token_throughput", static_cast<double>(input + output) / seconds}};
  AddLatencies(out, "ttft", ttft);
  AddLatencies(out, "tpot", tpot);
  AddLatencies(out, "itl", itl);
  AddLatencies(out, "e2el", e2e);
  return out;
}

void PrintReport(const json::object& report) {
  const auto number = [&](const std::string& key) { return report.at(key).to_number<double>(); };
  fmt::print("{} requests completed, {} failed, in {:.2f} s\n", report.at("completed").get_int64(),
             report.at("failed").get_int64(), number("duration"));
  fmt::print("{:.2f} requests/s, of them good {:.2f}; {:.1f} output tokens/s, {:.1f} in all\n\n",
             number("request_throughput"), number("request_goodput"), number("output_throughput"),
             number("total_token_throughput"));
  fmt::print("{:<24} {:>9} {:>9} {:>9} {:>9}\n", "ms", "mean", "median", "p90", "p99");
  constexpr std::pair<const char*, const char*> kRows[] = {{"time to first token", "ttft"},
                                                           {"time per output token", "tpot"},
                                                           {"between events", "itl"},
                                                           {"whole request", "e2el"}};
  for (const auto& [title, key] : kRows) {
    fmt::print("{:<24} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f}\n", title,
               number(fmt::format("mean_{}_ms", key)), number(fmt::format("median_{}_ms", key)),
               number(fmt::format("p90_{}_ms", key)), number(fmt::format("p99_{}_ms", key)));
  }
}

Status BenchServeCommand::Run() {
  ASSIGN_OR_RETURN(const Endpoint endpoint, ParseBaseUrl(base_url_));
  std::string model = model_;
  if (model.empty()) {
    ASSIGN_OR_RETURN(model, FirstModel(base_url_, api_key_));
  }
  ASSIGN_OR_RETURN(const std::vector<RequestTrace> traces, Load(endpoint, MakeCalls(model)));
  const json::object report = Report(traces);
  if (json_) {
    fmt::print("{}\n", json::serialize(report));
  } else {
    PrintReport(report);
  }
  for (const RequestTrace& trace : traces) {
    if (trace.error.empty()) continue;
    return Error{ErrorCode::kInternal,
                 fmt::format("{} of {} requests failed, the first with: {}",
                             report.at("failed").get_int64(), traces.size(), trace.error)};
  }
  return {};
}

}  // namespace

CommandPointer MakeBenchServeCommand() { return std::make_unique<BenchServeCommand>(); }

}  // namespace braid

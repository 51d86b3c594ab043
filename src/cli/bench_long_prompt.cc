// `braid bench long-prompt`: what one long prompt does to the streams beside it. The same streams
// run twice on a server that speaks OpenAI's completions, the second time with a long prompt in
// their midst; the gaps between a stream's events while that prompt is read are compared with those
// of the first run.
#include <fmt/core.h>

#include <algorithm>

#include "base/json.h"
#include "base/rng.h"
#include "cli/command_factories.h"
#include "cli/http_client.h"
#include "cli/served_model.h"
#include "cli/statistics.h"

namespace braid {
namespace {

// The calls of one run: streams first, then the long prompt if it is there.
struct CallTrace {
  int64_t sent_us = 0, ended_us = 0;
  std::vector<int64_t> event_us;  // of each event that brought a token
  std::string error;
};

class BenchLongPromptCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Text("--base-url", base_url_, "Server, http://HOST:PORT/v1");
    flags.Text("--model", model_, "Model's name (default: the first of /models)");
    flags.Text("--api-key", api_key_, "Key, if the server wants one");
    flags.Number("--long-tokens", long_tokens_, {1, 1 << 24}, "Tokens of the long prompt");
    flags.Number("--streams", streams_, {1, 1 << 12}, "Streams that decode beside it");
    flags.Number("--input-tokens", input_tokens_, {1, 1 << 24}, "Prompt tokens of a stream");
    flags.Number("--output-tokens", output_tokens_, {8, 1 << 24},
                 "Tokens of a stream; they must last longer than the long prompt");
    flags.Seed("--seed", seed_, "Of the prompts (default: 0)");
    flags.Switch("--json", json_, "Print a JSON object");
  }
  Status Run() override;

 private:
  HttpCall MakeCall(Rng& rng, int32_t input_tokens, int32_t output_tokens) const;
  Result<std::vector<CallTrace>> RunOnce(const Endpoint& endpoint, Rng& rng,
                                         std::optional<int64_t> long_after_us) const;

  std::string base_url_ = "http://127.0.0.1:8000/v1";
  std::string model_, api_key_;
  int32_t long_tokens_ = 20000, streams_ = 16, input_tokens_ = 64, output_tokens_ = 256;
  std::optional<uint64_t> seed_;
  bool json_ = false;
};

HttpCall BenchLongPromptCommand::MakeCall(Rng& rng, int32_t input_tokens,
                                          int32_t output_tokens) const {
  constexpr int64_t kIdBegin = 300, kIdEnd = 1000;  // plain text in byte-level vocabularies
  json::array prompt;
  for (int32_t t = 0; t < input_tokens; ++t) {
    prompt.push_back(kIdBegin + rng.Below(kIdEnd - kIdBegin));
  }
  const json::object body{{"model", model_},    {"prompt", std::move(prompt)},
                          {"temperature", 0},   {"max_tokens", output_tokens},
                          {"ignore_eos", true}, {"stream", true}};
  return {.target = "/completions", .body = json::serialize(body)};
}

void TakeEvent(std::string_view data, int64_t at_us, CallTrace& trace) {
  if (data == "[DONE]") return;
  const auto event = ParseJson(data, "event");
  boost::system::error_code error;
  if (!event) {
    trace.error = "an event that is no JSON";
  } else if (const json::value* problem = event->find_pointer("/error", error)) {
    trace.error = JsonExcerpt(*problem, 200);
  } else if (event->find_pointer("/choices/0", error) != nullptr) {
    trace.event_us.push_back(at_us);
  }
}

Result<std::vector<CallTrace>> BenchLongPromptCommand::RunOnce(
    const Endpoint& endpoint, Rng& rng, std::optional<int64_t> long_after_us) const {
  std::vector<HttpCall> calls;
  for (int32_t i = 0; i < streams_; ++i) {
    calls.push_back(MakeCall(rng, input_tokens_, output_tokens_));
  }
  if (long_after_us) {
    calls.push_back(MakeCall(rng, long_tokens_, 1));
    calls.back().start_after_us = *long_after_us;
  }
  std::vector<CallTrace> traces(calls.size());
  HttpLoad load{.endpoint = endpoint,
                .api_key = api_key_,
                .concurrency = static_cast<int32_t>(calls.size()),
                .timeout_seconds = 3600};
  load.on_event = [&](size_t call, std::string_view data, int64_t at_us) {
    TakeEvent(data, at_us, traces[call]);
  };
  load.on_end = [&](size_t call, HttpOutcome outcome) {
    CallTrace& trace = traces[call];
    trace.sent_us = outcome.sent_us;
    trace.ended_us = outcome.ended_us;
    if (outcome.status == 0) {
      trace.error = outcome.error;
    } else if (outcome.status != 200) {
      trace.error = fmt::format("status {}: {}", outcome.status, outcome.body.substr(0, 200));
    } else if (trace.error.empty() && trace.event_us.empty()) {
      trace.error = "no token came";
    }
  };
  RunCalls(load, calls);
  for (const CallTrace& trace : traces) {
    if (!trace.error.empty()) return Error{ErrorCode::kUnavailable, trace.error};
  }
  return traces;
}

// Gaps between a stream's events, in milliseconds, that overlap a time.
std::vector<double> Gaps(std::span<const CallTrace> streams, int64_t begin_us, int64_t end_us) {
  std::vector<double> gaps;
  for (const CallTrace& stream : streams) {
    for (size_t i = 1; i < stream.event_us.size(); ++i) {
      const int64_t from = stream.event_us[i - 1], to = stream.event_us[i];
      if (to > begin_us && from < end_us) gaps.push_back(static_cast<double>(to - from) * 1e-3);
    }
  }
  return gaps;
}

// When every stream has its first token, and when the first of them ends.
std::pair<int64_t, int64_t> AllDecoding(std::span<const CallTrace> streams) {
  int64_t begin_us = 0, end_us = streams.front().event_us.back();
  for (const CallTrace& stream : streams) {
    begin_us = std::max(begin_us, stream.event_us.front());
    end_us = std::min(end_us, stream.event_us.back());
  }
  return {begin_us, end_us};
}

json::object Latencies(const std::vector<double>& gaps) {
  return {{"gaps", gaps.size()},
          {"median_itl_ms", Median(gaps)},
          {"p99_itl_ms", Percentile(gaps, 99)},
          {"max_itl_ms", Percentile(gaps, 100)}};
}

Status BenchLongPromptCommand::Run() {
  ASSIGN_OR_RETURN(const Endpoint endpoint, ParseBaseUrl(base_url_));
  if (model_.empty()) {
    ASSIGN_OR_RETURN(model_, FirstModel(base_url_, api_key_));
  }
  Rng rng(seed_.value_or(0));
  ASSIGN_OR_RETURN(const std::vector<CallTrace> without, RunOnce(endpoint, rng, std::nullopt));
  const auto [begin_us, end_us] = AllDecoding(without);
  // A quarter into the time in which all streams decode.
  const int64_t after_us =
      begin_us - without.front().sent_us + std::max<int64_t>(0, end_us - begin_us) / 4;
  ASSIGN_OR_RETURN(const std::vector<CallTrace> with, RunOnce(endpoint, rng, after_us));
  const std::span streams = std::span(with).first(static_cast<size_t>(streams_));
  const CallTrace& intruder = with.back();
  const int64_t read_us = intruder.event_us.front();
  const json::object before = Latencies(Gaps(without, begin_us, end_us));
  const json::object beside = Latencies(Gaps(streams, intruder.sent_us, read_us));
  const auto number = [](const json::object& o, const char* key) {
    return o.at(key).to_number<double>();
  };
  const double base = number(before, "p99_itl_ms");
  const double ratio = base > 0 ? number(beside, "p99_itl_ms") / base : 0;
  const double ttft_ms = static_cast<double>(read_us - intruder.sent_us) * 1e-3;
  // Streams that ended before the prompt was read were not beside it all the time.
  const bool outlived = AllDecoding(streams).second >= read_us;
  if (json_) {
    const json::object out{{"without", before},
                           {"beside", beside},
                           {"p99_itl_ratio", ratio},
                           {"long_ttft_ms", ttft_ms},
                           {"streams_outlived", outlived}};
    fmt::print("{}\n", json::serialize(out));
  } else {
    fmt::print("{:<36} {:>9} {:>9} {:>9}\n", "ms between a stream's tokens", "median", "p99",
               "max");
    for (const auto& [title, row] : {std::pair("without", &before), std::pair("beside", &beside)}) {
      fmt::print("{:<36} {:>9.1f} {:>9.1f} {:>9.1f}\n", title, number(*row, "median_itl_ms"),
                 number(*row, "p99_itl_ms"), number(*row, "max_itl_ms"));
    }
    fmt::print(
        "\n99th percentile: {:.2f} times that without; the long prompt of {} tokens was read "
        "in {:.0f} ms\n",
        ratio, long_tokens_, ttft_ms);
    if (!outlived) {
      fmt::print("some streams ended before the long prompt was read: give more --output-tokens\n");
    }
  }
  return {};
}

}  // namespace

CommandPointer MakeBenchLongPromptCommand() { return std::make_unique<BenchLongPromptCommand>(); }

}  // namespace braid

// `braid bench long-prompt`: what one long prompt does to the streams beside it. The same streams
// run twice on a server that speaks OpenAI's completions, the second time with a long prompt in
// their midst; the gaps between a stream's events while that prompt is read are compared with those
// of the first run.
#include <fmt/core.h>

#include <algorithm>

#include "cli/bench/load_generator.h"
#include "cli/bench/statistics.h"
#include "cli/command/command_factories.h"

namespace braid {
namespace {

class BenchLongPromptCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    server_.AddFlags(flags);
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
  // The streams, then the long prompt if it is there.
  Result<std::vector<StreamedAnswer>> RunOnce(const Endpoint& endpoint, Rng& rng,
                                              std::optional<int64_t> long_after_us) const;

  CompletionServer server_;
  int32_t long_tokens_ = 20000, streams_ = 16, input_tokens_ = 64, output_tokens_ = 256;
  std::optional<uint64_t> seed_;
  bool json_ = false;
};

Result<std::vector<StreamedAnswer>> BenchLongPromptCommand::RunOnce(
    const Endpoint& endpoint, Rng& rng, std::optional<int64_t> long_after_us) const {
  std::vector<HttpCall> calls;
  for (int32_t i = 0; i < streams_; ++i) {
    calls.push_back(
        CompletionCall(server_.model, RandomPrompt(rng, input_tokens_, false), output_tokens_));
  }
  if (long_after_us) {
    calls.push_back(CompletionCall(server_.model, RandomPrompt(rng, long_tokens_, false), 1));
    calls.back().start_after_us = *long_after_us;
  }
  std::vector<StreamedAnswer> answers =
      StreamCompletions(endpoint, server_.api_key, static_cast<int32_t>(calls.size()), calls);
  for (const StreamedAnswer& answer : answers) {
    if (!answer.error.empty()) return Error{ErrorCode::kUnavailable, answer.error};
  }
  return answers;
}

// Gaps between a stream's events, in milliseconds, that overlap a time.
std::vector<double> Gaps(std::span<const StreamedAnswer> streams, int64_t begin_us,
                         int64_t end_us) {
  std::vector<double> gaps;
  for (const StreamedAnswer& stream : streams) {
    for (size_t i = 1; i < stream.token_us.size(); ++i) {
      const int64_t from = stream.token_us[i - 1], to = stream.token_us[i];
      if (to > begin_us && from < end_us) gaps.push_back(static_cast<double>(to - from) * 1e-3);
    }
  }
  return gaps;
}

// When every stream has its first token, and when the first of them ends.
std::pair<int64_t, int64_t> AllDecoding(std::span<const StreamedAnswer> streams) {
  int64_t begin_us = 0, end_us = streams.front().token_us.back();
  for (const StreamedAnswer& stream : streams) {
    begin_us = std::max(begin_us, stream.token_us.front());
    end_us = std::min(end_us, stream.token_us.back());
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
  ASSIGN_OR_RETURN(const Endpoint endpoint, server_.Find());
  Rng rng(seed_.value_or(0));
  ASSIGN_OR_RETURN(const std::vector<StreamedAnswer> without, RunOnce(endpoint, rng, std::nullopt));
  const auto [begin_us, end_us] = AllDecoding(without);
  // A quarter into the time in which all streams decode.
  const int64_t after_us =
      begin_us - without.front().sent_us + std::max<int64_t>(0, end_us - begin_us) / 4;
  ASSIGN_OR_RETURN(const std::vector<StreamedAnswer> with, RunOnce(endpoint, rng, after_us));
  const std::span streams = std::span(with).first(static_cast<size_t>(streams_));
  const StreamedAnswer& intruder = with.back();
  const int64_t read_us = intruder.token_us.front();
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

// `braid bench serve`: load on any server that speaks OpenAI's completions with streams. Prompts
// are random token ids (or words, for servers that take no ids); arrivals are Poisson or a fixed
// number at a time. The keys of the JSON are those that other load generators use.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/progress.h"
#include "cli/bench/load_generator.h"
#include "cli/bench/statistics.h"
#include "cli/command/command_factories.h"

namespace braid {
namespace {

double EndToEndMs(const StreamedAnswer& answer) {
  return static_cast<double>(answer.ended_us - answer.sent_us) * 1e-3;
}

// Time per output token after the first.
double PerTokenMs(const StreamedAnswer& answer) {
  if (answer.output_tokens < 2) return 0;
  return static_cast<double>(answer.token_us.back() - answer.token_us.front()) * 1e-3 /
         static_cast<double>(answer.output_tokens - 1);
}

class BenchServeCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    server_.AddFlags(flags);
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
  std::vector<HttpCall> MakeCalls() const;
  std::vector<StreamedAnswer> Load(const Endpoint& endpoint) const;
  json::object Report(const std::vector<StreamedAnswer>& answers) const;
  bool IsGood(const StreamedAnswer& answer) const;

  CompletionServer server_;
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

std::vector<HttpCall> BenchServeCommand::MakeCalls() const {
  Rng rng(seed_.value_or(0));
  std::vector<HttpCall> calls;
  double at_seconds = 0;
  for (int32_t i = 0; i < requests_; ++i) {
    calls.push_back(
        CompletionCall(server_.model, RandomPrompt(rng, input_tokens_, words_), output_tokens_));
    calls.back().start_after_us = static_cast<int64_t>(at_seconds * 1e6);
    if (rate_) at_seconds -= std::log(1 - rng.Uniform()) / *rate_;
  }
  return calls;
}

std::vector<StreamedAnswer> BenchServeCommand::Load(const Endpoint& endpoint) const {
  ProgressBar bar("bench", 0);
  std::vector<StreamedAnswer> answers = StreamCompletions(
      endpoint, server_.api_key, rate_ ? requests_ : concurrency_, MakeCalls(),
      [&](size_t done) { bar.Show(static_cast<double>(done) / static_cast<double>(requests_)); });
  for (StreamedAnswer& answer : answers) {  // of servers that send no usage
    if (answer.prompt_tokens == 0) answer.prompt_tokens = input_tokens_;
    if (answer.output_tokens == 0) answer.output_tokens = std::ssize(answer.token_us);
  }
  return answers;
}

bool BenchServeCommand::IsGood(const StreamedAnswer& answer) const {
  return (!ttft_max_ms_ || answer.ttft_ms() <= *ttft_max_ms_) &&
         (!tpot_max_ms_ || PerTokenMs(answer) <= *tpot_max_ms_) &&
         (!e2e_max_ms_ || EndToEndMs(answer) <= *e2e_max_ms_);
}

void AddLatencies(json::object& out, const std::string& name, const std::vector<double>& values) {
  out["mean_" + name + "_ms"] = Mean(values);
  out["median_" + name + "_ms"] = Median(values);
  out["p90_" + name + "_ms"] = Percentile(values, 90);
  out["p99_" + name + "_ms"] = Percentile(values, 99);
}

json::object BenchServeCommand::Report(const std::vector<StreamedAnswer>& answers) const {
  std::vector<double> ttft, tpot, itl, e2e;
  int64_t completed = 0, good = 0, input = 0, output = 0;
  int64_t begin_us = answers.front().sent_us, end_us = begin_us;
  for (const StreamedAnswer& answer : answers) {
    begin_us = std::min(begin_us, answer.sent_us);
    end_us = std::max(end_us, answer.ended_us);
    if (!answer.error.empty()) continue;
    ++completed;
    good += IsGood(answer);
    input += answer.prompt_tokens;
    output += answer.output_tokens;
    ttft.push_back(answer.ttft_ms());
    if (answer.output_tokens > 1) tpot.push_back(PerTokenMs(answer));
    e2e.push_back(EndToEndMs(answer));
    for (size_t i = 1; i < answer.token_us.size(); ++i) {
      itl.push_back(static_cast<double>(answer.token_us[i] - answer.token_us[i - 1]) * 1e-3);
    }
  }
  const double seconds = std::max(1e-6, static_cast<double>(end_us - begin_us) * 1e-6);
  json::object out{{"num_prompts", requests_},
                   {"completed", completed},
                   {"failed", static_cast<int64_t>(answers.size()) - completed},
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
  ASSIGN_OR_RETURN(const Endpoint endpoint, server_.Find());
  const std::vector<StreamedAnswer> answers = Load(endpoint);
  const json::object report = Report(answers);
  if (json_) {
    fmt::print("{}\n", json::serialize(report));
  } else {
    PrintReport(report);
  }
  for (const StreamedAnswer& answer : answers) {
    if (answer.error.empty()) continue;
    return Error{ErrorCode::kInternal,
                 fmt::format("{} of {} requests failed, the first with: {}",
                             report.at("failed").get_int64(), answers.size(), answer.error)};
  }
  return {};
}

}  // namespace

CommandPointer MakeBenchServeCommand() { return std::make_unique<BenchServeCommand>(); }

}  // namespace braid

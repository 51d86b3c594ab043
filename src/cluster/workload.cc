// Drawn loads and public traces.
#include "cluster/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/json.h"
#include "base/rng.h"

namespace braid {
namespace {

// Lengths of ShareGPT conversations as benchmarks cut them: log-normal with means of about 220
// tokens in and 200 out, which is what public logs of such benchmarks show; the spread is assumed.
constexpr double kChatInputMean = 220, kChatInputSigma = 1.2;
constexpr double kChatOutputMean = 200, kChatOutputSigma = 1.0;
// A conversation of an agent: a shared introduction, then turns that add a tool's answer.
constexpr int32_t kAgents = 4, kIntroductionTokens = 2048, kTurnsMax = 12;
constexpr int32_t kMooncakeBlockTokens = 512;
constexpr int32_t kTraceTokensMax = 10'000'000;  // of a prompt or an answer of a trace

double Normal(Rng& rng) {
  const double u = 1 - rng.Uniform(), v = rng.Uniform();
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

int32_t LogNormal(Rng& rng, double mean, double sigma) {
  const double value = std::exp(std::log(mean) - sigma * sigma / 2 + sigma * Normal(rng));
  return static_cast<int32_t>(std::clamp(value, 4.0, 8192.0));
}

int32_t Uniform(Rng& rng, int32_t most, double ratio) {
  const auto least = std::max(1, static_cast<int32_t>(most * ratio));
  return least + static_cast<int32_t>(rng.Below(most - least + 1));
}

class Drawer {
 public:
  explicit Drawer(const ClusterLoadOptions& options) : options_(options), rng_(options.seed) {}

  std::vector<ClusterRequest> Draw() {
    for (double at = Gap(); at < options_.seconds; at += Gap()) {
      const auto at_us = static_cast<int64_t>(at * 1e6);
      if (options_.load == ClusterLoad::kAgentic) {
        Conversation(at_us);
        continue;
      }
      const bool chat = options_.load == ClusterLoad::kShareGpt;
      const int32_t in = chat ? LogNormal(rng_, kChatInputMean, kChatInputSigma)
                              : Uniform(rng_, options_.input_tokens, options_.range_ratio);
      const int32_t out = chat ? LogNormal(rng_, kChatOutputMean, kChatOutputSigma)
                               : Uniform(rng_, options_.output_tokens, options_.range_ratio);
      Add({.at_us = at_us, .prompt = {{NewKey(), in}}}, out);
    }
    return std::move(requests_);
  }

 private:
  double Gap() { return -std::log(1 - rng_.Uniform()) / options_.requests_per_second; }
  uint64_t NewKey() { return MixBits(options_.seed) + ++keys_; }
  void Add(ClusterRequest request, int32_t output_tokens) {
    request.answer = {{NewKey(), output_tokens}};
    requests_.push_back(std::move(request));
  }

  void Conversation(int64_t at_us) {
    std::vector<TokenSegment> known{
        {static_cast<uint64_t>(rng_.Below(kAgents)) + 1, kIntroductionTokens}};
    const auto turns = static_cast<int32_t>(1 + rng_.Below(kTurnsMax));
    for (int32_t turn = 0; turn < turns; ++turn) {
      known.push_back({NewKey(), LogNormal(rng_, 300, 1)});
      // Between turns a tool runs.
      const int64_t wait_us = static_cast<int64_t>(2e6 * -std::log(1 - rng_.Uniform()));
      Add({.at_us = turn == 0 ? at_us : wait_us,
           .follows = turn == 0 ? -1 : static_cast<int32_t>(requests_.size()) - 1,
           .prompt = known},
          LogNormal(rng_, 150, 0.8));
      known.push_back(requests_.back().answer.front());
    }
  }

  const ClusterLoadOptions& options_;
  Rng rng_;
  uint64_t keys_ = 1000;
  std::vector<ClusterRequest> requests_;
};

// "2023-11-16 18:15:46.6805900" in seconds since 1970.
std::optional<double> ClockSeconds(std::string_view text) {
  constexpr size_t kDate = 10;
  if (text.size() < kDate + 9 || (text[kDate] != ' ' && text[kDate] != 'T')) return std::nullopt;
  const auto number = [&](size_t at, size_t size) {
    int value = -1;
    const char* const end = text.data() + at + size;
    return std::from_chars(text.data() + at, end, value).ptr == end ? value : -1;
  };
  const int year = number(0, 4), month = number(5, 2), day = number(8, 2);
  if (year < 0 || month < 0 || day < 0) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  const int hour = number(kDate + 1, 2), minute = number(kDate + 4, 2);
  double seconds = -1;
  std::from_chars(text.data() + kDate + 7, text.data() + text.size(), seconds);
  if (!date.ok() || hour < 0 || hour > 23 || minute < 0 || minute > 59 ||
      !(seconds >= 0 && seconds < 61)) {
    return std::nullopt;
  }
  const auto days = static_cast<double>(std::chrono::sys_days(date).time_since_epoch().count());
  return ((days * 24 + hour) * 60 + minute) * 60 + seconds;
}

class TraceReader {
 public:
  TraceReader(std::string_view source, double seconds) : source_(source), seconds_(seconds) {}

  Status Line(std::string_view line) {
    ++number_;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) return {};
    if (line.front() == '{') return Mooncake(line);
    if (number_ == 1 && line.starts_with("TIMESTAMP")) return {};
    return Azure(line);
  }
  std::vector<ClusterRequest> Take() { return std::move(requests_); }

 private:
  Error Wrong(std::string_view what) const {
    return {ErrorCode::kInvalid, fmt::format("{}, line {}: {}", source_, number_, what)};
  }

  Status Mooncake(std::string_view line) {
    ASSIGN_OR_RETURN(const json::value value,
                     ParseJson(line, fmt::format("{}, line {}", source_, number_)));
    const json::object& object = value.as_object();
    const auto number = [&](std::string_view key) {
      const json::value* v = object.if_contains(key);
      return v != nullptr && v->is_number() ? v->to_number<double>() : -1.0;
    };
    const double ms = number("timestamp"), in = number("input_length"),
                 out = number("output_length");
    const json::value* ids = object.if_contains("hash_ids");
    if (ms < 0 || in < 1 || out < 0 || in > kTraceTokensMax || out > kTraceTokensMax ||
        ids == nullptr || !ids->is_array()) {
      return Wrong("needs timestamp, input_length, output_length and hash_ids");
    }
    std::vector<TokenSegment> prompt;
    auto left = static_cast<int32_t>(in);
    for (const json::value& id : ids->as_array()) {
      if (!id.is_int64() || id.get_int64() < 0) return Wrong("hash_ids must be whole numbers");
      const int32_t tokens = std::min(left, kMooncakeBlockTokens);
      if (tokens > 0) prompt.push_back({static_cast<uint64_t>(id.get_int64()) + 1, tokens});
      left -= tokens;
    }
    if (left > 0) {
      return Wrong(fmt::format("{} hash_ids of {} tokens do not make {} tokens",
                               ids->as_array().size(), kMooncakeBlockTokens, in));
    }
    return Add(ms / 1e3, std::move(prompt), static_cast<int32_t>(out));
  }

  Status Azure(std::string_view line) {
    const size_t a = line.find(','), b = line.rfind(',');
    int32_t in = -1, out = -1;
    if (a != std::string_view::npos && a < b) {
      std::from_chars(line.data() + a + 1, line.data() + b, in);
      std::from_chars(line.data() + b + 1, line.data() + line.size(), out);
    }
    const std::optional<double> at = ClockSeconds(line.substr(0, std::min(a, line.size())));
    if (!at || in < 1 || out < 0 || in > kTraceTokensMax || out > kTraceTokensMax) {
      return Wrong(
          "needs TIMESTAMP,ContextTokens,GeneratedTokens, as in 2023-11-16 "
          "18:15:46.68,374,44; other traces are Mooncake's JSON lines and what `braid serve "
          "--event-log` writes");
    }
    return Add(*at, {{(uint64_t{1} << 40) + static_cast<uint64_t>(number_), in}}, out);
  }

  Status Add(double at, std::vector<TokenSegment> prompt, int32_t out) {
    if (!first_) first_ = at;
    if (at < *first_) {
      return Wrong(fmt::format("is {:.3f} s before the first request; sort the trace by time",
                               *first_ - at));
    }
    if (at - *first_ >= seconds_) return {};
    requests_.push_back(
        {.at_us = static_cast<int64_t>((at - *first_) * 1e6),
         .prompt = std::move(prompt),
         .answer = {{(uint64_t{1} << 50) + static_cast<uint64_t>(number_), std::max(out, 1)}}});
    return {};
  }

  const std::string_view source_;
  const double seconds_;
  int64_t number_ = 0;
  std::optional<double> first_;
  std::vector<ClusterRequest> requests_;
};

int32_t TokensOf(const std::vector<TokenSegment>& segments) {
  int32_t tokens = 0;
  for (const TokenSegment& segment : segments) tokens += segment.tokens;
  return tokens;
}

}  // namespace

int32_t ClusterRequest::prompt_tokens() const { return TokensOf(prompt); }
int32_t ClusterRequest::answer_tokens() const { return TokensOf(answer); }

std::vector<ClusterRequest> MakeRequests(const ClusterLoadOptions& options) {
  return Drawer(options).Draw();
}

Result<std::vector<ClusterRequest>> ParseTrace(std::string_view text, std::string_view source,
                                               double seconds) {
  TraceReader reader(source, seconds);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    RETURN_IF_ERROR(reader.Line(line));
  }
  std::vector<ClusterRequest> requests = reader.Take();
  if (requests.empty()) {
    return Error{ErrorCode::kInvalid, fmt::format("{} has no request", source)};
  }
  return requests;
}

TokenId SegmentToken(uint64_t key, int32_t i, int32_t vocabulary) {
  const uint64_t bits = RandomBits(key, static_cast<uint64_t>(i));
  return 1 + static_cast<TokenId>(bits % static_cast<uint64_t>(vocabulary - 1));
}

std::vector<TokenId> PromptTokens(const ClusterRequest& request, int32_t vocabulary) {
  std::vector<TokenId> tokens;
  tokens.reserve(static_cast<size_t>(request.prompt_tokens()));
  for (const TokenSegment& segment : request.prompt) {
    for (int32_t i = 0; i < segment.tokens; ++i) {
      tokens.push_back(SegmentToken(segment.key, segment.first + i, vocabulary));
    }
  }
  return tokens;
}

TokenId AnswerToken(const ClusterRequest& request, int32_t i, int32_t vocabulary) {
  if (i + 1 == request.answer_tokens()) return kEndToken;
  for (const TokenSegment& segment : request.answer) {
    if (i < segment.tokens) return SegmentToken(segment.key, segment.first + i, vocabulary);
    i -= segment.tokens;
  }
  CHECK(false, "an answer goes on {} tokens behind its end", i + 1);
}

Request RequestOf(const ClusterRequest& request, int32_t vocabulary) {
  Request asked;
  asked.prompt = PromptTokens(request, vocabulary);
  asked.stop.stop_tokens = {kEndToken};
  const int32_t tokens = request.answer_tokens();
  asked.stop.new_tokens_max = tokens == 0 ? 0 : std::max(request.answer_max, tokens);
  if (request.scores_prompt) asked.prompt_logprobs = 0;
  asked.priority = request.priority;
  asked.tenant = request.tenant;
  return asked;
}

}  // namespace braid

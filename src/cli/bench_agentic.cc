// `braid bench agentic`: conversations that grow turn by turn and take turns with each other, as
// programs that call models in a loop have them. How much of what a server computed before does it
// compute again, and what does a later turn's first token cost? Works with any server that streams
// OpenAI's completions; without one, serves MODEL in this process.
#include <fmt/core.h>

#include <algorithm>

#include "base/json.h"
#include "base/rng.h"
#include "cli/command_factories.h"
#include "cli/http_client.h"
#include "cli/local_server.h"
#include "cli/progress.h"
#include "cli/served_model.h"
#include "cli/statistics.h"

namespace braid {
namespace {

// One turn of one conversation, as the server answered it.
struct Turn {
  int64_t sent_us = 0, first_us = 0;
  int64_t prompt_tokens = 0, output_tokens = 0;
  std::optional<int64_t> cached_tokens;  // as usage says
  int64_t reusable_tokens = 0;           // computed before in this conversation
  json::array output_ids;
  std::string output_text;
  std::string error;

  double ttft_ms() const { return static_cast<double>(first_us - sent_us) * 1e-3; }
};

// What a conversation has said so far, as the next prompt.
struct Conversation {
  json::array ids;
  std::string text;
  std::vector<Turn> turns;
};

struct Totals {
  int64_t prompt = 0, reusable = 0, reused = 0;  // tokens of turns after the first
  std::vector<double> cold_ms, later_ms;
  bool reported = true;  // every answer had cached_tokens; otherwise they are estimated
};

class BenchAgenticCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Optional("MODEL", options_.model_dir, "Directory of a checkpoint to serve here");
    flags.Text("--base-url", base_url_, "A running server, http://HOST:PORT/v1, instead of MODEL");
    flags.Text("--model", model_, "Model's name there (default: the first of /models)");
    flags.Text("--api-key", api_key_, "Key, if the server wants one");
    flags.Number("--conversations", conversations_, {1, 4096}, "Conversations, turn about");
    flags.Number("--turns", turns_, {2, 1000}, "Turns of each");
    flags.Number("--first-tokens", first_tokens_, {1, 1 << 24}, "Prompt tokens of the first turn");
    flags.Number("--turn-tokens", turn_tokens_, {1, 1 << 20},
                 "Tokens that a turn adds, its answer among them");
    flags.Number("--output-tokens", output_tokens_, {1, 1 << 20}, "Tokens of an answer");
    flags.Number("--concurrency", concurrency_, {1, 4096}, "Requests at the same time");
    flags.Number("--cache-share", cache_share_, {0.01, 1},
                 "With MODEL: cache of so much of what the conversations fill when nothing is ever "
                 "evicted, found by a run before");
    flags.Switch("--words", words_, "Prompts of words, for servers that take no token ids");
    flags.Seed("--seed", seed_, "Of the prompts (default: 0)");
    flags.Switch("--json", json_, "Print a JSON object");
    AddEngineFlags(flags, options_);
  }
  Status Run() override;

 private:
  Status CheckFlags() const;
  Result<json::object> Measure();
  Result<std::vector<Conversation>> Converse(const Endpoint& endpoint) const;
  Status TakeTurn(const Endpoint& endpoint, std::vector<Conversation>& conversations) const;
  HttpCall MakeCall(const Conversation& conversation) const;
  void Say(Conversation& conversation, int64_t tokens, Rng& rng) const;
  json::object Report(const std::vector<Conversation>& conversations) const;

  EngineOptions options_;
  std::string base_url_, model_, api_key_;
  int32_t conversations_ = 8, turns_ = 12;
  int32_t first_tokens_ = 1500, turn_tokens_ = 100, output_tokens_ = 32;
  int32_t concurrency_ = 1;
  std::optional<double> cache_share_;
  std::optional<uint64_t> seed_;
  bool words_ = false, json_ = false;
};

Status BenchAgenticCommand::CheckFlags() const {
  const auto wrong = [](const char* text) { return Error{ErrorCode::kInvalid, text}; };
  if (base_url_.empty() == options_.model_dir.empty()) {
    return wrong("give MODEL, a checkpoint to serve here, or --base-url of a running server");
  }
  if (cache_share_ && !base_url_.empty())
    return wrong("--cache-share needs MODEL: it sets a cache");
  if (turn_tokens_ <= output_tokens_) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("--turn-tokens {} must be more than --output-tokens {}: the rest is "
                             "what the user says",
                             turn_tokens_, output_tokens_)};
  }
  return {};
}

// The user's part of a turn: random ids that are plain text in byte-level vocabularies, or words.
void BenchAgenticCommand::Say(Conversation& conversation, int64_t tokens, Rng& rng) const {
  constexpr int64_t kIdBegin = 300, kIdEnd = 1000;
  constexpr std::string_view kWords[] = {"river", "stone", "green", "walk",  "seven", "paper",
                                         "light", "house", "cloud", "music", "bread", "north"};
  for (int64_t t = 0; t < tokens; ++t) {
    if (words_) {
      conversation.text += ' ';
      conversation.text += kWords[rng.Below(12)];
    } else {
      conversation.ids.push_back(kIdBegin + rng.Below(kIdEnd - kIdBegin));
    }
  }
}

HttpCall BenchAgenticCommand::MakeCall(const Conversation& conversation) const {
  json::object body{{"model", model_},  {"max_tokens", output_tokens_},
                    {"temperature", 0}, {"ignore_eos", true},
                    {"stream", true},   {"stream_options", json::object{{"include_usage", true}}}};
  if (words_) {
    body["prompt"] = conversation.text;
  } else {
    body["prompt"] = conversation.ids;
    body["return_token_ids"] = true;
  }
  return {.target = "/completions", .body = json::serialize(body)};
}

void TakeEvent(std::string_view data, int64_t at_us, Turn& turn) {
  if (data == "[DONE]") return;
  const auto event = ParseJson(data, "event");
  if (!event || !event->is_object()) {
    turn.error = "an event that is no JSON object";
    return;
  }
  boost::system::error_code error;
  if (const json::value* problem = event->get_object().if_contains("error")) {
    turn.error = JsonExcerpt(*problem, 200);
  }
  if (const json::value* piece = event->find_pointer("/choices/0/text", error)) {
    if (turn.first_us == 0) turn.first_us = at_us;
    if (piece->is_string()) turn.output_text += piece->get_string();
  }
  const json::value* ids = event->find_pointer("/choices/0/token_ids", error);
  if (ids != nullptr && ids->is_array()) {
    turn.output_ids.insert(turn.output_ids.end(), ids->get_array().begin(), ids->get_array().end());
  }
  const auto count = [&](const char* pointer) -> std::optional<int64_t> {
    const json::value* value = event->find_pointer(pointer, error);
    return value != nullptr && value->is_int64() ? std::optional(value->get_int64()) : std::nullopt;
  };
  turn.prompt_tokens = count("/usage/prompt_tokens").value_or(turn.prompt_tokens);
  turn.output_tokens = count("/usage/completion_tokens").value_or(turn.output_tokens);
  if (const auto cached = count("/usage/prompt_tokens_details/cached_tokens")) {
    turn.cached_tokens = cached;
  }
}

// One turn of every conversation, in their order.
Status BenchAgenticCommand::TakeTurn(const Endpoint& endpoint,
                                     std::vector<Conversation>& conversations) const {
  std::vector<HttpCall> calls;
  std::vector<Turn> turns(conversations.size());
  for (const Conversation& conversation : conversations) calls.push_back(MakeCall(conversation));
  HttpLoad load{.endpoint = endpoint, .api_key = api_key_, .concurrency = concurrency_};
  load.on_event = [&](size_t call, std::string_view data, int64_t at_us) {
    TakeEvent(data, at_us, turns[call]);
  };
  load.on_end = [&](size_t call, HttpOutcome outcome) {
    Turn& turn = turns[call];
    turn.sent_us = outcome.sent_us;
    if (outcome.status == 0) {
      turn.error = outcome.error;
    } else if (outcome.status != 200) {
      turn.error = fmt::format("status {}: {}", outcome.status, outcome.body.substr(0, 200));
    } else if (turn.error.empty() && turn.first_us == 0) {
      turn.error = "no token came";
    } else if (turn.error.empty() && turn.prompt_tokens == 0) {
      turn.error = "no usage came: the server does not know stream_options";
    } else if (turn.error.empty() && !words_ && turn.output_ids.empty()) {
      turn.error = "no token ids came: the server does not know return_token_ids; give --words";
    }
  };
  RunCalls(load, calls);
  for (size_t i = 0; i < turns.size(); ++i) {
    if (!turns[i].error.empty()) return Error{ErrorCode::kUnavailable, turns[i].error};
    Conversation& conversation = conversations[i];
    if (!conversation.turns.empty()) {
      // The last token that was sampled has not been through the model yet.
      const Turn& before = conversation.turns.back();
      turns[i].reusable_tokens =
          std::min(before.prompt_tokens + before.output_tokens, turns[i].prompt_tokens) - 1;
    }
    conversation.text += turns[i].output_text;
    conversation.ids.insert(conversation.ids.end(), turns[i].output_ids.begin(),
                            turns[i].output_ids.end());
    conversation.turns.push_back(std::move(turns[i]));
  }
  return {};
}

Result<std::vector<Conversation>> BenchAgenticCommand::Converse(const Endpoint& endpoint) const {
  std::vector<Conversation> conversations(static_cast<size_t>(conversations_));
  ProgressBar bar("turns", 0);
  Rng rng(seed_.value_or(0));
  for (int32_t turn = 0; turn < turns_; ++turn) {
    for (Conversation& conversation : conversations) {
      Say(conversation, turn == 0 ? first_tokens_ : turn_tokens_ - output_tokens_, rng);
    }
    RETURN_IF_ERROR(TakeTurn(endpoint, conversations));
    bar.Show(static_cast<double>(turn + 1) / turns_);
  }
  return conversations;
}

// What a turn took over. A server that does not say: what its first token came earlier than the
// first turns' pace would have it, as tokens.
int64_t ReusedOf(const Turn& turn, bool reported, double cold_ms_per_token) {
  if (reported) return *turn.cached_tokens;
  const auto computed = static_cast<int64_t>(turn.ttft_ms() / cold_ms_per_token);
  return std::clamp<int64_t>(turn.prompt_tokens - computed, 0, turn.reusable_tokens);
}

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

json::object BenchAgenticCommand::Report(const std::vector<Conversation>& conversations) const {
  Totals totals;
  double cold_ms = 0, cold_tokens = 0;
  for (const Conversation& conversation : conversations) {
    for (const Turn& turn : conversation.turns) totals.reported &= turn.cached_tokens.has_value();
    cold_ms += conversation.turns.front().ttft_ms();
    cold_tokens += static_cast<double>(conversation.turns.front().prompt_tokens);
    totals.cold_ms.push_back(conversation.turns.front().ttft_ms());
  }
  json::array by_turn;
  for (size_t t = 0; t < static_cast<size_t>(turns_); ++t) {
    int64_t prompt = 0, reusable = 0, reused = 0;
    std::vector<double> ttft;
    for (const Conversation& conversation : conversations) {
      const Turn& turn = conversation.turns[t];
      prompt += turn.prompt_tokens;
      reusable += turn.reusable_tokens;
      if (t > 0) reused += ReusedOf(turn, totals.reported, cold_ms / cold_tokens);
      ttft.push_back(turn.ttft_ms());
    }
    if (t > 0) {
      totals.prompt += prompt;
      totals.reusable += reusable;
      totals.reused += reused;
      totals.later_ms.insert(totals.later_ms.end(), ttft.begin(), ttft.end());
    }
    by_turn.push_back(json::object{{"prompt_tokens", prompt},
                                   {"reusable_tokens", reusable},
                                   {"reused_tokens", reused},
                                   {"reprocessed_tokens", reusable - reused},
                                   {"median_ttft_ms", Median(ttft)}});
  }
  const double cold = Median(totals.cold_ms);
  return {
      {"conversations", conversations_},
      {"turns", turns_},
      {"cached_tokens_reported", totals.reported},
      {"reusable_tokens", totals.reusable},
      {"reused_tokens", totals.reused},
      {"reprocessed_tokens", totals.reusable - totals.reused},
      {"reuse", Share(static_cast<double>(totals.reused), static_cast<double>(totals.reusable))},
      {"median_cold_ttft_ms", cold},
      {"median_later_ttft_ms", Median(totals.later_ms)},
      {"p90_later_ttft_ms", Percentile(totals.later_ms, 90)},
      {"later_ttft_to_cold", Share(Median(totals.later_ms), cold)},
      {"by_turn", std::move(by_turn)}};
}

void PrintReport(const json::object& report) {
  const auto number = [&](const char* key) { return report.at(key).to_number<double>(); };
  fmt::print("{:>5} {:>10} {:>10} {:>10} {:>12} {:>10}\n", "turn", "prompt", "reusable", "reused",
             "reprocessed", "TTFT ms");
  size_t turn = 0;
  for (const json::value& value : report.at("by_turn").as_array()) {
    const json::object& row = value.as_object();
    const auto tokens = [&](const char* key) { return row.at(key).to_number<int64_t>(); };
    fmt::print("{:>5} {:>10} {:>10} {:>10} {:>12} {:>10.1f}\n", ++turn, tokens("prompt_tokens"),
               tokens("reusable_tokens"), tokens("reused_tokens"), tokens("reprocessed_tokens"),
               row.at("median_ttft_ms").to_number<double>());
  }
  fmt::print("\nreused {:.1f} % of {:.0f} reusable tokens{}; {:.0f} were computed again\n",
             100 * number("reuse"), number("reusable_tokens"),
             report.at("cached_tokens_reported").as_bool()
                 ? ""
                 : " (estimated from the time to the first token: the server does not say)",
             number("reprocessed_tokens"));
  fmt::print("time to first token: first turn {:.1f} ms, later {:.1f} ms ({:.1f} % of it)\n",
             number("median_cold_ttft_ms"), number("median_later_ttft_ms"),
             100 * number("later_ttft_to_cold"));
  if (report.contains("cache_pages")) {
    fmt::print("cache: {:.0f} pages, filled {:.0f}; evicted: {:.0f} parts\n", number("cache_pages"),
               number("cache_pages_filled"), number("evictions"));
  }
}

// Serves the model here; with a share, a first run finds how many pages are filled.
Result<json::object> BenchAgenticCommand::Measure() {
  std::unique_ptr<LocalServer> local;
  std::string base_url = base_url_;
  if (base_url.empty()) {
    ASSIGN_OR_RETURN(local, LocalServer::Start(options_));
    base_url = local->base_url();
  }
  ASSIGN_OR_RETURN(const Endpoint endpoint, ParseBaseUrl(base_url));
  if (model_.empty()) {
    ASSIGN_OR_RETURN(model_, FirstModel(base_url, api_key_));
  }
  ASSIGN_OR_RETURN(const std::vector<Conversation> conversations, Converse(endpoint));
  json::object report = Report(conversations);
  if (local == nullptr) return report;
  const SchedulerStats stats = local->engine().driver().stats().scheduler;
  report["cache_pages"] = stats.parents_total;
  report["cache_pages_filled"] = stats.parents_used + stats.parents_cached;
  report["cache_page_bytes"] = local->engine().limits().cache.parent_bytes;
  report["evictions"] = stats.evictions_full + stats.evictions_state;
  return report;
}

Status BenchAgenticCommand::Run() {
  RETURN_IF_ERROR(CheckFlags());
  ASSIGN_OR_RETURN(json::object report, Measure());
  if (cache_share_) {
    if (report.at("evictions").to_number<int64_t>() > 0) {
      return Error{ErrorCode::kExhausted,
                   "the cache is too small to find out what the conversations fill: it evicted in "
                   "the first run; give more --memory, or fewer --conversations"};
    }
    const auto pages =
        static_cast<int64_t>(*cache_share_ * report.at("cache_pages_filled").to_number<double>());
    options_.memory_bytes = 0;
    options_.cache_bytes = (pages + 1) * report.at("cache_page_bytes").to_number<int64_t>();
    ASSIGN_OR_RETURN(report, Measure());
  }
  if (json_) {
    fmt::print("{}\n", json::serialize(report));
  } else {
    PrintReport(report);
  }
  return {};
}

}  // namespace

CommandPointer MakeBenchAgenticCommand() { return std::make_unique<BenchAgenticCommand>(); }

}  // namespace braid

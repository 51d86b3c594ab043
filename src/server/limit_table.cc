// The rows: HTTP, then the fields of a request, then requests that wait or run. Those that are the
// same on every server come from http/limits.h and api/limits.h.
#include "server/limit_table.h"

#include <fmt/core.h>

#include "base/check.h"
#include "server/api/fields.h"
#include "server/api/limits.h"
#include "text/answer/tool_call.h"
#include "text/chat/chat_template.h"
#include "text/grammar/compile_queue.h"
#include "text/grammar/grammar_library.h"
#include "text/grammar/schema_limits.h"

namespace braid {
namespace {

using limits::Limit;

constexpr std::string_view kConnection = "server/http/connection.cc";
constexpr std::string_view kListener = "server/http/http_server.cc";
constexpr std::string_view kFields = "server/api/api_request.cc";
constexpr std::string_view kPrepare = "server/serving/prepare.cc";
constexpr std::string_view kGrammar = "text/grammar";
constexpr std::string_view kStore = "server/serving/response_store.cc";
constexpr std::string_view kQueue = "text/grammar/compile_queue.cc";
constexpr std::string_view kGenerate = "server/routes/generate.cc";
constexpr std::string_view kGeneration = "server/serving/generation.cc";
constexpr std::string_view kScheduler = "scheduler";
constexpr std::string_view kFewerAnswers = "128; fewer where fewer requests may wait";

constexpr int64_t Size(size_t value) { return static_cast<int64_t>(value); }

// The largest value of a number in the field table.
Limit FieldLimit(std::string_view name, std::string_view what, const RequestLimits& limits,
                 std::string_view depends = {}) {
  const Field* field = FindField(name, kCompletions);
  CHECK(field != nullptr, "a limit of a field that does not exist");
  const auto* number = std::get_if<NumberRule>(&field->rule);
  const auto* integer = std::get_if<IntegerRule>(&field->rule);
  CHECK(number != nullptr || integer != nullptr, "a limit of a field that is no number");
  return {name, number ? static_cast<int64_t>(number->max) : MaxOf(*integer, limits),
          "",   what,
          400,  kFields,
          depends};
}

std::vector<Limit> HttpRows(const ServerConfig& config, const ModelCard& card) {
  const HttpOptions& http = config.http;
  const int64_t tokens = card.context_tokens_max;
  const int64_t bodies = RequestMemory(config, tokens) - limits::PrepareBytes(tokens);
  const int64_t connections = std::min<int64_t>(
      http.connections_max, limits::ConnectionsIn(bodies, !http.tls.certificate.empty()));
  return {
      {"header_seconds", http.header_seconds_max, "seconds", "until all headers are there", 408,
       kConnection},
      {"body_seconds", http.body_seconds_base, "seconds", "for a body, plus one for each 64 KiB",
       408, kConnection},
      {"body_bytes", Size(limits::BodyBytesMax(tokens)), "bytes", "of a body", 413, kConnection,
       "32 for each token of the context, from 4 MiB to 64 MiB"},
      {"all_bodies_bytes", bodies, "bytes", "of all bodies in memory", 503, kConnection},
      {"connections", connections, "connections", "", 503, kListener},
      {"connections_per_address", http.connections_per_address_max, "connections", "of one address",
       503, kListener},
      {"idle_seconds", http.idle_seconds_max, "seconds",
       "that a connection stays open without a request", 0, kConnection},
      {"write_seconds", http.write_seconds_max, "seconds",
       "without progress of a write before the connection is closed; a whole answer has as many in "
       "all, plus one for each 64 KiB",
       0, kConnection},
      {"heartbeat_seconds", http.heartbeat_seconds, "seconds", "between comments on a quiet stream",
       0, kConnection},
      {"wrong_keys_per_second", config.login_failures_per_second, "wrong keys",
       "of one address in a second", 429, "server/access/login_guard.cc"},
  };
}

std::vector<Limit> FieldRows(const ServerConfig& config, const ModelCard& card,
                             const RequestLimits& limits) {
  const GrammarLimits grammar;
  return {
      {"prompt_tokens", card.context_tokens_max - 1, "tokens", "of a prompt", 400, kPrepare,
       "the context less one"},
      {"token_id", card.vocabulary - 1, "", "token id", 400, "server/api/field_parsers.cc",
       "the vocabulary less one"},
      {"answers", limits.answers_max, "answers", "of a request: prompts times `n`", 400, kFields,
       kFewerAnswers},
      {"n", limits.answers_max, "", "`n`", 400, kFields, kFewerAnswers},
      FieldLimit("best_of", "`best_of`", limits),
      FieldLimit("prompt_logprobs", "`prompt_logprobs`", limits),
      FieldLimit("temperature", "`temperature`", limits),
      FieldLimit("top_p", "`top_p`", limits),
      FieldLimit("min_p", "`min_p`", limits),
      FieldLimit("presence_penalty", "`presence_penalty`", limits),
      FieldLimit("frequency_penalty", "`frequency_penalty`", limits),
      FieldLimit("repetition_penalty", "`repetition_penalty`", limits),
      FieldLimit("top_k", "`top_k`", limits, "the vocabulary"),
      {"schema_bytes", grammar.schema_bytes, "bytes", "of a schema", 400, kGrammar},
      {"schema_depth", grammar.schema_depth, "levels", "of nesting of a schema", 400, kGrammar},
      {"schema_properties", grammar.properties, "properties", "in a schema", 400, kGrammar},
      {"schema_optional_properties", grammar.optional_properties, "optional properties",
       "of one object in a schema", 400, kGrammar},
      {"schema_enum_values", grammar.enum_values, "enum values", "in a schema", 400, kGrammar},
      {"repetitions", grammar.repetitions, "counted repetitions", "multiplied through nesting", 400,
       kGrammar},
      {"regex_bytes", grammar.regex_bytes, "bytes", "of a regular expression", 400, kGrammar},
      {"compile_burst_seconds", static_cast<int64_t>(TenantLoad::kCompileBurstSeconds), "seconds",
       "of compiling one key's grammars at once", 429, "server/access/api_keys.cc"},
      {"compile_cpu_ms", config.grammar_budget.cpu_ms, "milliseconds",
       "of CPU time for compiling one grammar", 400, kGrammar, "`--grammar-cpu-ms`"},
      {"compile_memory_bytes", config.grammar_budget.memory_bytes, "bytes",
       "of memory for compiling one grammar", 400, kGrammar, "`--grammar-memory`"},
      {"grammar_cache_bytes", GrammarLibraryOptions{}.bytes_max, "bytes",
       "of compiled grammars, those in use with their answers", 503, kGrammar},
      {"grammar_items", Grammars::kMaskItemsMax, "items", "of a grammar's parser at one token", 400,
       kGrammar},
      {"render_seconds", ChatTemplate::kRenderSecondsMax, "seconds",
       "of rendering the chat template", 400, "text/chat"},
      {"stored_bytes", config.responses_bytes_max, "bytes", "of stored responses; the oldest go", 0,
       kStore},
      {"stored_bytes_per_key", StoreLimits(config).key_bytes, "bytes",
       "of stored responses of a key", 0, kStore},
      {"stored_responses", StoreLimits(config).responses, "stored responses", "; the oldest go", 0,
       kStore},
      {"stored_responses_per_key", StoreLimits(config).key_responses, "stored responses",
       "of a key", 0, kStore},
  };
}

std::vector<Limit> QueueRows(const ServerConfig& config, const SchedulerConfig& scheduler) {
  const CompileQueue::Limits compile;
  return {
      {"running_sequences", scheduler.running_max, "sequences", "that run at once; others wait", 0,
       kScheduler, "`--max-num-seqs`"},
      {"waiting_requests", scheduler.waiting_max, "requests", "that wait", 503, kScheduler},
      {"waiting_prompt_tokens",
       limits::kWaitingTokensTimesPool * scheduler.cache.pages * kBlockTokens, "prompt tokens",
       "that wait", 503, kGenerate, "8 times the tokens that the cache holds"},
      {"requests_per_key", 0, "requests", "of a key at once; 0: as its key says", 429,
       "server/access/api_keys.cc"},
      {"queue_seconds", config.queue_seconds_max, "seconds", "in the queue", 503, kGeneration},
      {"request_seconds", config.request_seconds_max, "seconds", "of a request", 503, kGeneration},
      {"preemptions", scheduler.preemptions_max, "preemptions", "of a request", 0, kScheduler},
      {"tool_call_header_bytes", Size(ToolCallParser::kHeaderBytesMax), "bytes",
       "of the name in a tool call that the model writes", 0, "text/answer"},
      {"concurrent_compilations", compile.threads, "grammars",
       "compiled at once; others wait. A prefill engine compiles as many more for its partners", 0,
       kQueue},
      {"concurrent_compilations_per_key", compile.running_per_key, "grammars",
       "of a key compiled at once; others wait", 0, kQueue},
      {"waiting_compilations", Size(compile.waiting), "grammars", "that wait to be compiled", 503,
       kQueue},
      {"waiting_compilations_per_key", Size(compile.waiting_per_key), "grammars",
       "of a key that wait to be compiled", 429, kQueue},
  };
}

}  // namespace

std::vector<Limit> LimitTable(const ServerConfig& server, const ModelCard& card,
                              const SchedulerConfig& scheduler) {
  const RequestLimits of_request{.vocabulary = card.vocabulary,
                                 .answers_max = AnswersMax(scheduler)};
  std::vector<Limit> rows;
  const auto add = [&](const auto& more) { rows.insert(rows.end(), more.begin(), more.end()); };
  add(std::span(limits::kHttpLimits));
  add(HttpRows(server, card));
  add(std::span(limits::kFieldLimits));
  add(FieldRows(server, card, of_request));
  add(QueueRows(server, scheduler));
  return rows;
}

std::string LimitText(const Limit& row) {
  const bool joined = row.unit.empty() || row.what.empty() || row.what.starts_with(';');
  return fmt::format("{}{}{}", row.unit, joined ? "" : " ", row.what);
}

json::array LimitsJson(const Service& service) {
  json::array out;
  for (const Limit& row :
       LimitTable(service.config, service.context.card, service.context.driver.config())) {
    out.push_back(
        json::object{{"name", row.name},
                     {"what", LimitText(row)},
                     {"value", row.value},
                     {"status", row.status == 0 ? json::value(nullptr) : json::value(row.status)}});
  }
  return out;
}

}  // namespace braid

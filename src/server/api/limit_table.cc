// The rows: HTTP, then the fields of a request, then what waits and runs.
#include "server/api/limit_table.h"

#include "base/check.h"
#include "server/api/fields.h"
#include "server/api/limits.h"
#include "server/serving/compile_queue.h"
#include "text/answer/tool_call.h"
#include "text/chat/chat_template.h"
#include "text/grammar/grammar_library.h"
#include "text/grammar/schema_limits.h"

namespace braid {
namespace {

constexpr int64_t Size(size_t value) { return static_cast<int64_t>(value); }

// The largest value of a number in the field table.
LimitRow FieldRow(std::string_view name, std::string_view what, const RequestLimits& limits) {
  const Field* field = FindField(name, kCompletions);
  CHECK(field != nullptr, "a limit of a field that does not exist");
  const auto* number = std::get_if<NumberRule>(&field->rule);
  const auto* integer = std::get_if<IntegerRule>(&field->rule);
  CHECK(number != nullptr || integer != nullptr, "a limit of a field that is no number");
  return {name, what, number ? static_cast<int64_t>(number->max) : MaxOf(*integer, limits)};
}

std::vector<LimitRow> HttpRows(const ServerConfig& config, const ModelCard& card) {
  return {
      {"target_bytes", "bytes of the request target", Size(limits::kTargetBytesMax), 414},
      {"headers", "headers of a request", Size(limits::kHeadersMax), 431},
      {"header_bytes", "bytes of one header", Size(limits::kHeaderBytesMax), 431},
      {"all_headers_bytes", "bytes of all headers", Size(limits::kHeadBytesMax), 431},
      {"header_seconds", "seconds until all headers are there", config.header_seconds_max, 408},
      {"body_seconds", "seconds for a body, beside one for each 64 KiB", config.body_seconds_base,
       408},
      {"body_bytes", "bytes of a body", Size(limits::BodyBytesMax(card.context_tokens_max)), 413,
       "32 for each token of the context, from 4 MiB to 64 MiB"},
      {"all_bodies_bytes", "bytes of all bodies in memory",
       RequestMemory(config, card.context_tokens_max) -
           limits::PrepareBytes(card.context_tokens_max),
       503},
      {"chunk_extension_bytes", "bytes of a chunk's extension",
       Size(limits::kChunkExtensionBytesMax), 400},
      {"connections", "connections", config.connections_max, 503},
      {"connections_per_address", "connections of one address", config.connections_per_address_max,
       503},
      {"idle_seconds", "seconds that a connection stays open without a request",
       config.idle_seconds_max, 0},
      {"requests_per_connection", "requests over one connection, which is then closed",
       limits::kRequestsPerConnectionMax, 0},
      {"concurrent_requests_per_connection",
       "requests of one connection that are worked on at once; the next ones wait", 1, 0},
      {"unsent_bytes", "bytes that a client leaves unread before its stream is cut off",
       Size(limits::kUnsentBytesMax), 0},
      {"write_seconds", "seconds without progress of a write before the connection is closed",
       config.write_seconds_max, 0},
      {"heartbeat_seconds", "seconds between comments on a quiet stream", config.heartbeat_seconds,
       0},
      {"request_id_bytes", "bytes of X-Request-Id; a longer one is replaced",
       Size(limits::kRequestIdBytesMax), 0},
      {"wrong_keys_per_second", "wrong keys of one address in a second",
       config.login_failures_per_second, 429},
  };
}

std::vector<LimitRow> FieldRows(const ServerConfig& config, const ModelCard& card,
                                const RequestLimits& limits) {
  const GrammarLimits grammar;
  return {
      {"json_depth", "levels of nesting of a body", Size(limits::kJsonDepthMax), 400},
      {"json_values", "values of a body", limits::kJsonValuesMax, 400},
      {"json_key_bytes", "bytes of a key of a body", Size(limits::kJsonKeyBytesMax), 400},
      {"messages", "messages of a conversation", Size(limits::kMessagesMax), 400},
      {"message_parts", "parts of a message", Size(limits::kPartsMax), 400},
      {"message_name_bytes", "bytes of a message's name", Size(limits::kNameBytesMax), 400},
      {"prompt_tokens", "tokens of a prompt", card.context_tokens_max - 1, 400,
       "the context less one"},
      {"token_id", "token id", card.vocabulary - 1, 400, "the vocabulary less one"},
      {"answers", "answers of a request: prompts times `n`", limits.answers_max, 400,
       "128; fewer where fewer requests may wait"},
      {"n", "`n`", limits.answers_max, 400, "128; fewer where fewer requests may wait"},
      FieldRow("best_of", "`best_of`", limits),
      {"top_logprobs", "`top_logprobs`, and `logprobs` of completions", limits::kTopLogprobsMax,
       400},
      FieldRow("prompt_logprobs", "`prompt_logprobs`", limits),
      {"logit_bias_entries", "entries of `logit_bias`", Size(limits::kLogitBiasMax), 400},
      {"logit_bias", "values in `logit_bias`", static_cast<int64_t>(limits::kLogitBiasAbsMax), 400},
      {"stop_strings", "strings in `stop`", Size(limits::kStopStringsMax), 400},
      {"stop_string_bytes", "bytes of a stop string", Size(limits::kStopStringBytesMax), 400},
      {"stop_token_ids", "ids in `stop_token_ids`", Size(limits::kStopTokensMax), 400},
      FieldRow("temperature", "`temperature`", limits),
      FieldRow("top_p", "`top_p`", limits),
      FieldRow("min_p", "`min_p`", limits),
      FieldRow("presence_penalty", "`presence_penalty`", limits),
      FieldRow("frequency_penalty", "`frequency_penalty`", limits),
      FieldRow("repetition_penalty", "`repetition_penalty`", limits),
      FieldRow("top_k", "`top_k`", limits),
      {"tools", "tools of a request", Size(limits::kToolsMax), 400},
      {"tools_bytes", "bytes of all tools", Size(limits::kToolBytesMax), 400},
      {"tool_name_bytes", "bytes of a tool's name", Size(limits::kNameBytesMax), 400},
      {"schema_bytes", "bytes of a schema", grammar.schema_bytes, 400},
      {"schema_depth", "levels of nesting of a schema", grammar.schema_depth, 400},
      {"schema_properties", "properties in a schema", grammar.properties, 400},
      {"schema_optional_properties", "optional properties of one object in a schema",
       grammar.optional_properties, 400},
      {"schema_enum_values", "enum values in a schema", grammar.enum_values, 400},
      {"repetitions", "counted repetitions, multiplied through nesting", grammar.repetitions, 400},
      {"regex_bytes", "bytes of a regular expression", grammar.regex_bytes, 400},
      {"grammar_choices", "texts in `choice`", Size(limits::kGrammarChoicesMax), 400},
      {"compile_burst_seconds", "seconds of compiling one key's grammars at once",
       static_cast<int64_t>(TenantLoad::kCompileBurstSeconds), 429},
      {"compile_cpu_ms", "milliseconds of CPU time for compiling one grammar",
       config.grammar_budget.cpu_ms, 400, "`--grammar-cpu-ms`"},
      {"compile_memory_bytes", "bytes of memory for compiling one grammar",
       config.grammar_budget.memory_bytes, 400, "`--grammar-memory`"},
      {"grammar_cache_bytes", "bytes of compiled grammars, those in use with their answers",
       GrammarLibraryOptions{}.bytes_max, 503},
      {"grammar_items", "items of a grammar's parser at one token", Grammars::kMaskItemsMax, 400},
      {"template_values", "entries of `chat_template_kwargs`", Size(limits::kTemplateKeysMax), 400},
      {"template_bytes", "bytes of `chat_template_kwargs`", Size(limits::kTemplateBytesMax), 400},
      {"render_seconds", "seconds of rendering the chat template", ChatTemplate::kRenderSecondsMax,
       400},
      {"message_media_parts", "parts of a message that are no text", 0, 400},
      {"metadata_pairs", "entries of `metadata`", Size(limits::kMetadataPairsMax), 400},
      {"metadata_value_bytes", "bytes of a value in `metadata`", Size(limits::kMetadataBytesMax),
       400},
      {"stored_bytes", "bytes of stored responses; the oldest go", config.responses_bytes_max, 0},
      {"stored_bytes_per_key", "bytes of stored responses of a key", StoreLimits(config).key_bytes,
       0},
      {"stored_responses", "stored responses; the oldest go", StoreLimits(config).responses, 0},
      {"stored_responses_per_key", "stored responses of a key", StoreLimits(config).key_responses,
       0},
  };
}

std::vector<LimitRow> QueueRows(const ServerConfig& config, const SchedulerConfig& scheduler) {
  return {
      {"running_sequences", "sequences that run at once; others wait", scheduler.running_max, 0,
       "`--max-num-seqs`"},
      {"waiting_requests", "requests that wait", scheduler.waiting_max, 503},
      {"waiting_prompt_tokens", "prompt tokens that wait",
       limits::kWaitingTokensTimesPool * scheduler.cache.pages * kBlockTokens, 503,
       "8 times the tokens that the cache holds"},
      {"requests_per_key", "requests of a key at once; 0: as its key says", 0, 429},
      {"queue_seconds", "seconds in the queue", config.queue_seconds_max, 503},
      {"request_seconds", "seconds of a request", config.request_seconds_max, 503},
      {"preemptions", "preemptions of a request", scheduler.preemptions_max, 0},
      {"tool_call_header_bytes", "bytes of the name in a tool call that the model writes",
       Size(ToolCallParser::kHeaderBytesMax), 0},
      {"concurrent_compilations", "grammars compiled at once; others wait",
       CompileQueue::Limits{}.threads, 0},
      {"concurrent_compilations_per_key", "grammars of a key compiled at once; others wait",
       CompileQueue::Limits{}.running_per_key, 0},
      {"waiting_compilations", "grammars that wait to be compiled",
       Size(CompileQueue::Limits{}.waiting), 503},
      {"waiting_compilations_per_key", "grammars of a key that wait to be compiled",
       Size(CompileQueue::Limits{}.waiting_per_key), 429},
  };
}

}  // namespace

std::vector<LimitRow> LimitTable(const ServerConfig& server, const ModelCard& card,
                                 const SchedulerConfig& scheduler) {
  const RequestLimits limits{.vocabulary = card.vocabulary, .answers_max = AnswersMax(scheduler)};
  std::vector<LimitRow> rows = HttpRows(server, card);
  for (const LimitRow& row : FieldRows(server, card, limits)) rows.push_back(row);
  for (const LimitRow& row : QueueRows(server, scheduler)) rows.push_back(row);
  return rows;
}

json::array LimitsJson(const Service& service) {
  json::array out;
  for (const LimitRow& row :
       LimitTable(service.config, service.context.card, service.context.driver.config())) {
    out.push_back(
        json::object{{"name", row.name},
                     {"what", row.what},
                     {"value", row.value},
                     {"status", row.status == 0 ? json::value(nullptr) : json::value(row.status)}});
  }
  return out;
}

}  // namespace braid

// The rows, in the order of their ids. Values come from where they are enforced.
#include "server/limit_table.h"

#include "server/limits.h"
#include "text/chat_template.h"
#include "text/grammar_library.h"
#include "text/schema_limits.h"
#include "text/tool_call.h"

namespace braid {
namespace {

constexpr int64_t Size(size_t value) { return static_cast<int64_t>(value); }

std::vector<LimitRow> HttpRows(const ServerConfig& config, const ModelCard& card) {
  return {
      {"L-1", "request target bytes", Size(limits::kTargetBytesMax), 414},
      {"L-2", "headers", Size(limits::kHeadersMax), 431},
      {"L-2", "header bytes", Size(limits::kHeaderBytesMax), 431},
      {"L-2", "all headers bytes", Size(limits::kHeadBytesMax), 431},
      {"L-3", "seconds for the headers", config.header_seconds_max, 408},
      {"L-4", "seconds for a body beside its size", config.body_seconds_base, 408},
      {"L-5", "body bytes", Size(limits::BodyBytesMax(card.context_tokens_max)), 413},
      {"L-6", "bytes of all bodies", config.bodies_bytes_max, 503},
      {"L-9", "chunk extension bytes", Size(limits::kChunkExtensionBytesMax), 400},
      {"L-10", "connections", config.connections_max, 503},
      {"L-10", "connections of an address", config.connections_per_address_max, 503},
      {"L-10", "idle seconds", config.idle_seconds_max, 0},
      {"L-10", "requests of a connection", limits::kRequestsPerConnectionMax, 0},
      {"L-11", "requests of a connection at once", 1, 0},
      {"L-12", "unsent bytes", Size(limits::kUnsentBytesMax), 0},
      {"L-12", "seconds without progress of a write", config.write_seconds_max, 0},
      {"L-13", "seconds between heartbeats", config.heartbeat_seconds, 0},
      {"L-14", "request id bytes", Size(limits::kRequestIdBytesMax), 0},
      {"L-15", "wrong keys a second", config.login_failures_per_second, 429},
  };
}

std::vector<LimitRow> FieldRows(const ServerConfig& config, const ModelCard& card) {
  const GrammarLimits grammar;
  return {
      {"L-20", "JSON depth", Size(limits::kJsonDepthMax), 400},
      {"L-20", "JSON values", limits::kJsonValuesMax, 400},
      {"L-20", "JSON key bytes", Size(limits::kJsonKeyBytesMax), 400},
      {"L-22", "messages", Size(limits::kMessagesMax), 400},
      {"L-22", "parts of a message", Size(limits::kPartsMax), 400},
      {"L-22", "name bytes", Size(limits::kNameBytesMax), 400},
      {"L-23", "prompt tokens", card.context_tokens_max - 1, 400},
      {"L-25", "token id", card.vocabulary - 1, 400},
      {"L-26", "answers of a request", Size(limits::kPromptsTimesChoicesMax), 400},
      {"L-26", "n", config.choices_max, 400},
      {"L-27", "best_of", 1, 400},
      {"L-29", "top_logprobs", limits::kTopLogprobsMax, 400},
      {"L-30", "prompt_logprobs", limits::kTopLogprobsMax, 400},
      {"L-31", "logit_bias entries", Size(limits::kLogitBiasMax), 400},
      {"L-31", "logit_bias value", static_cast<int64_t>(limits::kLogitBiasAbsMax), 400},
      {"L-32", "stop strings", Size(limits::kStopStringsMax), 400},
      {"L-32", "stop string bytes", Size(limits::kStopStringBytesMax), 400},
      {"L-32", "stop_token_ids", Size(limits::kStopTokensMax), 400},
      {"L-33", "temperature", 2, 400},
      {"L-33", "top_p", 1, 400},
      {"L-33", "min_p", 1, 400},
      {"L-33", "presence_penalty", 2, 400},
      {"L-33", "frequency_penalty", 2, 400},
      {"L-33", "repetition_penalty", 10, 400},
      {"L-33", "top_k", card.vocabulary, 400},
      {"L-34", "tools", Size(limits::kToolsMax), 400},
      {"L-34", "bytes of all tools", Size(limits::kToolBytesMax), 400},
      {"L-34", "tool name bytes", Size(limits::kNameBytesMax), 400},
      {"L-35", "schema bytes", grammar.schema_bytes, 400},
      {"L-35", "schema depth", grammar.schema_depth, 400},
      {"L-35", "schema properties", grammar.properties, 400},
      {"L-35", "schema enum values", grammar.enum_values, 400},
      {"L-36", "repetitions", grammar.repetitions, 400},
      {"L-37", "regex bytes", grammar.regex_bytes, 400},
      {"L-38", "seconds of compiling a tenant's grammars at once",
       static_cast<int64_t>(TenantLoad::kCompileBurstSeconds), 429},
      {"L-39", "bytes of compiled grammars", GrammarLibrary::kBytesMax, 0},
      {"L-40", "items of a grammar's parser at a token", Grammars::kMaskItemsMax, 400},
      {"L-41", "template keys", Size(limits::kTemplateKeysMax), 400},
      {"L-41", "template values bytes", Size(limits::kTemplateBytesMax), 400},
      {"L-42", "seconds of rendering the chat template", ChatTemplate::kRenderSecondsMax, 400},
      {"L-43", "parts of a message that are no text", 0, 400},
      {"L-44", "metadata pairs", Size(limits::kMetadataPairsMax), 400},
      {"L-44", "metadata bytes", Size(limits::kMetadataBytesMax), 400},
      {"L-45", "bytes of stored responses", config.responses_bytes_max, 0},
      {"L-45", "bytes of stored responses of a key", StoreLimits(config).key_bytes, 0},
      {"L-45", "stored responses", StoreLimits(config).responses, 0},
      {"L-45", "stored responses of a key", StoreLimits(config).key_responses, 0},
  };
}

std::vector<LimitRow> QueueRows(const ServerConfig& config, const SchedulerConfig& scheduler) {
  return {
      {"L-50", "running sequences", scheduler.running_max, 0},
      {"L-51", "waiting requests", scheduler.waiting_max, 503},
      {"L-51", "waiting prompt tokens",
       limits::kWaitingTokensTimesPool * scheduler.cache.parents * kBlockTokens, 503},
      {"L-52", "requests of a tenant, 0: as its key says", 0, 429},
      {"L-53", "seconds in the queue", config.queue_seconds_max, 503},
      {"L-53", "seconds of a request", config.request_seconds_max, 503},
      {"L-54", "preemptions of a request", scheduler.preemptions_max, 0},
      {"L-55", "bytes of the name in a tool call", Size(ToolCallParser::kHeaderBytesMax), 0},
      {"L-56", "grammars compiled at once", 1, 0},
  };
}

}  // namespace

std::vector<LimitRow> LimitTable(const Service& service) {
  const ModelCard& card = service.context.card;
  std::vector<LimitRow> rows = HttpRows(service.config, card);
  for (const LimitRow& row : FieldRows(service.config, card)) rows.push_back(row);
  const SchedulerConfig& scheduler = service.context.driver.config();
  for (const LimitRow& row : QueueRows(service.config, scheduler)) rows.push_back(row);
  return rows;
}

json::array LimitsJson(const Service& service) {
  json::array out;
  for (const LimitRow& row : LimitTable(service)) {
    out.push_back(
        json::object{{"id", row.id},
                     {"what", row.what},
                     {"value", row.value},
                     {"status", row.status == 0 ? json::value(nullptr) : json::value(row.status)}});
  }
  return out;
}

}  // namespace braid

// The rows; paths that mean the same stand one below the other.
#include "server/route_table.h"

namespace braid {
namespace {

constexpr PostRoute kPosts[] = {
    {"/v1/chat/completions", kChat, "Answer a conversation", "messages", "chatcmpl-"},
    {"/v1/completions", kCompletions, "Continue a text", "prompt", "cmpl-"},
    {"/v1/responses", kResponses, "Answer a conversation as items; nothing is stored", "input",
     "resp_"},
    {"/v1/messages", kMessages, "Answer a conversation as blocks", "messages max_tokens", "msg_"},
    {"/v1/messages/count_tokens", kCountTokens, "Count the tokens of a conversation", "messages"},
    {"/tokenize", kTokenize, "Token ids of a text or a conversation"},
    {"/v1/tokenize", kTokenize, "Token ids of a text or a conversation"},
    {"/detokenize", kDetokenize, "The text of token ids", "tokens"},
    {"/v1/detokenize", kDetokenize, "The text of token ids", "tokens"},
    {"/apply_template", kApplyTemplate, "The prompt of a conversation", "messages"},
    {"/apply-template", kApplyTemplate, "The prompt of a conversation", "messages"},
    {"/parse_function_call", kParseCalls, "The tool calls in a model's text", "text"},
    {"/separate_reasoning", kSeparateReasoning, "Thinking apart from content", "text"},
    {"/abort_request", kAbort, "End a running request", "", "", true},
    {"/flush_cache", kFlushCache, "Forget the cached prefixes that no request uses", "", "", true},
    {"/abort_requests", kAbort, "End a running request", "", "", true},
};

constexpr GetRoute kGets[] = {
    {"/", "The chat page", true},
    {"/health", "Whether the engine's loop turns", true},
    {"/health_generate", "Whether the model still answers: one token"},
    {"/ready", "Whether requests are taken", true},
    {"/version", "The server's version"},
    {"/metrics", "Metrics in Prometheus' form"},
    {"/openapi.json", "This document"},
    {"/server_info", "The model, the plan of memory, the scheduler's state"},
    {"/v1/loads", "Load for routers"},
    {"/v1/models", "The model that is served"},
    {"/v1/models/{id}", "The model, by its name"},
};

}  // namespace

std::span<const PostRoute> PostRoutes() { return kPosts; }
std::span<const GetRoute> GetRoutes() { return kGets; }

}  // namespace braid

// The rows; paths that mean the same stand one below the other.
#include "server/route_table.h"

namespace braid {
namespace {

constexpr PostRoute kPosts[] = {
    {"/v1/chat/completions", kChat, "Answer a conversation", "messages", "chatcmpl-"},
    {"/v1/completions", kCompletions, "Continue a text", "prompt", "cmpl-"},
    {"/v1/responses", kResponses, "Answer a conversation as items", "input", "resp_"},
    {"/v1/responses/{id}/cancel", kCancel, "End a response that is being made"},
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
    {"/pause", kPause, "Begin no step until resumed; requests stay", "", "", true},
    {"/pause_generation", kPause, "Begin no step until resumed; requests stay", "", "", true},
    {"/resume", kResume, "Go on after a pause", "", "", true},
    {"/continue_generation", kResume, "Go on after a pause", "", "", true},
};

constexpr GetRoute kGets[] = {
    {"/", "The chat page", true},
    {"/health", "Whether the engine's loop turns", true, true},
    {"/health_generate", "Whether the model still answers: one token", false, false, true},
    {"/ready", "Whether requests are taken", true, true},
    {"/version", "The server's version"},
    {"/metrics", "Metrics in Prometheus' form"},
    {"/openapi.json", "This document"},
    {"/server_info", "The model, the plan of memory, the scheduler's state"},
    {"/v1/loads", "Load for routers"},
    {"/v1/running", "The requests that are being answered, without their text"},
    {"/v1/responses/{id}/input_items", "The items that a stored response read"},
    {"/v1/responses/{id}", "A response that is stored or being made", false, false, false,
     "Forget a stored response"},
    {"/v1/models", "The model that is served"},
    {"/v1/models/{id}", "The model, by its name"},
};

struct Absent {
  std::string_view path;
  std::string_view part;
};

constexpr Absent kAbsent[] = {
    // OpenAI
    {"/v1/embeddings", "embeddings"},
    {"/v1/moderations", "moderation"},
    {"/v1/images", "images"},
    {"/v1/audio", "audio"},
    {"/v1/videos", "videos"},
    {"/v1/realtime", "realtime sessions"},
    {"/v1/files", "files"},
    {"/v1/uploads", "files"},
    {"/v1/batches", "batches"},
    {"/v1/fine_tuning", "fine-tuning"},
    {"/v1/vector_stores", "vector stores"},
    {"/v1/assistants", "assistants"},
    {"/v1/threads", "threads"},
    {"/v1/conversations", "stored conversations"},
    {"/v1/containers", "containers"},
    {"/v1/evals", "evaluations"},
    {"/v1/chat/completions", "stored chat completions"},
    // Anthropic
    {"/v1/messages/batches", "batches"},
    {"/v1/complete", "completions in Anthropic's old form"},
    // vLLM, SGLang, llama-server
    {"/embeddings", "embeddings"},
    {"/embedding", "embeddings"},
    {"/v1/rerank", "reranking"},
    {"/v2/rerank", "reranking"},
    {"/rerank", "reranking"},
    {"/v1/score", "scoring of pairs"},
    {"/score", "scoring of pairs"},
    {"/classify", "classification"},
    {"/pooling", "pooling"},
    {"/infill", "infilling"},
    {"/generate", "SGLang's own form of requests"},
    {"/completion", "llama-server's own form of requests"},
    // Ollama
    {"/api", "Ollama's API"},
};

}  // namespace

std::string_view AbsentPart(std::string_view path) {
  for (const Absent& row : kAbsent) {
    if (path == row.path) return row.part;
    if (path.starts_with(row.path) && path[row.path.size()] == '/') return row.part;
  }
  return {};
}

std::span<const PostRoute> PostRoutes() { return kPosts; }
std::span<const GetRoute> GetRoutes() { return kGets; }

std::optional<std::string_view> MatchPath(std::string_view pattern, std::string_view path) {
  constexpr std::string_view kId = "{id}";
  const size_t at = pattern.find(kId);
  if (at == std::string_view::npos) {
    return pattern == path ? std::optional(std::string_view()) : std::nullopt;
  }
  const std::string_view before = pattern.substr(0, at), after = pattern.substr(at + kId.size());
  if (path.size() <= before.size() + after.size()) return std::nullopt;
  if (!path.starts_with(before) || !path.ends_with(after)) return std::nullopt;
  return path.substr(before.size(), path.size() - before.size() - after.size());
}

const PostRoute* FindPost(std::string_view path) {
  for (const PostRoute& post : kPosts) {
    if (MatchPath(post.path, path)) return &post;
  }
  return nullptr;
}

const GetRoute* FindGet(std::string_view path) {
  // A longer path that is posted to is not the id of a shorter one.
  const PostRoute* post = FindPost(path);
  if (post != nullptr && post->path != path) return nullptr;
  for (const GetRoute& get : kGets) {
    if (MatchPath(get.path, path)) return &get;
  }
  return nullptr;
}

}  // namespace braid

// Paths are matched by walking the rows: there are few, and a walk has no order that a new row
// could break.
#include "server/routes/table.h"

#include <fmt/core.h>

#include <algorithm>

#include "server/http/framing.h"

namespace braid {
namespace {

constexpr std::string_view kId = "{id}";

// What of `path` stands for {id} in `pattern`, empty where there is none; nullopt: another path.
std::optional<std::string_view> MatchPattern(std::string_view pattern, std::string_view path) {
  const size_t at = pattern.find(kId);
  if (at == std::string_view::npos) {
    return pattern == path ? std::optional(std::string_view()) : std::nullopt;
  }
  const std::string_view before = pattern.substr(0, at), after = pattern.substr(at + kId.size());
  if (path.size() <= before.size() + after.size()) return std::nullopt;
  if (!path.starts_with(before) || !path.ends_with(after)) return std::nullopt;
  return path.substr(before.size(), path.size() - before.size() - after.size());
}

size_t LiteralBytes(std::string_view pattern) {
  return pattern.size() - (pattern.find(kId) == std::string_view::npos ? 0 : kId.size());
}

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

std::vector<const Route*> AllRoutes() {
  std::vector<const Route*> rows;
  for (const auto& group :
       {kGenerateRoutes, kResponseRoutes, kTextRoutes, kStatusRoutes, kAdminRoutes}) {
    for (const Route& row : group) rows.push_back(&row);
  }
  return rows;
}

const Route* PathMatch::any() const {
  const auto row = std::ranges::find_if(by_method, [](const Route* at) { return at != nullptr; });
  return row == by_method.end() ? nullptr : *row;
}

const Route* PathMatch::Find(std::string_view method) const {
  const auto at = std::ranges::find(kMethodNames, method) - kMethodNames.begin();
  return at == std::ssize(kMethodNames) ? nullptr : by_method[static_cast<size_t>(at)];
}

PathMatch MatchPath(std::string_view path) {
  PathMatch best;
  std::string_view best_pattern;
  const auto consider = [&](const Route& row, std::string_view pattern) {
    const std::optional<std::string_view> id = MatchPattern(pattern, path);
    if (pattern.empty() || !id) return;
    if (pattern != best_pattern) {
      if (LiteralBytes(pattern) <= LiteralBytes(best_pattern)) return;
      best = {.id = *id};
      best_pattern = pattern;
    }
    best.by_method[static_cast<size_t>(row.method)] = &row;
  };
  for (const auto& group :
       {kGenerateRoutes, kResponseRoutes, kTextRoutes, kStatusRoutes, kAdminRoutes}) {
    for (const Route& row : group) {
      consider(row, row.path);
      for (const std::string_view alias : row.aliases) consider(row, alias);
    }
  }
  return best;
}

ApiError NoSuchPath(const std::string& path) {
  const std::string shown = Printable(path);
  if (const std::string_view part = AbsentPart(path); !part.empty()) {
    return {404,
            fmt::format("not supported: {} ({}); GET /openapi.json lists the paths", part, shown),
            {},
            "not_supported"};
  }
  if (MatchPath("/v1" + path).any() != nullptr) {
    return {404, fmt::format("no such path: {}; use /v1{}", shown, shown)};
  }
  return {404, fmt::format("no such path: {}", shown)};
}

HttpResponse WrongMethod(const HttpRequest& request, const PathMatch& match) {
  std::string allowed;
  for (size_t i = 0; i < kMethodNames.size(); ++i) {
    if (match.by_method[i] == nullptr) continue;
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", kMethodNames[i]);
  }
  HttpResponse response = ErrorResponse({405, fmt::format("{} accepts {}, not {}", request.path,
                                                          allowed, Printable(request.method))});
  response.allow = std::move(allowed);
  return response;
}

bool AnswersInAnthropicsForm(const Route* route) {
  return route != nullptr && route->body && IsAnthropic(route->body->endpoint);
}

// What a page of another origin could cause with a request.
Effect EffectOf(const HttpRequest& request, const PathMatch& match) {
  const Route* any = match.any();
  if (any != nullptr && any->access == Access::kAdmin) return Effect::kAdministers;
  const Route* route = match.Find(request.method);
  const bool safe = request.method == "GET" && (route == nullptr || !route->generates);
  return safe ? Effect::kNone : Effect::kGenerates;
}

}  // namespace braid

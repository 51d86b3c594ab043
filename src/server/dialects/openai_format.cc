// Chat and text completions share envelope, finish and usage; their choices differ.
#include "server/dialects/openai_format.h"

#include <fmt/core.h>

#include <algorithm>

#include "server/dialects/logprob_json.h"
#include "server/dialects/reuse_json.h"
#include "server/dialects/stream_error.h"
#include "server/http/framing.h"
#include "server/metrics.h"

namespace braid {
namespace {

using Kind = AnswerEvent::Kind;

json::array IdArray(const std::vector<TokenId>& ids) { return json::array(ids.begin(), ids.end()); }

// Entry i of the engine's prompt log-probabilities is the distribution after token i; what follows
// the last one is the answer.
std::span<const TokenLogprob> OfPrompt(const ChoiceDelta& delta) {
  std::span<const TokenLogprob> all(delta.prompt_logprobs);
  return all.empty() ? all : all.first(all.size() - 1);
}

}  // namespace

json::object UsageJson(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", InputDetailsJson(usage)},
          {"completion_tokens_details", OutputDetailsJson(usage)}};
}

json::object InputDetailsJson(const Usage& usage) {
  json::object details{{"cached_tokens", usage.cached_tokens}};
  AddTierTokens(usage, details);
  return details;
}

void AddTierTokens(const Usage& usage, json::object& to) {
  if (usage.disk_tokens > 0) to["disk_tokens"] = usage.disk_tokens;
  if (usage.host_tokens > 0) to["host_tokens"] = usage.host_tokens;
}

json::object OutputDetailsJson(const Usage& usage) {
  const DraftCounts& drafts = usage.drafts;
  const int64_t accepted = drafts.accepted_total();
  json::object details{{"reasoning_tokens", usage.reasoning_tokens},
                       {"accepted_prediction_tokens", accepted},
                       {"rejected_prediction_tokens", drafts.drafted_total() - accepted}};
  if (drafts.drafted_total() == 0) return details;
  json::array places;
  for (size_t i = 0; i < kDraftPlaces && drafts.drafted[i] > 0; ++i) {
    places.push_back(
        json::object{{"drafted", drafts.drafted[i]}, {"accepted", drafts.accepted[i]}});
  }
  details["drafts_by_place"] = std::move(places);
  return details;
}

std::string CallId(const Generation& generation, int32_t choice, int32_t call,
                   const std::string& models_own) {
  if (!models_own.empty()) return models_own;
  const std::string& id = generation.id();
  return fmt::format("call_{}{:02x}{:02x}", id.substr(id.find_first_of("-_") + 1), choice, call);
}

json::array OpenAiFormat::ToolCalls(const ChoiceDelta& delta) const {
  json::array calls;
  for (const AnswerEvent& event : delta.events) {
    if (event.kind == Kind::kCallBegin) {
      calls.push_back(
          json::object{{"id", CallId(generation_, delta.index, event.call, event.id)},
                       {"type", "function"},
                       {"function", json::object{{"name", event.text}, {"arguments", ""}}}});
    } else if (event.kind == Kind::kCallArguments) {
      // Calls come one after the other, so the pieces are those of the last one.
      json::value& arguments = calls.back().at("function").at("arguments");
      arguments.get_string() += event.text;
    }
  }
  return calls;
}

json::object OpenAiFormat::Envelope(std::string_view chat_object) const {
  return {{"id", generation_.id()},
          {"object", shape_.endpoint == kChat ? chat_object : "text_completion"},
          {"created", generation_.created()},
          {"model", generation_.service().context.card.name},
          {"system_fingerprint", "braid-" + generation_.service().config.version}};
}

void OpenAiFormat::AddUsage(json::object* answer) const {
  (*answer)["usage"] = UsageJson(generation_.usage());
  if (!shape_.explain_reuse) return;
  json::array prompts;
  for (const PromptReuse& prompt : generation_.reuse()) prompts.push_back(ReuseJson(prompt));
  (*answer)["braid"] = json::object{{"prompts", std::move(prompts)}};
}

void OpenAiFormat::AddEnd(const ChoiceDelta& delta, json::object* choice) const {
  if (!delta.finish) {
    (*choice)["finish_reason"] = nullptr;
    return;
  }
  (*choice)["finish_reason"] = delta.called ? "tool_calls" : FinishName(*delta.finish);
  (*choice)["stop_reason"] = delta.stop_reason;
}

void OpenAiFormat::AddTokenIds(const ChoiceDelta& delta, json::object* choice) const {
  if (!shape_.return_token_ids) return;
  (*choice)["token_ids"] = IdArray(delta.tokens);
  if (delta.first) (*choice)["prompt_token_ids"] = IdArray(generation_.prompt(delta.index));
}

json::object OpenAiFormat::ChatChoice(const ChoiceDelta& delta) const {
  const Tokenizer* tokenizer = generation_.service().context.tokenizer;
  const std::string text = delta.text(), reasoning = delta.reasoning();
  json::object message{{"role", "assistant"}, {"content", text}};
  if (!reasoning.empty()) {
    message["reasoning_content"] = reasoning;
    message["reasoning"] = reasoning;
  }
  if (json::array calls = ToolCalls(delta); !calls.empty()) {
    if (text.empty()) message["content"] = nullptr;
    message["tool_calls"] = std::move(calls);
  }
  json::object choice{{"index", delta.index}, {"message", std::move(message)}};
  choice["logprobs"] = shape_.logprobs >= 0
                           ? json::value(ChatLogprobs(tokenizer, delta.logprobs, shape_.logprobs))
                           : json::value(nullptr);
  AddEnd(delta, &choice);
  if (shape_.prompt_logprobs >= 0) {
    choice["prompt_logprobs"] = PromptLogprobs(tokenizer, OfPrompt(delta), shape_.prompt_logprobs);
  }
  AddTokenIds(delta, &choice);
  return choice;
}

json::object OpenAiFormat::ChatChunkChoice(const ChoiceDelta& delta) const {
  json::object piece;
  if (delta.first) piece["role"] = "assistant";
  const std::string text = delta.text(), reasoning = delta.reasoning();
  if (delta.first || !text.empty()) piece["content"] = text;
  if (!reasoning.empty()) {
    piece["reasoning_content"] = reasoning;
    piece["reasoning"] = reasoning;
  }
  json::object choice{{"index", delta.index}, {"delta", std::move(piece)}};
  choice["logprobs"] = nullptr;
  const Tokenizer* tokenizer = generation_.service().context.tokenizer;
  if (shape_.logprobs >= 0 && !delta.logprobs.empty()) {
    choice["logprobs"] = ChatLogprobs(tokenizer, delta.logprobs, shape_.logprobs);
  }
  if (shape_.prompt_logprobs >= 0 && delta.first) {
    choice["prompt_logprobs"] = PromptLogprobs(tokenizer, OfPrompt(delta), shape_.prompt_logprobs);
  }
  AddTokenIds(delta, &choice);
  return choice;
}

json::object OpenAiFormat::TextChoice(const ChoiceDelta& delta) {
  const Tokenizer* tokenizer = generation_.service().context.tokenizer;
  LegacyLogprobs logprobs(tokenizer, shape_.logprobs);
  std::string text;
  if (echoes(delta)) {
    // The prompt token by token, so that each one's offset is known.
    std::span<const TokenLogprob> scored = OfPrompt(delta);
    const std::vector<TokenId>& prompt = generation_.prompt(delta.index);
    std::optional<Detokenizer> detokenizer;
    if (tokenizer != nullptr) detokenizer.emplace(*tokenizer, false);
    int64_t offset = 0;
    for (size_t i = 0; i < prompt.size(); ++i) {
      if (i == 0) logprobs.AddFirst(prompt[i], 0);
      if (i > 0 && i <= scored.size()) logprobs.Add(scored[i - 1], offset);
      if (!detokenizer) continue;
      std::string piece = detokenizer->Push(prompt[i]);
      offset += CountCharacters(piece);
      text += piece;
    }
    if (detokenizer) text += detokenizer->Flush();
    echoed_characters_[delta.index] = CountCharacters(text);
  }
  const int64_t begin = shape_.echo ? echoed_characters_[delta.index] : 0;
  for (size_t i = 0; i < delta.logprobs.size(); ++i) {
    logprobs.Add(delta.logprobs[i], begin + delta.text_offsets[i]);
  }
  json::object choice{{"index", delta.index}, {"text", text + delta.text()}};
  choice["logprobs"] = shape_.logprobs >= 0 ? json::value(logprobs.Take()) : json::value(nullptr);
  AddEnd(delta, &choice);
  if (shape_.prompt_logprobs >= 0 && delta.first) {
    choice["prompt_logprobs"] = PromptLogprobs(tokenizer, OfPrompt(delta), shape_.prompt_logprobs);
  }
  AddTokenIds(delta, &choice);
  return choice;
}

std::string OpenAiFormat::Event(json::object choice) const {
  json::object chunk = Envelope("chat.completion.chunk");
  chunk["choices"] = json::array{std::move(choice)};
  if (shape_.continuous_usage) {
    chunk["usage"] = UsageJson(generation_.usage());
  } else if (shape_.include_usage) {
    chunk["usage"] = nullptr;
  }
  return SseEvent(json::serialize(chunk));
}

std::string OpenAiFormat::Events(const ChoiceDelta& delta) {
  const bool says = std::any_of(delta.events.begin(), delta.events.end(), [](const auto& event) {
    return event.kind == Kind::kText || event.kind == Kind::kReasoning;
  });
  bool visible = delta.first || says || (shape_.logprobs >= 0 && !delta.logprobs.empty()) ||
                 (shape_.return_token_ids && !delta.tokens.empty());
  if (shape_.endpoint != kChat) {
    return visible || delta.finish ? Event(TextChoice(delta)) : std::string();
  }
  // A chat's end stands in a chunk of its own, with an empty delta.
  std::string events;
  if (visible) {
    json::object choice = ChatChunkChoice(delta);
    choice["finish_reason"] = nullptr;
    events += Event(std::move(choice));
  }
  for (const AnswerEvent& event : delta.events) {
    if (event.kind != Kind::kCallBegin && event.kind != Kind::kCallArguments) continue;
    json::object call{{"index", event.call}};
    if (event.kind == Kind::kCallBegin) {
      call["id"] = CallId(generation_, delta.index, event.call, event.id);
      call["type"] = "function";
      call["function"] = json::object{{"name", event.text}, {"arguments", ""}};
    } else {
      call["function"] = json::object{{"arguments", event.text}};
    }
    events += Event({{"index", delta.index},
                     {"delta", json::object{{"tool_calls", json::array{std::move(call)}}}},
                     {"logprobs", nullptr},
                     {"finish_reason", nullptr}});
  }
  if (delta.finish) {
    json::object choice{{"index", delta.index}, {"delta", json::object{}}, {"logprobs", nullptr}};
    AddEnd(delta, &choice);
    events += Event(std::move(choice));
  }
  return events;
}

std::string OpenAiFormat::End() {
  std::string events;
  if (shape_.include_usage || shape_.explain_reuse) {
    json::object chunk = Envelope("chat.completion.chunk");
    chunk["choices"] = json::array{};
    AddUsage(&chunk);
    events += SseEvent(json::serialize(chunk));
  }
  if (generation_.error()) return events + StreamError(shape_.endpoint, *generation_.error());
  return events + std::string(kSseDone);
}

json::object OpenAiFormat::Whole(const std::vector<ChoiceDelta>& choices) {
  json::object whole = Envelope("chat.completion");
  json::array array;
  for (const ChoiceDelta& choice : choices) {
    array.push_back(shape_.endpoint == kChat ? ChatChoice(choice) : TextChoice(choice));
  }
  whole["choices"] = std::move(array);
  AddUsage(&whole);
  return whole;
}

}  // namespace braid

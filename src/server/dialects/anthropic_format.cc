// Input tokens from the prefix cache are counted separately, as the API does.
#include "server/dialects/anthropic_format.h"

#include "base/text/written_json.h"
#include "server/dialects/stream_error.h"
#include "server/http/framing.h"

namespace braid {
namespace {

using Kind = AnswerBlock::Kind;

std::string SseOf(const json::object& data) {
  return SseNamedEvent(std::string_view(data.at("type").as_string()), json::serialize(data));
}

json::value StopReason(const ChoiceDelta& delta) {
  if (!delta.finish) return nullptr;
  if (delta.called) return "tool_use";
  if (*delta.finish == FinishReason::kLength) return "max_tokens";
  return delta.stop_reason.is_string() ? "stop_sequence" : "end_turn";
}

// The arguments of a truncated call do not parse; it is shown with an empty input.
json::value InputOf(const AnswerBlock& block) {
  Result<json::value> input = ParseWrittenJson(block.text, "arguments");
  return input && input->is_object() ? *std::move(input) : json::value(json::object{});
}

}  // namespace

json::object MessagesFormat::Usage() const {
  const braid::Usage usage = generation_.usage();
  json::object tokens{{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
                      {"cache_creation_input_tokens", 0},
                      {"cache_read_input_tokens", usage.cached_tokens},
                      {"output_tokens", usage.completion_tokens}};
  AddTierTokens(usage, tokens);
  return tokens;
}

json::object MessagesFormat::Envelope() const {
  return {{"id", generation_.id()},   {"type", "message"},
          {"role", "assistant"},      {"model", generation_.service().context.card.name},
          {"content", json::array{}}, {"stop_reason", nullptr},
          {"stop_sequence", nullptr}, {"usage", Usage()}};
}

AnswerBlocks::Sink MessagesFormat::Sink(std::string* events) const {
  AnswerBlocks::Sink sink;
  sink.open = [this, events](const AnswerBlock& block, size_t index) {
    json::object content{{"type", "text"}, {"text", ""}};
    if (block.kind == Kind::kThought) {
      content = {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    } else if (block.kind == Kind::kCall) {
      content = {{"type", "tool_use"},
                 {"id", CallId(generation_, 0, block.call, block.id)},
                 {"name", block.name},
                 {"input", json::object{}}};
    }
    *events += SseOf(
        {{"type", "content_block_start"}, {"index", index}, {"content_block", std::move(content)}});
  };
  sink.piece = [events](const AnswerBlock& block, size_t index, const std::string& piece) {
    json::object delta{{"type", "text_delta"}, {"text", piece}};
    if (block.kind == Kind::kThought) delta = {{"type", "thinking_delta"}, {"thinking", piece}};
    if (block.kind == Kind::kCall) delta = {{"type", "input_json_delta"}, {"partial_json", piece}};
    *events +=
        SseOf({{"type", "content_block_delta"}, {"index", index}, {"delta", std::move(delta)}});
  };
  sink.close = [events](const AnswerBlock&, size_t index) {
    *events += SseOf({{"type", "content_block_stop"}, {"index", index}});
  };
  return sink;
}

std::string MessagesFormat::Events(const ChoiceDelta& delta) {
  std::string events;
  if (delta.first) {
    events += SseOf({{"type", "message_start"}, {"message", Envelope()}});
    events += SseOf({{"type", "ping"}});
  }
  blocks_.Add(delta.events, Sink(&events));
  if (delta.finish) {
    blocks_.End(Sink(&events));
    stop_reason_ = StopReason(delta);
    if (delta.stop_reason.is_string()) stop_sequence_ = delta.stop_reason;
  }
  return events;
}

std::string MessagesFormat::End() {
  if (generation_.error()) return StreamError(kMessages, *generation_.error());
  std::string events = SseOf(
      {{"type", "message_delta"},
       {"delta", json::object{{"stop_reason", stop_reason_}, {"stop_sequence", stop_sequence_}}},
       {"usage", Usage()}});
  return events + SseOf({{"type", "message_stop"}});
}

json::object MessagesFormat::Whole(const std::vector<ChoiceDelta>& choices) {
  const ChoiceDelta& choice = choices.front();
  json::object whole = Envelope();
  blocks_.Add(choice.events, {});
  json::array& content = whole["content"].get_array();
  for (const AnswerBlock& block : blocks_.blocks()) {
    if (block.kind == Kind::kText) {
      content.push_back(json::object{{"type", "text"}, {"text", block.text}});
    } else if (block.kind == Kind::kThought) {
      content.push_back(
          json::object{{"type", "thinking"}, {"thinking", block.text}, {"signature", ""}});
    } else {
      content.push_back(json::object{{"type", "tool_use"},
                                     {"id", CallId(generation_, 0, block.call, block.id)},
                                     {"name", block.name},
                                     {"input", InputOf(block)}});
    }
  }
  whole["stop_reason"] = StopReason(choice);
  if (choice.stop_reason.is_string()) whole["stop_sequence"] = choice.stop_reason;
  return whole;
}

}  // namespace braid

// A block is an output item: a message with one part, a thought, a function call.
#include "server/dialects/responses_format.h"

#include <fmt/core.h>

#include <utility>

#include "server/http/framing.h"

namespace braid {
namespace {

using BlockKind = AnswerBlock::Kind;

json::object Part(const AnswerBlock& block, bool done) {
  const std::string text = done ? block.text : std::string();
  if (block.kind == BlockKind::kThought) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", json::array{}},
          {"logprobs", json::array{}}};
}

// The name of a block's stream in event types.
std::string_view Stream(const AnswerBlock& block) {
  if (block.kind == BlockKind::kCall) return "function_call_arguments";
  return block.kind == BlockKind::kThought ? "reasoning_text" : "output_text";
}

}  // namespace

ResponsesFormat::ResponsesFormat(const Generation& generation, json::object echo,
                                 std::optional<StoreOrder> order)
    : generation_(generation), echo_(std::move(echo)) {
  if (!order) return;
  json::object envelope = Envelope("in_progress");
  envelope.erase("output");
  const bool kept = order->store.Begin(order->key, generation_.id(), json::serialize(envelope),
                                       NameItems(std::move(order->input), generation_.id()));
  if (kept) {
    store_ = &order->store;
    key_ = std::move(order->key);
  } else {
    echo_["store"] = false;
  }
}

ResponsesFormat::~ResponsesFormat() {
  if (store_ == nullptr) return;
  blocks_.End({}, false);
  Store(Ended());
}

bool ResponsesFormat::Store(json::object response) {
  if (store_ == nullptr) return false;
  std::vector<StoredItem> output;
  for (const json::value& item : response["output"].get_array()) {
    output.push_back({std::string(item.at("id").as_string()), json::serialize(item)});
  }
  response.erase("output");
  ResponseStore& store = *std::exchange(store_, nullptr);
  return store.Finish(key_, generation_.id(), json::serialize(response), output);
}

json::object ResponsesFormat::Envelope(std::string_view status) const {
  json::object response{{"id", generation_.id()},
                        {"object", "response"},
                        {"created_at", generation_.created()},
                        {"status", status},
                        {"error", nullptr},
                        {"incomplete_details", nullptr},
                        {"model", generation_.service().context.card.name},
                        {"output", json::array{}},
                        {"usage", nullptr}};
  for (const auto& [key, value] : echo_) response[key] = value;
  return response;
}

std::string ResponsesFormat::ItemId(const AnswerBlock& block, size_t index) const {
  const std::string_view prefix = block.kind == BlockKind::kCall      ? "fc"
                                  : block.kind == BlockKind::kThought ? "rs"
                                                                 : "msg";
  return fmt::format("{}_{}{:02x}", prefix, IdSuffix(generation_.id()), index);
}

json::object ResponsesFormat::Item(const AnswerBlock& block, size_t index, bool done) const {
  const std::string_view status = !done ? "in_progress" : block.whole ? "completed" : "incomplete";
  json::object item{{"id", ItemId(block, index)}, {"status", status}};
  json::array parts;
  if (done) parts.push_back(Part(block, true));
  if (block.kind == BlockKind::kCall) {
    item["type"] = "function_call";
    item["call_id"] = CallId(generation_, 0, block.call, block.id);
    item["name"] = block.name;
    item["arguments"] = done ? block.text : "";
  } else if (block.kind == BlockKind::kThought) {
    item["type"] = "reasoning";
    item["summary"] = json::array{};
    item["content"] = std::move(parts);
  } else {
    item["type"] = "message";
    item["role"] = "assistant";
    item["content"] = std::move(parts);
  }
  return item;
}

json::object ResponsesFormat::Ended() const {
  const std::optional<ApiError>& error = generation_.error();
  const bool cancelled = error && error->code == kAbortedCode;
  json::object response = Envelope(cancelled        ? "cancelled"
                                   : error          ? "failed"
                                   : cut_ || !done_ ? "incomplete"
                                                    : "completed");
  if (error) {
    response["error"] = json::object{{"code", "server_error"}, {"message", error->message}};
  } else if (cut_ || !done_) {
    response["incomplete_details"] =
        json::object{{"reason", done_ ? "max_output_tokens" : "client_disconnected"}};
  }
  json::array& output = response["output"].get_array();
  for (size_t i = 0; i < blocks_.blocks().size(); ++i) {
    output.push_back(Item(blocks_.blocks()[i], i, true));
  }
  const Usage usage = generation_.usage();
  response["usage"] = json::object{{"input_tokens", usage.prompt_tokens},
                                   {"input_tokens_details", InputDetailsJson(usage)},
                                   {"output_tokens", usage.completion_tokens},
                                   {"output_tokens_details", OutputDetailsJson(usage)},
                                   {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
  return response;
}

json::object ResponsesFormat::Finished() {
  json::object response = Ended();
  if (!Store(response)) response["store"] = false;
  return response;
}

std::string ResponsesFormat::Event(std::string_view type, json::object data) {
  data["type"] = type;
  data["sequence_number"] = sequence_++;
  return SseNamedEvent(type, json::serialize(data));
}

std::string ResponsesFormat::PartEvent(std::string_view type, const AnswerBlock& block,
                                       size_t index, json::object more) {
  more["item_id"] = ItemId(block, index);
  more["output_index"] = index;
  if (block.kind != BlockKind::kCall) more["content_index"] = 0;
  return Event(type, std::move(more));
}

void ResponsesFormat::Open(const AnswerBlock& block, size_t index, std::string* events) {
  *events += Event("response.output_item.added",
                   {{"output_index", index}, {"item", Item(block, index, false)}});
  if (block.kind == BlockKind::kCall) return;
  *events += PartEvent("response.content_part.added", block, index, {{"part", Part(block, false)}});
}

void ResponsesFormat::Close(const AnswerBlock& block, size_t index, std::string* events) {
  const std::string done = fmt::format("response.{}.done", Stream(block));
  if (block.kind == BlockKind::kCall) {
    *events += PartEvent(done, block, index, {{"arguments", block.text}, {"name", block.name}});
  } else {
    json::object text{{"text", block.text}};
    if (block.kind == BlockKind::kText) text["logprobs"] = json::array{};
    *events += PartEvent(done, block, index, std::move(text));
    *events += PartEvent("response.content_part.done", block, index, {{"part", Part(block, true)}});
  }
  *events += Event("response.output_item.done",
                   {{"output_index", index}, {"item", Item(block, index, true)}});
}

AnswerBlocks::Sink ResponsesFormat::Sink(std::string* events) {
  return {.open = [this, events](const AnswerBlock& block,
                                 size_t index) { Open(block, index, events); },
          .piece =
              [this, events](const AnswerBlock& block, size_t index, const std::string& piece) {
                json::object delta{{"delta", piece}};
                if (block.kind == BlockKind::kText) delta["logprobs"] = json::array{};
                *events += PartEvent(fmt::format("response.{}.delta", Stream(block)), block, index,
                                     std::move(delta));
              },
          .close = [this, events](const AnswerBlock& block,
                                  size_t index) { Close(block, index, events); }};
}

std::string ResponsesFormat::Events(const ChoiceDelta& delta) {
  std::string events;
  if (delta.first) {
    events += Event("response.created", {{"response", Envelope("in_progress")}});
    events += Event("response.in_progress", {{"response", Envelope("in_progress")}});
  }
  Add(delta, Sink(&events));
  return events;
}

void ResponsesFormat::Add(const ChoiceDelta& delta, const AnswerBlocks::Sink& sink) {
  blocks_.Add(delta.events, sink);
  if (!delta.finish) return;
  blocks_.End(sink, *delta.finish == FinishReason::kStop);
  done_ = true;
  cut_ = *delta.finish == FinishReason::kLength;
}

std::string ResponsesFormat::End() {
  const std::string_view type = generation_.error() ? "response.failed"
                                : cut_              ? "response.incomplete"
                                                    : "response.completed";
  return Event(type, {{"response", Finished()}});
}

json::object ResponsesFormat::Whole(const std::vector<ChoiceDelta>&) { return Finished(); }

}  // namespace braid

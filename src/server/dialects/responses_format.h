// Answers of OpenAI's Responses API, whole and streamed. A response with `store` is in the store
// from its beginning, and complete there before its client reads the end.
#pragma once

#include <string>
#include <vector>

#include "server/dialects/answer_blocks.h"
#include "server/dialects/answer_format.h"

namespace braid {

class ResponsesFormat final : public AnswerFormat {
 public:
  // `generation` must outlive the object. `echo`: what the answer repeats of the request.
  ResponsesFormat(const Generation& generation, json::object echo, std::optional<StoreOrder> order);
  // Stores the partial response if the client disconnected.
  ~ResponsesFormat() override;

  std::string Events(const ChoiceDelta& delta) override;
  std::string End() override;
  void Note(const ChoiceDelta& delta) override { Add(delta, {}); }
  json::object Whole(const std::vector<ChoiceDelta>& choices) override;

 private:
  void Add(const ChoiceDelta& delta, const AnswerBlocks::Sink& sink);
  json::object Envelope(std::string_view status) const;
  json::object Ended() const;
  // The same; the store has it too.
  json::object Finished();
  // False: the store does not keep it.
  bool Store(json::object response);
  std::string ItemId(const AnswerBlock& block, size_t index) const;
  json::object Item(const AnswerBlock& block, size_t index, bool done) const;
  std::string Event(std::string_view type, json::object data);
  std::string PartEvent(std::string_view type, const AnswerBlock& block, size_t index,
                        json::object more);
  void Open(const AnswerBlock& block, size_t index, std::string* events);
  void Close(const AnswerBlock& block, size_t index, std::string* events);
  AnswerBlocks::Sink Sink(std::string* events);

  const Generation& generation_;
  json::object echo_;
  ResponseStore* store_ = nullptr;  // null: it is not stored, or is already
  std::string key_;
  AnswerBlocks blocks_;
  bool done_ = false;  // has its last delta
  bool cut_ = false;   // ended for its length
  int64_t sequence_ = 0;
};

}  // namespace braid

// Answers of OpenAI's Responses API, whole and as its stream of events. Nothing is stored: clients
// send the whole conversation each time.
#pragma once

#include <string>
#include <vector>

#include "server/answer_blocks.h"
#include "server/answer_format.h"

namespace braid {

class ResponsesFormat final : public AnswerFormat {
 public:
  // `generation` must outlive the object. `echo`: what the answer repeats of the request.
  ResponsesFormat(const Generation& generation, json::object echo)
      : generation_(generation), echo_(std::move(echo)) {}

  std::string Events(const ChoiceDelta& delta) override;
  std::string End() override;
  json::object Whole(const std::vector<ChoiceDelta>& choices) override;

 private:
  json::object Envelope(std::string_view status) const;
  json::object Ended() const;
  std::string ItemId(const AnswerBlock& block, size_t index) const;
  json::object Item(const AnswerBlock& block, size_t index, bool done) const;
  std::string Event(std::string_view type, json::object data);
  std::string PartEvent(std::string_view type, const AnswerBlock& block, size_t index,
                        json::object more);
  void Open(const AnswerBlock& block, size_t index, std::string* events);
  void Close(const AnswerBlock& block, size_t index, std::string* events);
  AnswerBlocks::Sink Sink(std::string* events);

  const Generation& generation_;
  const json::object echo_;
  AnswerBlocks blocks_;
  bool cut_ = false;  // ended for its length
  int64_t sequence_ = 0;
};

}  // namespace braid

// Answers of Anthropic's Messages API, whole and as its stream of events.
#pragma once

#include <string>
#include <vector>

#include "server/dialects/answer_blocks.h"
#include "server/dialects/answer_format.h"

namespace braid {

class MessagesFormat final : public AnswerFormat {
 public:
  // `generation` must outlive the object.
  explicit MessagesFormat(const Generation& generation) : generation_(generation) {}

  std::string Events(const ChoiceDelta& delta) override;
  std::string End() override;
  json::object Whole(const std::vector<ChoiceDelta>& choices) override;

 private:
  json::object Envelope() const;
  json::object Usage() const;
  AnswerBlocks::Sink Sink(std::string* events) const;

  const Generation& generation_;
  AnswerBlocks blocks_;
  json::value stop_reason_, stop_sequence_;
};

}  // namespace braid

// The JSON of chat completions and text completions, whole and in chunks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/dialects/answer_format.h"

namespace braid {

class OpenAiFormat final : public AnswerFormat {
 public:
  // `generation` must outlive the object.
  OpenAiFormat(const Generation& generation, AnswerShape shape)
      : generation_(generation), shape_(std::move(shape)) {}

  std::string Events(const ChoiceDelta& delta) override;
  std::string End() override;
  json::object Whole(const std::vector<ChoiceDelta>& choices) override;

 private:
  json::object Envelope(std::string_view chat_object) const;
  json::array ToolCalls(const ChoiceDelta& delta) const;
  json::object ChatChoice(const ChoiceDelta& delta) const;
  json::object ChatChunkChoice(const ChoiceDelta& delta) const;
  json::object TextChoice(const ChoiceDelta& delta);
  void AddUsage(json::object* answer) const;
  void AddEnd(const ChoiceDelta& delta, json::object* choice) const;
  void AddTokenIds(const ChoiceDelta& delta, json::object* choice) const;
  std::string Event(json::object choice) const;
  bool echoes(const ChoiceDelta& delta) const { return shape_.echo && delta.first; }

  const Generation& generation_;
  AnswerShape shape_;
  std::map<int32_t, int64_t> echoed_characters_;  // of prompts that were echoed, by choice
};

}  // namespace braid

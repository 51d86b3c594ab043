// An Answer made of a Generation and a format: streamed as SSE or collected into one response. It
// holds memory for many log-probabilities: for their JSON while it is made, then for its text until
// that is sent (of a whole answer, the connection does).
#pragma once

#include <memory>
#include <vector>

#include "server/dialects/answer_format.h"
#include "server/http/types.h"

namespace braid {

class ApiAnswer final : public Answer {
 public:
  ApiAnswer(std::unique_ptr<Generation> generation, AnswerShape shape);

  bool Streams() const override { return streams_; }
  AnswerStep Take() override;
  void End(EndReason reason) override { generation_->End(reason); }
  std::optional<EndReason> Overdue(int64_t now_us) const override {
    return generation_->Overdue(now_us);
  }
  size_t PendingBytes() const override { return generation_->PendingBytes(); }

 private:
  AnswerStep TakeEvents(std::vector<ChoiceDelta> deltas);
  AnswerStep TakeWhole(std::vector<ChoiceDelta> deltas);

  std::unique_ptr<Generation> generation_;
  const Endpoint endpoint_;
  const bool streams_;
  std::unique_ptr<AnswerFormat> format_;
  std::vector<ChoiceDelta> merged_;  // by index; when not streaming
  int64_t unsent_bytes_ = 0;         // held for the events that the last Take gave
};

}  // namespace braid

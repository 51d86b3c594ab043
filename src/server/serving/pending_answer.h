// An answer that waits for its grammar to be compiled, then becomes an error or a generation. Its
// request is listed meanwhile, and whoever ends it there ends it here. Network thread, as every
// Answer.
#pragma once

#include <functional>
#include <optional>

#include "server/serving/generation.h"
#include "text/grammar/compile_queue.h"

namespace braid {

class PendingAnswer final : public Answer {
 public:
  // Makes the generation, or the answer that says why there is none.
  using Begin = std::function<ReplyContent(GenerationPlan, const ApiStatus&)>;

  // The generation must begin within `seconds_max` of received_us. The plan is listed.
  struct Deadline {
    int64_t received_us = 0;
    int32_t seconds_max = 0;
  };
  PendingAnswer(CompileQueue::Ticket ticket, GenerationPlan plan, Deadline deadline, Begin begin)
      : ticket_(std::move(ticket)),
        plan_(std::move(plan)),
        deadline_(deadline),
        begin_(std::move(begin)) {}

  bool Pending() const override { return true; }
  std::optional<ReplyContent> Settle() override {
    if (plan_.shown->end_asked) ended_ = EndReason::kAborted;
    if (ended_) return begin_(std::move(plan_), EndError(*ended_));
    const std::optional<GrammarLibrary::Checked> outcome = ticket_.Outcome();
    if (!outcome) return std::nullopt;
    ApiStatus status;
    if (!outcome->status) status = GrammarRefusal(plan_.grammar.path, outcome->status.error());
    return begin_(std::move(plan_), status);
  }

  bool Streams() const override { return false; }
  AnswerStep Take() override { return {}; }
  void End(EndReason reason) override { ended_ = reason; }
  std::optional<EndReason> Overdue(int64_t now_us) const override {
    const bool late =
        now_us - deadline_.received_us > int64_t{deadline_.seconds_max} * 1'000'000 && !ended_;
    return late ? std::optional(EndReason::kQueuedTooLong) : std::nullopt;
  }
  size_t PendingBytes() const override { return 0; }

 private:
  CompileQueue::Ticket ticket_;
  GenerationPlan plan_;
  const Deadline deadline_;
  const Begin begin_;
  std::optional<EndReason> ended_;
};

}  // namespace braid

// Between the driver and its executor: sees every plan and event on the engine thread and tells the
// partners what concerns them, which requests' pages are to come, which blocks of a prompt are
// final, and which requests were aborted. Changes nothing of either.
#pragma once

#include <memory>
#include <vector>

#include "base/ids.h"
#include "handoff/partners.h"
#include "scheduler/executor.h"
#include "scheduler/scheduler.h"

namespace braid::handoff {

class HandoffExecutor final : public Executor {
 public:
  // All outlive it.
  HandoffExecutor(Executor& inner, Partners& partners, const SchedulerConfig& config);
  ~HandoffExecutor() override;

  Result<std::vector<Event>> Exchange(std::vector<Event> local) override;
  bool follows() const override { return inner_.follows(); }
  void Launch(Plan plan, EventSink& events) override;

 private:
  // A slot whose prompt is computed for a partner.
  struct Mirror {
    RequestId request;
    int32_t next = -1;                         // block to leave next; -1: none
    int32_t prompt = 0;                        // tokens
    std::vector<std::vector<BlockId>> blocks;  // [group][index]
  };
  struct Computed {
    size_t row;
    SlotId slot;
    int32_t end;
  };
  class Tap;
  void Follow(const Plan& plan);
  void SendFinal(const StepDone& done);

  Executor& inner_;
  Partners& partners_;
  const CacheGeometry& geometry_;
  IdVector<SlotId, Mirror> mirrors_;
  IdVector<SlotId, const Request*> requests_;  // that were admitted last
  std::vector<Computed> computed_;             // by the step in flight
  const std::unique_ptr<Tap> tap_;
};

}  // namespace braid::handoff

// One controller on several ranks. Rank 0 sends everything that its scheduler gets, and the hash of
// every plan, as the records of an event log; the others apply the same events to schedulers of
// their own, compare, and carry out the same plans (docs/decisions/023-ranks-follow-the-log.md).
//
// The communicator is that of all ranks, which the executors' steps use too, in turn. While nothing
// happens rank 0 sends an empty message a few times a second, so that a lost rank is noticed. With
// every message come the others' reports: ends of their part of a move, which rank 0 puts together,
// and of grammars' compilations.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "scheduler/event_log.h"
#include "scheduler/executor.h"

namespace braid {

class RankLeader final : public RunListener {
 public:
  // Sends the start. `on_lost` is called once, on the thread that finds out, when the group ends:
  // with what status() says from then on.
  // `reports` gets the others' (null: they have none) and outlives it.
  RankLeader(Communicator& all, const LogStart& start, std::function<void(const Error&)> on_lost,
             EventSink* reports = nullptr);
  ~RankLeader() override;  // tells the others that the run is over

  void Add(const Event& event) override;
  void Add(const Plan& plan) override;
  void Idle() override { Send(); }
  // Why the group has ended; ok while it has not.
  const Status& status() const { return status_; }

 private:
  void Send();
  Status Exchange();

  Communicator& all_;
  const std::function<void(const Error&)> on_lost_;
  EventSink* const reports_;
  std::vector<uint64_t> sizes_;      // of what each rank sends
  std::vector<std::string> others_;  // reports of each
  std::string pending_;
  std::string last_plan_;
  Status status_;
};

// Rank 0's executor: the run ends with the group. Nobody waits for moves of pages then, since ranks
// that are lost never end theirs.
class LeadingExecutor final : public Executor {
 public:
  // Both outlive it.
  LeadingExecutor(Executor& inner, const RankLeader& leader) : inner_(inner), leader_(leader) {}
  Result<std::vector<Event>> Exchange(std::vector<Event> local) override {
    RETURN_IF_ERROR(leader_.status());
    return inner_.Exchange(std::move(local));
  }
  void Launch(Plan plan, EventSink& events) override { inner_.Launch(std::move(plan), events); }

 private:
  Executor& inner_;
  const RankLeader& leader_;
};

// Of a rank that follows, in a process of its own.
struct FollowerParts {
  // Takes what it has to say to rank 0: PagesMoved, GrammarReady; empty: never anything.
  std::function<std::vector<Event>()> reports = {};
  // Sees each event before the scheduler gets it; empty: nobody does.
  std::function<void(const Event&)> watch = {};
  std::function<void(RequestId)> ended = {};  // hears of each request's end; empty: nobody does
};

// What every other rank does: returns at the end of the run. kInvalid when this rank was started
// otherwise than rank 0, kInternal when it plans or computes otherwise, kUnavailable when a rank is
// lost.
Status FollowRun(Communicator& all, const LogStart& own, Executor& executor,
                 const FollowerParts& parts = {});

}  // namespace braid

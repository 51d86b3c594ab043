// What ranks that are processes tell rank 0 between steps: ends of moves of their tiers' pages, and
// which requests' grammars they have compiled. A rank that samples compiles a grammar as the
// request comes and keeps it until the request ends; rank 0 plans the request only after that
// (SchedulerConfig::grammar_ranks), so no step waits for a compilation.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "engine/partners/partner_grammars.h"
#include "parallel/mesh.h"
#include "runtime/lock_step.h"
#include "scheduler/inbox.h"
#include "text/grammar/grammar_library.h"
#include "tiers/rank_tiers.h"

namespace braid {

// How often rank 0 asks the other processes for reports that it waits for, while it has nothing
// else to say.
inline constexpr int64_t kReportsUs = 1000;

// On rank 0: hands on what the others report. What they report before Serve, as parts that a tier
// lost while the model was loaded, waits for it. The thread that assembles the engine, then the
// engine thread.
class RankReports final : public EventSink {
 public:
  // Before the first request. A tier (null: there is none) puts ends of moves together, for the
  // driver. Both outlive the last Post.
  void Serve(RankTiers* tier, EventSink& driver);
  void Post(Event event) override;

 private:
  RankTiers* tier_ = nullptr;
  EventSink* driver_ = nullptr;  // null until Serve
  std::vector<Event> early_;
};

// Of a rank that follows. The thread that runs its steps.
class FollowerReports {
 public:
  // `tier` and `library` outlive it; null: there is none.
  FollowerReports(const Mesh& mesh, int32_t rank, RankTiers* tier, GrammarLibrary* library);
  // They call this object, which must outlive them.
  FollowerParts parts();

 private:
  void Watch(const Event& event);
  void Compile(const Request& request);
  std::vector<Event> Take();
  void Forget(RequestId request);
  void Say(RequestId request, const Status& compiled);

  const int32_t rank_;
  RankTiers* const tier_;
  Inbox inbox_;
  std::unique_ptr<PartnerGrammars> grammars_;  // null: this rank samples nothing
  std::map<RequestId, std::unique_ptr<handoff::GrammarGate::Ticket>> tickets_;
  std::set<RequestId> compiling_;  // those of whose grammar nothing was said yet
};

}  // namespace braid

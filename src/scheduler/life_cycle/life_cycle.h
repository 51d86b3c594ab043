// The life of a request, from Submit to its last output: it owns the sequences, moves them from
// phase to phase, and takes what their rows and moves bring. Engine thread; no clock, no
// randomness, nothing iterated in an order that memory addresses decide.
//
// A sequence keeps slot and blocks until every row and move that uses them is over, whatever
// else has ended it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/admission/admission_control.h"
#include "scheduler/config.h"
#include "scheduler/dp_rank.h"
#include "scheduler/event.h"
#include "scheduler/life_cycle/sequence.h"
#include "scheduler/moves/page_moves.h"
#include "scheduler/output.h"

namespace braid {

// A planned row, as long as its step is in flight.
struct RowInFlight {
  Sequence* sequence;
  int32_t start;
  int32_t end;  // of the known tokens; drafts follow
  int32_t drafts;
  bool sample;
  bool prompt_logprobs;
};

class LifeCycle {
 public:
  // All four outlive it.
  LifeCycle(const SchedulerConfig& config, DpRanks& ranks, AdmissionControl& admission,
            PageMoves& moves)
      : config_(config), ranks_(ranks), admission_(admission), moves_(moves) {}

  // A request comes to wait, or is refused: then it has one output, an error.
  void Submit(const Request& request);
  // Ends a request; ids that are unknown or have ended are ignored.
  void Abort(RequestId id, FinishReason reason);
  void AbortAll();
  // Ends those that have blocks, which no row uses.
  void FailRunning(const std::string& error);
  // A row has come back.
  void CompleteRow(const RowInFlight& planned, const RowResult& result);
  void CompleteMove(const PagesMoved& event);
  // A rank can sample by the grammar of a request, or cannot: then that ends.
  void TakeGrammar(const GrammarReady& event);

  // A running sequence loses its blocks, at once or when its rows in flight have come back, and
  // then waits again.
  void Preempt(Sequence& s);
  // The plan being made moves pages of the sequence; CompleteMove of the same id ends it.
  MoveId BeginMove(Sequence& s, std::vector<KnownPart> parts);
  // The plan being made tells the executor that the sequence holds its slot.
  void Announce(Sequence& s);
  // Slots whose sequence has left since the last call, and the executor has not been told.
  std::vector<SlotId> TakeDeparted() { return std::exchange(departed_, {}); }

  // What came out since the last call; valid until the next one.
  std::vector<Output>& TakeOutputs();

  const std::map<RequestId, std::unique_ptr<Sequence>>& sequences() const { return sequences_; }

  struct Counts {
    int64_t preemptions = 0, finished = 0;
    DraftCounts drafts;
    int64_t moves = 0, moves_failed = 0;  // over
  };
  const Counts& counts() const { return counts_; }

 private:
  void Finish(Sequence& s, FinishReason reason);
  void ReleaseBlocks(Sequence& s);
  void LeaveRunning(Sequence& s);
  void Publish(Sequence& s, int32_t start, int32_t end) {
    if (s.reuses && start / kBlockTokens != end / kBlockTokens) PublishBlocks(s, start, end);
  }
  void PublishBlocks(Sequence& s, int32_t start, int32_t end);
  void RetireStates(Sequence& s, int32_t end);
  void TakeTokens(Sequence& s, const RowInFlight& row, const RowResult& result);
  void TakeAccepted(Sequence& s, const RowInFlight& row, const RowResult& result);
  void LearnAcceptance(Sequence& s, const RowResult& result);
  void TakeToken(Sequence& s, TokenId token, const TokenLogprob& logprob);
  void TakePromptLogprobs(Sequence& s, const RowInFlight& row, const RowResult& result);
  void TakePages(Sequence& s, const PagesMoved& event);
  void TakePrefix(Sequence& s, const PagesMoved& event);
  void LoseBlocks(Sequence& s);
  void Changed(Sequence& s);
  void EraseIfGone(Sequence& s);
  Output MakeOutput(Sequence& s);

  const SchedulerConfig& config_;
  DpRanks& ranks_;
  AdmissionControl& admission_;
  PageMoves& moves_;
  std::map<RequestId, std::unique_ptr<Sequence>> sequences_;
  std::vector<SlotId> departed_;
  std::vector<Sequence*> changed_;  // have something for TakeOutputs
  std::vector<Output> refused_;
  std::vector<Output> outputs_;  // of the last TakeOutputs
  // Of all requests: what is expected of a new one. Before the first, a grammar is nearly certain,
  // and a head more often right than a lookup.
  Acceptances acceptance_ = {Acceptance(kWhole * 31 / 32), Acceptance(kWhole / 2),
                             Acceptance(kWhole * 7 / 8)};
  int64_t arrivals_ = 0;
  Counts counts_;
};

}  // namespace braid

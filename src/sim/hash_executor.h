// An Executor that runs the hash LM on fake memory: its blocks hold tokens, positions and hashes
// instead of keys, values and states. Each row computes its prefix once through the block tables of
// every full group and once through the state entries of every state group; all must agree. It
// keeps the mirror of tables that a real executor keeps, and stops the program on a read of a cell
// that nobody wrote, of other tokens, at the wrong position or depth, or of another tenant; on a
// write to what others may read; on a block that is handed over while in use; and on a prefix that
// is reused before the step that wrote it has come back.
//
// Also the fake model behind a real Driver in tests of what stands above it. One thread, the
// driver's.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "base/rng.h"
#include "cache/geometry.h"
#include "scheduler/executor.h"
#include "sim/hash_lm.h"

namespace braid {

struct HashExecutorOptions {
  int32_t dp_ranks = 1;               // each with memory of its own
  int32_t running_max = 0;            // slots of each; 0: all are of one rank
  bool held = false;                  // a step comes back by EndStep; otherwise within Launch
  bool late = false;                  // a held step runs when it comes back, not when launched
  std::function<void()> before_step;  // called before each step runs: to sleep, to block
  std::function<void(const Plan&)> on_launch;
  // Of a rank in a group.
  std::function<Result<std::vector<Event>>(std::vector<Event>)> exchange;
  bool follows = false;
  std::function<bool(RequestId, int32_t length)> row_fails;  // rows that end in an error
  std::function<bool(int64_t order)> step_lost;              // steps all of whose rows do
  // Guesses that a sampled token comes with, at most, and how many of 100 are right.
  int32_t drafts_max = 0;
  int32_t drafts_right = 0;
  uint64_t drafts_seed = 0;
};

class HashExecutor : public Executor {
 public:
  HashExecutor(const CacheGeometry& geometry, int32_t vocabulary, HashExecutorOptions options = {});
  // From the next step on.
  void SetOptions(HashExecutorOptions options) { options_ = std::move(options); }

  Result<std::vector<Event>> Exchange(std::vector<Event> local) override {
    if (options_.exchange) return options_.exchange(std::move(local));
    return local;
  }
  bool follows() const override { return options_.follows; }
  void Launch(Plan plan, EventSink& events) override;
  // The oldest step in flight comes back, of an executor with `held`.
  StepDone EndStep();
  int32_t in_flight() const { return static_cast<int32_t>(steps_.size()); }

  // Moves that plans have started, whose step has landed, and that are not over. There is no
  // network and no other engine: what would arrive is made up from the hash LM, and what would be
  // sent is read and compared. A move that fails leaves rubbish in the blocks it was to fill.
  int32_t fake_moves() const;
  const PageMove& fake_move(int32_t index) const { return moves_[static_cast<size_t>(index)].what; }
  PagesMoved EndFakeMove(int32_t index, bool fails);
  bool Moving(RequestId request) const;
  // The fake tier: what moves to it wrote and nobody dropped. It outlives the executor.
  std::vector<KnownPart> Stored() const;
  void DropStored(const KnownPart& part) { tier_.erase(part); }
  void AdoptTier(HashExecutor& from) { tier_ = std::move(from.tier_); }

  // A block that stands in the tables of two slots is complete: nobody will write to it. Linear in
  // the tables.
  void CheckTables();

  int64_t rows_run() const { return rows_run_; }
  int64_t tokens_run() const { return tokens_run_; }

 private:
  struct FullBlock {
    uint64_t owner = 0;       // tenant and salt of the request that wrote it
    uint64_t space = 0;       // and its data-parallel rank
    int64_t written_by = -1;  // the last step that did, in launch order
    std::array<TokenId, kBlockTokens> token;
    std::array<int32_t, kBlockTokens> position;  // -1: nobody wrote here
  };
  enum class Content : uint8_t { kUnwritten, kState, kRows, kPoison };
  struct StateBlock {
    uint64_t owner = 0;
    uint64_t space = 0;
    int64_t written_by = -1;
    Content content = Content::kUnwritten;
    int32_t depth = 0;  // tokens before the state, or before the first row
    uint64_t state = 0;
    std::vector<TokenId> rows;
  };
  struct Group {
    GroupKind kind;
    int32_t first_block, end_block;  // ids that may be owned
    IdVector<BlockId, FullBlock> full;
    IdVector<BlockId, StateBlock> states;
    IdVector<BlockId, int32_t> pins;  // rows in flight that use the block
    IdVector<BlockId, int32_t> seen;  // scratch of CheckTables: slot + 1
  };
  struct Slot {
    bool live = false;
    size_t dp_rank = 0;
    const Request* request = nullptr;
    std::vector<TokenId> history;              // prompt and output, as far as sampled
    std::vector<std::vector<BlockId>> tables;  // by group
    uint64_t owner = 0;                        // tenant and salt
    uint64_t space = 0;                        // and rank
    bool failed = false;                       // a row of it did; later ones are not run
    int32_t reused = 0;                        // tokens in place when it came
    int32_t reused_full = 0;                   // keys and values in place: more, if a state comes
    int32_t launched = 0;                      // tokens of all rows launched
    int32_t in_place = 0;                      // tokens of all rows run
    int32_t refused = 0;         // rejected drafts of the last row, stored after its tokens
    int32_t refused_end = 0;     // cells up to here may hold what was refused
    int32_t rows_in_flight = 0;  // and its move
    int64_t sampled_by = -1;     // the step that sampled the last token, in launch order
  };
  struct FakeMove {
    PageMove what;
    int64_t order = 0;  // of the step whose plan started it
  };
  // A part in the fake tier: the blocks of its groups.
  struct StoredPart {
    std::vector<FullBlock> full;
    std::vector<StateBlock> states;
  };
  struct StepInFlight {
    int64_t order = 0;
    Plan plan;
    bool ran = false;
    StepDone done;
  };

  static uint64_t SpaceOf(uint64_t owner, size_t dp_rank) { return MixBits(owner + dp_rank + 1); }
  Slot& At(SlotId slot);
  size_t RankOf(SlotId slot) const;
  Group& GroupOf(const Slot& slot, size_t g) { return groups_[slot.dp_rank * kinds_ + g]; }
  void CheckRanks(const Plan& plan) const;
  void TakeAhead(const Plan& plan);
  void Admit(const Plan& plan, const Admission& admission);
  void Update(const TableUpdate& update);
  void CheckReused(const Group& group, const Slot& slot, const TableUpdate& update) const;
  void Poison(Slot& slot, const Row& row);
  void Pin(const Slot& slot, const Row& row, int32_t change);
  void LaunchRow(const Plan& plan, const Row& row);
  void ForgetStates(Slot& slot, int32_t end);
  void LaunchMove(const PageMove& move);
  void RunStep(StepInFlight& step);
  static Row RowOf(const PageMove& move);
  uint64_t AdvanceGroups(int64_t order, Slot& slot, const Row& row);
  void CheckSent(Slot& slot, int32_t end);
  void PinParts(const PageMove& move, int32_t change);
  PagesMoved EndTierMove(const FakeMove& move, bool fails);
  void SpoilParts(const PageMove& move);
  void Store(const PageMove& move);
  bool Restore(const FakeMove& move);
  int32_t Verify(const Slot& slot, const Row& row, RowResult& result) const;
  void Guess(const Slot& slot, const Row& row, uint64_t prefix, RowResult& result) const;
  RowResult RunRow(const StepInFlight& step, const Row& row);
  void ReadTokens(const StepInFlight& step, const Row& row, const Slot& slot,
                  std::vector<TokenId>& tokens) const;
  uint64_t ReadState(Group& group, const Slot& slot, size_t g, int32_t at,
                     std::vector<TokenId>& rows);
  uint64_t ReadFull(Group& group, const Slot& slot, size_t g, int32_t end, int32_t from);
  uint64_t AdvanceState(int64_t order, Group& group, Slot& slot, size_t g, const Row& row);
  StateBlock& StateAt(Group& group, const Slot& slot, size_t g, int32_t index);
  uint64_t AdvanceFull(int64_t order, Group& group, const Slot& slot, size_t g, const Row& row);

  const HashLm lm_;
  HashExecutorOptions options_;
  const CacheGeometry geometry_;
  const size_t kinds_;         // groups of a rank
  std::vector<Group> groups_;  // rank by rank
  IdVector<SlotId, Slot> slots_;
  std::deque<StepInFlight> steps_;
  std::vector<FakeMove> moves_;
  std::map<KnownPart, StoredPart> tier_;
  std::map<RequestId, std::vector<KnownPart>> ahead_;  // what was named for those that wait
  std::vector<TokenId> tokens_;        // scratch: the row's tokens
  std::vector<uint64_t> prefixes_;     // scratch: the prefix hash after each token of the row
  int64_t launched_ = 0, landed_ = 0;  // steps
  int64_t rows_run_ = 0, tokens_run_ = 0;
};

}  // namespace braid

// The subjects of the equality table: models in arithmetics, each with one executor, and what
// serves requests with it: a scheduler of its own for every run, whose answers are compared. One
// thread.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "model/loading/memory_plan.h"
#include "model/spec.h"
#include "parallel/mesh.h"
#include "parallel/page_layout.h"
#include "runtime/model_executor.h"
#include "scheduler/inbox.h"
#include "scheduler/scheduler.h"
#include "tests/equality/rank_threads.h"
#include "tests/equality/slow_head.h"

namespace braid {

inline constexpr int64_t kTarget = 1000;  // the id of the request whose answer is compared
inline constexpr int32_t kStepTokens = 512;
inline constexpr int32_t kDraftsMax = 7;

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs, prompt_logprobs;
  Reuse reuse;
  int32_t preemptions = 0;
  std::string error;
};

// Which model; tests name some. Random ones have one of every kind of layer that their family
// knows.
enum class Model : uint8_t {
  kBraidTiny,
  kDeepseekV3,
  kKimiLinear,
  kLing2,
  kLing3,
  kQwen35,
  kQwen35Moe,
  kQwen3Next,
};
// By number: those above, then families that have none.
const std::vector<std::string>& ModelNames();
inline const std::string& NameOf(Model model) { return ModelNames()[static_cast<size_t>(model)]; }

struct Arithmetic {
  const char* name;
  Isa isa;
  Compute compute;
  std::optional<ops::WeightFormat> weights;
  DType kv_dtype;
  DType state_dtype = DType::kF32;
  bool vulkan = false;      // on a device; `isa` is then that of the host's work
  bool hands_over = false;  // of which experts are a part
};
struct Subject {
  Model model;
  const Arithmetic* arithmetic;
  Mesh mesh = {};
  bool placed = false;   // experts lie where a draw says, not in order
  bool moving = false;   // and go elsewhere all the time
  bool head = false;     // with the model's draft head; else with an oracle in its place
  bool sums = false;     // experts' rows are added up by rank: not the bits of one rank
  bool parcels = false;  // tokens go to experts in parcels that are often too small
  bool halves = false;   // every step is cut in two, of which one computes while rows travel
  auto operator<=>(const Subject&) const = default;
};

// What this machine can compute; at least the plain loops in fp32.
std::vector<const Arithmetic*> ArithmeticsHere();

// Those of a Vulkan device; none where there is no device that can be used.
std::vector<const Arithmetic*> ArithmeticsOnDevice();
// The same with routed experts on the CPU, by its best kernels.
std::vector<const Arithmetic*> ArithmeticsHandedOver();

// The best arithmetic of a kind that this machine has, or null.
const Arithmetic* BestHere(Compute compute);

// The small example of a random model's family, which its subjects are made of.
ModelSpec TinySpec(Model model);
// Whether that family's models may have a draft head.
bool HasHead(Model model);

// A fault injected for tests: whatever reads this token computes with NaN from there on.
inline constexpr TokenId kNanTokenForTest = 7;

// A draft head that knows answers: it proposes them with mistakes planted, so that rows are
// accepted to every depth, as often as each other, without luck.
class Oracle final : public Drafter {
 public:
  void Learn(const Request& request, const std::vector<TokenId>& answer);
  void Forget() { answers_.clear(); }
  void Reset(SlotId) override {}
  void Propose(const DraftStep& step) override;

 private:
  using Key = std::pair<std::vector<TokenId>, uint64_t>;  // prompt, seed
  std::map<Key, std::vector<TokenId>> answers_;
};

// Constraints that draw what they allow from what they have accepted: often a few dozen tokens, now
// and then one, which they force. Grammars: "rewinds"; "begins anew", which cannot rewind; "fails
// after 12" tokens; "ends at once", whose first mask allows the end.
inline constexpr TokenId kEndForTest = 498;
class DrawnConstraints final : public ConstraintSource {
 public:
  Result<std::unique_ptr<TokenConstraint>> Start(std::string_view grammar, bool) override;
  TokenId end_token() const override { return kEndForTest; }
};

// How drafts are made, and how many at most: by the oracle, by lookup, by the model's head.
enum class Drafts : uint8_t {
  kNone,
  kOne,
  kThree,
  kSeven,
  kLookup,
  kHeadOne,
  kHeadThree,
  kHeadSeven,
  kHeadAuto,  // and by lookup, as many as pay
};
inline constexpr const char* kDraftsNames[] = {
    "", "_k1", "_k3", "_k7", "_lookup", "_head_k1", "_head_k3", "_head_k7", "_head_auto"};
inline bool ByHead(Drafts drafts) { return drafts >= Drafts::kHeadOne; }

// A place in which every run may have a mover of its own. Ends of moves go to the run and not to
// the rank's thread, which waits for its steps only.
class MoverSwitch final : public Mover {
 public:
  void Use(Mover* mover, EventSink* events) {
    mover_ = mover;
    events_ = events;
    if (mover != nullptr) mover->Attach(arena_, *geometry_);
  }
  void Attach(const Arena& arena, const CacheGeometry& geometry) override {
    arena_ = arena;
    geometry_ = &geometry;
  }
  void Start(const PageMove& move, EventSink&) override {
    mover_->Start(move, *events_);
    if (at_once) mover_->Drain();
  }
  void Drain() override {
    if (mover_ != nullptr) mover_->Drain();
  }
  bool at_once = false;  // moves are over before the step goes on

 private:
  Arena arena_;
  const CacheGeometry* geometry_ = nullptr;
  Mover* mover_ = nullptr;
  EventSink* events_ = nullptr;
};

// One executor, for loading takes longest; each run has a scheduler, and so a cache, of its own. On
// several ranks it is one executor for each, on a thread of its own, that carry out the same plans.
class Machine {
 public:
  explicit Machine(const Subject& subject, bool inject_nan_for_test = false);
  // The same with another way for experts that move, and how long ranks wait for each other.
  Machine(const Subject& subject, const RankThreads::MoveLink& link, MoverLimits limits,
          std::chrono::milliseconds deadline);
  ~Machine();
  SchedulerConfig config(Drafts drafts = Drafts::kNone) const;
  RankThreads& executor() { return *executor_; }
  // Another placement each time.
  MoveExperts DrawMove();
  bool moves() const { return moves_; }
  Oracle& oracle() { return oracle_; }
  ModelDevice* home() { return home_.get(); }  // null: the CPU
  // With a device: of the weights, when those that it reads are there.
  int64_t host_weight_bytes() const { return host_weight_bytes_; }
  std::deque<MoverSwitch>& tiers() { return tiers_; }  // of each rank
  const Mesh& mesh() const { return mesh_; }
  std::deque<MoverSwitch>& peers() { return peers_; }  // of each rank
  // Of several ranks that share the heads.
  std::optional<PageLayout> layout() const;
  bool has_state() const { return has_state_; }
  // With a head: what it may propose in a sequence (SlowHead::DraftsOf).
  bool has_head() const { return slow_head_ != nullptr; }
  bool AgreesWithSlowHead() const { return not_of_the_slow_head_ * 20 <= proposals_; }
  const std::vector<std::vector<TokenId>>& DraftsOf(const Request& request,
                                                    const std::vector<TokenId>& output);
  // What it proposed behind the first `length` tokens of a sequence is that. A device's head rounds
  // otherwise than the slow one, on the CPU: nearly all proposals are the slow head's, and whatever
  // run they come from, they are the same.
  void ExpectDrafts(const Request& request, const std::vector<TokenId>& output, int32_t length,
                    const std::vector<TokenId>& drafts);

 private:
  SchedulerConfig config_;
  bool has_state_ = false;
  Oracle oracle_;
  std::deque<MoverSwitch> tiers_, peers_;
  DrawnConstraints constraints_;
  ModelSpec spec_;  // of the slow head
  std::unique_ptr<SlowHead> slow_head_;
  // The sequence, and what of the request decides about its draws.
  using HeadKey = std::tuple<std::vector<TokenId>, uint64_t, float, float, int32_t, int32_t>;
  std::map<HeadKey, std::vector<std::vector<TokenId>>> head_drafts_;
  std::map<HeadKey, std::vector<TokenId>> proposed_;  // on a device
  int64_t host_weight_bytes_ = 0;
  int64_t proposals_ = 0, not_of_the_slow_head_ = 0;
  std::unique_ptr<ModelDevice> home_;
  ModelSpec experts_;  // of the whole model
  DType kv_dtype_ = DType::kF32;
  Mesh mesh_;
  bool moves_ = false;
  uint64_t drawn_ = 0;
  struct Moving {
    RankThreads::MoveLink link;
    MoverLimits limits;
    std::chrono::milliseconds deadline = kRankDeadline;
  };
  Machine(const Subject& subject, bool inject_nan_for_test, const Moving& moving);
  HeadKey KeyOf(const Request& request, std::vector<TokenId> tokens) const;
  void AddMovers(std::vector<RankModel>& ranks);
  void MoveToDevice(RankModel& model, const MemoryPlan& plan,
                    const std::optional<Device>& experts_on);
  std::unique_ptr<RankThreads> executor_;
};

// Made when first asked for, kept to the end. Engines that run side by side need copies.
Machine& MachineOf(const Subject& subject, int copy = 0);

// What a head's drafts are compared with is computed for the target's sequence alone.
class Engine {
 public:
  Engine(Machine& machine, const SchedulerConfig& config, int32_t depth = 0)
      : machine_(machine), scheduler_(*Scheduler::Create(config)), depth_(depth) {}

  void Submit(const Request& request) {
    if (request.id.value == kTarget) target_ = request;
    scheduler_.Apply(braid::Submit{request});
  }
  SchedulerStats stats() const { return scheduler_.stats(); }
  EventSink& events() { return ended_; }
  // What was posted without a step.
  void TakeNews() {
    for (Event& event : ended_.Take()) Apply(std::move(event));
  }
  void Apply(Event event);
  bool Step();
  void Drain() {
    while (!scheduler_.idle()) Step();
    EXPECT_TRUE(scheduler_.Audit().ok());
    if (machine_.has_head()) CheckDrafts();
  }
  // To its end, and then the next.
  const Answer& Ask(const Request& request) {
    Submit(request);
    Drain();
    return answers_[request.id.value];
  }
  const Answer& answer(int64_t id) { return answers_[id]; }
  // Sees, and may change, what a row brought before the scheduler does.
  std::function<void(const Row&, RowResult&)> watch;
  // Of the target, by its head.
  int64_t drafts_checked() const { return drafts_checked_; }

 private:
  void NoteDrafts(const std::vector<Row>& rows, const StepDone& done);
  void CheckDrafts();

  Machine& machine_;
  Inbox ended_;
  Scheduler scheduler_;
  const int32_t depth_;
  int32_t in_flight_ = 0;
  int64_t steps_ = 0;
  std::map<int64_t, Answer> answers_;
  std::deque<std::vector<Row>> rows_;  // of the steps in flight
  Request target_;
  std::vector<std::pair<int32_t, std::vector<TokenId>>> drafts_;  // after how many tokens
  int64_t drafts_checked_ = 0;
};

// Ids that every model has.
std::vector<TokenId> Tokens(uint64_t seed, int32_t count);
std::vector<TokenId> Head(const std::vector<TokenId>& tokens, int32_t count);
Request MakeRequest(int64_t id, std::vector<TokenId> prompt, int32_t new_tokens);

// The rows of the table.
Request Target(bool sampled);

// Requests that ask for everything which a position of a row may get wrong: draws, penalties, a
// thought's budget, stops, grammars.
std::vector<Request> ExactingRequests();

// The answer alone, without cached prefixes and drafts; the machine's oracle knows it then.
Answer Cold(Machine& machine, const Request& request);

void ExpectSame(const Answer& got, const Answer& want);

}  // namespace braid

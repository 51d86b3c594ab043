// Pages that move to and from a device: what is not a column of the equality table, for a test and
// for the test that planted mistakes are found. One thread, beside the tier's.
#pragma once

#include <fmt/format.h>
#include <unistd.h>
#include <volk.h>

#include <filesystem>
#include <utility>
#include <variant>
#include <vector>

#include "scheduler/inbox.h"
#include "tests/equality/table.h"
#include "tests/equality/with_tier.h"

namespace braid {

// With a draft head, whose state is copied into a block behind the step that fills it: the next
// turn of a conversation, whose last step filled one, is answered and drafted as without a tier.
// Moves are over before the step goes on that has them.
inline bool HeadsGoOnBehindRestoredPages() {
  Machine machine({.model = Model::kQwen35, .arithmetic = ArithmeticsOnDevice()[0], .head = true});
  const std::string directory = fmt::format("{}moved_there_{}", ::testing::TempDir(), ::getpid());
  std::filesystem::remove_all(directory);
  const SchedulerConfig config = machine.config(Drafts::kHeadThree);
  Request first = MakeRequest(1, Tokens(1, 200), 57);
  first.sampling.temperature = 0.8f;
  const Answer turn = Engine(machine, config).Ask(first);
  std::vector<TokenId> prompt = first.prompt;
  for (const std::vector<TokenId>& more : {turn.tokens, Tokens(2, 6)}) {
    prompt.insert(prompt.end(), more.begin(), more.end());
  }
  Request second = MakeRequest(kTarget, prompt, 24);
  second.sampling = first.sampling;
  const Answer want = Engine(machine, config).Ask(second);
  machine.tiers()[0].at_once = true;
  WithTier(machine, config, directory).run->Ask(first);
  WithTier with(machine, config, directory);
  const Answer& got = with.run->Ask(second);
  std::filesystem::remove_all(directory);
  return got.error.empty() && got.tokens == want.tokens && got.logprobs == want.logprobs &&
         got.reuse.stored == 256 && !::testing::Test::HasFailure();
}

// Looks at the first block of a move as it starts.
struct SeeingMover final : Mover {
  void Attach(const Arena& attached, const CacheGeometry& g) override {
    arena = attached;
    geometry = &g;
  }
  std::byte* FirstOf(const PageMove& move) const {
    const PagePart& part = move.parts.front();
    size_t g = 0;
    while (geometry->groups[g].kind != part.kind) ++g;
    return arena.data +
           BlockBytesOffset(*geometry, GroupId(static_cast<int32_t>(g)), part.blocks.by_group[g]);
  }
  void Start(const PageMove& move, EventSink& events) override {
    uint32_t word = 0;
    const ArenaAccess::Piece piece[] = {
        {FirstOf(move), std::as_writable_bytes(std::span(&word, 1))}};
    CHECK(arena.access->Fetch(piece).ok());
    seen.push_back(word);
    events.Post(PagesMoved{.move = move.id, .error = {}, .lost = {}, .logprob = {}});
  }
  void Drain() override {}
  Arena arena;
  const CacheGeometry* geometry = nullptr;
  std::vector<uint32_t> seen;
};

// A step may leave copies behind that are recorded and not submitted: pages leave with them.
inline bool PagesLeaveWithWhatWasRecorded() {
  Machine machine({Model::kQwen35Moe, ArithmeticsOnDevice()[0]});
  SchedulerConfig config = machine.config();
  config.tier = true;
  Scheduler scheduler = *Scheduler::Create(config);
  SeeingMover seeing;
  Inbox inbox;
  machine.tiers()[0].Use(&seeing, &inbox);
  scheduler.Apply(Submit{MakeRequest(1, Tokens(5, 200), 1)});
  constexpr uint32_t kLate = 0x12345678;
  for (int i = 0; i < 10 && seeing.seen.empty(); ++i) {
    Plan plan = scheduler.NextPlan();
    if (plan.empty()) return false;
    if (!plan.moves.empty()) {
      machine.home()->recorder().Write(std::as_bytes(std::span(&kLate, 1)),
                                       seeing.FirstOf(plan.moves.front()));
    }
    machine.executor().rank(0).Launch(std::move(plan), inbox);
    for (const Event& event : inbox.Take()) scheduler.Apply(event);
  }
  return !seeing.seen.empty() && seeing.seen.front() == kLate;
}

// Ends a move when it is told to, or not at all.
struct LateMover final : Mover {
  void Attach(const Arena&, const CacheGeometry&) override {}
  void Start(const PageMove& move, EventSink& events) override {
    ++started;
    under_way.emplace_back(move.id, &events);
  }
  void Drain() override {
    for (const auto& [id, events] : std::exchange(under_way, {})) {
      events->Post(PagesMoved{.move = id, .error = {}, .lost = {}, .logprob = {}});
    }
  }
  int started = 0;
  std::vector<std::pair<MoveId, EventSink*>> under_way;
};

// A device that is lost for good while pages leave: their moves end first, then requests fail by
// name. What a request wants of the tier does not come.
inline bool MovesEndBeforeALoss() {
  Machine machine({Model::kQwen35Moe, ArithmeticsOnDevice()[0]});
  SchedulerConfig config = machine.config();
  config.tier = true;
  Scheduler scheduler = *Scheduler::Create(config);
  LateMover late;
  Inbox inbox;
  machine.tiers()[0].Use(&late, &inbox);
  std::vector<std::string> errors;
  const auto step = [&] {
    Plan plan = scheduler.NextPlan();
    if (!plan.empty()) machine.executor().rank(0).Launch(std::move(plan), inbox);
    for (const Event& event : inbox.Take()) scheduler.Apply(event);
    for (const Output& output : scheduler.TakeOutputs()) {
      if (output.finish == FinishReason::kError) errors.push_back(output.error);
    }
  };
  // One leaves pages behind while the other runs.
  scheduler.Apply(Submit{MakeRequest(1, Tokens(5, 200), 1)});
  scheduler.Apply(Submit{MakeRequest(3, Tokens(6, 50), 500)});
  for (int i = 0; i < 10 && late.started == 0; ++i) step();
  const int started = late.started;
  const PFN_vkQueueSubmit submit = vkQueueSubmit;
  vkQueueSubmit = [](VkQueue, uint32_t, const VkSubmitInfo*, VkFence) {
    return VK_ERROR_DEVICE_LOST;
  };
  step();
  const bool over = late.under_way.empty() && scheduler.idle();
  scheduler.Apply(Submit{MakeRequest(2, Tokens(5, 200), 100)});
  for (int i = 0; i < 10 && !scheduler.idle(); ++i) step();
  vkQueueSubmit = submit;
  const auto lost = [](const std::string& error) {
    return error.find("the device is lost") != std::string::npos;
  };
  return started > 0 && over && scheduler.idle() && late.started == started &&
         scheduler.stats().moves_failed == 1 && errors.size() == 2 &&
         std::ranges::all_of(errors, lost);
}

}  // namespace braid

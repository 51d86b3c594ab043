// The answers of engines that divide the work are those of one engine, bit for bit: one or two
// engines that compute prompts, one or two that answer, with prefixes cached at either, drafts,
// grammars, aborts and preemption. On the network every part takes some turns, comes twice, and a
// page is written long after its request has been aborted.
#include "tests/equality/handed.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/handoff/staging_checks.h"

namespace braid {
namespace {

using handoff::Side;

struct HandedRow {
  Subject subject;
  Drafts drafts = Drafts::kNone;
};

constexpr handoff::LoopbackFaults kSlow{.seed = 5, .delay_turns = 3, .again = true};

class HandedTest : public ::testing::TestWithParam<HandedRow> {
 protected:
  Subject subject() const {
    Subject subject = GetParam().subject;
    subject.head = ByHead(drafts());
    return subject;
  }
  Drafts drafts() const { return GetParam().drafts; }

  bool on_device() const { return GetParam().subject.arithmetic->vulkan; }

  // What a prompt's end and a first token may get wrong.
  std::vector<Request> Requests() const {
    std::vector<Request> requests;
    const auto add = [&](std::vector<TokenId> prompt, uint64_t seed) -> Request& {
      requests.push_back(MakeRequest(kTarget, std::move(prompt), 24));
      requests.back().sampling.temperature = seed == 0 ? 0.0f : 0.9f;
      requests.back().sampling.seed = seed;
      return requests.back();
    };
    const std::vector<TokenId> one = Tokens(1, on_device() ? 150 : 333);
    add(one, 0);
    add(one, 4);
    if (on_device()) {  // software drivers are slow
      add(Tokens(5, 131), 7);
      for (Request& request : requests) request.stop.new_tokens_max = 8;
      return requests;
    }
    add(Head(one, 133), 5);                          // a prefix of what both have
    add(Tokens(2, 64), 0);                           // a block
    add(Tokens(3, 192), 6);                          // whole blocks
    add(Tokens(4, 63), 0);                           // less than a block: not handed over
    add(Tokens(5, 700), 7);                          // two chunks: pages leave early
    add(Tokens(6, 65), 8).stop.new_tokens_max = 70;  // decoding completes the block that came
    Request& penalties = add(Tokens(7, 150), 9);
    penalties.sampling.repetition_penalty = 1.3f;
    penalties.sampling.frequency_penalty = 0.5f;
    penalties.stop.stop_tokens = Head(Tokens(8, 300), 200);
    std::ranges::sort(penalties.stop.stop_tokens);
    penalties.stop.new_tokens_min = 7;
    Request& constrained = add(Tokens(9, 100), 10);
    constrained.grammar = "rewinds";
    constrained.stop.stop_tokens = {kEndForTest};
    Request& thinks = add(Tokens(11, 100), 12);  // no stop token comes before the end of thinking
    thinks.grammar = "rewinds";
    thinks.grammar_after = 30;
    thinks.stop.stop_tokens = {kEndForTest, kEndForTest + 1};
    thinks.sampling.logit_bias = {{kEndForTest, 20.0f}, {30, 9.0f}};
    Request& ends = add(Tokens(12, 100), 13);  // by either stop token
    ends.grammar = "ends at once";
    ends.stop.stop_tokens = {kEndForTest, kEndForTest + 1};
    ends.sampling.logit_bias = {{kEndForTest + 1, 20.0f}};
    add(Tokens(10, 90), 11).thinking = {.tokens_max = 5, .open = -1, .close = 499};
    return requests;
  }
  int64_t handed() const { return on_device() ? 3 : 12; }  // of them
  // On a device, chunks that end inside blocks.
  std::function<void(Side, SchedulerConfig&)> Chunks() const {
    if (!on_device()) return {};
    return [](Side, SchedulerConfig& config) { config.chunk_tokens_max = 70; };
  }

  // Of one engine.
  std::vector<Answer> Want(const std::vector<Request>& requests) const {
    std::vector<Answer> want;
    for (const Request& request : requests) {
      want.push_back(Cold(MachineOf(GetParam().subject), request));
    }
    return want;
  }
  // The same, of Requests().
  const std::vector<Answer>& Want() const {
    static const auto known = std::make_unique<std::map<Subject, std::vector<Answer>>>();
    std::vector<Answer>& want = (*known)[GetParam().subject];
    if (want.empty()) want = Want(Requests());
    return want;
  }
  // The machines of the decode engines, copies first to last, have an oracle each.
  void Learn(const std::vector<Request>& requests, const std::vector<Answer>& want, int first,
             int last) const {
    for (int copy = first; copy <= last; ++copy) {
      for (size_t i = 0; i < requests.size(); ++i) {
        MachineOf(subject(), copy).oracle().Learn(requests[i], want[i].tokens);
      }
    }
  }
};

TEST_P(HandedTest, OneAndOneAnswerAsOne) {
  const std::vector<Request> requests = Requests();
  const std::vector<Answer>& want = Want();
  Learn(requests, want, 2, 2);
  Handed run(subject(), {.drafts = drafts(), .faults = kSlow, .tune = Chunks()});
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    const Answer& got = run.Ask(requests[i]);
    ExpectSame(got, want[i]);
    if (i == 1) {
      EXPECT_EQ(got.reuse.tokens, on_device() ? 128 : 320);  // at the decode engine
    }
  }
  run.AwaitHanded(handed());
  EXPECT_EQ(run.failed(), 0);
  if (ByHead(drafts())) {
    EXPECT_GT(run.drafts_checked(), on_device() ? 5 : 20);
  }
  // Again at once, with everything in both caches.
  std::vector<size_t> tickets;
  for (const Request& request : requests) tickets.push_back(run.Submit(request));
  for (size_t i = 0; i < requests.size(); ++i) ExpectSame(run.Await(tickets[i]), want[i]);
  run.AwaitHanded(2 * handed());
  EXPECT_EQ(run.failed(), 0);
  EXPECT_TRUE(run.BytesAgree());
  EXPECT_GT(run.network().refused, 0);
  EXPECT_EQ(run.network().taken, 0);
}

// Ranks share the heads at one side and not at the other.
TEST_P(HandedTest, UnlikeRanksAnswerAsOne) {
  if (subject().model == Model::kBraidTiny) return;  // it takes long
  if (subject().arithmetic->vulkan) return;          // a device is one rank
  const std::vector<Request> requests = Requests();
  const std::vector<Answer>& want = Want();
  for (const auto& [prefill_tp, decode_tp] : {std::pair(2, 1), std::pair(1, 2)}) {
    SCOPED_TRACE(prefill_tp);
    if (!CheckMesh(TinySpec(subject().model), Mesh{.tp = 2})) continue;
    Subject answers = subject();
    answers.mesh.tp = decode_tp;
    for (size_t i = 0; i < requests.size(); ++i) {
      MachineOf(answers, 2).oracle().Learn(requests[i], want[i].tokens);
    }
    Handed run(
        subject(),
        {.prefill_tp = prefill_tp, .decode_tp = decode_tp, .drafts = drafts(), .faults = kSlow});
    std::vector<size_t> tickets;
    for (const Request& request : requests) tickets.push_back(run.Submit(request));
    for (size_t i = 0; i < requests.size(); ++i) ExpectSame(run.Await(tickets[i]), want[i]);
    run.AwaitHanded(handed());
    EXPECT_EQ(run.failed(), 0);
    EXPECT_TRUE(run.BytesAgree());
    EXPECT_EQ(run.network().taken, 0);
  }
}

// Two decode engines: the second's prompts find their prefixes at the prefill engine only.
TEST_P(HandedTest, OneComputesForTwo) {
  const std::vector<Request> requests = Requests();
  const std::vector<Answer>& want = Want();
  Learn(requests, want, 2, 3);
  Handed run(subject(), {.decodes = 2, .drafts = drafts(), .faults = kSlow});
  std::vector<size_t> tickets;
  for (size_t decode : {size_t{0}, size_t{1}}) {
    for (const Request& request : requests) tickets.push_back(run.Submit(request, decode));
  }
  for (size_t i = 0; i < tickets.size(); ++i) {
    ExpectSame(run.Await(tickets[i]), want[i % requests.size()]);
  }
  run.AwaitHanded(2 * handed());
  EXPECT_EQ(run.failed(), 0);
  EXPECT_EQ(run.network().taken, 0);
}

// Too little memory for both: the decode engine preempts what has arrived, and computes it again.
TEST_P(HandedTest, TwoComputeForOneThatPreempts) {
  if (subject().model == Model::kBraidTiny) return;  // it takes long
  std::vector<Request> requests = {MakeRequest(kTarget, Tokens(40, 333), 130),
                                   MakeRequest(kTarget, Tokens(41, 64), 396)};
  for (Request& request : requests) request.sampling = {.temperature = 0.9f, .seed = 3};
  const std::vector<Answer> want = Want(requests);
  Learn(requests, want, 3, 3);
  const bool state = MachineOf(subject()).has_state();
  const auto little = [&](Side side, SchedulerConfig& config) {
    if (side == Side::kPrefill) return;
    const BlockCounts alone = BlocksOfSequence(config.cache, 450);
    const int32_t more = state ? (config.draft_tokens_max > 0 ? 4 : 3) : 1;
    config.cache.pages = static_cast<int32_t>(PagesFor(config.cache, alone)) + 1 + more;
  };
  // If both begin before one ends, they cannot both end without a preemption.
  int32_t preemptions = 0;
  for (int i = 0; i < 20 && preemptions == 0; ++i) {
    Handed run(subject(), {.prefills = 2, .drafts = drafts(), .faults = kSlow, .tune = little});
    const size_t tickets[] = {run.Submit(requests[0]), run.Submit(requests[1])};
    for (size_t r = 0; r < 2; ++r) {
      const Answer& got = run.Await(tickets[r]);
      ExpectSame(got, want[r]);
      preemptions += got.preemptions;
    }
    run.AwaitHanded(2);
    EXPECT_EQ(run.failed(), 0);
    EXPECT_EQ(run.network().taken, 0);
  }
  EXPECT_GT(preemptions, 0);
}

// Aborted while pages are on their way: nobody else has the blocks until the bytes are there.
TEST_P(HandedTest, PagesOfAbortedRequestsLandNowhereElse) {
  const std::vector<Request> requests = Requests();
  const std::vector<Answer>& want = Want();
  Learn(requests, want, 2, 2);
  const auto little = [](Side side, SchedulerConfig& config) {
    if (side == Side::kPrefill) return;
    const BlockCounts alone = BlocksOfSequence(config.cache, 1000);
    config.cache.pages = static_cast<int32_t>(PagesFor(config.cache, alone)) + 4;
    config.prefix_cache = false;
  };
  handoff::LoopbackFaults late = kSlow;
  late.delay_turns = 60;
  Handed run(subject(), {.drafts = drafts(), .faults = late, .tune = little, .flight_bytes = 1});
  for (size_t i = 0; i < requests.size(); ++i) {
    const size_t leaves = run.Submit(MakeRequest(kTarget, Tokens(100 + i, 600), 4));
    const int64_t before = run.network().written;
    if (i % 3 > 0) {
      while (run.network().written == before) std::this_thread::yield();
    }
    run.Abort(leaves);
    ExpectSame(run.Ask(requests[i]), want[i]);
    run.Await(leaves);
  }
  EXPECT_GT(run.failed(), 0);
  EXPECT_EQ(run.network().taken, 0);
}

// Both sides keep what they compute or receive, and go on with it after a restart: what a tier has
// of a prompt comes from there, and the rest from the other engine. One that has lost its own
// computes, or asks for all.
TEST_P(HandedTest, RestoredThenHandedOffTheyAnswerAsOne) {
  if (subject().model == Model::kBraidTiny) return;  // it takes long
  const std::string directory = fmt::format("{}handed_tier_{}", ::testing::TempDir(), ::getpid());
  std::filesystem::remove_all(directory);
  const std::vector<Request> all = Requests();
  std::vector<Request> requests;
  std::vector<Answer> want;
  const std::vector<size_t> chosen =
      on_device() ? std::vector<size_t>{0, 2} : std::vector<size_t>{0, 1, 3, 6};
  const int32_t whole = on_device() ? 128 + 128 : 320 + 640;  // tokens in whole blocks
  for (const size_t i : chosen) {
    requests.push_back(all[i]);
    want.push_back(Want()[i]);
  }
  Learn(requests, want, 2, 2);
  const auto run = [&](bool at_once) {
    Handed engines(subject(), {.drafts = drafts(), .faults = kSlow, .directory = directory});
    std::vector<size_t> tickets;
    int32_t stored = 0;
    for (const Request& request : requests) {
      tickets.push_back(engines.Submit(request));
      if (!at_once) engines.Await(tickets.back());
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      const Answer& got = engines.Await(tickets[i]);
      ExpectSame(got, want[i]);
      stored += got.reuse.stored;
    }
    engines.AwaitHanded(std::ssize(requests));
    EXPECT_EQ(engines.failed(), 0);
    EXPECT_EQ(engines.network().taken, 0);
    return stored;
  };
  EXPECT_EQ(run(false), 0);
  EXPECT_EQ(run(false), whole);
  std::filesystem::remove_all(directory + "/prefill-0");
  EXPECT_GE(run(true), whole);
  std::filesystem::remove_all(directory + "/decode-0");
  EXPECT_EQ(run(true), 0);
  std::filesystem::remove_all(directory);
}

// The loss has been heard of although the sender is silent; no page is written any more, and the
// prompt is computed here.
TEST_P(HandedTest, LostPagesEndTheirRooms) {
  if (subject().model == Model::kBraidTiny) return;  // it takes long
  const int tp = on_device() ? 1 : 2;
  const std::vector<Request> requests = Requests();
  for (const Side side : {Side::kPrefill, Side::kDecode}) {
    Handed run(subject(), {.prefill_tp = tp,
                           .decode_tp = tp,
                           .drafts = drafts(),
                           .flight_bytes = 1,
                           .staging_bytes = 1});
    run.network().held = true;
    const size_t ticket = run.Submit(requests[0]);
    run.AwaitPart();  // of copies, which leave when the prompt is computed
    run.LosePages(side);
    EXPECT_EQ(run.network().written, 0);
    run.network().held = false;
    ExpectSame(run.Await(ticket), Want()[0]);
    run.AwaitHanded(1);
    if (side == Side::kDecode) {
      EXPECT_EQ(run.decode(0).stats().bytes, 0);
    }
    EXPECT_EQ(run.failed(), 1);
    // Pages move again, from a prefill engine that failed after a pause.
    for (int64_t i = 2; run.handed() == 0 && i < 200; ++i) {
      ExpectSame(run.Ask(requests.back()), Want().back());
      run.AwaitHanded(i);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    EXPECT_EQ(run.handed(), 1);
  }
}

// One of two engines takes no more prompts: the other gets those too that are refused.
TEST_P(HandedTest, AnEngineThatRefusesIsAskedForLittleAndMadeUpFor) {
  if (subject().model == Model::kBraidTiny || on_device()) return;  // it takes long
  const std::vector<Request> requests = Requests();
  Learn(requests, Want(), 3, 3);
  Handed run(subject(), {.prefills = 2, .drafts = drafts(), .faults = kSlow});
  run.DrainPrefill(0);
  std::vector<size_t> tickets;
  for (const Request& request : requests) tickets.push_back(run.Submit(request));
  for (size_t i = 0; i < requests.size(); ++i) ExpectSame(run.Await(tickets[i]), Want()[i]);
  run.AwaitHanded(handed());
  const int64_t refused = run.prefill(0).stats().failed;
  EXPECT_GT(refused, 0);
  constexpr int64_t kPairs = 12, kTrialsMost = 7;  // a minute's
  for (int64_t i = 0; i < kPairs; ++i) {
    const size_t pair[] = {run.Submit(requests[0]), run.Submit(requests[2])};
    ExpectSame(run.Await(pair[0]), Want()[0]);
    ExpectSame(run.Await(pair[1]), Want()[2]);
  }
  run.AwaitHanded(handed() + 2 * kPairs);
  EXPECT_EQ(run.failed(), 0);
  EXPECT_LE(run.prefill(0).stats().failed, refused + kTrialsMost);
}

// A prompt that is too long for an engine goes to another, or is computed here; the engine gets
// others as before.
TEST_P(HandedTest, APromptThatDoesNotFitLeavesTheEngineItsOthers) {
  if (subject().model == Model::kBraidTiny || on_device()) return;  // it takes long
  const std::vector<Request> requests = Requests();
  constexpr size_t kLong[] = {0, 6}, kShort = 4;
  for (const int prefills : {1, 2}) {
    SCOPED_TRACE(prefills);
    Learn(requests, Want(), prefills + 1, prefills + 1);
    Handed run(subject(),
               {.prefills = prefills, .first_context = 200, .drafts = drafts(), .faults = kSlow});
    // Of two engines either may get both prompts of a pair, if the first one's are over before.
    int64_t prompts = 0;
    do {
      const size_t pair[] = {run.Submit(requests[kLong[0]]), run.Submit(requests[kLong[1]])};
      for (const size_t i : {0, 1}) ExpectSame(run.Await(pair[i]), Want()[kLong[i]]);
      run.AwaitHanded(prompts += 2);
    } while (run.prefill(0).stats().failed == 0 && prompts < 100);
    EXPECT_EQ(run.failed(), prefills == 1 ? prompts : 0);
    EXPECT_GT(run.prefill(0).stats().failed, 0);
    ExpectSame(run.Ask(requests[kShort]), Want()[kShort]);
    run.AwaitHanded(prompts + 1);
    EXPECT_EQ(run.handed(), prefills == 1 ? 1 : prompts + 1);
  }
}

// Its pages are handed over and still being read.
TEST_P(HandedTest, APrefillEngineThatStopsAtOnceIsMadeUpFor) {
  const Request request = Requests()[0];
  const Answer& want = Want()[0];
  Learn({request}, {want}, 2, 2);
  Handed run(subject(), {.drafts = drafts(), .faults = {.delay_turns = 400}});
  const size_t ticket = run.Submit(request);
  while (run.prefill(0).stats().bytes == 0) std::this_thread::yield();
  run.StopPrefills();
  ExpectSame(run.Await(ticket), want);
}

// Parts that find no room on the way wait for it, copies that left early too.
// Ranks and devices exchange copies of their pages: here two fit at a time, and more come at once
// from one rank, which sends its pages themselves.
TEST_P(HandedTest, LittleRoomForCopiesChangesNoAnswer) {
  if (subject().model == Model::kBraidTiny) return;  // it takes long
  const int tp = on_device() ? 1 : 2;
  const std::vector<Request> requests = Requests();
  Learn(requests, Want(), 2, 2);
  Handed run(subject(), {.decode_tp = tp, .drafts = drafts(), .faults = kSlow, .staging_bytes = 1});
  std::vector<size_t> tickets;
  for (const Request& request : requests) tickets.push_back(run.Submit(request));
  for (size_t i = 0; i < requests.size(); ++i) ExpectSame(run.Await(tickets[i]), Want()[i]);
  run.AwaitHanded(handed());
  EXPECT_EQ(run.failed(), 0);
  EXPECT_TRUE(run.BytesAgree());
  if (!on_device()) {
    EXPECT_GT(run.network().waited, 0);
  }
}

TEST_P(HandedTest, OnePartAtATimeChangesNoAnswer) {
  const std::vector<Request> requests = Requests();
  const std::vector<Answer>& want = Want();
  Learn(requests, want, 2, 2);
  Handed run(subject(), {.drafts = drafts(), .faults = kSlow, .flight_bytes = 1});
  std::vector<size_t> tickets;
  for (const Request& request : requests) tickets.push_back(run.Submit(request));
  for (size_t i = 0; i < requests.size(); ++i) ExpectSame(run.Await(tickets[i]), want[i]);
  run.AwaitHanded(handed());
  EXPECT_EQ(run.failed(), 0);
  EXPECT_TRUE(run.BytesAgree());
  EXPECT_EQ(run.network().sending_most, 1);
}

// Damaged parts and cut connections: the decode engine computes the prompt itself.
TEST_P(HandedTest, ABadNetworkChangesNoAnswer) {
  const std::vector<Request> requests = Requests();
  const std::vector<Answer>& want = Want();
  Learn(requests, want, 2, 2);
  handoff::LoopbackFaults bad = kSlow;
  bad.damaged = 12;
  Handed run(subject(), {.drafts = drafts(), .faults = bad});
  std::vector<size_t> tickets;
  for (const Request& request : requests) tickets.push_back(run.Submit(request));
  run.AwaitTokens(tickets[0], 1);
  run.network().Cut();
  for (size_t i = 0; i < requests.size(); ++i) ExpectSame(run.Await(tickets[i]), want[i]);
  run.AwaitHanded(1);
  EXPECT_GT(run.failed(), 0);
}

// All parts together take longer than one may: twice as long, by the time that they took before.
TEST(HandedDeadlines, PagesThatLeaveSlowlyAreNotLate) {
  const Subject subject{Model::kQwen3Next, BestHere(Compute::kF32)};
  const Request request = MakeRequest(kTarget, Tokens(1, 1200), 4);
  const Answer want = Cold(MachineOf(subject), request);
  handoff::PrefillLimits limits;
  for (int i = 0; i < 2; ++i) {
    Handed run(subject, {.faults = {.delay_turns = 2000}, .limits = limits, .flight_bytes = 1});
    const int64_t began_us = MonotonicUs();
    ExpectSame(run.Ask(request), want);
    limits.progress_us = (MonotonicUs() - began_us) / 2;
    run.AwaitHanded(1);
    EXPECT_EQ(run.failed(), 0);
  }
}

// A part that waits for a place is no word of its sender.
TEST(HandedSilence, EndsAConnectionAlsoWhilePartsWait) {
  const Subject subject{Model::kQwen3Next, BestHere(Compute::kF32)};
  Handed run(subject, {.decode_tp = 2, .staging_bytes = 1});
  run.network().held = true;
  const Request request = MakeRequest(kTarget, Tokens(1, 900), 4);
  const size_t ticket = run.Submit(request);
  run.AwaitNoPlace();
  run.network().mute = true;
  run.AwaitParting();
  run.network().held = run.network().mute = false;
  ExpectSame(run.Await(ticket), Cold(MachineOf(subject), request));
}

TEST(HandedVersion, AnOlderPartnerIsRefusedByItsVersion) {
  Handed run({Model::kQwen35Moe, BestHere(Compute::kF32)}, {});
  EXPECT_EQ(run.RefusalOf(1), "the hand-off protocol's version is 1 there and 3 here");
  EXPECT_EQ(run.RefusalOf(handoff::kProtocolVersion), "");
}

std::vector<HandedRow> Rows() {
  std::vector<HandedRow> rows;
  for (int i = 1; i < std::ssize(ModelNames()); ++i) {
    const auto model = static_cast<Model>(i);
    // Every family in one arithmetic, and those of each kind of state in the other.
    const Arithmetic* best = BestHere(i % 2 == 0 ? Compute::kBF16 : Compute::kF32);
    if (best == nullptr) best = BestHere(Compute::kF32);
    rows.push_back({{model, best}});
  }
  for (const Arithmetic* here : ArithmeticsHere()) {
    if (here->kv_dtype == DType::kI8) rows.push_back({{Model::kBraidTiny, here}});
  }
  const Arithmetic* plain = BestHere(Compute::kF32);
  rows.push_back({{Model::kQwen35Moe, plain}, Drafts::kThree});
  rows.push_back({{Model::kKimiLinear, plain}, Drafts::kLookup});
  rows.push_back({{Model::kQwen3Next, plain}, Drafts::kHeadThree});
  rows.push_back({{Model::kDeepseekV3, plain}, Drafts::kHeadSeven});
  return rows;
}

std::string NameOfRow(const ::testing::TestParamInfo<HandedRow>& row) {
  const auto& [subject, drafts] = row.param;
  return fmt::format("{}_{}{}", NameOf(subject.model), subject.arithmetic->name,
                     kDraftsNames[static_cast<size_t>(drafts)]);
}

TEST(HandedStaging, CopiesAsItPromises) { EXPECT_TRUE(handoff::StagingHolds()); }

INSTANTIATE_TEST_SUITE_P(Rows, HandedTest, ::testing::ValuesIn(Rows()), NameOfRow);

// Pages that lie on devices.
std::vector<HandedRow> RowsOnDevice() {
  std::vector<HandedRow> rows;
  for (const Arithmetic* there : ArithmeticsOnDevice()) {
    if (there->weights) continue;
    rows.push_back({{Model::kQwen35Moe, there}});
    rows.push_back({{Model::kQwen35, there}, Drafts::kHeadThree});
    rows.push_back({{Model::kKimiLinear, there}, Drafts::kThree});
  }
  return rows;
}
INSTANTIATE_TEST_SUITE_P(VulkanRows, HandedTest, ::testing::ValuesIn(RowsOnDevice()), NameOfRow);

}  // namespace
}  // namespace braid

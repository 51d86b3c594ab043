// Proof that the columns of engines that divide the work can see, and the checks of the transport:
// they find each mistake of handed.toml, and nothing without them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "handoff/checksum.h"
#include "tests/equality/handed.h"
#include "tests/handoff/staging_checks.h"
#include "tests/mistakes/each_found.h"

namespace braid {
namespace {

using handoff::ConnectionId;
using handoff::Side;
using handoff::Transport;

constexpr Mistake kMistakes[] = {
#include "handed.inc"
};

struct End final : Transport::Owner {
  void OnAccepted(ConnectionId connection) override {
    accepted.push_back(connection);
    owns->Trust(connection);
  }
  void OnLost(ConnectionId, const std::string&) override { ++lost; }
  void OnMessage(ConnectionId from, std::string_view) override { froms.push_back(from); }
  Transport::Place OnData(ConnectionId, std::string_view header, size_t bytes) override {
    if (header == "drop") return {};
    if (header == "late" && waits) return {.later = true};
    page.assign(bytes, std::byte{0});
    return {page.data(), 1};
  }
  void OnReceived(uint64_t, bool whole) override { received += whole; }
  void OnSent(uint64_t, bool whole) override { whole ? ++sent : ++failed; }
  std::vector<ConnectionId> accepted, froms;
  std::vector<std::byte> page;
  int received = 0, sent = 0, failed = 0, lost = 0;
  bool waits = true;  // there is no place for "late" yet
  Transport* owns = nullptr;
};

// One listens, two connect.
bool TransportsHold() {
  End ends[3];
  std::unique_ptr<Transport> transports[3];
  for (size_t i = 0; i < 3; ++i) {
    transports[i] = std::move(*Transport::Create(ends[i]));
    ends[i].owns = transports[i].get();
  }
  // Of the processor's time: a busy machine is no mistake.
  const auto until = [&](auto done) {
    const std::clock_t end = std::clock() + 3 * CLOCKS_PER_SEC;
    while (!done() && std::clock() < end) {
      for (auto& transport : transports) transport ? transport->Progress() : void();
    }
    return done();
  };
  const uint16_t port = *transports[0]->Listen({"127.0.0.1", 0});
  ConnectionId out[3];
  for (size_t i = 1; i < 3; ++i) {
    out[i] = *transports[i]->Connect({"127.0.0.1", port});
    transports[i]->Send(out[i], "hello");
    if (!until([&] { return ends[0].froms.size() == i; })) return false;
  }
  if (ends[0].froms != ends[0].accepted) return false;
  std::vector<std::byte> page(size_t{5} << 20, std::byte{7});
  for (const size_t bytes : {size_t{100}, page.size()}) {
    transports[1]->SendData(out[1], "drop", {page.data(), bytes, 1});
    transports[1]->SendData(out[1], "page", {page.data(), bytes, 1});
  }
  if (!until([&] { return ends[1].sent == 4 && ends[0].received == 2; })) return false;
  if (ends[0].page != page) return false;
  // What finds no place comes when there is one, in its order.
  transports[2]->SendData(out[2], "late", {page.data(), page.size(), 1});
  transports[2]->SendData(out[2], "page", {page.data(), 100, 1});
  until([end_us = MonotonicUs() + 200'000] { return MonotonicUs() > end_us; });
  if (ends[0].received != 2) return false;
  ends[0].waits = false;
  if (!until([&] { return ends[0].received == 4 && ends[2].sent == 2; })) return false;
  if (ends[0].page.size() != 100) return false;
  transports[0].reset();
  if (!until([&] { return ends[1].lost == 1; })) return false;
  transports[1]->SendData(out[1], "page", {page.data(), 64, 1});
  return until([&] { return ends[1].failed == 1; });
}

std::vector<Request> Requests() {
  std::vector<Request> requests;
  const auto add = [&](std::vector<TokenId> prompt) -> Request& {
    requests.push_back(MakeRequest(kTarget, std::move(prompt), 12));
    requests.back().sampling = {.temperature = 0.9f, .seed = requests.size()};
    return requests.back();
  };
  const std::vector<TokenId> one = Tokens(1, 260);
  add(Head(one, 150));
  add(one);  // its beginning is at both
  add(Tokens(2, 128));
  Request& stops = add(Tokens(3, 90));  // with its first token
  for (TokenId token = 0; token < 512; ++token) stops.stop.stop_tokens.push_back(token);
  for (int i = 0; i < 3; ++i) {
    Request& least = add(Tokens(static_cast<uint64_t>(4 + i), 90));
    for (TokenId token = 0; token < 500; token += 2) least.stop.stop_tokens.push_back(token);
    least.stop.new_tokens_min = 5;
  }
  for (const TokenId after : {-1, 30}) {  // the first ends with its first token
    Request& constrained = add(Tokens(static_cast<uint64_t>(10 + after), 90));
    constrained.grammar = "ends at once";
    constrained.grammar_after = after;
    constrained.stop.stop_tokens = {kEndForTest, kEndForTest + 1};
    constrained.sampling.logit_bias = {{kEndForTest + 1, 20.0f}};
  }
  return requests;
}

bool Same(const Answer& got, const Answer& want) {
  return got.error.empty() && got.tokens == want.tokens && got.logprobs == want.logprobs;
}

bool AnswersAre(const Subject& subject, Drafts drafts, const handoff::LoopbackFaults& faults,
                int prefill_tp = 1, int decode_tp = 1) {
  Subject alone = subject;
  alone.head = false;
  // Chunks that end inside blocks.
  const auto chunks = [](Side, SchedulerConfig& config) { config.chunk_tokens_max = 40; };
  Handed run(subject, {.prefill_tp = prefill_tp,
                       .decode_tp = decode_tp,
                       .drafts = drafts,
                       .faults = faults,
                       .tune = chunks,
                       .staging_bytes = 1});
  for (const Request& request : Requests()) {
    const Answer want = Cold(MachineOf(alone), request);
    if (!Same(run.Ask(request), want)) return false;
  }
  run.AwaitHanded(static_cast<int64_t>(Requests().size()));
  return faults.damaged > 0 || (run.failed() == 0 && run.BytesAgree());
}

// One part is on its way at a time, and an older partner is refused.
bool WaitsForRoom(const Subject& subject, int tp) {
  const auto chunks = [](Side, SchedulerConfig& config) { config.chunk_tokens_max = 128; };
  Handed run(subject,
             {.prefill_tp = tp, .faults = {.delay_turns = 4}, .tune = chunks, .flight_bytes = 1});
  run.Await(run.Submit(MakeRequest(kTarget, Tokens(8, 700), 2)));
  run.AwaitHanded(1);
  return run.failed() == 0 && run.network().sending_most == 1 && !run.RefusalOf(1).empty();
}

// Pages that are lost on either side end their rooms, also one that no part has come for at the
// decode engine, whose pages are lost too; the decode engine computes the prompts.
bool LossesEnd(const Subject& subject) {
  constexpr int64_t kDayUs = 86'400'000'000;
  const Request requests[] = {MakeRequest(kTarget, Tokens(8, 300), 4),
                              MakeRequest(kTarget, Tokens(9, 300), 4)};
  for (const Side side : {Side::kPrefill, Side::kDecode}) {
    // On a machine so slow that a hanging run may take a minute, the usual limits would end a room
    // that a mistake left open.
    Handed run(subject, {.prefill_tp = 2,
                         .decode_tp = 2,
                         .limits = {.room_us = kDayUs, .progress_us = kDayUs},
                         .decode_limits = {.progress_us = kDayUs, .room_us = kDayUs},
                         .flight_bytes = 1,
                         .staging_bytes = 1});
    run.network().held = true;
    const int64_t rooms = side == Side::kPrefill ? 1 : 2;
    std::vector<size_t> tickets;
    for (int64_t i = 0; i < rooms; ++i) tickets.push_back(run.Submit(requests[i]));
    run.AwaitRooms(rooms);
    run.AwaitPart();
    run.LosePages(side);
    run.network().held = false;
    for (size_t i = 0; i < tickets.size(); ++i) {
      if (!Same(run.Await(tickets[i]), Cold(MachineOf(subject), requests[i]))) return false;
    }
    run.AwaitHanded(rooms);
    if (run.failed() != rooms) return false;
  }
  return true;
}

bool ChecksumSees() {
  std::vector<std::byte> bytes(200, std::byte{3});
  const uint64_t sum = handoff::Checksum(bytes.data(), bytes.size());
  for (std::byte& byte : bytes) {
    byte ^= std::byte{1};
    if (handoff::Checksum(bytes.data(), bytes.size()) == sum) return false;
    byte ^= std::byte{1};
  }
  bytes.back() = std::byte{0};
  return handoff::Checksum(bytes.data(), 199) != handoff::Checksum(bytes.data(), 200);
}

// A long prompt is aborted beside one that goes on, and prompts go to both.
bool AbortsAndShares(const Subject& subject) {
  Handed run(subject, {.prefills = 2});
  run.network().held = true;
  const size_t stays = run.Submit(MakeRequest(kTarget, Tokens(8, 900), 2));
  const size_t leaves = run.Submit(MakeRequest(kTarget, Tokens(9, 1900), 2));
  run.AwaitRooms(2);
  run.Abort(leaves);
  run.Await(leaves);
  run.network().held = false;
  run.Await(stays);
  run.AwaitHanded(2);
  const bool shared = run.prefill(0).stats().rooms == 1 && run.prefill(1).stats().rooms == 1;
  const bool arrived = run.decode_stats(0).scheduler.prefill_tokens == 0;
  return shared && arrived && run.failed() == 1 && run.handed() == 1;
}

// Prompts that an engine refuses, or that do not fit it, go to the other; one that refuses is left
// alone, and one that a prompt does not fit gets others.
bool RefusesLittle(const Subject& subject) {
  const Request requests[] = {MakeRequest(kTarget, Tokens(8, 260), 2),
                              MakeRequest(kTarget, Tokens(9, 260), 2),
                              MakeRequest(kTarget, Tokens(7, 90), 2)};
  const auto two = [&](Handed& run) {
    const size_t tickets[] = {run.Submit(requests[0]), run.Submit(requests[1])};
    for (const size_t ticket : tickets) run.Await(ticket);
  };
  constexpr int64_t kPairs = 12;
  const int64_t began_us = MonotonicUs();
  Handed refuses(subject, {.prefills = 2, .faults = {.delay_turns = 20}});
  refuses.DrainPrefill(0);
  for (int64_t i = 0; i < kPairs; ++i) two(refuses);
  refuses.AwaitHanded(2 * kPairs);
  const int64_t refused = refuses.prefill(0).stats().failed;
  // After 0, 1, 3, 7 … seconds.
  const double trials_most = 2 + std::log2(1 + double(MonotonicUs() - began_us) / 1e6);
  if (refused == 0 || double(refused) > trials_most || refuses.failed() > 0) return false;
  for (const int prefills : {1, 2}) {
    Handed run(subject, {.prefills = prefills, .first_context = 200});
    two(run);
    run.AwaitHanded(2);
    run.Await(run.Submit(requests[2]));
    run.AwaitHanded(3);
    if (run.handed() != (prefills == 1 ? 1 : 3)) return false;
  }
  Request none = requests[0];  // no token may come first
  for (TokenId token = 0; token < 512; ++token) none.stop.stop_tokens.push_back(token);
  none.stop.new_tokens_min = 1;
  Handed run(subject, {});
  run.Await(run.Submit(none));
  run.Await(run.Submit(requests[2]));
  run.AwaitHanded(2);
  return run.handed() == 1;
}

// Prompts that come together, whose beginnings each engine has on disk from before.
bool RestoredAndHanded(const Subject& subject) {
  const std::string directory = fmt::format("{}handed_tier_{}", ::testing::TempDir(), ::getpid());
  bool same = true;
  for (int turn = 0; turn < 2; ++turn) {
    Handed run(subject, {.directory = directory});
    std::vector<size_t> tickets;
    for (const Request& request : Requests()) tickets.push_back(run.Submit(request));
    for (size_t i = 0; i < tickets.size(); ++i) {
      same &= Same(run.Await(tickets[i]), Cold(MachineOf(subject), Requests()[i]));
    }
    run.AwaitHanded(std::ssize(tickets));
    same &= run.failed() == 0;
  }
  std::filesystem::remove_all(directory);
  return same;
}

bool Holds() {
  const Subject hybrid{Model::kQwen3Next, BestHere(Compute::kF32)};
  Subject headed = hybrid;
  headed.head = true;
  const std::pair<const char*, std::function<bool()>> checks[] = {
      {"answers", [&] { return AnswersAre(hybrid, Drafts::kNone, {}); }},
      {"damaged", [&] { return AnswersAre(hybrid, Drafts::kNone, {.damaged = 3}); }},
      {"drafts", [&] { return AnswersAre(headed, Drafts::kHeadThree, {}); }},
      {"2 prefill ranks", [&] { return AnswersAre(hybrid, Drafts::kNone, {}, 2); }},
      {"2 decode ranks", [&] { return AnswersAre(hybrid, Drafts::kNone, {}, 1, 2); }},
      {"aborts", [&] { return AbortsAndShares(hybrid); }},
      {"refusals", [&] { return RefusesLittle(hybrid); }},
      {"staging", handoff::StagingHolds},
      {"losses", [&] { return LossesEnd(hybrid); }},
      {"restored", [&] { return RestoredAndHanded(hybrid); }},
      {"room", [&] { return WaitsForRoom(hybrid, 1); }},
      {"room of 2 ranks", [&] { return WaitsForRoom(hybrid, 2); }},
      {"checksum", ChecksumSees},
      {"transports", TransportsHold},
  };
  for (const auto& [name, holds] : checks) {
    if (holds() && !::testing::Test::HasFailure()) continue;
    fmt::print(stderr, "{}: Failure\n", name);
    return false;
  }
  return true;
}

TEST(HandedMistakes, AreFound) { ExpectEachFound(kMistakes, Holds); }

}  // namespace
}  // namespace braid

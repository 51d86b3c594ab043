// See the header.
#include "tests/equality/handed.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <variant>

#include "base/clock.h"

namespace braid {

using handoff::Side;

namespace {

constexpr int64_t kMostUs = 20'000'000;

bool Within(int64_t most_us, const std::function<bool()>& holds) {
  const int64_t end_us = MonotonicUs() + most_us;
  while (!holds() && MonotonicUs() < end_us) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return holds();
}

void Until(const std::function<bool()>& holds, const char* what) {
  CHECK(Within(kMostUs, holds), "{}", what);
}

}  // namespace

void Handed::Watch::Launch(Plan plan, EventSink& events) {
  rows_ = plan.rows;
  to_ = &events;
  inner_.Launch(std::move(plan), *this);
}

void Handed::Watch::Post(Event event) {
  if (const auto* done = std::get_if<StepDone>(&event)) {
    std::lock_guard lock(mutex_);
    for (size_t r = 0; r < rows_.size(); ++r) {
      const RowResult& result = done->rows[r];
      if (result.drafts_of != DraftSource::kHead || result.drafts.empty()) continue;
      const Row& row = rows_[r];
      const int32_t end = row.start + row.token_count - row.drafts + result.accepted;
      noted_[row.request].emplace_back(end + 1, result.drafts);
    }
  }
  to_->Post(std::move(event));
}

Handed::Watch::Noted Handed::Watch::Take(RequestId request) {
  std::lock_guard lock(mutex_);
  return std::move(noted_[request]);
}

void Handed::Asked::OnOutput(Output o) {
  std::lock_guard lock(mutex);
  const auto move = [](auto& from, auto& to) { to.insert(to.end(), from.begin(), from.end()); };
  move(o.tokens, answer.tokens);
  move(o.logprobs, answer.logprobs);
  move(o.prompt_logprobs, answer.prompt_logprobs);
  answer.reuse = o.reuse;
  answer.preemptions = o.preemptions;
  answer.error = o.error;
  done = o.finish.has_value();
  changed.notify_all();
}

Handed::Handed(const Subject& subject, const HandedOptions& options)
    : options_(options), network_(options.faults) {
  int copy = 1;
  Subject computes = subject, answers = subject;
  computes.mesh.tp = options.prefill_tp;
  answers.mesh.tp = options.decode_tp;
  std::vector<handoff::HostPort> where;
  for (int i = 0; i < options.prefills; ++i) {
    prefills_.push_back(
        Make(MachineOf(computes, copy++), {.side = Side::kPrefill}, fmt::format("prefill-{}", i)));
    where.push_back({"loopback", prefills_.back()->partners->port()});
  }
  for (int i = 0; i < options.decodes; ++i) {
    decodes_.push_back(Make(MachineOf(answers, copy++), {.side = Side::kDecode, .prefills = where},
                            fmt::format("decode-{}", i)));
  }
  AwaitPartners();
}

Handed::~Handed() {
  for (auto* engines : {&decodes_, &prefills_}) {
    for (const auto& engine : *engines) Stop(*engine);
  }
}

std::unique_ptr<Handed::Engine> Handed::Make(Machine& machine, handoff::PartnerOptions partners,
                                             const std::string& folder) {
  const Side side = partners.side;
  partners.transport = network_.maker();
  partners.layout = machine.layout();
  partners.prefill = options_.limits;
  partners.decode = options_.decode_limits;
  partners.flight_bytes = options_.flight_bytes;
  partners.staging_bytes = options_.staging_bytes;
  auto engine = std::make_unique<Engine>();
  SchedulerConfig& config = engine->config = machine.config(options_.drafts);
  config.handoff = true;
  config.tier = !options_.directory.empty();
  if (options_.tune) options_.tune(side, config);
  const bool first = side == Side::kPrefill && prefills_.empty();
  if (first && options_.first_context > 0) config.context_tokens_max = options_.first_context;
  engine->machine = &machine;
  engine->partners = *handoff::Partners::Create(std::move(partners));
  engine->watch = std::make_unique<Watch>(machine.executor());
  engine->executor =
      std::make_unique<handoff::HandoffExecutor>(*engine->watch, *engine->partners, config);
  engine->driver =
      std::make_unique<Driver>(*Scheduler::Create(config), *engine->executor,
                               DriverConfig{.prompts_elsewhere = side == Side::kDecode});
  for (size_t rank = 0; rank < machine.peers().size(); ++rank) {
    machine.peers()[rank].Use(&engine->partners->MoverOf(static_cast<int32_t>(rank)),
                              engine->driver.get());
  }
  engine->partners->Serve(*engine->driver);
  if (config.tier) {
    engine->tiers = std::move(*RankTiers::Open({.directory = options_.directory + '/' + folder,
                                                .bytes_max = int64_t{1} << 30,
                                                .fingerprint = TierFingerprint("handed")},
                                               {machine.mesh().ranks(), machine.mesh().tp}));
    for (size_t rank = 0; rank < machine.tiers().size(); ++rank) {
      machine.tiers()[rank].Use(&engine->tiers->MoverOf(static_cast<int32_t>(rank)),
                                engine->driver.get());
    }
    engine->tiers->Watch(*engine->driver);
  }
  engine->thread = std::thread([e = engine.get()] { EXPECT_TRUE(e->driver->Run().ok()); });
  return engine;
}

void Handed::Stop(Engine& engine) {
  engine.driver->Stop(false);
  engine.thread.join();
  EXPECT_EQ(engine.driver->stats().scheduler.pages_used, 0);
  EXPECT_TRUE(engine.driver->scheduler().Audit().ok());
  engine.partners.reset();
  engine.tiers.reset();
  for (MoverSwitch& tier : engine.machine->tiers()) tier.Use(nullptr, nullptr);
  for (MoverSwitch& peer : engine.machine->peers()) peer.Use(nullptr, nullptr);
}

size_t Handed::Submit(Request request, size_t decode) {
  Driver& driver = *decodes_[decode]->driver;
  request.id = driver.NewRequestId();
  Asked& asked = asked_.emplace_back();
  asked.request = request;
  asked.decode = decode;
  EXPECT_TRUE(driver.Submit(std::move(request), &asked).ok());
  return asked_.size() - 1;
}

const Answer& Handed::Await(size_t ticket) {
  Asked& asked = asked_[ticket];
  AwaitTokens(ticket, SIZE_MAX);
  Engine& engine = *decodes_[asked.decode];
  if (engine.machine->has_head()) {
    for (const auto& [length, drafts] : engine.watch->Take(asked.request.id)) {
      engine.machine->ExpectDrafts(asked.request, asked.answer.tokens, length, drafts);
      ++drafts_checked_;
    }
  }
  return asked.answer;
}

void Handed::AwaitPart() {
  Until([&] { return network_.sending_most > 0; }, "no part leaves");
}

void Handed::LosePages(Side side) {
  (side == Side::kPrefill ? prefills_ : decodes_)[0]->partners->Drain();
}

void Handed::AwaitTokens(size_t ticket, size_t count) {
  Asked& asked = asked_[ticket];
  std::unique_lock lock(asked.mutex);
  CHECK(asked.changed.wait_for(lock, std::chrono::microseconds(kMostUs),
                               [&] { return asked.done || asked.answer.tokens.size() >= count; }),
        "request {} has no end", ticket);
}

void Handed::Abort(size_t ticket) {
  const Asked& asked = asked_[ticket];
  decodes_[asked.decode]->driver->Abort(asked.request.id);
}

void Handed::StopPrefills() {
  for (const auto& engine : prefills_) engine->driver->Stop(true);
}

void Handed::AwaitPartners() {
  for (const auto& decode : decodes_) {
    Until([&] { return decode->partners->stats().partners == options_.prefills; },
          "the engines do not pair");
  }
}

void Handed::AwaitParting() {
  for (const auto& decode : decodes_) {
    Until([&] { return decode->partners->stats().partners == 0; }, "the engines do not part");
  }
}

void Handed::AwaitNoPlace() {
  Until([&] { return network_.waited > 0; }, "every part finds a place");
}

void Handed::AwaitRooms(int64_t count) {
  const auto rooms = [&] {
    int64_t sum = 0;
    for (const auto& decode : decodes_) sum += decode->partners->stats().rooms;
    return sum;
  };
  Until([&] { return rooms() >= count; }, "prompts are not asked for");
}

std::string Handed::RefusalOf(uint32_t version) {
  struct Stranger final : handoff::Transport::Owner {
    void OnAccepted(handoff::ConnectionId) override {}
    void OnLost(handoff::ConnectionId, const std::string&) override {}
    void OnMessage(handoff::ConnectionId, std::string_view message) override {
      answer = handoff::Decode(message);
    }
    handoff::Transport::Place OnData(handoff::ConnectionId, std::string_view, size_t) override {
      return {};
    }
    void OnReceived(uint64_t, bool) override {}
    void OnSent(uint64_t, bool) override {}
    std::optional<handoff::Message> answer;
  } stranger;
  const auto transport = *network_.maker()(stranger);
  const handoff::ConnectionId to = *transport->Connect({"loopback", prefill(0).port()});
  transport->Send(to,
                  handoff::Encode({handoff::SessionId(0), handoff::Hello{version, "", "n", ""}}));
  while (!stranger.answer) {
    transport->Progress();
    transport->Wait(10);
  }
  const auto* refusal = std::get_if<handoff::Refusal>(&stranger.answer->body);
  return refusal == nullptr ? "" : refusal->reason;
}

void Handed::AwaitHanded(int64_t count) {
  Until([&] { return handed() + failed() >= count; }, "hand-offs do not end");
}

int64_t Handed::handed() const {
  int64_t done = 0;
  for (const auto& decode : decodes_) done += decode->partners->stats().done;
  return done;
}

int64_t Handed::failed() const {
  int64_t failed = 0;
  for (const auto& decode : decodes_) failed += decode->partners->stats().failed;
  return failed;
}

bool Handed::BytesAgree() const {
  return Within(5'000'000, [&] {
    int64_t left = 0, came = 0;
    for (const auto& prefill : prefills_) left += prefill->partners->stats().bytes;
    for (const auto& decode : decodes_) came += decode->partners->stats().bytes;
    return left == came;
  });
}

}  // namespace braid

// One thread with everything that partners know; see the header. Commands come from the engine
// thread and from the driver's sinks.
#include "handoff/partners.h"

#include <fmt/format.h>
#include <pthread.h>

#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "handoff/asked/asked_request.h"
#include "handoff/checksum.h"
#include "handoff/partners_state.h"
#include "handoff/parts.h"
#include "scheduler/event_codec.h"

namespace braid::handoff {
namespace {

constexpr int64_t kTickUs = 50'000;

// A grammar that uses up its budget, or its tenant's share, says nothing of other prompts.
Error OfRequest(Error error) {
  if (error.code == ErrorCode::kExhausted) error.code = ErrorCode::kInvalid;
  return error;
}

}  // namespace

// The token comes before the move of its pages is planned.
void Partners::State::Job::OnOutput(Output output) {
  if (!output.tokens.empty()) {
    token = output.tokens[0];
    if (!output.logprobs.empty()) logprob = output.logprobs[0];
  }
  if (!output.finish) return;
  State& s = state;
  Error error{output.error_code, output.error};
  if (error.message.empty()) error = {ErrorCode::kInternal, "the prompt's computation was ended"};
  {
    std::lock_guard lock(s.mutex);
    s.computing.erase(request);
  }
  s.Command([&s, k = key, error] { s.Finished(k, error); });
}

void Partners::State::Run() {
  ::pthread_setname_np(::pthread_self(), "braid-partners");
  while (Turn()) transport->Wait(static_cast<int32_t>(kTickUs / 1000));
  choice = PrefillChoice();  // what one loses is asked of no other
  for (const auto& [session, connection] : std::exchange(sessions, {})) {
    Drop(connection, kStops);
  }
  transport->Progress();
  bytes->Finish();
}

bool Partners::State::Turn() {
  std::vector<std::function<void()>> now;
  {
    std::lock_guard lock(mutex);
    if (ends) return false;
    now.swap(commands);
    published = stats;
  }
  for (const auto& command : now) command();
  bytes->Progress();
  transport->Progress();
  Tick(MonotonicUs());
  return true;
}

void Partners::State::Tick(int64_t now_us) {
  Change([&](auto& rooms, auto& effects) { rooms.Tick(now_us, effects); });
  std::vector<ConnectionId> silent;
  for (auto& [connection, peer] : peers) {
    const bool refused = peer.refused && now_us - peer.said_us >= kFarewellUs;
    if (refused || now_us - peer.heard_us >= kSilenceUs) silent.push_back(connection);
    if (peer.session.valid() && now_us - peer.said_us >= kPingUs) {
      TellPeer(connection, peer.session, Ping{});
    }
  }
  for (const ConnectionId connection : silent) {
    Drop(connection, fmt::format("it was silent for {} s", kSilenceUs / 1'000'000));
  }
  Connect(now_us);
}

void Partners::State::Apply(PrefillRooms::Effects& effects) {
  for (auto& [session, body] : effects.send) Tell(session, std::move(body));
  for (const RoomKey& key : effects.abort) GiveUp(key);
  for (const auto& [key, error] : effects.release) {
    const auto at = jobs.find(key);
    ++(error.empty() ? stats.done : stats.failed);
    EndMove(*at->second->events,
            {.move = at->second->move, .error = error, .lost = {}, .logprob = {}});
    if (!at->second->ended) over.push_back(std::move(at->second));
    jobs.erase(at);
  }
  const auto submit = std::exchange(effects.submit, {});
  effects = {};
  for (const auto& [key, ask] : submit) {
    PrefillRooms::Effects more;
    Compute(key, ask, more);
    Apply(more);
  }
}

// What a partner asks for becomes a request of this engine. A grammar that is compiled within a
// step would hold up everybody's prompts, so that comes first.
void Partners::State::Compute(RoomKey key, const Ask& ask, PrefillRooms::Effects& effects) {
  ++stats.rooms;
  Result<Request> asked = RequestOf(ask, driver->config());
  if (!asked) return Refuse(key, asked.error(), effects);
  asked->id = driver->NewRequestId();
  auto job = std::make_unique<Job>(*this, key, ask.begin);
  job->request = asked->id;
  if (options.grammars != nullptr && !asked->grammar.empty()) {
    const std::string& tenant = asked->tenant;
    const std::string whose =
        tenant.empty() ? fmt::format("session {}", key.session.value) : "tenant " + tenant;
    auto ticket = options.grammars->Enter(whose, asked->grammar, [this, key] {
      Command([this, key] {
        PrefillRooms::Effects more;
        Proceed(key, more);
        Apply(more);
      });
    });
    if (!ticket) return Refuse(key, OfRequest(ticket.error()), effects);
    job->grammar = *std::move(ticket);
  }
  job->asked = *std::move(asked);
  jobs[key] = std::move(job);
  Proceed(key, effects);
}

void Partners::State::Proceed(RoomKey key, PrefillRooms::Effects& effects) {
  const auto at = jobs.find(key);
  if (at == jobs.end() || !at->second->asked) return;
  Job& job = *at->second;
  const std::optional<Status> compiled = job.grammar == nullptr ? Status() : job.grammar->Outcome();
  if (!compiled) return;
  const Status status = *compiled ? Submit(job) : OfRequest(compiled->error());
  if (status) return;
  const Error why = status.error();
  jobs.erase(at);
  Refuse(key, why, effects);
}

void Partners::State::Refuse(RoomKey key, const Error& why, PrefillRooms::Effects& effects) {
  ++stats.failed;
  Publish();
  if (why.code == ErrorCode::kInvalid) return prefill.NotFit(key, why.message, effects);
  prefill.Ended(key, why.message, effects);
}

Status Partners::State::Submit(Job& job) {
  {
    std::lock_guard lock(mutex);
    computing[job.request] = &job;
  }
  Request request = *std::exchange(job.asked, std::nullopt);
  const Status status = driver->Submit(std::move(request), &job);
  if (!status) {
    std::lock_guard lock(mutex);
    computing.erase(job.request);
  }
  return status;
}

// Nobody wants its pages any more.
void Partners::State::GiveUp(RoomKey key) {
  const auto at = jobs.find(key);
  if (!at->second->asked) return driver->Abort(at->second->request);
  jobs.erase(at);
  PrefillRooms::Effects effects;
  Refuse(key, {}, effects);  // nobody is told: the room has failed
  Apply(effects);
}

// The engine's request has ended: with its pages handed over, or without. They may still be read,
// when the engine stops at once; then their room releases them.
void Partners::State::Finished(RoomKey key, const Error& error) {
  std::erase_if(over, [&](const auto& job) { return job->key == key; });
  const auto at = jobs.find(key);
  if (at == jobs.end()) return;
  if (at->second->events != nullptr) {
    at->second->ended = true;
    return;
  }
  jobs.erase(at);
  PrefillRooms::Effects effects;
  Refuse(key, error, effects);
  Apply(effects);
}

void Partners::State::EndMove(EventSink& events, PagesMoved moved) {
  Publish();
  events.Post(std::move(moved));
  std::lock_guard lock(mutex);
  if (--moving == 0) drained.notify_all();
}

void Partners::State::OnSent(uint64_t cookie, bool whole) {
  const auto at = reads.find(cookie);
  const Read read = std::move(at->second);
  reads.erase(at);
  if (whole) prefill.Sent(read.key.session, MonotonicUs());
  Land(read);
  if (read.bytes != nullptr && !bytes->copies()) EndRead(read, "");
  SendWaiting();
}

void Partners::State::Land(const Read& read) {
  const auto way = flying.find(read.key.session);
  way->second -= static_cast<int64_t>(read.size);
  if (way->second == 0) flying.erase(way);
  if (read.bytes == nullptr) {
    early_bytes -= static_cast<int64_t>(read.size);
  } else {
    bytes->Free(read.bytes);
  }
}

void Partners::State::EndRead(const Read& read, const std::string& error) {
  PrefillRooms::Effects effects;
  prefill.EndRead(read.key, error, effects);
  Apply(effects);
}

void Partners::State::Hand(const PageMove& move, RoomKey key, EventSink& events) {
  const auto at = jobs.find(key);
  if (at == jobs.end()) {  // ended while other ranks had not heard of the move
    return EndMove(
        events, {.move = move.id, .error = "the prompt was given up", .lost = {}, .logprob = {}});
  }
  Job& job = *at->second;
  job.move = move.id;
  job.events = &events;
  const std::map<PartKey, Page> own = pages.Of(move);
  const std::vector<PartKey> parts = PartsOf(pages.geometry(), job.begin, move.end);
  std::string result;
  AppendRecord(
      Event(PagesMoved{
          .move = MoveId(0), .error = {}, .lost = {}, .token = job.token, .logprob = job.logprob}),
      result);
  for (const PartKey& part : parts) {
    if (!job.sent.contains(part)) job.rest.emplace_back(part, own.at(part));
  }
  PrefillRooms::Effects effects;
  prefill.Hand(key, static_cast<int32_t>(parts.size()), std::move(result), MonotonicUs(), effects);
  SendWaiting();
  Apply(effects);
}

bool Partners::State::HasRoom(SessionId on_the_way_to) const {
  const auto at = flying.find(on_the_way_to);
  return at == flying.end() || at->second < options.flight_bytes;
}

// Somebody waits for the first token of what was handed over, so that goes first.
void Partners::State::SendWaiting() {
  FetchRest();
  SendEarly();
}

// What was handed over, in order, as far as there is room on the way, and for copies.
void Partners::State::FetchRest() {
  for (const auto& [key, job] : jobs) {
    while (!job->rest.empty() && HasRoom(key.session)) {
      const auto [part, page] = job->rest.front();
      std::byte* to = bytes->Take(page);
      if (to == nullptr) return;
      job->rest.pop_front();
      if (!prefill.BeginRead(key)) {
        bytes->Free(to);
        continue;
      }
      flying[key.session] += static_cast<int64_t>(page.size);
      bytes->Fetch(page, to,
                   [this, read = Read{key, part, page.size, to, {}}](const Status& status) {
                     OnFetched(read, status);
                   });
    }
  }
}

// A copy that nobody wants any more does not leave.
void Partners::State::OnFetched(Read read, const Status& status) {
  const bool copied = bytes->copies();
  if (copied) EndRead(read, status ? "" : status.error().message);
  if (!copied || (status && prefill.Open(read.key))) return SendPart(std::move(read));
  Land(read);
  SendWaiting();
}

// Copies that nobody wants any more do not leave.
void Partners::State::SendEarly() {
  for (auto at = early.begin(); at != early.end();) {
    auto& [session, waiting] = *at;
    while (!waiting.empty()) {
      const bool wanted = prefill.Open(waiting.front().key);
      if (wanted && !HasRoom(session)) break;
      Read read = std::move(waiting.front());
      waiting.pop_front();
      const auto size = static_cast<int64_t>(read.size);
      if (!wanted) {
        early_bytes -= size;
        continue;
      }
      const auto job = jobs.find(read.key);
      const bool computes = job != jobs.end() && job->second->events == nullptr;
      if (computes) stats.early_bytes += size;
      flying[session] += size;
      SendPart(std::move(read));
    }
    at = waiting.empty() ? early.erase(at) : std::next(at);
  }
}

void Partners::State::TakeEarly(Read read) {
  const auto at = jobs.find(read.key);
  if (at == jobs.end() || !at->second->sent.insert(read.part).second) {
    early_bytes -= static_cast<int64_t>(read.size);
    return;
  }
  early[read.key.session].push_back(std::move(read));
  SendEarly();
}

void Partners::State::SendPart(Read read) {
  const RoomKey key = read.key;
  const size_t size = read.size;
  stats.bytes += static_cast<int64_t>(size);
  const auto session = sessions.find(key.session);
  const ConnectionId to = session == sessions.end() ? ConnectionId() : session->second;
  const std::byte* data = read.bytes != nullptr ? read.bytes : read.copy.data();
  const PartHead head{key.room, read.part, Checksum(data, size)};
  reads[++cookies] = std::move(read);
  transport->SendData(to, Encode({key.session, head}), {data, size, cookies});
}

Partners::Partners(std::unique_ptr<State> state) : state_(std::move(state)) {}

Partners::~Partners() {
  {
    std::lock_guard lock(state_->mutex);
    state_->ends = true;
  }
  state_->transport->Wake();
  if (state_->thread.joinable()) state_->thread.join();
}

Result<std::unique_ptr<Partners>> Partners::Create(PartnerOptions options) {
  auto state = std::make_unique<State>(std::move(options));
  State& s = *state;
  ASSIGN_OR_RETURN(s.transport, s.options.transport(s));
  if (s.options.side == Side::kPrefill) {
    ASSIGN_OR_RETURN(s.port, s.transport->Listen(s.options.listen));
  }
  s.thread = std::thread([&s] { s.Run(); });
  return std::unique_ptr<Partners>(new Partners(std::move(state)));
}

void Partners::Serve(Driver& driver) {
  State& s = *state_;
  s.Command([&s, &driver] {
    if (s.pages.apart()) {
      const int64_t bytes = StagingBytes(s.options.staging_bytes, s.pages.block_bytes_max());
      s.bytes = std::make_unique<Staging>(s.pages, bytes, [&s] { s.transport->Wake(); });
    }
    s.driver = &driver;
  });
}

void Partners::Leave() {
  State& s = *state_;
  {
    std::lock_guard lock(s.mutex);
    if (std::exchange(s.leaves, true)) return;
  }
  s.Command([&s] {
    std::vector<ConnectionId> all;
    for (const auto& [connection, peer] : s.peers) all.push_back(connection);
    s.choice = PrefillChoice();
    for (const ConnectionId connection : all) s.Drop(connection, kStops);
  });
}

void Partners::SetPrefills(const std::vector<HostPort>& found) {
  State& s = *state_;
  if (s.options.side != Side::kDecode) return;
  s.Command([&s, found] {
    std::map<std::string, State::Prefill> wanted;
    for (const std::vector<HostPort>* list : {&std::as_const(s.options.prefills), &found}) {
      for (const HostPort& at : *list) {
        const auto known = s.prefills.find(TextOf(at));
        wanted[TextOf(at)] = known == s.prefills.end() ? State::Prefill{.at = at} : known->second;
      }
    }
    s.prefills = std::move(wanted);
  });
}

void Partners::SetKeys(std::vector<std::string> keys) {
  CHECK(!keys.empty());
  State& s = *state_;
  s.Command([&s, keys = std::move(keys)] {
    s.options.keys = keys;
    for (auto& [text, prefill_engine] : s.prefills) prefill_engine.failures = 0;  // tried at once
  });
}

void Partners::Attach(const Arena& arena, const CacheGeometry& geometry) {
  state_->pages.Attach(0, arena, geometry);
}

void Partners::Drain() {
  State& s = *state_;
  s.expected.clear();  // the lost step's
  s.Command([&s] { s.LosePages(); });
  std::unique_lock lock(s.mutex);
  s.drained.wait(lock, [&s] { return s.moving == 0; });
}

// Moves that began come first, and prompts that have no pages yet may go on. What is being received
// into a copy touches no page, so the engine thread, which waits, does not wait for its sender.
void Partners::State::LosePages() {
  for (auto& [cookie, write] : writes) {
    if (!bytes->copies() || std::exchange(write.lost, true)) continue;
    DecodeRooms::Effects effects;
    decode.EndWrite(write.room, write.part, {kPagesLost, Cause::kHere}, effects);
    Apply(effects);
  }
  Change([](auto& rooms, auto& effects) { rooms.LosePages(kPagesLost, effects); });
  SendWaiting();
}

Mover& Partners::MoverOf(int32_t rank) {
  if (rank == 0) return *this;
  return *state_->rank_movers[static_cast<size_t>(rank - 1)];
}

void Partners::State::Begin(MoveId move, std::function<void()> command) {
  std::lock_guard lock(mutex);
  Awaited& of = awaited[move];
  if (command) of.begin = std::move(command);
  if (++of.ranks < pages.ranks()) return;
  commands.push_back(std::move(of.begin));
  awaited.erase(move);
  transport->Wake();
}

void Partners::Start(const PageMove& move, EventSink& events) {
  State& s = *state_;
  {
    std::lock_guard lock(s.mutex);
    ++s.moving;
  }
  if (move.in()) {
    auto expected = s.expected.extract(move.id);
    CHECK(!expected.empty(), "the pages of request {} were not expected", move.request.value);
    return s.Begin(move.id, [&s, move, &events, request = std::move(expected.mapped())]() mutable {
      s.Receive(move, std::move(request), events);
    });
  }
  RoomKey key;
  {
    std::lock_guard lock(s.mutex);
    key = s.computing.at(move.request)->key;
  }
  s.Begin(move.id, [&s, move, &events, key] { s.Hand(move, key, events); });
}

void Partners::Expect(MoveId move, const Request& request) {
  std::string& record = state_->expected[move];
  AppendRecord(Event(Submit{request}), record);
}

void Partners::Abort(RequestId request) {
  State& s = *state_;
  if (s.options.side != Side::kDecode) return;
  s.Command([&s, request] {
    for (const auto& [room, arrival] : s.arrivals) {
      if (arrival.request != request) continue;
      DecodeRooms::Effects effects;
      s.decode.Abort(room, effects);
      return s.Apply(effects);
    }
  });
}

int32_t Partners::WantedFrom(RequestId request) {
  std::lock_guard lock(state_->mutex);
  const auto at = state_->computing.find(request);
  return at == state_->computing.end() ? -1 : at->second->begin;
}

void Partners::Early(RequestId request, PartKey part, BlockId block) {
  State& s = *state_;
  if (s.pages.apart()) return;
  const Page page = s.pages.At(part.group, block);
  const auto size = static_cast<int64_t>(page.size);
  if (s.early_bytes.load() + size > kCopiesBytesMax) return;  // it leaves with the rest
  std::vector<std::byte> copy(page.data, page.data + size);
  s.early_bytes += size;
  std::lock_guard lock(s.mutex);
  const auto at = s.computing.find(request);
  if (at == s.computing.end()) {
    s.early_bytes -= size;
    return;
  }
  s.commands.push_back([&s, key = at->second->key, part, size, data = std::move(copy)]() mutable {
    s.TakeEarly({key, part, static_cast<size_t>(size), nullptr, std::move(data)});
  });
  s.transport->Wake();
}

bool Partners::receives() const { return state_->options.side == Side::kDecode; }
uint16_t Partners::port() const { return state_->port; }

PartnerStats Partners::stats() const {
  std::lock_guard lock(state_->mutex);
  return state_->published;
}

}  // namespace braid::handoff

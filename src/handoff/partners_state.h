// What partners.cc (moves and prompts), partners_arrivals.cc (pages that come) and partners_talk.cc
// (connections, pairing and messages) share. The partners' thread, but for what is marked
// otherwise.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "handoff/pages/engine_pages.h"
#include "handoff/pages/page_bytes.h"
#include "handoff/partners.h"
#include "handoff/rooms/prefill_choice.h"

namespace braid::handoff {

inline constexpr const char* kStops = "this engine stops";
inline constexpr const char* kPagesLost = "the device that has the pages has failed";

// In which a peer hears that it is refused.
inline constexpr int64_t kFarewellUs = 1'000'000;

inline std::string TextOf(const HostPort& at) { return fmt::format("{}:{}", at.host, at.port); }

struct Partners::State final : Transport::Owner {
  // A connection, and from its pairing on a session.
  struct Peer {
    std::string name;
    std::optional<std::string> prefill;  // where it is, of a prefill engine
    Nonces nonces;
    SessionId session;  // invalid: not paired yet
    int64_t heard_us = 0, said_us = 0;
    bool refused = false;  // it is no partner: closed when it has heard so
  };
  // A prefill engine to connect to.
  struct Prefill {
    HostPort at;
    int64_t tried_us = 0;  // when a connection was begun last
    int32_t failures = 0;  // since it was paired
    std::string refused;   // what was said of it last
  };
  // A move that brings pages.
  struct Arrival {
    MoveId move;
    RequestId request;
    EventSink* events;
    std::map<PartKey, Page> pages;
    int32_t begin = 0;
    std::string record;    // of the request
    int64_t since_us = 0;  // of the first question
    SessionId asked;       // last
    int32_t asks = 0;
  };
  // A part on its way into a page.
  struct Write {
    RoomId room;
    PartKey part;
    uint64_t checksum;
    Page page;
    std::byte* bytes;
    bool lost = false;  // the page is: what comes goes nowhere
  };
  // A prompt that is computed for a partner. The driver calls it on the engine thread.
  struct Job final : OutputSink {
    Job(State& s, RoomKey k, int32_t b) : state(s), key(k), begin(b) {}
    void OnOutput(Output output) override;

    State& state;
    const RoomKey key;
    const int32_t begin;
    RequestId request;
    // Engine thread, until the pages are handed over.
    TokenId token = -1;
    TokenLogprob logprob;
    // The partners' thread.
    std::optional<Request> asked;                 // which the driver does not know yet
    std::unique_ptr<GrammarGate::Ticket> grammar;  // null: it has none
    std::set<PartKey> sent;
    std::deque<std::pair<PartKey, Page>> rest;  // of the pages that were handed over
    MoveId move;
    EventSink* events = nullptr;  // not null: its pages are handed over
    bool ended = false;           // the driver knows it no more
  };
  // A part that leaves.
  struct Read {
    RoomKey key;
    PartKey part;
    size_t size = 0;
    std::byte* bytes = nullptr;   // null: the copy
    std::vector<std::byte> copy;  // made before the pages were handed over
  };
  // A move of which some ranks have not heard yet.
  struct Awaited {
    size_t ranks = 0;
    std::function<void()> begin;
  };
  // A rank beside the first.
  class RankMover final : public Mover {
   public:
    RankMover(State& state, size_t rank) : state_(state), rank_(rank) {}
    void Attach(const Arena& arena, const CacheGeometry& geometry) override {
      state_.pages.Attach(rank_, arena, geometry);
    }
    void Start(const PageMove& move, EventSink&) override { state_.Begin(move.id, nullptr); }
    void Drain() override {}  // the first rank's waits

   private:
    State& state_;
    const size_t rank_;
  };

  PartnerOptions options;
  EnginePages pages;
  std::unique_ptr<Transport> transport;
  uint16_t port = 0;
  std::vector<std::unique_ptr<RankMover>> rank_movers;
  std::map<MoveId, std::string> expected;  // records of requests; engine thread

  std::mutex mutex;
  std::vector<std::function<void()>> commands;
  std::map<RequestId, Job*> computing;  // by what the driver knows them as
  std::map<MoveId, Awaited> awaited;
  int64_t moving = 0;  // moves whose end is not posted
  std::condition_variable drained;
  bool ends = false, leaves = false;
  std::atomic<int64_t> early_bytes = 0;  // of copies that are still to leave
  PartnerStats published;

  // The rest is the partners' thread's.
  Driver* driver = nullptr;  // null: before Serve
  std::unique_ptr<PageBytes> bytes = std::make_unique<PagesInPlace>();
  DecodeRooms decode;
  PrefillChoice choice;
  bool alone = false;  // the log says that no prefill engine is connected
  PrefillRooms prefill;
  std::map<ConnectionId, Peer> peers;
  std::map<SessionId, ConnectionId> sessions;
  std::map<std::string, Prefill> prefills;  // by HOST:PORT
  int64_t strangers_since_us = 0;           // of the minute in which
  int32_t strangers_said = 0;               // so many were refused in the log
  std::map<RoomId, Arrival> arrivals;
  std::map<uint64_t, Write> writes;
  std::map<uint64_t, Read> reads;
  // Bytes on their way, those that are copied for it included; without entry none.
  std::map<SessionId, int64_t> flying;
  std::map<SessionId, std::deque<Read>> early;  // to leave when nothing else does
  std::map<RoomKey, std::unique_ptr<Job>> jobs;
  std::vector<std::unique_ptr<Job>> over;  // released; their requests have not ended yet
  uint64_t cookies = 0;
  PartnerStats stats;
  std::thread thread;

  explicit State(PartnerOptions o)
      : options(std::move(o)),
        pages(options.layout),
        decode(options.decode),
        prefill(options.prefill) {
    for (size_t r = 1; r < pages.ranks(); ++r) {
      rank_movers.push_back(std::make_unique<RankMover>(*this, r));
    }
    for (const HostPort& at : options.prefills) prefills[TextOf(at)].at = at;
  }

  void Command(std::function<void()> command) {
    {
      std::lock_guard lock(mutex);
      commands.push_back(std::move(command));
    }
    transport->Wake();
  }
  // A rank starts a move; the first one says what is to be done then.
  void Begin(MoveId move, std::function<void()> command);
  void Run();
  bool Turn();
  // Before others learn of an end, so that they find it counted.
  void Publish() {
    std::lock_guard lock(mutex);
    published = stats;
  }
  void Tick(int64_t now_us);
  void Connect(int64_t now_us);
  // A connection came to nothing: the next one to a prefill engine comes later.
  void Failed(Peer& peer, const std::string& what, const std::string& why);
  // Whether this is not what was said of the prefill engine last; of others, whether not much has
  // been said.
  bool IsNews(const Peer& peer, const std::string& what);
  void Tell(SessionId to, Body body);
  void TellPeer(ConnectionId to, SessionId session, Body body);
  void Apply(DecodeRooms::Effects& effects);
  void Apply(PrefillRooms::Effects& effects);
  void Compute(RoomKey key, const Ask& ask, PrefillRooms::Effects& effects);
  // To the driver, once its grammar is compiled.
  void Proceed(RoomKey key, PrefillRooms::Effects& effects);
  Status Submit(Job& job);
  void GiveUp(RoomKey key);
  void Refuse(RoomKey key, const Error& why, PrefillRooms::Effects& effects);

  // Pages that come.
  void Receive(const PageMove& move, std::string request, EventSink& events);
  // Opens a room for the pages, at another engine than the one that was asked last. Empty: it took
  // the arrival; else why it did not.
  std::string AskFor(Arrival& arrival);
  void Deliver(const Outcome& outcome);
  // What a room's end says of the prefill engine.
  void Judge(SessionId session, const Outcome& outcome);
  bool AsksAnother(Arrival& arrival, const Outcome& outcome);
  void EndWrite(const Write& write, const Failure& failure);

  // Pairing.
  void OnHello(ConnectionId from, Peer& peer, const Hello& hello);
  void Refuse(ConnectionId from, const std::string& why);
  void Paired(ConnectionId from, Peer& peer);
  void Drop(ConnectionId connection, const std::string& why);

  // Moves.
  void Hand(const PageMove& move, RoomKey key, EventSink& events);
  bool HasRoom(SessionId on_the_way_to) const;
  void SendWaiting();
  void FetchRest();
  void OnFetched(Read read, const Status& status);
  // It is not on its way any more.
  void Land(const Read& read);
  void SendEarly();
  void TakeEarly(Read read);
  void SendPart(Read read);
  void EndRead(const Read& read, const std::string& error);
  // Posts it.
  void EndMove(EventSink& events, PagesMoved moved);
  void LosePages();
  // Calls change(rooms, effects) for those of both sides.
  template <class F>
  void Change(F change) {
    DecodeRooms::Effects arriving;
    change(decode, arriving);
    Apply(arriving);
    PrefillRooms::Effects leaving;
    change(prefill, leaving);
    Apply(leaving);
  }
  void Finished(RoomKey key, const Error& error);

  void OnAccepted(ConnectionId connection) override;
  void OnLost(ConnectionId connection, const std::string& why) override;
  void OnMessage(ConnectionId connection, std::string_view message) override;
  Transport::Place OnData(ConnectionId connection, std::string_view header, size_t bytes) override;
  void OnReceived(uint64_t cookie, bool whole) override;
  void OnSent(uint64_t cookie, bool whole) override;
};

}  // namespace braid::handoff

// See the header. All sockets belong to the thread; others leave it commands.
#include "kv_events/subscriber.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "kv_events/frames.h"
#include "kv_events/stream.h"
#include "kv_events/zmq.h"

namespace braid::kv {
namespace {

constexpr int64_t kMessageBytesMax = int64_t{16} << 20;  // a longer one ends the connection
constexpr int kReceiveHighWater = 10'000;                // messages that ZeroMQ holds for us
constexpr int kLookMs = 200;
constexpr int kAtOnce = 64;  // messages of a source before others have their turn
constexpr int kNoLinger = 0;

}  // namespace

struct Subscriber::State {
  struct Source {
    Source(bool can_ask, EventStream::Take take) : stream(can_ask, std::move(take)) {}
    void* events = nullptr;
    void* replay = nullptr;  // null: there is none
    EventStream stream;
    std::string address;
    int64_t malformed = 0;  // as was logged
  };

  ~State();
  void* Connect(int kind, const std::string& address);
  void Open(int32_t number, const EventSource& at);
  void Close(Source& source) const;
  void Run();
  void Ask(Source& source) const;
  void Live(Source& source);
  void Answers(Source& source);
  void Command(std::function<void()> command);

  Zmq zmq{};
  void* context = nullptr;
  int wake = -1;
  Take take;
  std::mutex mutex;  // of what follows
  std::vector<std::function<void()>> commands;

  std::atomic<bool> stopping{false};
  std::map<int32_t, std::unique_ptr<Source>> sources;
  std::string buffer;
  std::vector<std::string> frames;  // of the message that was received last
  std::thread thread;
};

Subscriber::State::~State() {
  if (thread.joinable()) {
    stopping = true;
    CHECK(::eventfd_write(wake, 1) == 0);
    thread.join();
  }
  for (auto& [number, source] : sources) Close(*source);
  if (context != nullptr) zmq.ctx_term(context);
  if (wake >= 0) ::close(wake);
}

void* Subscriber::State::Connect(int kind, const std::string& address) {
  void* socket = zmq.socket(context, kind);
  if (socket == nullptr) return nullptr;
  zmq.setsockopt(socket, Zmq::kLinger, &kNoLinger, sizeof(kNoLinger));
  zmq.setsockopt(socket, Zmq::kReceiveHigh, &kReceiveHighWater, sizeof(kReceiveHighWater));
  zmq.setsockopt(socket, Zmq::kMaxMessage, &kMessageBytesMax, sizeof(kMessageBytesMax));
  if (kind == Zmq::kSub) zmq.setsockopt(socket, Zmq::kSubscribe, "", 0);
  if (zmq.connect(socket, address.c_str()) == 0) return socket;
  LogError("cannot connect to {} for KV events: {}; an address is tcp://HOST:PORT", address,
           zmq.Why());
  zmq.close(socket);
  return nullptr;
}

void Subscriber::State::Close(Source& source) const {
  for (void* socket : {source.events, source.replay}) {
    if (socket != nullptr) zmq.close(socket);
  }
}

void Subscriber::State::Open(int32_t number, const EventSource& at) {
  void* events = Connect(Zmq::kSub, at.events);
  if (events == nullptr) return;
  void* replay = at.replay.empty() ? nullptr : Connect(Zmq::kDealer, at.replay);
  auto source = std::make_unique<Source>(
      replay != nullptr, [this, number](EventBatch batch) { take(number, std::move(batch)); });
  source->events = events;
  source->address = at.events;
  source->replay = replay;
  sources[number] = std::move(source);
}

void Subscriber::State::Ask(Source& source) const {
  if (source.replay == nullptr) return;
  const std::optional<uint64_t> first = source.stream.Question(MonotonicUs());
  if (!first) return;
  const NumberFrame number = EncodeNumber(*first);
  zmq.send(source.replay, "", 0, Zmq::kSendMore | Zmq::kDontWait);
  zmq.send(source.replay, number.data(), number.size(), Zmq::kDontWait);
}

void Subscriber::State::Live(Source& source) {
  for (int i = 0; i < kAtOnce && ReceiveFrames(zmq, source.events, buffer, &frames); ++i) {
    if (frames.size() != 3 || frames[1].size() != sizeof(NumberFrame)) continue;
    source.stream.OnLive(DecodeNumber(frames[1]), frames[2]);
  }
}

void Subscriber::State::Answers(Source& source) {
  for (int i = 0; i < kAtOnce && ReceiveFrames(zmq, source.replay, buffer, &frames); ++i) {
    if (frames.size() != 3 || frames[1].size() != sizeof(NumberFrame)) continue;
    source.stream.OnAnswer(DecodeNumber(frames[1]), frames[2]);
  }
}

void Subscriber::State::Run() {
  buffer.resize(static_cast<size_t>(kMessageBytesMax));
  while (!stopping) {
    std::vector<Zmq::PollItem> items{{nullptr, wake, Zmq::kPollIn, 0}};
    for (const auto& [number, source] : sources) {
      Ask(*source);
      items.push_back({source->events, -1, Zmq::kPollIn, 0});
      if (source->replay != nullptr) items.push_back({source->replay, -1, Zmq::kPollIn, 0});
    }
    zmq.poll(items.data(), static_cast<int>(items.size()), kLookMs);
    eventfd_t count = 0;
    ::eventfd_read(wake, &count);
    for (auto& [number, source] : sources) {
      // Answers first: what comes by itself is held until they end.
      if (source->replay != nullptr) Answers(*source);
      Live(*source);
      if (source->stream.malformed() == source->malformed) continue;
      source->malformed = source->stream.malformed();
      LogWarning("KV events from {} cannot be read: {} batches so far", source->address,
                 source->malformed);
    }
    std::vector<std::function<void()>> now;
    {
      std::lock_guard lock(mutex);
      now.swap(commands);
    }
    for (const auto& command : now) command();
  }
}

void Subscriber::State::Command(std::function<void()> command) {
  {
    std::lock_guard lock(mutex);
    commands.push_back(std::move(command));
  }
  CHECK(::eventfd_write(wake, 1) == 0);
}

Subscriber::Subscriber(std::unique_ptr<State> state) : state_(std::move(state)) {}
Subscriber::~Subscriber() = default;

Result<std::unique_ptr<Subscriber>> Subscriber::Start(Take take) {
  auto state = std::make_unique<State>();
  ASSIGN_OR_RETURN(state->zmq, Zmq::Load());
  state->take = std::move(take);
  state->wake = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  state->context = state->zmq.ctx_new();
  if (state->wake < 0 || state->context == nullptr) {
    return Error{ErrorCode::kUnavailable, "no file descriptors are left for KV events"};
  }
  State* running = state.get();
  state->thread = std::thread([running] {
    ::pthread_setname_np(::pthread_self(), "braid-kv-reader");
    running->Run();
  });
  return std::unique_ptr<Subscriber>(new Subscriber(std::move(state)));
}

void Subscriber::Add(int32_t source, EventSource at) {
  state_->Command([s = state_.get(), source, at = std::move(at)] { s->Open(source, at); });
}

void Subscriber::Remove(int32_t source) {
  state_->Command([s = state_.get(), source] {
    const auto at = s->sources.find(source);
    if (at == s->sources.end()) return;
    s->Close(*at->second);
    s->sources.erase(at);
    s->take(source, {.dp_rank = -1, .events = {BlocksCleared{}}});
  });
}

}  // namespace braid::kv

// See the header. The sockets are made on the thread that calls Start and belong to the publisher's
// thread until it has ended.
#include "kv_events/publisher.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "kv_events/batch.h"
#include "kv_events/frames.h"
#include "kv_events/zmq.h"

namespace braid::kv {
namespace {

constexpr size_t kQueuedMax = 100'000;  // batches that wait to be sent
// Batches that can be asked for again.
constexpr size_t kKeptBatches = 10'000;
constexpr int64_t kKeptBytes = int64_t{64} << 20;
// Messages that ZeroMQ holds for a slow gateway: at least an answer with all that is kept. ZeroMQ
// does not count their bytes, so this bounds the memory.
constexpr int kSendHighWater = 2 * kKeptBatches;
constexpr int kLingerMs = 1000;             // to send what is queued when the engine stops
constexpr int64_t kRequestBytesMax = 1024;  // of a gateway's question

Error Invalid(std::string message, const char* field) {
  return {ErrorCode::kInvalid, std::move(message), field};
}

// ZeroMQ takes a port modulo 65536.
Status CheckPort(const std::string& address, const char* field) {
  if (!address.starts_with("tcp://")) return {};
  const std::string port = address.substr(address.rfind(':') + 1);
  int32_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  const bool whole = error == std::errc() && end == port.data() + port.size();
  if (port == "*" || (whole && number >= 1 && number <= 65535)) return {};
  return Invalid(fmt::format("{} has no port of 1 to 65535 (or *) at its end", address), field);
}

}  // namespace

Status PublisherOptions::Check() const {
  if (!bind.empty() && !connect.empty()) {
    return Invalid("give --kv-events, to listen, or --kv-events-connect, not both", "kv_events");
  }
  RETURN_IF_ERROR(CheckPort(bind, "kv_events"));
  RETURN_IF_ERROR(CheckPort(connect, "kv_events_connect"));
  RETURN_IF_ERROR(CheckPort(replay, "kv_events_replay"));
  if (used()) return {};
  if (!replay.empty()) {
    return Invalid("--kv-events-replay repeats events; publish some with --kv-events",
                   "kv_events_replay");
  }
  if (!topic.empty()) {
    return Invalid("--kv-events-topic names events; publish some with --kv-events",
                   "kv_events_topic");
  }
  return {};
}

struct Publisher::State {
  ~State();
  Status Open(const PublisherOptions& options);
  Result<void*> Socket(int kind, const std::string& address, bool binds, const char* field);
  std::string Endpoint(void* socket) const;
  void Run();
  void SendQueued();
  void AnswerReplay();
  void Keep(uint64_t number, std::string payload);

  struct Queued {
    int32_t dp_rank;
    PrefixChanges changes;
  };
  struct Kept {
    uint64_t number;
    std::string payload;
  };

  Zmq zmq{};
  void* context = nullptr;
  void* events = nullptr;
  void* replay = nullptr;  // null: there is none
  std::string events_at, replay_at, topic;
  double epoch_seconds = 0;  // of the monotonic clock's origin
  int wake = -1;

  std::mutex mutex;  // of what follows
  std::deque<Queued> queue;
  uint64_t dropped = 0;  // batches that found no room; their numbers are missing

  std::atomic<bool> stopping{false};
  uint64_t next = 0;
  std::deque<Kept> kept;
  int64_t kept_bytes = 0;
  std::thread thread;
};

Publisher::State::~State() {
  if (thread.joinable()) {
    stopping = true;
    CHECK(::eventfd_write(wake, 1) == 0);
    thread.join();
  }
  for (void* socket : {events, replay}) {
    if (socket != nullptr) zmq.close(socket);
  }
  if (context != nullptr) zmq.ctx_term(context);
  if (wake >= 0) ::close(wake);
}

Result<void*> Publisher::State::Socket(int kind, const std::string& address, bool binds,
                                       const char* field) {
  void* socket = zmq.socket(context, kind);
  if (socket == nullptr) return Error{ErrorCode::kUnavailable, "ZeroMQ: " + zmq.Why(), field};
  (kind == Zmq::kPub ? events : replay) = socket;
  zmq.setsockopt(socket, Zmq::kLinger, &kLingerMs, sizeof(kLingerMs));
  zmq.setsockopt(socket, Zmq::kSendHigh, &kSendHighWater, sizeof(kSendHighWater));
  zmq.setsockopt(socket, Zmq::kMaxMessage, &kRequestBytesMax, sizeof(kRequestBytesMax));
  const int failed =
      binds ? zmq.bind(socket, address.c_str()) : zmq.connect(socket, address.c_str());
  if (failed == 0) return socket;
  return Invalid(fmt::format("cannot {} {}: {}; an address is tcp://HOST:PORT, tcp://*:PORT or "
                             "ipc://PATH",
                             binds ? "listen at" : "connect to", address, zmq.Why()),
                 field);
}

std::string Publisher::State::Endpoint(void* socket) const {
  char text[256] = {};
  size_t size = sizeof(text);
  return zmq.getsockopt(socket, Zmq::kLastEndpoint, text, &size) == 0 ? text : "";
}

Status Publisher::State::Open(const PublisherOptions& options) {
  ASSIGN_OR_RETURN(zmq, Zmq::Load());
  topic = options.topic;
  epoch_seconds = static_cast<double>(UnixSeconds()) - static_cast<double>(MonotonicUs()) * 1e-6;
  wake = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  context = zmq.ctx_new();
  if (wake < 0 || context == nullptr) {
    return Error{ErrorCode::kUnavailable, "no file descriptors are left", "kv_events"};
  }
  const bool binds = options.connect.empty();
  ASSIGN_OR_RETURN(events, Socket(Zmq::kPub, binds ? options.bind : options.connect, binds,
                                  binds ? "kv_events" : "kv_events_connect"));
  events_at = Endpoint(events);
  if (options.replay.empty()) return {};
  ASSIGN_OR_RETURN(replay, Socket(Zmq::kRouter, options.replay, true, "kv_events_replay"));
  replay_at = Endpoint(replay);
  return {};
}

void Publisher::State::Run() {
  while (true) {
    Zmq::PollItem items[] = {{nullptr, wake, Zmq::kPollIn, 0}, {replay, -1, Zmq::kPollIn, 0}};
    zmq.poll(items, replay == nullptr ? 1 : 2, -1);
    eventfd_t count = 0;
    ::eventfd_read(wake, &count);
    const bool last = stopping;
    SendQueued();
    if (last) return;
    if (replay != nullptr && (items[1].revents & Zmq::kPollIn) != 0) AnswerReplay();
  }
}

void Publisher::State::SendQueued() {
  std::deque<Queued> batches;
  uint64_t missing = 0;
  {
    std::lock_guard lock(mutex);
    batches.swap(queue);
    std::swap(missing, dropped);
  }
  for (Queued& batch : batches) {
    const double seconds = epoch_seconds + static_cast<double>(MonotonicUs()) * 1e-6;
    std::string payload = EncodeBatch(batch.changes, seconds, batch.dp_rank);
    const NumberFrame number = EncodeNumber(next);
    // Never waits: a gateway whose queue is full misses the message.
    zmq.send(events, topic.data(), topic.size(), Zmq::kSendMore);
    zmq.send(events, number.data(), number.size(), Zmq::kSendMore);
    zmq.send(events, payload.data(), payload.size(), 0);
    Keep(next++, std::move(payload));
  }
  if (missing == 0) return;
  next += missing;
  LogWarning("{} batches of KV events were not sent: {} were waiting", missing, kQueuedMax);
}

void Publisher::State::Keep(uint64_t number, std::string payload) {
  if (replay == nullptr) return;
  kept_bytes += static_cast<int64_t>(payload.size());
  kept.push_back({number, std::move(payload)});
  while (kept.size() > kKeptBatches || kept_bytes > kKeptBytes) {
    kept_bytes -= static_cast<int64_t>(kept.front().payload.size());
    kept.pop_front();
  }
}

// A question: who asks, nothing, the first number wanted. Answers: who asked, nothing, number and
// batch of each that is kept; at the end the number -1 without a batch.
void Publisher::State::AnswerReplay() {
  char buffer[kRequestBytesMax];
  std::vector<std::string> frames;
  if (!ReceiveFrames(zmq, replay, buffer, &frames)) return;
  if (frames.size() != 3 || !frames[1].empty() || frames[2].size() != sizeof(NumberFrame)) return;
  const std::string& asker = frames[0];
  const uint64_t first = DecodeNumber(frames[2]);
  const auto answer = [&](uint64_t value, std::string_view payload) {
    const NumberFrame number = EncodeNumber(value);
    zmq.send(replay, asker.data(), asker.size(), Zmq::kSendMore | Zmq::kDontWait);
    zmq.send(replay, "", 0, Zmq::kSendMore | Zmq::kDontWait);
    zmq.send(replay, number.data(), number.size(), Zmq::kSendMore | Zmq::kDontWait);
    zmq.send(replay, payload.data(), payload.size(), Zmq::kDontWait);
  };
  for (const Kept& batch : kept) {
    if (batch.number >= first) answer(batch.number, batch.payload);
  }
  answer(~uint64_t{0}, "");
}

Publisher::Publisher(std::unique_ptr<State> state) : state_(std::move(state)) {}
Publisher::~Publisher() = default;

Result<std::unique_ptr<Publisher>> Publisher::Start(const PublisherOptions& options) {
  auto state = std::make_unique<State>();
  RETURN_IF_ERROR(state->Open(options));
  State* running = state.get();
  state->thread = std::thread([running] {
    ::pthread_setname_np(::pthread_self(), "braid-kv-events");
    running->Run();
  });
  return std::unique_ptr<Publisher>(new Publisher(std::move(state)));
}

void Publisher::OnPrefixes(DpRankId rank, PrefixChanges changes) {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->queue.size() < kQueuedMax) {
      state_->queue.push_back({rank.value, std::move(changes)});
    } else {
      ++state_->dropped;
    }
  }
  CHECK(::eventfd_write(state_->wake, 1) == 0);
}

const std::string& Publisher::events_at() const { return state_->events_at; }
const std::string& Publisher::replay_at() const { return state_->replay_at; }

}  // namespace braid::kv

// A connection for each pair of ranks and channel. A call sends a frame to every other rank, its
// number and size before its bytes, and reads one of each, all at the same time. A rank that gives
// up says so, and whom it misses, so that all name the same one.
#include "comm/tcp_group.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "comm/tcp_socket.h"

namespace braid {
namespace {

// Looks at sockets so often before it sleeps.
constexpr int kSpins = 200;
// How long a rank that gives up waits for the others to take what it was sending.
constexpr int64_t kFarewellUs = 500'000;
// Whoever connects and says nothing for so long is no rank.
constexpr int64_t kMeetUs = 1'000'000;
constexpr uint64_t kFarewell = std::numeric_limits<uint64_t>::max();

struct FrameHeader {
  uint64_t call = 0;   // kFarewell: the sender has given up
  uint64_t bytes = 0;  // then the rank that it misses
};

// Why all groups of the process have ended: the first error, and the rank that it misses.
struct Ended {
  std::mutex mutex;
  std::optional<Error> error;
  std::atomic<int32_t> missing{-1};  // -1: they have not

  Error End(int32_t who, Error why) {
    std::lock_guard lock(mutex);
    if (!error) {
      error = std::move(why);
      missing = who;
    }
    return *error;
  }
};

// What goes to a rank and comes from it in a call.
struct Exchanged {
  FrameHeader out, in;
  size_t sent = 0, got = 0;  // header included
  Bytes send;
  MutableBytes receive;

  bool sends() const { return sent < sizeof(out) + send.size(); }
  bool receives() const { return got < sizeof(in) + receive.size(); }
};

class TcpRank final : public Communicator {
 public:
  // `sockets` of all ranks of the process's group; null: of this rank.
  struct Parts {
    std::vector<int32_t> members;
    int32_t rank = 0;  // among all
    std::vector<const Socket*> sockets;
    std::chrono::milliseconds deadline;
    Ended& ended;
  };
  explicit TcpRank(Parts parts)
      : Communicator(static_cast<int32_t>(std::ranges::find(parts.members, parts.rank) -
                                          parts.members.begin()),
                     static_cast<int32_t>(parts.members.size())),
        parts_(std::move(parts)),
        peers_(parts_.members.size()) {}

 private:
  Status Exchange(std::span<const Bytes> send, std::span<const MutableBytes> receive) override {
    if (const int32_t missing = parts_.ended.missing; missing >= 0) {
      return GiveUp(missing);
    }
    ++call_;
    for (size_t i = 0; i < peers_.size(); ++i) {
      peers_[i] = {
          .out = {call_, send[i].size()}, .in = {}, .send = send[i], .receive = receive[i]};
    }
    const int64_t end_us = MonotonicUs() + std::chrono::microseconds(parts_.deadline).count();
    for (int turn = 0;; ++turn) {
      bool goes_on = false;
      for (size_t i = 0; i < peers_.size(); ++i) {
        if (static_cast<int32_t>(i) == rank()) continue;
        RETURN_IF_ERROR(Send(i));
        RETURN_IF_ERROR(Receive(i));
        goes_on = goes_on || peers_[i].sends() || peers_[i].receives();
      }
      if (!goes_on) return {};
      if (turn < kSpins) {
        _mm_pause();
      } else if (!Wait(end_us)) {
        return GiveUp(Member(Missing()));
      } else if (const int32_t missing = parts_.ended.missing; missing >= 0) {
        return GiveUp(missing);
      }
    }
  }

  int fd(size_t i) const { return parts_.sockets[i]->fd(); }
  int32_t Member(size_t i) const { return parts_.members[i]; }

  Status Send(size_t i) {
    Exchanged& peer = peers_[i];
    while (peer.sends()) {
      const std::byte* from = peer.sent < sizeof(peer.out)
                                  ? reinterpret_cast<const std::byte*>(&peer.out) + peer.sent
                                  : peer.send.data() + (peer.sent - sizeof(peer.out));
      const size_t count = peer.sent < sizeof(peer.out)
                               ? sizeof(peer.out) - peer.sent
                               : peer.send.size() + sizeof(peer.out) - peer.sent;
      const bool more = peer.sent < sizeof(peer.out) && !peer.send.empty();
      const ssize_t sent = ::send(fd(i), from, count, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
      if (sent > 0) {
        peer.sent += static_cast<size_t>(sent);
      } else if (errno == EAGAIN || errno == EINTR) {
        return {};
      } else {
        peer.sent = sizeof(peer.out) + peer.send.size();  // what it has sent before tells why
        return {};
      }
    }
    return {};
  }

  Status Receive(size_t i) {
    Exchanged& peer = peers_[i];
    while (peer.receives()) {
      const bool header = peer.got < sizeof(peer.in);
      std::byte* to = header ? reinterpret_cast<std::byte*>(&peer.in) + peer.got
                             : peer.receive.data() + (peer.got - sizeof(peer.in));
      const size_t count =
          header ? sizeof(peer.in) - peer.got : peer.receive.size() + sizeof(peer.in) - peer.got;
      const ssize_t got = ::recv(fd(i), to, count, 0);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
      if (got <= 0) {
        return GiveUp(Member(i),
                      fmt::format("no word from rank {}: its connection has ended", Member(i)));
      }
      peer.got += static_cast<size_t>(got);
      if (header && peer.got == sizeof(peer.in)) RETURN_IF_ERROR(Check(i));
    }
    return {};
  }

  Status Check(size_t i) {
    const FrameHeader& in = peers_[i].in;
    if (in.call == kFarewell) return GiveUp(static_cast<int32_t>(in.bytes));
    const size_t expected = peers_[i].receive.size();
    if (in.call == call_ && in.bytes == expected) return {};
    const std::string number =
        in.call == call_ ? "" : fmt::format(" in message {} instead of {}", in.call, call_);
    return GiveUp(Member(i),
                  fmt::format("rank {} sent {} bytes{} to rank {}, which expected {}", Member(i),
                              in.bytes, number, Member(static_cast<size_t>(rank())), expected),
                  ErrorCode::kInternal);
  }

  std::string NoWord(int32_t missing) const {
    return fmt::format("no word from rank {} within {} ms", missing, parts_.deadline.count());
  }

  // The first that has sent nothing, or not all.
  size_t Missing() const {
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (static_cast<int32_t>(i) != rank() && peers_[i].receives()) return i;
    }
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (static_cast<int32_t>(i) != rank() && peers_[i].sends()) return i;
    }
    return 0;
  }

  Status GiveUp(int32_t missing) { return GiveUp(missing, NoWord(missing)); }
  // Tells every rank before this one's connections end, so that nobody names this one.
  Status GiveUp(int32_t missing, std::string why, ErrorCode code = ErrorCode::kUnavailable) {
    const int64_t end_us = MonotonicUs() + kFarewellUs;
    const bool told = std::exchange(gave_up_, true);
    for (size_t i = 0; !told && i < peers_.size(); ++i) {
      if (static_cast<int32_t>(i) == rank() || !FinishFrame(i, end_us)) continue;
      const FrameHeader farewell{kFarewell, static_cast<uint64_t>(missing)};
      (void)::send(fd(i), &farewell, sizeof(farewell), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    return parts_.ended.End(missing, {code, std::move(why)});
  }

  // Sends the rest of a frame that has begun: in its middle nobody would understand a farewell.
  bool FinishFrame(size_t i, int64_t end_us) {
    const Exchanged& peer = peers_[i];
    while (peer.sent > 0 && peer.sends()) {
      if (!Send(i)) return false;
      const int64_t left_us = end_us - MonotonicUs();
      if (peer.sends() && left_us <= 0) return false;
      pollfd poll = {.fd = fd(i), .events = POLLOUT, .revents = 0};
      if (peer.sends()) ::poll(&poll, 1, static_cast<int>((left_us + 999) / 1000));
    }
    return true;
  }

  // False when the time is over.
  bool Wait(int64_t end_us) {
    // Another group of the process may end while this one waits.
    constexpr int64_t kLookUs = 100'000;
    polls_.clear();
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (static_cast<int32_t>(i) == rank()) continue;
      const int events = (peers_[i].sends() ? POLLOUT : 0) | (peers_[i].receives() ? POLLIN : 0);
      if (events != 0) polls_.push_back({fd(i), static_cast<short>(events), 0});
    }
    const int64_t left_us = end_us - MonotonicUs();
    if (left_us <= 0) return false;
    ::poll(polls_.data(), polls_.size(),
           static_cast<int>((std::min(left_us, kLookUs) + 999) / 1000));
    return true;
  }

  Parts parts_;
  std::vector<Exchanged> peers_;
  std::vector<pollfd> polls_;
  uint64_t call_ = 0;
  bool gave_up_ = false;
};

}  // namespace

struct TcpGroup::State {
  TcpOptions options;
  std::vector<std::vector<Socket>> sockets;  // [channel][rank]
  Ended ended;

  Status Join();
  Status AcceptAll(const Socket& listening, int32_t channels_of_first, int64_t end_us);
  Result<Socket> Call(Socket socket, const SocketAddress& at, const Caller& caller, int64_t end_us);
  Status ConnectTo(int32_t rank, int32_t channel, const SocketAddress& at, uint16_t port,
                   int64_t end_us);
  Result<std::vector<SocketAddress>> TellAddresses(int64_t end_us);
  void Leave();
  std::vector<uint16_t> ports;  // on rank 0: where each listens
};

// Reads until the others have left too: a connection that is closed with something unread does not
// deliver what was sent last, and that is whom this rank misses.
void TcpGroup::State::Leave() {
  std::vector<pollfd> open;
  for (const std::vector<Socket>& channel : sockets) {
    for (const Socket& socket : channel) {
      if (socket.fd() >= 0) open.push_back({socket.fd(), POLLIN, 0});
    }
  }
  for (const pollfd& each : open) ::shutdown(each.fd, SHUT_WR);
  const int64_t end_us = MonotonicUs() + kFarewellUs;
  for (int64_t left_us = kFarewellUs; !open.empty() && left_us > 0;
       left_us = end_us - MonotonicUs()) {
    ::poll(open.data(), open.size(), static_cast<int>((left_us + 999) / 1000));
    std::erase_if(open, [](const pollfd& each) {
      std::byte unread[4096];
      ssize_t got = 0;
      while ((got = ::recv(each.fd, unread, sizeof(unread), 0)) > 0) {
      }
      return got == 0 || (errno != EAGAIN && errno != EINTR);
    });
  }
}

Status TcpGroup::State::ConnectTo(int32_t rank, int32_t channel, const SocketAddress& at,
                                  uint16_t port, int64_t end_us) {
  ASSIGN_OR_RETURN(Socket socket, Connect(at.host, at.port, end_us));
  ASSIGN_OR_RETURN(sockets[static_cast<size_t>(channel)][static_cast<size_t>(rank)],
                   Call(std::move(socket), at, {options.rank, channel, port}, end_us));
  return {};
}

// Somebody may have answered who goes at once: the last process of that port, or a rank that had no
// time for a slow one. So it calls again.
Result<Socket> TcpGroup::State::Call(Socket socket, const SocketAddress& at, const Caller& caller,
                                     int64_t end_us) {
  constexpr int64_t kAgainUs = 50'000;
  while (true) {
    const Status met = Introduce(socket, options.secret, caller, end_us);
    if (met) return socket;
    if (met.error().code != ErrorCode::kUnavailable || MonotonicUs() >= end_us) return met.error();
    ::usleep(kAgainUs);
    ASSIGN_OR_RETURN(socket, Connect(at.host, at.port, end_us));
  }
}

// Of every rank after this one: its first connection, or the other channels.
Status TcpGroup::State::AcceptAll(const Socket& listening, int32_t count, int64_t end_us) {
  while (count > 0) {
    Result<Socket> socket = Accept(listening, end_us);
    if (!socket) {
      std::vector<int32_t> missing;
      for (int32_t rank = options.rank + 1; rank < options.size; ++rank) {
        if (sockets[0][static_cast<size_t>(rank)].fd() < 0) missing.push_back(rank);
      }
      return Error{ErrorCode::kUnavailable,
                   fmt::format("no word from rank {} within {} ms of the start",
                               fmt::join(missing, ", "), options.join_deadline.count())};
    }
    const Result<Caller> caller =
        Meet(*socket, options.secret, std::min(end_us, MonotonicUs() + kMeetUs));
    if (!caller) {
      LogWarning("{}: {}", PeerOf(*socket).host, caller.error().message);
      continue;
    }
    const auto [rank, channel, port] = *caller;
    if (rank <= options.rank || rank >= options.size || channel < 0 || channel >= kChannels) {
      LogWarning("{} calls itself rank {} of another group", PeerOf(*socket).host, rank);
      continue;
    }
    Socket& place = sockets[static_cast<size_t>(channel)][static_cast<size_t>(rank)];
    if (place.fd() >= 0) {
      LogWarning("{} calls itself rank {}, which has called before", PeerOf(*socket).host, rank);
      continue;
    }
    place = *std::move(socket);
    if (options.rank == 0 && channel == 0) ports[static_cast<size_t>(rank)] = port;
    --count;
  }
  return {};
}

// Rank 0 knows where everybody is, and tells all.
Result<std::vector<SocketAddress>> TcpGroup::State::TellAddresses(int64_t end_us) {
  struct Entry {
    char host[64] = {};  // empty: on the machine of rank 0
    uint16_t port = 0;
  };
  std::vector<Entry> table(static_cast<size_t>(options.size));
  const MutableBytes bytes = std::as_writable_bytes(std::span(table));
  if (options.rank > 0) {
    RETURN_IF_ERROR(ReceiveAll(sockets[0][0], bytes, end_us));
  } else {
    for (size_t rank = 1; rank < table.size(); ++rank) {
      const SocketAddress at = PeerOf(sockets[0][rank]);
      const bool beside = options.elsewhere && IsLoopback(at.host);
      if (!beside) at.host.copy(table[rank].host, sizeof(Entry::host) - 1);
      table[rank].port = ports[rank];
    }
    for (size_t rank = 1; rank < table.size(); ++rank) {
      RETURN_IF_ERROR(SendAll(sockets[0][rank], bytes, end_us));
    }
  }
  std::vector<SocketAddress> addresses;
  for (const Entry& entry : table) {
    const bool beside = options.rank > 0 && entry.host[0] == '\0';
    addresses.push_back({beside ? PeerOf(sockets[0][0]).host : entry.host, entry.port});
  }
  return addresses;
}

Status TcpGroup::State::Join() {
  const int64_t end_us = MonotonicUs() + std::chrono::microseconds(options.join_deadline).count();
  const int32_t after = options.size - 1 - options.rank;
  ports.resize(static_cast<size_t>(options.size));
  for (int32_t c = 0; c < kChannels; ++c) sockets.emplace_back(static_cast<size_t>(options.size));
  const SocketAddress first{options.host, options.port};
  if (options.rank == 0) {
    ASSIGN_OR_RETURN(const Socket listening, options.elsewhere
                                                 ? ListenEverywhere(options.port)
                                                 : Listen(options.host, options.port, end_us));
    RETURN_IF_ERROR(AcceptAll(listening, after, end_us));
    RETURN_IF_ERROR(TellAddresses(end_us).ok() ? Status()
                                               : Status(Error{ErrorCode::kUnavailable,
                                                              "a rank has left while all start"}));
    return AcceptAll(listening, after * (kChannels - 1), end_us);
  }
  // The address from which this rank reaches rank 0 is where the others find it.
  ASSIGN_OR_RETURN(Socket socket, Connect(first.host, first.port, end_us));
  ASSIGN_OR_RETURN(const Socket listening,
                   options.elsewhere ? ListenEverywhere(0) : Listen(AddressOf(socket).host, 0));
  const uint16_t port = AddressOf(listening).port;
  ASSIGN_OR_RETURN(sockets[0][0], Call(std::move(socket), first, {options.rank, 0, port}, end_us));
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, TellAddresses(end_us));
  for (int32_t rank = 0; rank < options.rank; ++rank) {
    const SocketAddress& at = rank == 0 ? first : addresses[static_cast<size_t>(rank)];
    for (int32_t c = rank == 0 ? 1 : 0; c < kChannels; ++c) {
      RETURN_IF_ERROR(ConnectTo(rank, c, at, port, end_us));
    }
  }
  return AcceptAll(listening, after * kChannels, end_us);
}

TcpGroup::TcpGroup(std::unique_ptr<State> state) : state_(std::move(state)) {}
TcpGroup::~TcpGroup() {
  if (state_->ended.missing >= 0) state_->Leave();
}

Result<std::unique_ptr<TcpGroup>> TcpGroup::Join(const TcpOptions& options) {
  if (options.secret.empty()) {
    return Error{ErrorCode::kInvalid, "ranks that connect by TCP need a secret"};
  }
  auto state = std::make_unique<State>();
  state->options = options;
  RETURN_IF_ERROR(state->Join());
  return std::unique_ptr<TcpGroup>(new TcpGroup(std::move(state)));
}

std::unique_ptr<Communicator> TcpGroup::GroupOf(std::vector<int32_t> members, int32_t channel) {
  std::vector<const Socket*> sockets;
  for (const int32_t member : members) {
    sockets.push_back(&state_->sockets[static_cast<size_t>(channel)][static_cast<size_t>(member)]);
  }
  return std::make_unique<TcpRank>(TcpRank::Parts{.members = std::move(members),
                                                  .rank = state_->options.rank,
                                                  .sockets = std::move(sockets),
                                                  .deadline = state_->options.deadline,
                                                  .ended = state_->ended});
}

}  // namespace braid

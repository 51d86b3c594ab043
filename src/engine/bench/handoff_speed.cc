// A sender and a receiver, each a transport's owner; see the header.
#include "engine/bench/handoff_speed.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/clock.h"
#include "base/math.h"
#include "handoff/checksum.h"
#include "handoff/message.h"
#include "handoff/transport.h"
#include "tensor/tensor.h"

namespace braid {
namespace {

using handoff::ConnectionId;
using handoff::Transport;

constexpr int64_t kArenaBytes = int64_t{256} << 20;  // more than caches hold
constexpr int64_t kSilenceUs = 20'000'000;

int64_t Pages(const HandoffLoad& load) {
  return std::max<int64_t>(2, kArenaBytes / load.part_bytes);
}

// Where parts come to. Its pages are written one after the other.
class Receiver final : public Transport::Owner {
 public:
  explicit Receiver(const HandoffLoad& load) : load_(load), arena_(Pages(load) * load.part_bytes) {
    // The arena of an engine in service has its memory.
    std::fill_n(arena_.data(), arena_.bytes(), std::byte{1});
  }

  // The port goes to `tell`; returns when the sender has said that it has what it wants.
  int Run(const std::string& host, int tell) {
    auto made = Transport::Create(*this);
    if (!made) return 1;
    transport_ = std::move(*made);
    const auto port = transport_->Listen({host, 0});
    const uint16_t number = port ? *port : 0;
    if (::write(tell, &number, sizeof(number)) != sizeof(number) || number == 0) return 1;
    const int64_t end_us = MonotonicUs() + kSilenceUs;
    while (!over_ && MonotonicUs() < std::max(end_us, heard_us_ + kSilenceUs)) {
      transport_->Progress();
      transport_->Wait(50);
    }
    return over_ ? 0 : 1;
  }

  void OnAccepted(ConnectionId sender) override { transport_->Trust(sender); }
  void OnLost(ConnectionId, const std::string&) override { over_ = true; }
  void OnMessage(ConnectionId, std::string_view) override { over_ = true; }
  Transport::Place OnData(ConnectionId from, std::string_view header, size_t bytes) override {
    const auto message = handoff::Decode(header);
    if (!message || bytes != static_cast<size_t>(load_.part_bytes)) return {};
    sender_ = from;
    std::byte* page = arena_.data() + ++begun_ % Pages(load_) * load_.part_bytes;
    open_[static_cast<uint64_t>(begun_)] = {page,
                                            std::get<handoff::PartHead>(message->body).checksum};
    return {page, static_cast<uint64_t>(begun_)};
  }
  void OnReceived(uint64_t cookie, bool whole) override {
    heard_us_ = MonotonicUs();
    const auto [page, checksum] = open_.at(cookie);
    open_.erase(cookie);
    const auto bytes = static_cast<size_t>(load_.part_bytes);
    good_ += whole && handoff::Checksum(page, bytes) == checksum ? 1 : 0;
    if (++received_ % load_.parts != 0) return;
    transport_->Send(sender_, std::to_string(good_));
    good_ = 0;
  }
  void OnSent(uint64_t, bool) override {}

 private:
  const HandoffLoad load_;
  Buffer arena_;
  std::unique_ptr<Transport> transport_;
  std::map<uint64_t, std::pair<std::byte*, uint64_t>> open_;
  ConnectionId sender_;
  int64_t begun_ = 0, received_ = 0, good_ = 0, heard_us_ = 0;
  bool over_ = false;
};

class Sender final : public Transport::Owner {
 public:
  explicit Sender(const HandoffLoad& load) : load_(load), arena_(Pages(load) * load.part_bytes) {
    auto* words = reinterpret_cast<uint64_t*>(arena_.data());
    for (int64_t i = 0; i < Pages(load) * load.part_bytes / 8; ++i) {
      words[i] = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15ull;
    }
  }

  // Seconds of each repetition, from the first part to the receiver's word that all are right.
  Result<std::vector<double>> Run(const handoff::HostPort& to) {
    ASSIGN_OR_RETURN(transport_, Transport::Create(*this));
    ASSIGN_OR_RETURN(to_, transport_->Connect(to));
    while (!to_.valid()) {  // a name
      transport_->Progress();
      transport_->Wait(50);
      ASSIGN_OR_RETURN(to_, transport_->Connect(to));
    }
    std::vector<double> seconds;
    for (int32_t i = 0; i <= load_.repeat; ++i) {  // the first warms up and is not counted
      const int64_t begin_us = MonotonicUs();
      RETURN_IF_ERROR(SendAll());
      if (i > 0) seconds.push_back(static_cast<double>(MonotonicUs() - begin_us) * 1e-6);
    }
    transport_->Send(to_, "over");
    for (const int64_t end_us = MonotonicUs() + 100'000; MonotonicUs() < end_us;) {
      transport_->Progress();
      transport_->Wait(10);
    }
    return seconds;
  }

  void OnAccepted(ConnectionId) override {}
  void OnLost(ConnectionId, const std::string& why) override { lost_ = why; }
  void OnMessage(ConnectionId, std::string_view message) override { answer_ = message; }
  Transport::Place OnData(ConnectionId, std::string_view, size_t) override { return {}; }
  void OnReceived(uint64_t, bool) override {}
  void OnSent(uint64_t, bool) override { --flying_; }

 private:
  Status SendAll() {
    answer_.clear();
    int64_t sent = 0;
    heard_us_ = MonotonicUs();
    while (answer_.empty()) {
      for (; sent < load_.parts && flying_ < flight_; ++sent, ++flying_) SendPart(sent);
      const int64_t before = flying_;
      transport_->Progress();
      if (flying_ != before) heard_us_ = MonotonicUs();
      if (!lost_.empty()) return Error{ErrorCode::kUnavailable, "the receiver is lost: " + lost_};
      if (MonotonicUs() - heard_us_ > kSilenceUs) {
        return Error{ErrorCode::kUnavailable, "no part has arrived for 20 s"};
      }
      if (sent == load_.parts || flying_ == flight_) transport_->Wait(50);
    }
    if (answer_ == std::to_string(load_.parts)) return {};
    return Error{ErrorCode::kInternal,
                 fmt::format("{} of {} parts arrived as they were sent", answer_, load_.parts)};
  }
  void SendPart(int64_t number) {
    const std::byte* page = arena_.data() + number % Pages(load_) * load_.part_bytes;
    const auto bytes = static_cast<size_t>(load_.part_bytes);
    const handoff::PartHead head{handoff::RoomId(0),
                                 {GroupId(0), static_cast<int32_t>(number)},
                                 handoff::Checksum(page, bytes)};
    transport_->SendData(to_, handoff::Encode({handoff::SessionId(0), head}), {page, bytes, 0});
  }

  const HandoffLoad load_;
  Buffer arena_;
  std::unique_ptr<Transport> transport_;
  ConnectionId to_;
  // As partners do it (handoff/partners.h).
  const int64_t flight_ = CeilDiv(Transport::kFlightBytes, load_.part_bytes);
  int64_t flying_ = 0;
  int64_t heard_us_ = 0;
  std::string answer_, lost_;
};

}  // namespace

Result<std::vector<double>> MeasureHandoff(const HandoffLoad& load, const std::string& host) {
  int ends[2];
  if (::pipe(ends) != 0) return Error{ErrorCode::kInternal, "cannot make a pipe"};
  const pid_t child = ::fork();
  if (child < 0) return Error{ErrorCode::kInternal, "cannot start a process"};
  if (child == 0) {
    ::close(ends[0]);
    ::_exit(Receiver(load).Run(host, ends[1]));
  }
  ::close(ends[1]);
  uint16_t port = 0;
  const bool told = ::read(ends[0], &port, sizeof(port)) == sizeof(port) && port != 0;
  ::close(ends[0]);
  Result<std::vector<double>> seconds =
      Error{ErrorCode::kUnavailable, fmt::format("cannot listen at {}, or there is no UCX", host)};
  if (told) seconds = Sender(load).Run({host, port});
  int status = 0;
  ::waitpid(child, &status, 0);
  return seconds;
}

}  // namespace braid

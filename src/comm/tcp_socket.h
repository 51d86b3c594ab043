// Sockets of a TCP group, and what two ranks say when they meet.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/result.h"
#include "comm/communicator.h"

namespace braid {

// Move-only; -1: none.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();
  int fd() const { return fd_; }

 private:
  int fd_;
};

struct SocketAddress {
  std::string host;  // numeric
  uint16_t port = 0;
};

// Listens at an address of this machine; port 0: any that is free. A name is looked up until
// `end_us` (base/clock.h), at least once.
Result<Socket> Listen(const std::string& host, uint16_t port, int64_t end_us = 0);
// At all addresses of this machine, of IPv4 and of IPv6 where it has that.
Result<Socket> ListenEverywhere(uint16_t port);
// Tries all addresses until `end_us`, for the other side may start later.
Result<Socket> Connect(const std::string& host, uint16_t port, int64_t end_us);
Result<Socket> Accept(const Socket& listening, int64_t end_us);
// Whether this machine alone reaches itself there.
bool IsLoopback(const std::string& host);
SocketAddress AddressOf(const Socket& socket);  // this side
SocketAddress PeerOf(const Socket& socket);

// All of the bytes, until `end_us`.
Status SendAll(const Socket& socket, Bytes bytes, int64_t end_us);
Status ReceiveAll(const Socket& socket, MutableBytes bytes, int64_t end_us);

// Who connects, and what for.
struct Caller {
  int32_t rank = 0, channel = 0;
  uint16_t port = 0;  // where it listens
};
// Both sides prove that they know the secret. kInvalid: the other one does not. kUnavailable: it
// has left, or is silent.
Status Introduce(const Socket& socket, const std::string& secret, const Caller& caller,
                 int64_t end_us);
Result<Caller> Meet(const Socket& socket, const std::string& secret, int64_t end_us);

}  // namespace braid

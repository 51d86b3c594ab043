// See the header. Sockets do not block; whoever waits polls.
#include "comm/tcp_socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/clock.h"
#include "base/system/secure_random.h"

namespace braid {
namespace {

constexpr int64_t kAgainUs = 50'000;
constexpr size_t kNonceBytes = 32, kProofBytes = 32;
using Nonce = std::array<char, kNonceBytes>;
using Proof = std::array<char, kProofBytes>;

struct Call {
  Caller caller;
  Nonce nonce;
  Proof proof;
};

Error Failed(std::string_view what) {
  return {ErrorCode::kUnavailable, fmt::format("{}: {}", what, std::strerror(errno))};
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;
Result<Addresses> Resolve(const std::string& host, uint16_t port, bool passive) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = passive ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) {
    return Error{ErrorCode::kUnavailable, fmt::format("{}: {}", host, ::gai_strerror(code))};
  }
  return Addresses(found, &::freeaddrinfo);
}

// Bound to no address yet.
int Open(int family) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  return fd;
}

// False when the time is over.
bool Await(int fd, short events, int64_t end_us) {
  const int64_t ms = (end_us - MonotonicUs() + 999) / 1000;
  pollfd poll = {.fd = fd, .events = events, .revents = 0};
  return ms > 0 && ::poll(&poll, 1, static_cast<int>(std::min<int64_t>(ms, 1 << 30))) > 0;
}

void SetUp(const Socket& socket) {
  const int on = 1;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

SocketAddress Named(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof(host), port,
                sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
  // Of IPv4, at a socket of both.
  constexpr std::string_view kMapped = "::ffff:";
  std::string_view plain = host;
  if (plain.starts_with(kMapped) && plain.find('.') != plain.npos)
    plain.remove_prefix(kMapped.size());
  return {std::string(plain), static_cast<uint16_t>(std::strtol(port, nullptr, 10))};
}

Nonce DrawNonce() {
  Nonce nonce;
  const std::string hex = SecureRandomHex(kNonceBytes / 2);
  std::copy_n(hex.begin(), kNonceBytes, nonce.begin());
  return nonce;
}

Proof Prove(const std::string& secret, std::string_view side, const Call& call,
            const Nonce& theirs) {
  const std::string text =
      fmt::format("braid rank {} {} {} {} {} {}", side, call.caller.rank, call.caller.channel,
                  call.caller.port, std::string_view(call.nonce.data(), kNonceBytes),
                  std::string_view(theirs.data(), kNonceBytes));
  Proof proof;
  unsigned int size = 0;
  const void* done = ::HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                            reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                            reinterpret_cast<unsigned char*>(proof.data()), &size);
  CHECK(done != nullptr && size == kProofBytes, "OpenSSL cannot compute HMAC-SHA256");
  return proof;
}

bool Same(const Proof& a, const Proof& b) {
  return ::CRYPTO_memcmp(a.data(), b.data(), kProofBytes) == 0;
}

template <class T>
MutableBytes BytesOf(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

Result<Socket> Listen(const std::string& host, uint16_t port, int64_t end_us) {
  Result<Addresses> addresses = Resolve(host, port, true);
  while (!addresses && MonotonicUs() < end_us) {
    ::usleep(kAgainUs);
    addresses = Resolve(host, port, true);
  }
  if (!addresses) return addresses.error();
  Socket socket(Open((*addresses)->ai_family));
  if (::bind(socket.fd(), (*addresses)->ai_addr, (*addresses)->ai_addrlen) != 0 ||
      ::listen(socket.fd(), SOMAXCONN) != 0) {
    return Failed(fmt::format("cannot listen at {}:{}", host, port));
  }
  return socket;
}

Result<Socket> ListenEverywhere(uint16_t port) {
  Socket both(Open(AF_INET6));
  const int off = 0;
  ::setsockopt(both.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  sockaddr_in6 at = {};
  at.sin6_family = AF_INET6;
  at.sin6_port = htons(port);
  if (::bind(both.fd(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)) == 0 &&
      ::listen(both.fd(), SOMAXCONN) == 0) {
    return both;
  }
  return Listen("0.0.0.0", port);
}

Result<Socket> Connect(const std::string& host, uint16_t port, int64_t end_us) {
  Status last = Error{ErrorCode::kUnavailable, fmt::format("{}:{} does not answer", host, port)};
  while (MonotonicUs() < end_us) {
    Result<Addresses> addresses = Resolve(host, port, false);
    if (!addresses) last = addresses.error();
    for (const addrinfo* to = addresses ? addresses->get() : nullptr; to != nullptr;
         to = to->ai_next) {
      Socket socket(::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      int error = ::connect(socket.fd(), to->ai_addr, to->ai_addrlen) == 0 ? 0 : errno;
      if (error == EINPROGRESS && Await(socket.fd(), POLLOUT, end_us)) {
        socklen_t size = sizeof(error);
        ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
      }
      if (error == 0) {
        SetUp(socket);
        return socket;
      }
      last = Error{ErrorCode::kUnavailable,
                   fmt::format("cannot connect to {}:{}: {}", host, port, std::strerror(error))};
    }
    ::usleep(kAgainUs);
  }
  return last.error();
}

Result<Socket> Accept(const Socket& listening, int64_t end_us) {
  while (Await(listening.fd(), POLLIN, end_us)) {
    Socket socket(::accept4(listening.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.fd() < 0) continue;
    SetUp(socket);
    return socket;
  }
  return Error{ErrorCode::kUnavailable, "nobody connects"};
}

bool IsLoopback(const std::string& host) { return host.starts_with("127.") || host == "::1"; }

SocketAddress AddressOf(const Socket& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size);
  return Named(address, size);
}

SocketAddress PeerOf(const Socket& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  ::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size);
  return Named(address, size);
}

Status SendAll(const Socket& socket, Bytes bytes, int64_t end_us) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      return Failed("a connection has ended");
    } else if (!Await(socket.fd(), POLLOUT, end_us)) {
      return Error{ErrorCode::kUnavailable, "a connection takes nothing"};
    }
  }
  return {};
}

Status ReceiveAll(const Socket& socket, MutableBytes bytes, int64_t end_us) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(socket.fd(), bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<size_t>(got));
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      return Error{ErrorCode::kUnavailable, "a connection has ended"};
    } else if (!Await(socket.fd(), POLLIN, end_us)) {
      return Error{ErrorCode::kUnavailable, "a connection brings nothing"};
    }
  }
  return {};
}

Status Introduce(const Socket& socket, const std::string& secret, const Caller& caller,
                 int64_t end_us) {
  Nonce theirs;
  Proof proof;
  RETURN_IF_ERROR(ReceiveAll(socket, BytesOf(theirs), end_us));
  Call call{.caller = caller, .nonce = DrawNonce(), .proof = {}};
  call.proof = Prove(secret, "calls", call, theirs);
  RETURN_IF_ERROR(SendAll(socket, BytesOf(call), end_us));
  RETURN_IF_ERROR(ReceiveAll(socket, BytesOf(proof), end_us));
  if (!Same(proof, Prove(secret, "answers", call, theirs))) {
    return Error{ErrorCode::kInvalid, "the other ranks have another secret than this one"};
  }
  return {};
}

Result<Caller> Meet(const Socket& socket, const std::string& secret, int64_t end_us) {
  Nonce nonce = DrawNonce();
  RETURN_IF_ERROR(SendAll(socket, BytesOf(nonce), end_us));
  Call call;
  RETURN_IF_ERROR(ReceiveAll(socket, BytesOf(call), end_us));
  if (!Same(call.proof, Prove(secret, "calls", call, nonce))) {
    // The caller tells a refusal, after which it gives up, from an end, after which it calls again.
    Proof none = {};
    (void)SendAll(socket, BytesOf(none), end_us);
    return Error{ErrorCode::kInvalid, "somebody who does not know the secret calls"};
  }
  Proof proof = Prove(secret, "answers", call, nonce);
  RETURN_IF_ERROR(SendAll(socket, BytesOf(proof), end_us));
  return call.caller;
}

}  // namespace braid

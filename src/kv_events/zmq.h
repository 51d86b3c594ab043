// The calls of libzmq 4 that events need. The library is loaded when they are asked for, so the
// program starts without it; its C interface has been stable since version 4.0. A socket belongs to
// one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace braid::kv {

struct Zmq {
  struct PollItem {
    void* socket;
    int fd;
    short events, revents;
  };
  static constexpr int kPub = 1, kSub = 2, kDealer = 5, kRouter = 6;     // kinds of sockets
  static constexpr int kDontWait = 1, kSendMore = 2;                     // flags of send and recv
  static constexpr int kSubscribe = 6, kReceiveMore = 13, kLinger = 17;  // options
  static constexpr int kMaxMessage = 22, kSendHigh = 23, kReceiveHigh = 24;  // options
  static constexpr int kLastEndpoint = 32;                                   // an option
  static constexpr short kPollIn = 1;

  void* (*ctx_new)();
  int (*ctx_term)(void* context);
  void* (*socket)(void* context, int kind);
  int (*close)(void* socket);
  int (*setsockopt)(void* socket, int option, const void* value, size_t size);
  int (*getsockopt)(void* socket, int option, void* value, size_t* size);
  int (*bind)(void* socket, const char* address);
  int (*connect)(void* socket, const char* address);
  int (*send)(void* socket, const void* data, size_t size, int flags);
  int (*recv)(void* socket, void* data, size_t size, int flags);
  int (*poll)(PollItem* items, int count, long milliseconds);
  int (*error)();
  const char* (*error_text)(int error);

  static Result<Zmq> Load();
  std::string Why() const { return error_text(error()); }
};

}  // namespace braid::kv

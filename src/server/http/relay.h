// An answer that comes from another server: a coroutine that reads there and writes to the client,
// one piece after the other. So a slow client slows the other server down, and nothing is buffered
// but one piece. Network thread only.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <optional>
#include <string_view>

#include "server/http/types.h"

namespace braid {

// The client's side of a relay.
class ClientOutput {
 public:
  virtual ~ClientOutput() = default;
  // The head of the answer. `fields`: headers, each with its CRLF, without those that frame the
  // body; `length`: of the body, nullopt if it is not known. The head leaves with the first Write.
  virtual void Begin(int status, std::string_view fields, std::optional<uint64_t> length) = 0;
  // Writes a piece of the body; an empty one only sends a head that has not left yet. False if the
  // client is gone or does not read.
  virtual boost::asio::awaitable<bool> Write(std::string_view piece) = 0;
  // The relay has freed the body of the request, whose memory is counted until then.
  virtual void BodyFreed() = 0;
  virtual bool gone() const = 0;
};

class Relay {
 public:
  virtual ~Relay() = default;
  struct End {
    std::optional<HttpResponse> response = {};  // the whole answer, if Begin was not called
    bool complete = false;                      // the body ended where it should
  };
  // Called once. When the client disconnects its operations are cancelled, and it must return soon.
  virtual boost::asio::awaitable<End> Run(ClientOutput& client) = 0;
  // Ends the answer: Run writes the reason and returns.
  virtual void Stop(EndReason reason) = 0;
};

}  // namespace braid

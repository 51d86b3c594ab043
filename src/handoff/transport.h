// Messages and pages between processes by UCX: shared memory, TCP or RDMA, as it finds. libucp is
// loaded when the first transport is made, so that nothing else needs it.
//
// All calls come from one thread, but for Wake; its owner is called on that thread, inside
// Progress. Whatever was begun ends: every send in OnSent, every receive that was given a place in
// OnReceived, with an error if the connection ends before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "base/system/name_lookup.h"

namespace braid::handoff {

struct Ucx;

using braid::HostPort;
using ConnectionId = StrongId<struct ConnectionTag, int64_t>;

// "10.0.0.1:7000", "[::1]:7000", "prefill:7000".
Result<HostPort> ParseHostPort(std::string_view text);

class Transport {
 public:
  // Largest message without data.
  static constexpr size_t kMessageBytesMax = size_t{80} << 20;
  static constexpr size_t kStrangerBytesMax = size_t{16} << 10;
  static constexpr size_t kHeaderBytesMax = 256;
  // Data on its way to one receiver that keeps a link busy. More only waits, and leaves the caches
  // between the checksum of a part and its copies.
  static constexpr int64_t kFlightBytes = int64_t{4} << 20;

  // Where data is written, and what OnReceived is told then.
  struct Place {
    std::byte* data = nullptr;  // null: nowhere, the data is dropped and OnReceived is not called
    uint64_t cookie = 0;
    // But it waits, and all data of the connection behind it: OnData is called again by Progress.
    bool later = false;
  };
  struct Owner {
    virtual ~Owner() = default;
    virtual void OnAccepted(ConnectionId connection) = 0;
    virtual void OnLost(ConnectionId connection, const std::string& why) = 0;
    virtual void OnMessage(ConnectionId connection, std::string_view message) = 0;
    virtual Place OnData(ConnectionId connection, std::string_view header, size_t bytes) = 0;
    virtual void OnReceived(uint64_t cookie, bool whole) = 0;
    virtual void OnSent(uint64_t cookie, bool whole) = 0;
  };

  // kUnavailable, with the package that is missing, where there is no libucp. UCX is tried for a
  // second before its error is returned.
  static Result<std::unique_ptr<Transport>> Create(Owner& owner);
  static Result<std::unique_ptr<Transport>> CreateWith(const Ucx& ucx, Owner& owner);
  virtual ~Transport() = default;

  // The port that it listens on.
  virtual Result<uint16_t> Listen(const HostPort& at) = 0;
  // A connection that may turn out not to stand: then it is lost. Invalid: the name is being looked
  // up; Wait returns when it has been, and then this is to be called again.
  virtual Result<ConnectionId> Connect(const HostPort& to) = 0;
  // The owner knows who is at the other end. Until then a connection is a stranger's: it brings one
  // message of kStrangerBytesMax at a time, and no data. One that sends more is lost.
  virtual void Trust(ConnectionId connection) = 0;
  virtual void Send(ConnectionId to, std::string message) = 0;
  struct Data {
    const std::byte* bytes = nullptr;  // stay until OnSent
    size_t size = 0;
    uint64_t cookie = 0;
  };
  virtual void SendData(ConnectionId to, std::string header, Data data) = 0;
  // Ends it at once, whatever the other side does: no bytes are read or written any more. The next
  // Progress reports what it cut off. OnLost is not called.
  virtual void Close(ConnectionId connection) = 0;

  virtual void Progress() = 0;
  // Returns when there may be something for Progress, after Wake, or after so long.
  virtual void Wait(int32_t most_ms) = 0;
  // From any thread.
  virtual void Wake() = 0;
};

}  // namespace braid::handoff
